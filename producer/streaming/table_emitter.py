"""What the compiled extension needs to emit the changes of one table version."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tailrace.producer.kafka.transactional_producer import Headers
from tailrace.producer.serialization.captured_tables import CapturedTable
from tailrace.schemas.names import EVENT_HEADER
from tailrace.schemas.rowkind import Op

if TYPE_CHECKING:
    from collections.abc import Set as AbstractSet

    from tailrace.producer.native.codec import ImageEncoder, TableEmitter, Template

OPS: Final = (Op.CREATE, Op.UPDATE, Op.DELETE)
"""The operations of rows events, in the order that the extension knows them by."""
_MAX_HEADERS: Final = 27


def new_table_emitter(
    captured: CapturedTable, headers: Headers, epoch: int, *, skipped: AbstractSet[str]
) -> TableEmitter | None:
    """Return what the extension emits the changes of a version with; None if it cannot encode the table.

    ``headers`` are those that all its records share. ``skipped`` are operations that are not written. The encoders are
    made for the first event of their operation.
    """
    loops = captured.codec.native
    if loops is None or len(headers) > _MAX_HEADERS:
        return None
    from tailrace.producer.native import codec  # noqa: PLC0415 - the module is optional

    constants = captured.source.constants

    def prepare(op: int) -> tuple[ImageEncoder, Template, Template] | None:
        encoder = None if OPS[op] in skipped else loops.images(OPS[op])
        return None if encoder is None else (encoder, *loops.template(constants, OPS[op]))

    return codec.TableEmitter(captured.topic, headers, EVENT_HEADER, epoch, prepare)
