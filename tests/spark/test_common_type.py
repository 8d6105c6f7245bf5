"""The common type of two types of a column represents all values of both; checked conversions lose nothing."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import functions as fn
from pyspark.sql import types as tp

from tailrace.spark_consumer.source.common_type import can_check, checked_cast, common_type

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.mark.usefixtures("spark")  # types are parsed by a session
@pytest.mark.parametrize(
    ("one", "other", "common"),
    [
        ("smallint", "bigint", "bigint"),
        ("int", "int", "int"),
        ("int", "decimal(10,2)", "decimal(12,2)"),
        ("bigint", "decimal(20,0)", "decimal(20,0)"),
        ("decimal(10,2)", "decimal(12,4)", "decimal(12,4)"),
        ("decimal(10,2)", "decimal(6,4)", "decimal(12,4)"),
        ("decimal(38,0)", "decimal(38,10)", None),
        ("int", "double", "double"),
        ("float", "double", "double"),
        ("bigint", "double", None),
        ("decimal(10,2)", "double", None),
        ("int", "float", None),
        ("int", "string", "string"),
        ("date", "string", "string"),
        ("date", "timestamp_ntz", "timestamp_ntz"),
        ("timestamp_ntz", "timestamp", None),
        ("boolean", "smallint", None),
        ("binary", "string", None),
    ],
)
def test_common_type(one: str, other: str, common: str | None) -> None:
    first, second = tp.DataType.fromDDL(one), tp.DataType.fromDDL(other)
    expected = None if common is None else tp.DataType.fromDDL(common)

    assert common_type(first, second) == expected
    assert common_type(second, first) == expected


@pytest.mark.parametrize(
    ("source", "target", "cases"),
    [
        ("string", "int", {"12": 12, "-7": -7, "007": None, "1.5": None, "x": None, "2147483648": None}),
        ("string", "decimal(6,2)", {"12.50": Decimal("12.50"), "1.005": None}),
        (
            "string",
            "double",
            {
                "1": 1.0,
                "-7": -7.0,
                "12345678": 12345678.0,
                "0.1": 0.1,
                "0.0001": 0.0001,
                "1.50": None,
                "007": None,
                " 1": None,
                "1\n": None,
                "12345678901234567": None,
                "0.12345678901234568": 0.12345678901234568,
                "1.0E-20": 1e-20,
                "0.123456789012345678": None,
                "NaN": None,
                "x": None,
                "": None,
            },
        ),
        ("string", "float", {"1": 1.0, "2.5": 2.5, "16777217": None, "1e300": None}),
        ("string", "date", {"2024-02-29": dt.date(2024, 2, 29), "2024-02-30": None}),
        ("bigint", "double", {2**53: float(2**53), 2**53 + 1: None}),
        ("double", "int", {3.0: 3, 3.5: None}),
        ("decimal(10,2)", "double", {Decimal("0.25"): 0.25}),
        ("timestamp_ntz", "date", {dt.datetime(2024, 1, 2): dt.date(2024, 1, 2), dt.datetime(2024, 1, 2, 3): None}),
    ],
)
@pytest.mark.parametrize("ansi", [True, False])
def test_checked_cast_gives_null_instead_of_another_value(
    spark: SparkSession, source: str, target: str, cases: dict[Any, Any], *, ansi: bool
) -> None:
    of, to = tp.DataType.fromDDL(source), tp.DataType.fromDDL(target)
    assert can_check(of, to)
    before = spark.conf.get("spark.sql.ansi.enabled")
    spark.conf.set("spark.sql.ansi.enabled", str(ansi).lower())
    try:
        values = spark.createDataFrame([(value,) for value in cases], tp.StructType([tp.StructField("v", of)]))
        rows = values.select(checked_cast(fn.col("v"), of, to).alias("v")).collect()
    finally:
        spark.conf.set("spark.sql.ansi.enabled", str(before))

    assert [row["v"] for row in rows] == list(cases.values())


@pytest.mark.usefixtures("spark")
@pytest.mark.parametrize(("source", "target"), [("binary", "string"), ("string", "binary")])
def test_text_and_bytes_have_no_conversion(source: str, target: str) -> None:
    """A latin1 column with "é" has other bytes than Spark's text."""
    of, to = tp.DataType.fromDDL(source), tp.DataType.fromDDL(target)
    assert common_type(of, to) is None
    assert not can_check(of, to)
