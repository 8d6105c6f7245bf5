"""Every pair of column types: a value is the same after the conversion, or its loss is noticed; no servers."""

from __future__ import annotations

import datetime as dt
import struct
from contextlib import contextmanager
from decimal import Decimal
from fractions import Fraction
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest
from pyspark.sql import functions as fn
from pyspark.sql import types as tp

from tailrace.spark_consumer.sink.delta_table import DeltaTable
from tailrace.spark_consumer.source.common_type import can_check, common_type, convert_value

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

_WHOLE: Final = (0, 1, -1, 127, 128, -128, -129, 32767, 32768, -32769, 2**24 + 1, 2**31 - 1, 2**31, -(2**31) - 1,
                 2**53, 2**53 + 1, 2**63 - 1, -(2**63), 10**18)  # fmt: skip


def _integers(bits: int) -> list[Any]:
    return [number for number in _WHOLE if -(2 ** (bits - 1)) <= number < 2 ** (bits - 1)]


VALUES: Final[dict[str, list[Any]]] = {
    "tinyint": _integers(8),
    "smallint": _integers(16),
    "int": _integers(32),
    "bigint": _integers(64),
    "float": [0.0, 1.0, -1.5, 0.10000000149011612, 16777216.0, 3.4028234663852886e38, 1.401298464324817e-45],
    "double": [0.0, 1.0, -1.5, 0.1, 2.0**53, 1e300, 5e-324, 9.223372036854775807e18, 127.5, 128.0],
    "decimal(5,2)": [Decimal("0.00"), Decimal("999.99"), Decimal("-999.99"), Decimal("1.50"), Decimal("100.00")],
    "decimal(20,0)": [Decimal(number) for number in (0, 1, -1, 2**63 - 1, 2**63, 2**64 - 1, 10**19)],
    "decimal(38,10)": [Decimal("0.0000000001"), Decimal("9" * 28 + "." + "9" * 10), Decimal("-1.5000000000")],
    "string": ["", "0", "1", "-1", "007", " 1", "1.5", "1.50", "1e3", "NaN", "Infinity", "128", "32768", "2147483648",
               "9223372036854775808", "2024-02-29", "2024-02-30", "24-1-1", "2024-02-29 12:00:00", "true", "é",
               "\U0001f600", "99999999999999999999999999999999999999"],
    "binary": [b"", b"1", b"abc", b"\xff", "é".encode(), b"\x00"],
    "date": [dt.date(1, 1, 1), dt.date(1582, 10, 15), dt.date(2024, 2, 29), dt.date(9999, 12, 31)],
    "timestamp_ntz": [dt.datetime(1, 1, 1), dt.datetime(2024, 2, 29, 12, 0, 0, 123456), dt.datetime(9999, 12, 31)],
    "timestamp": [dt.datetime(1970, 1, 2), dt.datetime(2024, 2, 29, 12)],
    "boolean": [True, False],
}  # fmt: skip
"""Values at the limits of each type."""


def same(value: Any, source: str, found: Any, target: str) -> bool:
    """Return whether a converted value is the value; decided without Spark."""
    if isinstance(value, str) and not isinstance(found, str):
        if isinstance(found, dt.date):
            return value == found.isoformat()
        return _printed(value, found)
    if isinstance(value, bytes):
        return bytes(found) == value
    if target == "string":
        kind = tp.DataType.fromDDL(source)
        return bool(found == (f"{value:.{kind.scale}f}" if isinstance(kind, tp.DecimalType) else str(value)))
    if isinstance(found, dt.datetime) and type(value) is dt.date:
        return found == dt.datetime.combine(value, dt.time())
    if type(found) is dt.date and isinstance(value, dt.datetime):
        return value == dt.datetime.combine(found, dt.time())
    if isinstance(value, Decimal) and isinstance(found, float):
        return _single(float(value)) == found if target == "float" else float(value) == found
    if isinstance(value, float) and isinstance(found, Decimal):
        return _single(float(found)) == value if source == "float" else float(found) == value
    if isinstance(value, (int, float, Decimal)) and not isinstance(value, bool):
        return Fraction(value) == Fraction(found)
    return bool(found == value)


def _single(number: float) -> float:
    """Return the FLOAT that is nearest to a number."""
    found: float = struct.unpack("f", struct.pack("f", number))[0]
    return found


def _printed(text: str, found: Any) -> bool:
    """Return whether MySQL prints a number as this text, or reads it so."""
    if isinstance(found, float):
        return float(text) == found
    return str(found) == text


@contextmanager
def arithmetic(spark: SparkSession, *, ansi: bool) -> Iterator[SparkSession]:
    """Return a session with a mode of Spark's arithmetic."""
    session = spark.newSession()
    session.conf.set("spark.sql.ansi.enabled", str(ansi).lower())
    yield session


@pytest.mark.parametrize("ansi", [True, False])
def test_no_pair_of_types_changes_a_value(spark: SparkSession, *, ansi: bool) -> None:
    """A pair without a conversion is refused by its types alone (version_decoder.py, evolution/plan.py)."""
    types = {name: tp.DataType.fromDDL(name) for name in VALUES}
    converted = lost = 0
    with arithmetic(spark, ansi=ansi) as session:
        for source, values in VALUES.items():
            of = types[source]
            targets = [name for name, to in types.items() if common_type(of, to) == to or can_check(of, to)]
            frame = session.createDataFrame([(value,) for value in values], tp.StructType([tp.StructField("v", of)]))
            columns = []
            for name in targets:
                value, loss = convert_value(fn.col("v"), of, types[name])
                gone = fn.lit(False) if loss is None else loss
                columns += [value.alias(f"{name}="), gone.alias(f"{name}!")]
            for row in frame.select("v", *columns).collect():
                for name in targets:
                    found, gone = row[f"{name}="], row[f"{name}!"]
                    assert gone == (found is None), (source, name, row["v"], found)
                    assert gone or same(row["v"], source, found, name), (source, name, row["v"], found)
                    converted, lost = converted + (not gone), lost + gone

    assert converted > 200
    assert lost > 50


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_widened_columns_of_a_delta_table_keep_their_values(spark: SparkSession, tmp_path: Path) -> None:
    """All pairs that the plan widens: Delta supports each of them."""
    session = spark.newSession()
    types = {name: tp.DataType.fromDDL(name) for name in VALUES}
    pairs: dict[str, tuple[str, tp.DataType]] = {}
    for (source, of), to in product(types.items(), types.values()):
        wider = common_type(of, to)
        if wider is not None and wider != of and DeltaTable.can_widen(of, wider):
            pairs.setdefault(f"{source}>{wider.simpleString()}", (source, wider))
    table = f"delta.`{tmp_path / 't'}`"
    names = {f"c{number}": pair for number, pair in enumerate(pairs.values())}
    listed = ", ".join(f"{name} {source}" for name, (source, _) in names.items())
    session.sql(
        f"CREATE TABLE {table} ({listed}) USING DELTA TBLPROPERTIES ('delta.enableTypeWidening' = 'true', "
        "'delta.feature.timestampNtz' = 'supported')"
    )
    most = max(map(len, VALUES.values()))
    rows = [[(VALUES[source] * most)[number] for source, _ in names.values()] for number in range(most)]
    fields = [tp.StructField(name, types[source]) for name, (source, _) in names.items()]
    session.createDataFrame(rows, tp.StructType(fields)).write.format("delta").mode("append").save(str(tmp_path / "t"))

    for name, (_, wider) in names.items():
        session.sql(f"ALTER TABLE {table} ALTER COLUMN {name} TYPE {wider.simpleString()}")

    found = session.read.format("delta").load(str(tmp_path / "t"))
    assert [field.dataType for field in found.schema] == [wider for _, wider in names.values()]
    for name, (source, wider) in names.items():
        values = sorted(row[name] for row in found.select(name).collect())
        expected = sorted(row[number] for row in rows for number in [list(names).index(name)])
        assert all(
            same(value, source, each, wider.simpleString()) for value, each in zip(expected, values, strict=True)
        ), name
    assert len(pairs) >= 15
