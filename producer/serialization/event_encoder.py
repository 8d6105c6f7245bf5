"""Generates the encoders of rows events: one loop each for inserts, updates and deletes of a table version.

The loops share one body. The constants of the envelope and the width of the NULL bitmap are part of the source.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NoReturn

from tailrace.producer.model.codec import EventRows, RowsEncoder
from tailrace.producer.serialization.codegen import BytesExpression, CodeBuilder, fstring_literal, indent
from tailrace.producer.serialization.envelope_frame import EnvelopeFrame
from tailrace.producer.serialization.key_changes import KeyChangeFactory
from tailrace.producer.serialization.row_image_decoder import RowImageDecoder
from tailrace.runtime.errors import SchemaError, TailraceError
from tailrace.schemas.rowkind import Op

DECODE_ERRORS: Final = (
    AssertionError,
    IndexError,
    KeyError,
    ValueError,
    TypeError,
    OverflowError,
    RecursionError,
    struct.error,
)
"""Raised by generated code if the bytes do not match the columns."""
_LATIN1: Final = ".encode('latin-1')"


@dataclass(frozen=True, slots=True)
class EventDecoders:
    """The row image decoders of one table version."""

    rows: RowImageDecoder
    rows_and_keys: RowImageDecoder
    """Decodes raw keys as well."""
    plain: RowImageDecoder | None
    """Decodes to JSON without schema; None if ``rows`` does so."""


class EventEncoderFactory:
    """Compiles the encoders of one table version; ``changes`` makes the records of changed keys."""

    def __init__(
        self, frame: EnvelopeFrame, decoders: EventDecoders, changes: KeyChangeFactory, *, at_first_call: bool = False
    ) -> None:
        self._frame = frame
        self._decoders = decoders
        self._changes = changes
        self._at_first_call = at_first_call

    def inserts(self) -> RowsEncoder:
        """Return the encoder of WRITE_ROWS events."""
        builder = CodeBuilder()
        value = BytesExpression(builder).constant(self._frame.before_insert).value(f"after{_LATIN1}").value("head")
        body = [
            *self._decode("after, key, p, raw"),
            f"add((key{_LATIN1}, {self._finish(value, builder)}))",
            "if keys: raw_keys.append((None, raw))",
        ]
        return self._compile("inserts", Op.CREATE, builder, body, "range(len(raw_keys))")

    def deletes(self, *, tombstones: bool) -> RowsEncoder:
        """Return the encoder of DELETE_ROWS events."""
        builder, frame = CodeBuilder(), self._frame
        value = BytesExpression(builder).constant(frame.before_update).value(f"before{_LATIN1}")
        value.constant(frame.after_delete).value("head")
        body = [
            *self._decode("before, key, p, raw"),
            f"key = key{_LATIN1}",
            f"add((key, {self._finish(value, builder)}))",
            *(["add((key, None))"] if tombstones else []),
            "if keys: raw_keys.append((raw, None))",
        ]
        row_index = "[i for i in range(len(raw_keys)) for _ in (0, 1)]" if tombstones else "range(len(raw_keys))"
        return self._compile("deletes", Op.DELETE, builder, body, row_index)

    def updates(self, *, skip_unchanged: bool) -> RowsEncoder:
        """Return the encoder of UPDATE_ROWS events; ``skip_unchanged`` omits pairs whose published rows are equal."""
        builder, frame = CodeBuilder(), self._frame
        value = BytesExpression(builder)
        # One encoding of both rows costs less than two; a long prefix must not become text for each row.
        prefix = b"" if len(frame.before_update) > _LONGEST_TEXT_PREFIX else frame.before_update
        value.constant(frame.before_update[len(prefix) :])
        first, middle = (fstring_literal(part.decode("latin-1")) for part in (prefix, frame.between_rows))
        value.value(f"f'{first}{{before}}{middle}{{after}}'{_LATIN1}").value("head")
        plain = self._decoders.plain
        key_change = builder.bind("key_change", self._changes.of_text)
        images = "(event, text, first, second)" if plain else "None"
        body = [
            *(["first = p"] if plain else []),
            *self._decode("before, old_key, p, old_raw"),
            *(["second = p"] if plain else []),
            *self._decode("after, new_key, p, new_raw"),
            "if keys: raw_keys.append((old_raw, new_raw))",
        ]
        if skip_unchanged:
            # A NULL that is written as the column's default differs from the default, so the plain rows are compared.
            equal = f"{builder.bind('equal_rows', self._equal_rows)}{images}" if plain else "before == after"
            body += [f"if {equal}:", "    row += 1", "    continue", "if keys: changed.append(row - envelope[3])"]
        body += [
            "if old_key == new_key:",
            f"    add((new_key{_LATIN1}, {self._finish(value, builder)}))",
            "else:",
            f"    add({key_change}((before, after), (old_key, new_key), envelope, row, {images}))",
        ]
        row_index = "changed" if skip_unchanged else "range(len(raw_keys))"
        return self._compile("updates", Op.UPDATE, builder, body, row_index)

    def _decode(self, targets: str) -> list[str]:
        width = self._decoders.rows.bitmap_width
        return [
            f"bitmap = event[p:p + {width}]",
            f"{targets} = (known(bitmap) or find(bitmap))(event, text, p + {width})",
        ]

    def _finish(self, value: BytesExpression, builder: CodeBuilder) -> BytesExpression:
        return self._frame.append_row_number(value, builder).value("tail")

    def _compile(self, name: str, op: Op, builder: CodeBuilder, body: Sequence[str], row_index: str) -> RowsEncoder:
        rows = builder.bind("rows", self._decoders.rows)
        rows_and_keys = builder.bind("rows_and_keys", self._decoders.rows_and_keys)
        new, event_rows = builder.bind("new", tuple.__new__), builder.bind("EventRows", EventRows)
        errors = builder.bind("errors", (*DECODE_ERRORS, TailraceError))
        fail, mismatch = (
            builder.bind("raise_image_error", raise_image_error),
            builder.bind("row_mismatch", row_mismatch),
        )
        lines = [
            "records, raw_keys = [], []",
            *(["changed = []"] if row_index == "changed" else []),
            "add = records.append",
            f"decoder = {rows_and_keys} if keys else {rows}",
            "known, find = decoder.by_bitmap.get, decoder.find",
            *self._frame.event_lines(builder, op),
            # Bytes beyond the images must not be readable.
            "event = data if not start and end == len(data) else data[start:end]",
            "text = str(event, 'latin-1')",
            "p, size = 0, len(event)",
            "try:",
            "    while p < size:",
            *indent(body, 2),
            "        row += 1",
            f"except {errors} as error: {fail}(error, decoder, event, text, p)",
            f"if p != size: raise {mismatch}(p, size)",
            f"return {new}({event_rows}, (records, {row_index}, raw_keys, row - envelope[3]))",
        ]
        parameters = "data, start, end, envelope, *, keys=False"
        return builder.compile(name, parameters, lines, at_first_call=self._at_first_call)

    def _equal_rows(self, event: bytes, text: str, first: int, second: int) -> bool:
        plain = self._decoders.plain
        assert plain is not None
        return plain.decode(event, text, first)[0] == plain.decode(event, text, second)[0]


_LONGEST_TEXT_PREFIX: Final = 64


def decode_error(error: Exception) -> SchemaError:
    """Return the error for bytes that the generated code cannot decode."""
    return SchemaError(
        "a row does not match the table's columns",
        hint="restart the producer to read the table's definition again; binlog_row_image must be FULL",
        cause=f"{type(error).__name__}: {error}",
    )


def raise_image_error(error: Exception, decoder: RowImageDecoder, event: bytes, text: str, p: int) -> NoReturn:
    """Raise the error for the image at ``p``, whichever functions decoded it; ``error`` if that image has none."""
    try:
        decoder.check(event, text, p)
    except DECODE_ERRORS as first:
        raise decode_error(first) from first
    if isinstance(error, TailraceError):
        raise error
    raise decode_error(error) from error


def row_mismatch(read: int, size: int) -> SchemaError:
    """Return the error for row images that end before or after the event."""
    return SchemaError(
        "a row image does not match the table's columns",
        hint="restart the producer to read the table's definition again; binlog_row_image must be FULL",
        bytes_read=read,
        bytes_present=size,
    )
