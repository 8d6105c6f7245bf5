"""Rows events by the compiled extension and by generated Python: equal records or the same error, for any bytes."""

from __future__ import annotations

import os
import random
import struct
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, Final
from unittest import mock

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tailrace.producer.model.codec import EventEnvelope, EventRows
from tailrace.producer.model.table import Column, Table, TableId
from tailrace.producer.model.value_options import ValueOptions
from tailrace.producer.mysql.types.base import FixedWidth
from tailrace.producer.mysql.types.conversion import ConversionFailures
from tailrace.producer.mysql.types.registry import column_type
from tailrace.producer.native import loader
from tailrace.producer.serialization.table_codec import CodecOptions, TableCodec
from tailrace.runtime.errors import TailraceError
from tests.bench.codec_speed import EVENT
from tests.support.values import value_options
from tests.unit.test_codec_property import _image, _rows
from tests.unit.test_native_codec import COLUMNS, FORMS, MODES, Form, record_format

pytestmark = pytest.mark.skipif(
    not loader.is_used(), reason=f"the compiled extension is not used: {loader.unused_because()}"
)

NOISE: Final = b"\xff" * 5
FRACTION_BYTES: Final = (0, 1, 1, 2, 2, 3, 3)
OPS: Final = ("inserts", "updates", "deletes")


def outcome(read: Callable[[], EventRows], failures: ConversionFailures) -> tuple[Any, ...]:
    """Return the records of an event, or the error, and the values that were replaced."""
    try:
        rows = read()
    except TailraceError as error:
        failures.take()
        return type(error), error.message, error.hint, error.context
    # By repr: keys of different types can be equal.
    return rows.records, list(rows.row_index), repr(list(rows.keys)), rows.row_count, failures.take()


class Both:
    """A table's codecs: generated Python alone, and with the extension."""

    def __init__(self, table: Table, options: ValueOptions, form: Form, *, plain: bool = True) -> None:
        self._codecs = []
        for switch in ("0", "1"):
            failures = ConversionFailures()
            given_options = CodecOptions(options, failures=failures, tombstones=plain, skip_unchanged=not plain)
            with mock.patch.dict(os.environ, {loader.SWITCH: switch}):
                codec = TableCodec(table, "topic", given_options, record_format(table, options, form))
            self._codecs.append((codec, failures))

    def check(self, op: str, images: bytes, *, keys: bool = False) -> tuple[Any, ...]:
        """Encode an event with both; return the outcome, which is the same."""
        data, end = NOISE + images + NOISE, len(NOISE) + len(images)
        envelope: EventEnvelope = EVENT._replace(first_row=3)
        found = []
        for codec, failures in self._codecs:
            encode = getattr(codec, op)
            found.append(outcome(lambda: encode(data, len(NOISE), end, envelope, keys=keys), failures))  # noqa: B023
        assert found[1] == found[0]
        return found[0]


def _values(column: Column, pick: random.Random) -> Iterator[bytes]:
    """Yield images of a value: random bytes, extremes, and plausible dates and times."""
    layout = column_type(column, value_options()).layout
    if not isinstance(layout, FixedWidth):
        for text in (b"", b"abc", b'a"\\\n\x01', "é😀".encode(), pick.randbytes(20), b"x" * 200, bytes(3)):
            yield len(text).to_bytes(layout.width, "little") + text
        yield b"\xff" * layout.width + b"short"
        return
    width = struct.calcsize("<" + "".join(layout.codes))
    yield from (bytes(width), b"\xff" * width, b"\1" + bytes(width - 1), b"\x80" + bytes(width - 1), b"\x7f" * width)
    fraction = FRACTION_BYTES[column.fsp]
    for _ in range(8):
        yield pick.randbytes(width)
        year, month, day = pick.choice((0, 24, 99, 1970, 2024, 9999)), pick.randrange(14), pick.randrange(33)
        clock = pick.randrange(26) << 12 | pick.randrange(62) << 6 | pick.randrange(62)
        part = pick.choice((0, 10, 50, 99, pick.randrange(1 << 24))).to_bytes(3, "big")[3 - fraction :]
        if column.data_type == "date":
            yield (year << 9 | month << 5 | day).to_bytes(3, "little")
        elif column.data_type == "datetime":
            yield (((year * 13 + month) << 5 | day) << 17 | clock | 1 << 39).to_bytes(5, "big") + part
        elif column.data_type == "time":
            yield (0x800000 + pick.choice((1, -1)) * clock).to_bytes(3, "big") + part
        elif column.data_type == "timestamp":
            yield pick.choice((0, 1, 951_782_400, 1_709_164_800, pick.randrange(1 << 32))).to_bytes(4, "big") + part
        elif column.data_type == "decimal":
            yield bytes([pick.choice((127, 128)), *pick.choices((0, 1, 5, 254, 255), k=width - 1)])


def _table(column: Column, *, in_key: bool) -> Table:
    columns = (Column("id", "int", nullable=False), column, Column("last", "varchar", length=20, charset="utf8mb4"))
    return Table(TableId("d", "t"), columns, ("c", "id") if in_key else ("id",))


@pytest.mark.parametrize(
    ("options", "form"),
    [(options, form) for form in FORMS for options in (MODES if form == FORMS[0] else MODES[::3])],
    ids=lambda each: each.time_precision_mode if isinstance(each, ValueOptions) else "-".join(map(str, each)),
)
def test_each_value_of_each_type_is_equal(options: ValueOptions, form: Form) -> None:
    """Inserts, pairs and deletes; in rows and in keys; also with the value cut off."""
    pick = random.Random(7)
    for given_column, _ in COLUMNS:
        for in_key in (False, True):
            column = replace(given_column, name="c", nullable=not in_key)
            codecs = Both(_table(column, in_key=in_key), options, form, plain=not in_key)
            for value in _values(column, pick):
                image = b"\0" + struct.pack("<i", -5) + value + b"\2hi"
                other = b"\4" + struct.pack("<i", pick.choice((-5, 6))) + value
                codecs.check("inserts", image + other)
                codecs.check("updates", image + other + image + image)
                codecs.check("updates", image * 4, keys=True)
                codecs.check("deletes", image + image)
                codecs.check("deletes", image + image, keys=True)
                codecs.check("inserts", image + image, keys=True)
                codecs.check("inserts", image[:-4])
            codecs.check("inserts", b"\2" + bytes(4) + b"\0")
            codecs.check("inserts", b"\2" + bytes(4) + b"\0", keys=True)


@settings(max_examples=60)
@given(_rows(), st.sampled_from(FORMS), st.data())
def test_any_event_is_equal(drawn: tuple[Table, list[Any]], form: Form, data: st.DataObject) -> None:
    """Rows of many types and NULLs, whole, cut off, or with one byte changed."""
    table, rows = drawn
    codecs = Both(table, value_options(), form, plain=data.draw(st.booleans()))
    images = b"".join(map(_image, rows))
    at = data.draw(st.integers(0, len(images)))
    damage = data.draw(st.sampled_from(("none", "cut", "byte")))
    if damage == "cut":
        images = images[:at]
    elif damage == "byte":
        images = images[:at] + data.draw(st.binary(min_size=1, max_size=1)) + images[at + 1 :]
    for op in OPS:
        codecs.check(op, images, keys=data.draw(st.booleans()))


def test_usual_events_are_not_declined() -> None:
    """The extension alone encodes them, so the tests above do not compare Python with itself."""
    column = Column("c", "datetime", fsp=3)
    codec = TableCodec(_table(column, in_key=False), "topic", CodecOptions(value_options()))
    image = b"\0" + struct.pack("<i", 5) + ((2024 * 13 + 1 << 5 | 2) << 17 | 1 << 39).to_bytes(5, "big") + b"\0\0\2hi"
    with mock.patch(
        "tailrace.producer.serialization.row_image_decoder.RowImageDecoder.find", side_effect=AssertionError
    ):
        for op, events in (("inserts", image * 2), ("updates", image * 2), ("deletes", image)):
            for keys in (False, True):
                rows = getattr(codec, op)(events, 0, len(events), EVENT, keys=keys)
                assert rows.records
                assert bool(rows.keys) == keys
