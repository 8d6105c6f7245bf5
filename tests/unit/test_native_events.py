"""Rows events by the compiled extension and by the loop of Python: equal records or the same error, for any bytes."""

from __future__ import annotations

import random
import struct
from dataclasses import replace
from typing import Any, Final
from unittest import mock

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tailrace.producer.model.codec import EventRows, KeyChange
from tailrace.producer.model.table import Column, Table, TableId
from tailrace.producer.model.value_options import ValueOptions
from tailrace.producer.native import loader
from tailrace.producer.serialization.table_codec import CodecOptions, TableCodec
from tailrace.runtime.errors import SchemaError
from tailrace.schemas.rowkind import Op
from tests.bench.codec_speed import EVENT
from tests.support.binary_json import OPAQUE_VALUES, Large, binary_json, decimal
from tests.support.both_codecs import BothCodecs, Outcome
from tests.support.codec_matrix import COLUMNS, FORMS, MODES, Form, image_values, record_format
from tests.support.values import value_options
from tests.unit.test_codec_property import _image, _rows

pytestmark = pytest.mark.skipif(
    not loader.is_used(), reason=f"the compiled extension is not used: {loader.unused_because()}"
)

NOISE: Final = b"\xff" * 5
OPS: Final = ("inserts", "updates", "deletes")
_CODES: Final = dict(zip(OPS, (Op.CREATE, Op.UPDATE, Op.DELETE), strict=True))


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
    keys_read = 0
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
            keys_read += codecs.keys_read
    assert keys_read > len(COLUMNS)


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


_TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=9) | st.text('ab"\\\n\x01é😀', max_size=5)
_SCALARS = st.one_of(
    st.none() | st.booleans() | st.floats() | st.integers(-(2**63), 2**64 - 1) | _TEXT,
    st.sampled_from(OPAQUE_VALUES),
    st.decimals(-(10**12), 10**12, places=3).map(lambda number: decimal(f"{number:f}")),
)
_DOCUMENTS = st.recursive(
    _SCALARS,
    lambda inner: st.one_of(
        st.lists(inner, max_size=5),
        st.dictionaries(_TEXT, inner, max_size=5),
        st.lists(inner, max_size=5).map(Large),
        st.dictionaries(_TEXT, inner, max_size=5).map(Large),
    ),
    max_leaves=20,
)
_JSON_TABLE = _table(Column("c", "json"), in_key=False)


def _json_image(document: bytes) -> bytes:
    return b"\0" + struct.pack("<i", 5) + struct.pack("<I", len(document)) + document + b"\2hi"


@pytest.mark.parametrize("form", [FORMS[0], FORMS[3]], ids=["json", "avro"])
def test_any_json_document_is_equal(form: Form) -> None:
    """Of any types and sizes of numbers, whole or with one byte changed."""
    codecs = BothCodecs(_JSON_TABLE, value_options(), form)

    @settings(max_examples=120)
    @given(_DOCUMENTS, st.data())
    def check(value: object, data: st.DataObject) -> None:
        document = binary_json(value)
        _check(codecs, "inserts", _json_image(document))
        at = data.draw(st.integers(0, len(document) - 1))
        damaged = document[:at] + data.draw(st.binary(min_size=1, max_size=1)) + document[at + 1 :]
        _check(codecs, "inserts", _json_image(damaged))
        _check(codecs, "inserts", _json_image(document[:at]))

    check()


@pytest.mark.parametrize("levels", [99, 100, 101])
def test_json_of_any_depth_is_equal(levels: int) -> None:
    """As deep as the server accepts, and deeper."""
    document: list[object] = []
    for _ in range(levels - 1):
        document = [document]
    found = _check(BothCodecs(_JSON_TABLE, value_options(), FORMS[0]), "inserts", _json_image(binary_json(document)))
    assert (found[0] is SchemaError) == (levels > 100)


def _encoded_by_extension(codec: TableCodec, op: str, images: bytes, *, keys: bool = False) -> EventRows:
    """Encode an event by the extension alone."""
    assert codec.native is not None
    python = "tailrace.producer.serialization.plain_codec.PlainCodec.encoder"
    with mock.patch(python, return_value=mock.Mock(side_effect=AssertionError)):
        encode = codec.native.encoder(_CODES[op])
    rows: EventRows = encode(images, 0, len(images), EVENT, keys=keys)
    return rows


@pytest.mark.parametrize("form", [FORMS[0], FORMS[3]], ids=["json", "avro"])
def test_usual_json_is_not_declined(form: Form) -> None:
    """Each kind of value, so that the tests above do not compare Python with itself. Avro: ASCII only."""
    options = value_options()
    document = {
        "a": [None, True, False, 1, -70_000, 2**40, 2**64 - 1, 1.5, -0.0, 'q"\\\n', decimal("-12.345")],
        "b": Large([{}, [], *(value for value in OPAQUE_VALUES[-7:-3])]),
    }
    if form == FORMS[0]:
        document["é😀"] = ["x" * 300]
    # A function of the column would encode what the extension declines.
    call = "tailrace.producer.serialization.row_plan.PlanColumn.call"
    codec = TableCodec(_JSON_TABLE, "topic", CodecOptions(options), record_format(_JSON_TABLE, options, form))
    with mock.patch(call, None):
        assert len(_encoded_by_extension(codec, "inserts", _json_image(binary_json(document))).records) == 1


@pytest.mark.parametrize("form", FORMS[:5], ids=lambda form: "-".join(map(str, form)))
@pytest.mark.parametrize("keys", [False, True])
def test_changed_keys_are_equal(form: Form, keys: bool) -> None:
    """With usual pairs around them, in each format; a decimal and a text in the key have other forms in the headers."""
    columns = (
        Column("id", "int", nullable=False),
        Column("d", "decimal", nullable=False, precision=6, scale=2),
        Column("t", "varchar", nullable=False, length=20, charset="utf8mb4"),
        Column("n", "int"),
    )
    table = Table(TableId("d", "t"), columns, ("t", "id", "d"))
    rows = [
        b"\0" + struct.pack("<i", number) + cents + bytes([len(text)]) + text + struct.pack("<i", 9)
        for number, cents, text in (
            (1, b"\x80\x01\x05", b"a"),
            (2, b"\x80\x01\x05", b"a"),
            (2, b"\x7f\xfe\xfa", b'q"\\'),
            (2, b"\x7f\xfe\xfa", "é😀".encode()),
        )
    ]
    null = b"\x08" + rows[0][1:-4]
    images = b"".join(
        (rows[0] * 2, rows[0] + rows[1], rows[1] + rows[2], rows[2] + rows[3], rows[3] + null, rows[1] * 2)
    )
    for plain in (True, False):
        codecs = BothCodecs(table, value_options(), form, plain=plain)
        records = _check(codecs, "updates", images, keys=keys)[0]
        assert [isinstance(record, KeyChange) for record in records].count(True) == 4
        if not (plain or keys) and form != FORMS[0]:
            continue  # rows that are skipped are compared in plain JSON, by Python
        if plain or not keys:
            with_extension = _encoded_by_extension(codecs.native, "updates", images[: len(rows[0]) * 4], keys=keys)
            assert isinstance(with_extension.records[-1], KeyChange)


def test_a_changed_key_whose_header_cannot_be_printed_ends_in_the_same_error() -> None:
    """Text that is no UTF-8 passes in Avro, and not in the JSON of the header."""
    column = Column("c", "varchar", nullable=False, length=20, charset="utf8mb4")
    codecs = BothCodecs(_table(column, in_key=True), value_options(), FORMS[3])
    old, new = (b"\0" + struct.pack("<i", 5) + text + b"\2hi" for text in (b"\1a", b"\4\xf0\x80\x80\x80"))
    assert _check(codecs, "updates", old + new)[0] is SchemaError


def test_usual_events_are_not_declined() -> None:
    """The extension alone encodes them, so the tests above do not compare Python with itself."""
    column = Column("c", "datetime", fsp=3)
    codec = TableCodec(_table(column, in_key=False), "topic", CodecOptions(value_options()))
    image = b"\0" + struct.pack("<i", 5) + ((2024 * 13 + 1 << 5 | 2) << 17 | 1 << 39).to_bytes(5, "big") + b"\0\0\2hi"
    for op, images in (("inserts", image * 2), ("updates", image * 2), ("deletes", image)):
        for keys in (False, True):
            rows = _encoded_by_extension(codec, op, images, keys=keys)
            assert rows.records
            assert bool(rows.keys) == keys
