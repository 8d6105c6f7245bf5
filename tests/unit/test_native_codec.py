"""The compiled extension against the loop of Python: equal records or errors, for any types, modes and bytes."""

from __future__ import annotations

import os
import resource
from dataclasses import replace
from pathlib import Path
from typing import Final
from unittest import mock

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tailrace.producer.model.table import Column, Table, TableId
from tailrace.producer.model.value_options import ValueOptions
from tailrace.producer.mysql.types.base import Fast
from tailrace.producer.native import loader
from tailrace.producer.serialization.row_plan import PlanColumn, RowPlan
from tailrace.producer.serialization.table_codec import CodecOptions, TableCodec
from tests.support.both_codecs import BothCodecs, Outcome
from tests.support.codec_matrix import COLUMNS, FORMS, MODES, Form, cell, packet
from tests.support.values import value_options

pytestmark = pytest.mark.skipif(
    not loader.is_used(), reason=f"the compiled extension is not used: {loader.unused_because()}"
)


NOISE: Final = b"\xff\xff\xff"
"""Precedes the packets: the codec must start where it is told to."""
END: Final = b"\x05\0\0\x09\xfe\0\0\2\0"


def _snapshot(codecs: BothCodecs, packets: bytes, *, stop: int = 0) -> Outcome:
    return codecs.snapshot(packets, len(NOISE), stop or len(packets))


def _table(columns: list[Column], key: tuple[str, ...] = ("id",)) -> Table:
    return Table(TableId("d", "t"), (Column("id", "int", nullable=False), *columns), key)


@pytest.mark.parametrize(
    ("options", "form"),
    [(options, form) for form in FORMS for options in (MODES if form == FORMS[0] else MODES[::3])],
    ids=lambda each: each.time_precision_mode if isinstance(each, ValueOptions) else "-".join(map(str, each)),
)
@pytest.mark.parametrize("use", ["nullable", "required", "key"])
def test_each_value_of_each_type_is_equal(use: str, options: ValueOptions, form: Form) -> None:
    """One result set a value, so that an error hides no other value; in rows, with and without NULL, and in keys."""
    columns = [replace(column, name=f"c{i}", nullable=use == "nullable") for i, (column, _) in enumerate(COLUMNS)]
    names = tuple(column.name for column in columns)
    codecs = BothCodecs(_table(columns, ("id", *names) if use == "key" else ("id",)), options, form)
    usual: list[bytes | None] = [None if use == "nullable" else values[0] for _, values in COLUMNS]
    assert len(_snapshot(codecs, NOISE + packet(b"1", *usual) + END)[0]) == 1
    for i, (_, values) in enumerate(COLUMNS):
        for value in (*values, None):
            _snapshot(codecs, NOISE + packet(b"1", *usual[:i], value, *usual[i + 1 :]) + END)


@st.composite
def _results(draw: st.DrawFn) -> tuple[Table, bytes]:
    """Draw a table and a result set; some values are of another type, or are damaged."""
    chosen = draw(st.lists(st.sampled_from(COLUMNS), min_size=1, max_size=8))
    columns = [
        replace(column, name=f"c{i}" if i else 'é"\n', nullable=draw(st.booleans()))
        for i, (column, _) in enumerate(chosen)
    ]
    row = st.tuples(
        *(
            st.one_of(st.sampled_from(values), st.sampled_from(values), st.none(), st.binary(max_size=12))
            for _, values in chosen
        )
    )
    rows = draw(st.lists(row, max_size=6))
    data = b"".join(packet(b"%d" % i, *values) for i, values in enumerate(rows))
    key = draw(st.sampled_from(("id", *(column.name for column in columns))))
    error = b"\x0d\0\0\3\xff\x15\4#08S01gone"
    tail = draw(st.sampled_from((b"", END, b"\x09", b"\xff\xff\xff\1\1", error, b"\0\0\0\1")))
    return _table(columns, tuple(dict.fromkeys((key, "id")))), NOISE + data + tail


@settings(max_examples=200)
@given(_results(), st.sampled_from(MODES), st.sampled_from(FORMS), st.data())
def test_any_result_set_is_equal(
    drawn: tuple[Table, bytes], options: ValueOptions, form: Form, data: st.DataObject
) -> None:
    """Whole, cut off anywhere, or with one byte changed."""
    table, packets = drawn
    stop = data.draw(st.integers(3, len(packets)))
    damage = data.draw(st.sampled_from(("none", "cut", "byte")))
    if damage == "byte" and stop < len(packets):
        packets = packets[:stop] + data.draw(st.binary(min_size=1, max_size=1)) + packets[stop + 1 :]
    _snapshot(BothCodecs(table, options, form), packets, stop=stop if damage == "cut" else 0)


def test_usual_rows_are_not_declined() -> None:
    """The extension alone encodes them, so the tests above do not compare Python with itself."""
    from tailrace.producer.native import codec as module  # noqa: PLC0415 - the module is optional

    table = _table([replace(column, name=f"c{i}") for i, (column, _) in enumerate(COLUMNS)])
    codec = TableCodec(table, "topic", CodecOptions(value_options()))
    data = packet(b"1", *(values[0] for _, values in COLUMNS)) * 2
    assert codec.native is not None
    records = module.Records()
    assert codec.native.packets.encode(data, 0, len(data), b"}", records)[::2] == (len(data), 0)
    assert len(records) == 2


def test_row_of_several_packets_is_equal() -> None:
    """A value of 16 MB and more, whole and cut off, between other rows."""
    table = _table([Column("c", "text", length=0xFFFFFFFF, charset="utf8mb4")])
    value = b"x" * 0xFFFFFF
    body = cell(b"2") + b"\xfe" + len(value).to_bytes(8, "little") + value
    big = b"\xff\xff\xff\2" + body[:0xFFFFFF] + (len(body) - 0xFFFFFF).to_bytes(3, "little") + b"\3" + body[0xFFFFFF:]
    data = NOISE + packet(b"1", b"a") + big + packet(b"3", b"b") + END
    codecs = BothCodecs(table, value_options(), FORMS[0])
    assert len(_snapshot(codecs, data)[0]) == 3
    for stop in (len(NOISE + packet(b"1", b"a")) + 50, len(data) - 20):
        _snapshot(codecs, data, stop=stop)


@pytest.mark.parametrize(
    "wrong",
    [
        PlanColumn(Fast("decimal", whole_digits=-28, scale=40), nullable=False, width=6),
        PlanColumn(Fast("decimal", whole_digits=9, scale=2), nullable=False, width=4),
        PlanColumn(Fast("datetime", scale=3), nullable=False, width=5),
        PlanColumn(Fast("timestamp", scale=255), nullable=False, width=4),
        PlanColumn(Fast("integer"), nullable=False, width=9),
        PlanColumn(Fast("double"), nullable=False, width=4),
        PlanColumn(Fast("label"), nullable=False, width=3),
        PlanColumn(Fast("date"), nullable=False, width=2),
        PlanColumn(Fast("year"), nullable=False, width=0),
    ],
    ids=lambda column: f"{column.fast.kind} {column.width}",
)
def test_a_column_of_a_wrong_width_is_refused(wrong: PlanColumn) -> None:
    """Its values would be read beyond their end, and beyond that of the event."""
    from tailrace.producer.native import codec  # noqa: PLC0415 - the module is optional

    rows = codec.Rows(RowPlan([wrong], [], [], b"", b"", b""))
    flags = {"pairs": False, "deletes": False, "tombstones": False, "skips": False, "avro": False}
    with pytest.raises(ValueError, match="another width"):
        codec.ImageEncoder(rows, [], b"", b"", None, **flags)


def test_switch_is_named() -> None:
    """TAILRACE_NATIVE=0 switches the extension off, and the reason says so."""
    with mock.patch.dict(os.environ, {loader.SWITCH: "0"}):
        assert loader.unused_because() == "TAILRACE_NATIVE=0"


def test_a_large_record_takes_little_more_room_than_its_size() -> None:
    """A limit of the address space may apply (vm.overcommit_memory=2), also to what is never used."""
    from tailrace.producer.native.codec import Records  # noqa: PLC0415 - the module is optional

    value = bytes(96 << 20)
    records = Records()
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0])
    limits = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + (128 << 20), limits[1]))
    try:
        records.extend([(b"k", value)])
    finally:
        resource.setrlimit(resource.RLIMIT_AS, limits)
    assert len(records) == 1
