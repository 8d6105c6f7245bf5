"""Generates the decoder of the text protocol: one function that loops over row packets.

A value follows its length: one byte up to 250; 0xFB is NULL; 0xFC, 0xFD and 0xFE precede longer lengths. At the start
of a packet 0xFE and 0xFF are the end of the rows and an error. A row without any byte from 0xFB on therefore needs no
test per value. The next such byte is searched for once per buffer, at the speed of memchr, not once per row.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, NoReturn
from zlib import crc32

from tailrace.producer.errors import SourceError, SourceUnavailableError
from tailrace.producer.mysql.types.base import ColumnType, RawBytes
from tailrace.producer.serialization.codegen import CodeBuilder, indent
from tailrace.producer.serialization.row_writer import WriterFactory
from tailrace.runtime.errors import SchemaError

WHOLE_PACKET: Final = 0xFFFFFF
"""A packet of this length continues in the next one."""

_RETRIABLE_ERRORS: Final = frozenset({1053, 1077, 1159, 1161, 1205, 1213, 1317, 3024, 3032, 3169, 4031})
"""Shutdown, kill, timeouts, deadlock: a retry may succeed."""

RowDecoder = Callable[[bytes, str, int], tuple[str, str, int]]
PacketDecoder = Callable[[Any, str, int, int, bytes], tuple[list[tuple[bytes, bytes]], int, int, bool]]


def long_value(data: bytes, p: int) -> tuple[int, int]:
    """Return the bounds of a value whose length has more than one byte."""
    width = {0xFC: 2, 0xFD: 3, 0xFE: 8}.get(data[p])
    if width is None:
        raise SchemaError(
            "a column declared NOT NULL is NULL",
            hint="restart the producer to read the table's definition again",
            offset=p,
        )
    start = p + 1 + width
    return start, start + int.from_bytes(data[p + 1 : start], "little")


def server_error(packet: bytes) -> NoReturn:
    """Raise the error of an ERR packet: code, SQL state after '#', text."""
    text = packet[3:].decode("utf-8", "replace")
    code = int.from_bytes(packet[1:3], "little")
    state, text = (text[1:6], text[6:]) if text.startswith("#") else ("", text)
    kind = SourceUnavailableError if code in _RETRIABLE_ERRORS else SourceError
    raise kind(f"the server ended a query: {text}", code=code, sqlstate=state)


def big_row(data: bytes, p: int, end: int) -> tuple[bytes | None, int]:
    """Return the payload of a row in several packets, whose first header is at ``p``, and the offset after it.

    The payload is None if the buffer does not contain the whole row.
    """
    parts = []
    while True:
        if end - p < 4:
            return None, p
        size = int.from_bytes(data[p : p + 3], "little")
        if p + 4 + size > end:
            return None, p
        parts.append(bytes(data[p + 4 : p + 4 + size]))
        p += 4 + size
        if size < WHOLE_PACKET:
            return b"".join(parts), p


def compile_packet_decoder(
    types: Sequence[ColumnType],
    new_writer: WriterFactory,
    before_row: bytes,
    any_row: RowDecoder,
    *,
    at_first_call: bool = False,
) -> PacketDecoder:
    """Return ``packets(B, S, p, end, suffix) -> (records, checksum, consumed, finished)``.

    ``S`` is ``B`` decoded as latin-1; ``before_row`` and ``suffix`` surround the row in each value. ``any_row`` decodes
    the rows that need a test per value.
    """

    def special(data: bytes, p: int, e: int, end: int) -> tuple[str | None, str, int]:
        """Read any other packet: (None, "", e) at the end of the rows, offset -1 if the packet is incomplete."""
        if e - p < WHOLE_PACKET:
            if data[p] == 0xFF:
                server_error(data[p:e])
            return None, "", e
        payload, after = big_row(data, p - 4, end)
        if payload is None:
            return None, "", -1
        row, row_key, read = any_row(payload, str(payload, "latin-1"), 0)
        _require_end(read, len(payload))
        return row, row_key, after

    builder = CodeBuilder()
    writer = new_writer(builder)
    decode: list[str] = []
    before = "p"
    for i in range(len(types)):
        decode += [f"i{i} = {before} + 1", f"p{i} = i{i} + B[{before}]"]
        before = f"p{i}"
    for i, column in enumerate(types):
        decode += writer.value(i, column.from_result_set(RawBytes(builder.bind, f"i{i}", f"p{i}")))
    special_name, any_name = builder.bind("special", special), builder.bind("any_row", any_row)
    check = builder.bind("require_end", _require_end)
    crc = builder.bind("crc32", crc32)
    prefix = builder.bind("prefix", before_row)
    lines = [
        "records = []",
        "add = records.append",
        "find = S.find",
        "checksum = 0",
        "mark = mark_b = mark_c = mark_d = mark_e = mark_f = -1",
        "while end - p >= 4:",
        "    e = p + 4 + (B[p] | B[p + 1] << 8 | B[p + 2] << 16)",
        "    if e > end: break",
        "    p += 4",
        "    if mark < p:",
        *(
            f"        if mark_{m} < p: mark_{m} = find('\\xf{m}', p, end); mark_{m} = end if mark_{m} < 0 else mark_{m}"
            for m in "bcdef"
        ),
        "        mark = min(mark_b, mark_c, mark_d, mark_e, mark_f)",
        "    if mark < e:",
        f"        if B[p] < 254 and e - p < {WHOLE_PACKET}:",
        f"            row, key, q = {any_name}(B, S, p)",
        f"            if q != e: {check}(q, e)",
        "        else:",
        f"            row, key, e = {special_name}(B, p, e, end)",
        "            if row is None: return records, checksum, p - 4 if e < 0 else e, e >= 0",
        "        row = row.encode('latin-1')",
        "        checksum += " + f"{crc}(row)",
        f"        add((key.encode('latin-1'), b''.join(({prefix}, row, suffix))))",
        "    else:",
        *indent(
            [
                *decode,
                f"if {before} != e: {check}({before}, e)",
                *writer.escapes(),
                f"row = {writer.row()}.encode('latin-1')",
                f"checksum += {crc}(row)",
                f"add(({writer.key()}.encode('latin-1'), b''.join(({prefix}, row, suffix))))",
            ],
            2,
        ),
        "    p = e",
        "return records, checksum, p, False",
    ]
    return builder.compile("packets", "B, S, p, end, suffix", lines, at_first_call=at_first_call)


def compile_row_decoder(
    types: Sequence[ColumnType], new_writer: WriterFactory, *, at_first_call: bool = False
) -> RowDecoder:
    """Return ``any_row(B, S, p) -> (row, key, end)``, which tests every value for NULL and for a long length."""
    builder = CodeBuilder()
    writer = new_writer(builder)
    long = builder.bind("long_value", long_value)
    lines: list[str] = []
    for i, column in enumerate(types):
        bounds = [f"if n < 251: i{i} = p + 1; p{i} = i{i} + n", f"else: i{i}, p{i} = {long}(B, p)"]
        value = column.from_result_set(RawBytes(builder.bind, f"i{i}", f"p{i}"))
        lines.append("n = B[p]")
        if column.column.nullable:
            present, absent = writer.value_or_null(i, value)
            lines.append("if n == 251:")
            lines += indent([*absent, "p += 1"])
            lines.append("else:")
            lines += indent([*bounds, f"p = p{i}", *present])
        else:
            lines += [*bounds, f"p = p{i}", *writer.value(i, value)]
    lines += [*writer.escapes(), f"return {writer.row()}, {writer.key()}, p"]
    return builder.compile("any_row", "B, S, p", lines, at_first_call=at_first_call)


def _require_end(read: int, end: int) -> None:
    if read != end:
        raise SchemaError(
            "a row of the result set does not match the table's columns",
            hint="restart the producer to read the table's definition again",
            bytes_too_many=end - read,
        )
