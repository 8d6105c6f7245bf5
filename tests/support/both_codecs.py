"""The two codecs of a table: Python alone, and with the compiled extension. Their outcomes are compared."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, Final
from unittest import mock

from tailrace.producer.config.column_transforms import ColumnProjection
from tailrace.producer.model.codec import EventRows, SnapshotRows
from tailrace.producer.model.table import Table
from tailrace.producer.model.value_options import ValueOptions
from tailrace.producer.mysql.types.conversion import ConversionFailures
from tailrace.producer.native import loader
from tailrace.producer.serialization.table_codec import CodecOptions, TableCodec
from tailrace.runtime.errors import TailraceError
from tailrace.schemas.rowkind import Op
from tests.bench.codec_speed import EVENT, SNAPSHOT
from tests.support.codec_matrix import Form, record_format

Outcome = tuple[Any, ...]
"""What a codec returns, or class, message, hint and context of its error."""
FIRST_ROW: Final = 3
_OPS: Final = {"inserts": Op.CREATE, "updates": Op.UPDATE, "deletes": Op.DELETE}


class BothCodecs:
    """A table's codecs. ``plain``: with tombstones; else unchanged rows are skipped."""

    def __init__(
        self,
        table: Table,
        options: ValueOptions,
        form: Form,
        *,
        plain: bool = True,
        dropped: frozenset[str] = frozenset(),
    ) -> None:
        self._codecs = []
        self.format = record_format(table, options, form, dropped)
        projection = ColumnProjection(dropped=dropped) if dropped else None
        for switch in ("0", "1"):
            failures = ConversionFailures()
            given = CodecOptions(options, projection, tombstones=plain, skip_unchanged=not plain, failures=failures)
            with mock.patch.dict(os.environ, {loader.SWITCH: switch}):
                self._codecs.append((TableCodec(table, "topic", given, self.format), failures))
        self.options = given
        """Of the codec with the extension."""
        self.native = self._codecs[1][0]
        self.keys_read = 0
        """Events whose keys were compared."""

    def snapshot(self, data: bytes, start: int, stop: int) -> Outcome:
        """Encode the packets in ``data[start:stop]`` with both; return the outcome, which is the same."""
        return self._same(lambda codec: codec.snapshot(data, start, stop, SNAPSHOT))

    def event(self, op: str, data: bytes, start: int, stop: int, *, keys: bool = False) -> Outcome:
        """Encode an event in ``data[start:stop]`` with both; return the outcome, which is the same."""
        envelope = EVENT._replace(first_row=FIRST_ROW)
        outcome = self._same(lambda codec: getattr(codec, op)(data, start, stop, envelope, keys=keys))
        if keys:
            self._check_key_reader(_OPS[op], data, start, stop, outcome)
        return outcome

    def _check_key_reader(self, op: Op, data: bytes, start: int, stop: int, outcome: Outcome) -> None:
        """Compare the keys that are read alone with those of the rows; a row may have errors in other values."""
        python, native = (codec.key_readers[op](data, start, stop) for codec, _ in self._codecs)
        assert repr(native) == repr(python), _difference(repr(native), repr(python))
        if not isinstance(outcome[0], type):
            assert repr(native) == outcome[2], _difference(repr(native), outcome[2])
            self.keys_read += 1

    def _same(self, read: Callable[[TableCodec], SnapshotRows | EventRows]) -> Outcome:
        python, native = (_outcome(read, codec, failures) for codec, failures in self._codecs)
        assert native == python, _difference(repr(native), repr(python))
        return python


def _difference(native: str, python: str) -> str:
    """Return both texts around their first difference."""
    at = next((i for i, (one, other) in enumerate(zip(native, python, strict=False)) if one != other), len(native))
    near = slice(max(at - 100, 0), at + 100)
    return f"compiled: …{native[near]}… python: …{python[near]}…"


def _outcome(
    read: Callable[[TableCodec], SnapshotRows | EventRows], codec: TableCodec, failures: ConversionFailures
) -> Outcome:
    """Return the records and the values that were replaced, or the error."""
    try:
        rows = read(codec)
    except TailraceError as error:
        failures.take()
        return type(error), error.message, error.hint, error.context
    if isinstance(rows, SnapshotRows):
        return (*rows, failures.take())
    # By repr: keys of different types can be equal.
    return rows.records, list(rows.row_index), repr(list(rows.keys)), rows.row_count, failures.take()
