"""The codec against a slow reference implementation: both give the same bytes for any values in both protocols."""

from __future__ import annotations

import base64
import json
import struct
from datetime import date, datetime, timedelta
from typing import Any, Final, NamedTuple

from hypothesis import given
from hypothesis import strategies as st

from tailrace.producer.model.codec import EventEnvelope, SnapshotEnvelope
from tailrace.producer.model.table import Column, Table, TableId
from tailrace.producer.serialization.table_codec import TableCodec
from tailrace.runtime.errors import SchemaError
from tests.support.values import DEFAULT_CODEC

_SNAPSHOT: Final = SnapshotEnvelope(b"|")
_EVENT: Final = EventEnvelope(b"|", b"|", b"|")
_EPOCH: Final = datetime(1970, 1, 1)


class Cell(NamedTuple):
    """One value in all representations; ``text`` and ``image`` have no length prefix."""

    column: Column
    text: bytes | None
    image: bytes
    json: str


def _jackson(text: str) -> str:
    """Print a string one UTF-16 unit at a time."""
    short = {"\b": "\\b", "\t": "\\t", "\n": "\\n", "\f": "\\f", "\r": "\\r", '"': '\\"', "\\": "\\\\"}
    out = []
    for char in text:
        if char in short:
            out.append(short[char])
        elif ord(char) < 0x20:
            out.append(f"\\u{ord(char):04X}")
        elif ord(char) > 0xFFFF:
            units = char.encode("utf-16-be")
            out.append(f"\\u{units[:2].hex().upper()}\\u{units[2:].hex().upper()}")
        else:
            out.append(char)
    return '"' + "".join(out) + '"'


def _name(index: int) -> str:
    return f"c{index}"


_CODES: Final = {"tinyint": 1, "smallint": 2, "mediumint": 3, "int": 4, "bigint": 8}


@st.composite
def _integers(draw: st.DrawFn) -> Cell:
    kind, unsigned = draw(st.sampled_from(sorted(_CODES))), draw(st.booleans())
    size = _CODES[kind]
    low, high = (0, 256**size - 1) if unsigned else (-(256**size // 2), 256**size // 2 - 1)
    value = draw(st.integers(low, high))
    printed = value - 2**64 if value >= 2**63 else value
    image = value.to_bytes(size, "little", signed=not unsigned)
    return Cell(Column("", kind, unsigned=unsigned), str(value).encode(), image, str(printed))


@st.composite
def _texts(draw: st.DrawFn) -> Cell:
    value = draw(st.text(st.characters(exclude_categories=["Cs"]), max_size=60) | st.text('ab"\\\n\x01é😀', max_size=9))
    kind, length = draw(st.sampled_from([("varchar", 400), ("char", 255), ("text", 65535), ("text", 0xFFFFFF)]))
    raw = value.encode()
    prefix = {255: 1, 400: 2, 65535: 2, 0xFFFFFF: 3}[length]
    column = Column("", kind, length=length, charset="utf8mb4")
    return Cell(column, raw, len(raw).to_bytes(prefix, "little") + raw, _jackson(value))


@st.composite
def _latin1(draw: st.DrawFn) -> Cell:
    raw = draw(st.binary(max_size=30))
    value = "".join(bytes([b]).decode("cp1252", "ignore") or chr(b) for b in raw)
    column = Column("", "varchar", length=30, charset="latin1")
    return Cell(column, value.encode(), bytes([len(raw)]) + raw, _jackson(value))


@st.composite
def _binaries(draw: st.DrawFn) -> Cell:
    raw = draw(st.binary(max_size=20))
    if draw(st.booleans()):
        whole = raw.ljust(20, b"\0")
        stored = whole.rstrip(b"\0")
        column = Column("", "binary", length=20, charset="binary")
        return Cell(column, whole, bytes([len(stored)]) + stored, f'"{base64.b64encode(whole).decode()}"')
    column = Column("", "blob", length=0xFFFFFFFF, charset="binary")
    return Cell(column, raw, struct.pack("<I", len(raw)) + raw, f'"{base64.b64encode(raw).decode()}"')


def _packed(unscaled: int, precision: int, scale: int) -> bytes:
    """Pack a decimal as MySQL does: groups of nine digits, starting at the decimal point."""
    digits = str(abs(unscaled)).rjust(precision, "0")
    whole, part = digits[: precision - scale], digits[precision - scale :]
    groups: list[str] = []
    while len(whole) > 9:
        groups.insert(0, whole[-9:])
        whole = whole[:-9]
    groups.insert(0, whole)
    groups += [part[i : i + 9] for i in range(0, len(part), 9)]
    out = bytearray()
    for group in groups:
        size = (0, 1, 1, 2, 2, 3, 3, 4, 4, 4)[len(group)]
        out += int(group or 0).to_bytes(size, "big")
    if unscaled < 0:
        out = bytearray(255 - b for b in out)
    out[0] ^= 0x80
    return bytes(out)


@st.composite
def _decimals(draw: st.DrawFn) -> Cell:
    precision = draw(st.integers(1, 65))
    scale = draw(st.integers(0, min(30, precision)))
    unscaled = draw(st.integers(-(10**precision) + 1, 10**precision - 1))
    sign, digits = ("-" if unscaled < 0 else ""), str(abs(unscaled)).rjust(scale + 1, "0")
    text = sign + (f"{digits[:-scale]}.{digits[-scale:]}" if scale else digits)
    size = 1
    while not -(1 << 8 * size - 1) <= unscaled < 1 << 8 * size - 1:
        size += 1
    printed = base64.b64encode(unscaled.to_bytes(size, "big", signed=True)).decode()
    column = Column("", "decimal", precision=precision, scale=scale)
    return Cell(column, text.encode(), _packed(unscaled, precision, scale), f'"{printed}"')


def _fraction(micros: int, fsp: int) -> tuple[str, bytes]:
    """Return a fraction as text and as its binary encoding."""
    size = (fsp + 1) // 2
    stored = micros // 10 ** (6 - 2 * size)
    return (f".{micros:06d}"[: fsp + 1] if fsp else ""), stored.to_bytes(size, "big")


@st.composite
def _datetimes(draw: st.DrawFn) -> Cell:
    fsp = draw(st.integers(0, 6))
    moment = draw(st.datetimes(datetime(1000, 1, 1), datetime(9999, 12, 31)))
    micros = moment.microsecond // 10 ** (6 - fsp) * 10 ** (6 - fsp)
    moment = moment.replace(microsecond=micros)
    text, stored = _fraction(micros, fsp)
    ymd = (moment.year * 13 + moment.month) << 5 | moment.day
    hms = moment.hour << 12 | moment.minute << 6 | moment.second
    image = ((ymd << 17 | hms) + (1 << 39)).to_bytes(5, "big") + stored
    since = (moment - _EPOCH) // timedelta(microseconds=1)
    printed = since // 1000 if fsp <= 3 else since
    return Cell(Column("", "datetime", fsp=fsp), (f"{moment:%Y-%m-%d %H:%M:%S}" + text).encode(), image, str(printed))


@st.composite
def _timestamps(draw: st.DrawFn) -> Cell:
    fsp = draw(st.integers(0, 6))
    seconds, micros = draw(st.integers(1, 2**31 - 1)), draw(st.integers(0, 999_999))
    micros = micros // 10 ** (6 - fsp) * 10 ** (6 - fsp)
    text, stored = _fraction(micros, fsp)
    moment = _EPOCH + timedelta(seconds=seconds)
    return Cell(
        Column("", "timestamp", fsp=fsp),
        (f"{moment:%Y-%m-%d %H:%M:%S}" + text).encode(),
        seconds.to_bytes(4, "big") + stored,
        f'"{moment:%Y-%m-%dT%H:%M:%S}{text}Z"',
    )


@st.composite
def _times(draw: st.DrawFn) -> Cell:
    fsp = draw(st.integers(0, 6))
    value = draw(st.integers(-3_020_399_000_000, 3_020_399_000_000))
    unit = 10 ** (6 - fsp)
    size = abs(value) // unit * unit
    value = -size if value < 0 else size
    seconds, micros = divmod(size, 1_000_000)
    hours, minutes = divmod(seconds // 60, 60)
    text, stored = _fraction(micros, fsp)
    packed = (hours << 12 | minutes << 6 | seconds % 60) << 8 * len(stored) | int.from_bytes(stored, "big")
    image = ((-packed if value < 0 else packed) + (0x800000 << 8 * len(stored))).to_bytes(3 + len(stored), "big")
    sign = "-" if value < 0 else ""
    printed = f"{sign}{hours:02d}:{minutes:02d}:{seconds % 60:02d}{text}"
    return Cell(Column("", "time", fsp=fsp), printed.encode(), image, str(value))


@st.composite
def _dates(draw: st.DrawFn) -> Cell:
    day = draw(st.dates(date(1000, 1, 1)))
    image = (day.year << 9 | day.month << 5 | day.day).to_bytes(3, "little")
    return Cell(Column("", "date"), day.isoformat().encode(), image, str((day - date(1970, 1, 1)).days))


@st.composite
def _doubles(draw: st.DrawFn) -> Cell:
    value = draw(st.floats(allow_nan=False, allow_infinity=False, min_value=1e-3, max_value=1e6))
    return Cell(Column("", "double"), repr(value).encode(), struct.pack("<d", value), repr(value))


_CELLS: Final = (
    _integers() | _texts() | _latin1() | _binaries() | _decimals() | _datetimes() | _timestamps() | _times() | _dates()
) | _doubles()


@st.composite
def _rows(draw: st.DrawFn) -> tuple[Table, list[list[Cell]]]:
    """Draw a table and rows: one row, and copies of it with other NULLs."""
    first = draw(st.lists(_CELLS, min_size=1, max_size=20))
    cells = [c._replace(column=_named(c.column, i)) for i, c in enumerate(first)]
    key = _integer_cell()
    patterns = draw(st.lists(st.lists(st.booleans(), min_size=len(cells), max_size=len(cells)), max_size=12))
    rows = [[key, *cells]] + [
        [key, *(Cell(c.column, None, b"", "null") if null else c for c, null in zip(cells, nulls, strict=True))]
        for nulls in patterns
    ]
    return Table(TableId("d", "t"), tuple(c.column for c in rows[0]), ("id",)), rows


def _integer_cell() -> Cell:
    return Cell(Column("id", "int", nullable=False), b"7", struct.pack("<i", 7), "7")


def _named(column: Column, index: int) -> Column:
    values: dict[str, Any] = {f: getattr(column, f) for f in column.__slots__}
    return Column(**{**values, "name": _name(index)})


def _length(size: int) -> bytes:
    if size < 251:
        return bytes([size])
    return b"\xfc" + size.to_bytes(2, "little") if size < 65536 else b"\xfd" + size.to_bytes(3, "little")


def _packet(row: list[Cell]) -> bytes:
    body = b"".join(b"\xfb" if c.text is None else _length(len(c.text)) + c.text for c in row)
    return len(body).to_bytes(3, "little") + b"\x05" + body


def _image(row: list[Cell]) -> bytes:
    nulls = sum(1 << i for i, c in enumerate(row) if c.text is None)
    return nulls.to_bytes((len(row) + 7) // 8, "little") + b"".join(c.image for c in row)


def _printed(row: list[Cell]) -> bytes:
    return ("{" + ",".join(f"{json.dumps(c.column.name)}:{c.json}" for c in row) + "}").encode()


@given(_rows())
def test_both_protocols_equal_the_reference(drawn: tuple[Table, list[list[Cell]]]) -> None:
    """For any types and NULLs: as rows of a result set, and as inserts, updates and deletes."""
    table, rows = drawn
    codec = TableCodec(table, "topic", DEFAULT_CODEC)
    expected = [_printed(row) for row in rows]
    packets, images = b"".join(map(_packet, rows)), b"".join(map(_image, rows))
    noise = b"\xff" * 9

    selected = codec.snapshot(noise + packets + b"\x05", len(noise), len(noise) + len(packets) + 1, _SNAPSHOT)
    inserted = codec.inserts(noise + images + noise, 9, 9 + len(images), _EVENT)
    pairs = b"".join(_image(row) + _image(rows[0]) for row in rows)
    updated = codec.updates(pairs, 0, len(pairs), _EVENT)
    deleted = codec.deletes(images, 0, len(images), _EVENT)

    assert [v for _, v in selected.records] == [b'{"before":null,"after":' + row + b"|" for row in expected]
    assert (selected.consumed, selected.finished) == (len(noise) + len(packets), False)
    assert [r[1] for r in inserted.records if isinstance(r, tuple)] == [
        b'{"before":null,"after":%b|%d|c|' % (row, i) for i, row in enumerate(expected)
    ]
    assert [r[1] for r in updated.records if isinstance(r, tuple)] == [
        b'{"before":%b,"after":%b|%d|u|' % (row, expected[0], i) for i, row in enumerate(expected)
    ]
    assert [r[1] for r in deleted.records if isinstance(r, tuple)][::2] == [
        b'{"before":%b,"after":null|%d|d|' % (row, i) for i, row in enumerate(expected)
    ]
    assert {key for key, _ in selected.records} == {b'{"id":7}'}


@given(_rows(), st.data())
def test_damaged_event_is_not_read_beyond_its_end(drawn: tuple[Table, list[list[Cell]]], data: st.DataObject) -> None:
    """A truncated or extended image raises a SchemaError, independent of the bytes that follow."""
    table, rows = drawn
    codec = TableCodec(table, "topic", DEFAULT_CODEC)
    event = _image(rows[0])
    end = data.draw(st.integers(1, len(event) - 1) | st.just(len(event) + 1))
    try:
        codec.inserts(event + bytes(40), 0, end, _EVENT)
    except SchemaError:
        return
    raise AssertionError(f"an event of {len(event)} bytes was read as one of {end}")
