"""The JDBC sink stores every value exactly."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

import pytest

from tailrace.schemas.connect import ConnectField
from tests.sinks.conformance import INTEGER
from tests.sinks.jdbc_backend import Open, backend_of
from tests.spark.records import connect, decimal, unscaled

pytestmark = pytest.mark.timeout(1800)

_TYPES: Final = (
    ConnectField("flag", connect("boolean")),
    ConnectField("small", connect("int16")),
    ConnectField("big", connect("int64")),
    ConnectField("unsigned", decimal(20, 0)),
    ConnectField("exact", decimal(38, 10)),
    ConnectField("single", connect("float")),
    ConnectField("real", connect("double")),
    ConnectField("bytes", connect("bytes")),
    ConnectField("json", connect("string", name="io.debezium.data.Json")),
    ConnectField("day", connect("int32", name="io.debezium.time.Date")),
    ConnectField("at", connect("int64", name="io.debezium.time.MicroTimestamp")),
    ConnectField("zoned", connect("string", name="io.debezium.time.ZonedTimestamp")),
    ConnectField("time", connect("int64", name="io.debezium.time.MicroTime")),
)
_LONG_TEXT: Final = "x" * 70_000 + "表🎉\\'\""
_VALUES: Final[tuple[tuple[dict[str, Any], dict[str, str]], ...]] = (
    (
        {
            "name": _LONG_TEXT,
            "flag": True,
            "small": -32768,
            "big": -(2**63),
            "unsigned": unscaled(2**64 - 1),
            "exact": unscaled(-(10**38 - 1)),
            "single": 3.4028235e38,
            "real": 1.7976931348623157e308,
            "bytes": "AP+AXFwnAA==",
            "json": '{"a": [1, "\\u00e4", null], "b": 12345678901234567890}',
            "day": -719162,
            "at": 1_711_852_200_123_456,  # 2024-03-31 02:30:00.123456, which Berlin does not have
            "zoned": "2024-10-27T00:30:00.000001Z",
            "time": -3_020_399_000_001,
        },
        {
            "name": _LONG_TEXT,
            "small": "-32768",
            "big": "-9223372036854775808",
            "unsigned": "18446744073709551615",
            "exact": "-9999999999999999999999999999.9999999999",
            "bytes": "00FF805C5C2700",
            "day": "0001-01-01",
            "at": "2024-03-31 02:30:00.123456",
            "zoned": "2024-10-27 00:30:00.000001",
            "time": "-3020399000001",
        },
    ),
    (
        {"name": "", "at": -62_135_596_800_000_000, "day": 2_932_896, "json": '"x"', "real": -5e-324, "single": 1e-45},
        {"name": "", "at": "0001-01-01 00:00:00", "day": "9999-12-31"},
    ),
)


def test_values_are_stored_exactly(opened: Open) -> None:
    """Extremes of every type, also with a server whose time zone has gaps; NULL in every column."""
    run = opened("types", *_TYPES)
    empty = dict.fromkeys(each.name for each in _TYPES)
    for number, (values, _) in enumerate(_VALUES, 1):
        run.write(run.table.change("c", None, {"id": number, **empty, **values}, pos=100 + number))
    run.write(run.table.change("c", None, {"id": 9, "name": None, **empty}, pos=120))
    run.batch()

    backend = backend_of(run)
    with backend.session() as session:
        for number, (_, expected) in enumerate(_VALUES, 1):
            columns = ", ".join(backend.shown(name) for name in expected)
            [found] = session.query(f"SELECT {columns} FROM {backend.table('types')} WHERE id = {number}")
            shown = {name: (text or "").removesuffix("+00") for name, text in zip(expected, found, strict=True)}
            fraction = {name: text.removesuffix(".000000") for name, text in shown.items()}
            assert fraction == expected
        names = ", ".join(map(backend.dialect.quote, ("real", "single")))
        floats = session.query(f"SELECT {names} FROM {backend.table('types')} WHERE id < 3 ORDER BY id")
        nulls = " AND ".join(f"{backend.dialect.quote(name)} IS NULL" for name in ("name", *empty))
        assert session.query(f"SELECT id FROM {backend.table('types')} WHERE {nulls}") == [("9",)]
    doubles, singles = zip(*((float(str(real)), float(str(single))) for real, single in floats), strict=True)
    assert doubles == (1.7976931348623157e308, -5e-324)
    # MySQL shows six digits of a FLOAT.
    assert singles == (pytest.approx(3.40282e38, rel=1e-5), pytest.approx(1.4013e-45, rel=0.3))


def test_text_keys_are_compared_exactly(opened: Open) -> None:
    """Case, accents and composed characters make different keys, and a delete removes only its own."""
    run = opened("t")
    run.table.schema = replace(
        run.table.schema,
        columns=(ConnectField("name", connect("string", optional=False)), INTEGER),
        key=("name",),
    )
    keys = ["a", "A", "ä", "a\u0308", "ß", "ss", "表", "🎉", "🎊", "", "'", "\\"]
    run.write([run.table.published(run.feed.prefix, version=2)])
    run.batch(*(run.table.change("c", None, {"name": key, "n": 0}, pos=100 + n) for n, key in enumerate(keys)))
    run.batch(
        run.table.change("d", {"name": "A", "n": 0}, None, pos=200),
        run.table.change("u", {"name": "ss", "n": 0}, {"name": "ss", "n": 1}, pos=210),
    )

    expected = {key: "1" if key == "ss" else "0" for key in keys if key != "A"}
    found = backend_of(run).texts("SELECT name, n FROM {s}.t")
    assert sorted(found) == sorted(expected.items())
