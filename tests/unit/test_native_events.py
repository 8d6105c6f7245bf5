"""Rows events by the compiled extension and by generated Python: equal records or the same error, for any bytes."""

from __future__ import annotations

import random
import struct
from dataclasses import replace
from typing import Any, Final
from unittest import mock

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tailrace.producer.model.table import Column, Table, TableId
from tailrace.producer.model.value_options import ValueOptions
from tailrace.producer.native import loader
from tailrace.producer.serialization.table_codec import CodecOptions, TableCodec
from tests.bench.codec_speed import EVENT
from tests.support.both_codecs import BothCodecs, Outcome
from tests.support.codec_matrix import COLUMNS, FORMS, MODES, Form, image_values
from tests.support.values import value_options
from tests.unit.test_codec_property import _image, _rows

pytestmark = pytest.mark.skipif(
    not loader.is_used(), reason=f"the compiled extension is not used: {loader.unused_because()}"
)

NOISE: Final = b"\xff" * 5
OPS: Final = ("inserts", "updates", "deletes")


def _check(codecs: BothCodecs, op: str, images: bytes, *, keys: bool = False) -> Outcome:
    return codecs.event(op, NOISE + images + NOISE, len(NOISE), len(NOISE) + len(images), keys=keys)


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
            codecs = BothCodecs(_table(column, in_key=in_key), options, form, plain=not in_key)
            for value in image_values(column, pick):
                image = b"\0" + struct.pack("<i", -5) + value + b"\2hi"
                other = b"\4" + struct.pack("<i", pick.choice((-5, 6))) + value
                _check(codecs, "inserts", image + other)
                _check(codecs, "updates", image + other + image + image)
                _check(codecs, "updates", image * 4, keys=True)
                _check(codecs, "deletes", image + image)
                _check(codecs, "deletes", image + image, keys=True)
                _check(codecs, "inserts", image + image, keys=True)
                _check(codecs, "inserts", image[:-4])
            _check(codecs, "inserts", b"\2" + bytes(4) + b"\0")
            _check(codecs, "inserts", b"\2" + bytes(4) + b"\0", keys=True)


@settings(max_examples=60)
@given(_rows(), st.sampled_from(FORMS), st.data())
def test_any_event_is_equal(drawn: tuple[Table, list[Any]], form: Form, data: st.DataObject) -> None:
    """Rows of many types and NULLs, whole, cut off, or with one byte changed."""
    table, rows = drawn
    codecs = BothCodecs(table, value_options(), form, plain=data.draw(st.booleans()))
    images = b"".join(map(_image, rows))
    at = data.draw(st.integers(0, len(images)))
    damage = data.draw(st.sampled_from(("none", "cut", "byte")))
    if damage == "cut":
        images = images[:at]
    elif damage == "byte":
        images = images[:at] + data.draw(st.binary(min_size=1, max_size=1)) + images[at + 1 :]
    for op in OPS:
        _check(codecs, op, images, keys=data.draw(st.booleans()))


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
