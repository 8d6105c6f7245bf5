"""The checksum of a row is that of its bytes in the record, without a parser."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final
from zlib import crc32

import orjson
import pytest
from pyspark.sql import functions as fn

from tailrace.spark_consumer.source.formats.json_sides import JsonValues
from tailrace.spark_consumer.source.json_decoder import row_checksum

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_ROWS: Final[tuple[dict[str, Any], ...]] = (
    {"id": 1, "name": None},
    {"id": 2, "name": 'é😀 "q" \\ \u0001'},
    {"id": 3, "source": {"version": "1.0"}, "after": "x"},
    {"id": 4, "json": '{"before":null,"after":{},"source":{"version":"1"}}'},
    {},
)


def _value(row: bytes) -> bytes:
    return b'{"before":null,"after":%b,"source":{"version":"1","db":"d"},"op":"r","ts_ms":1}' % row


def test_checksum_is_that_of_the_bytes_of_the_row(spark: SparkSession) -> None:
    """Columns that look like the parts of an envelope, and a row with blanks."""
    rows = [orjson.dumps(row) for row in _ROWS] + [b'{"id": 1.50}']
    values = [_value(row) for row in rows] + [b"\x00\x00\x00\x00\x01\x00\x02", b""]

    frame = spark.createDataFrame([(value,) for value in values], "value binary")
    found = [row[0] for row in frame.select(row_checksum(fn.col("value"))).collect()]

    assert found == [crc32(row) for row in rows] + [None, None]


def test_json_of_another_writer_is_not_a_row_without_a_checksum(spark: SparkSession) -> None:
    """A split whose rows have no checksum, as in Avro, is compared by its number of rows alone."""
    value = _value(b'{"id":1}')
    others = [orjson.dumps(orjson.loads(value), option=orjson.OPT_INDENT_2), b'{"schema":{},"payload":%b}' % value]
    others += [begin.encode() + value for begin in (" ", "\n", "\r\n\t", "\ufeff")]

    frame = spark.createDataFrame([(each,) for each in others], "value binary")

    assert [row[0] for row in frame.select(row_checksum(fn.col("value"))).collect()] == [0] * len(others)


def test_checksum_of_a_row_with_schemas_is_that_of_its_payload(spark: SparkSession) -> None:
    value = b'{"schema":{"type":"struct","name":"a\\",\\"payload\\":"},"payload":%b}' % _value(b'{"id":1}')
    records = spark.createDataFrame([(value,)], "value binary").withColumn("incremental", fn.lit(None).cast("string"))

    found, _ = JsonValues({}).reader(records, ())

    assert found.select(row_checksum(fn.col("value"))).collect()[0][0] == crc32(b'{"id":1}')


@pytest.mark.parametrize("size", [0, 250, 318, 319, 320, 321, 339, 340, 341, 1000])
def test_source_block_is_found_wherever_it_begins(spark: SparkSession, size: int) -> None:
    """The block has so many bytes behind the text that begins it; the row has a block of its own."""
    row = b'{"id":3,"source":{"version":"1.0"},"name":"\xc3\xa9"}'
    begin = b',"source":{"version":'
    assert begin[1:] in row
    value = b'{"before":null,"after":' + row + begin + b"x" * size

    [found] = spark.createDataFrame([(value,)], "value binary").select(row_checksum(fn.col("value"))).collect()

    assert found[0] == crc32(row)
