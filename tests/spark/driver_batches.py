"""Records and columns of small tables that the driver processes, and the count of batches that it has written."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import functions as fn

from tailrace.schemas.connect import ConnectField
from tailrace.spark_consumer.in_driver import row_sequence
from tailrace.spark_consumer.sink.base import DriverBatch
from tailrace.spark_consumer.sink.delta_sink import DeltaSink
from tailrace.spark_consumer.source.group_reader import RawRows, RowsByTopic
from tests.spark.records import connect, decimal, unscaled

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

TIME = "io.debezium.time."
VALUES: dict[str, tuple[Any, ...]] = {
    "name": (None, "", "a", 'a "b", [c]', "back\\slash", "ä €", "x" * 300),
    "small": (None, unscaled(-150), unscaled(10**10 - 1)),
    "wide": (None, unscaled(-(10**38 - 1)), unscaled(7)),
    "day": (None, -719162, 20000),
    "us": (None, 0, 1_790_000_000_123_456),
    "zoned": (None, "2026-11-22T01:02:03.456Z", "1970-01-01T00:00:00+02:00"),
    "raw": (None, "", "AAH/"),
    "tiny": (None, -32768, 7),
    "single": (None, 0.0, -0.0, 1.5, 3.4e38),
    "ratio": (None, 0.0, -0.0, 1e308, 0.1),
    "flag": (None, True, False),
    "number": (None, -(2**63), 2**63 - 1, 2**53 + 1),
}
FIELDS = (
    ConnectField("small", decimal(10, 2)),
    ConnectField("wide", decimal(38, 10)),
    ConnectField("day", connect("int32", name=f"{TIME}Date")),
    ConnectField("us", connect("int64", name=f"{TIME}MicroTimestamp")),
    ConnectField("zoned", connect("string", name=f"{TIME}ZonedTimestamp")),
    ConnectField("raw", connect("bytes")),
    ConnectField("tiny", connect("int16")),
    ConnectField("single", connect("float")),
    ConnectField("ratio", connect("double")),
    ConnectField("flag", connect("boolean")),
    ConnectField("number", connect("int64")),
)


def count_driver_batches(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """Return a count of the batches that the driver writes from now on, by the name of the table."""
    found: Counter[str] = Counter()
    write = DeltaSink.write_in_driver

    def counted(self: DeltaSink, batch: DriverBatch, batch_id: int) -> bool:
        done = write(self, batch, batch_id)
        found[batch.schema.table] += done
        return done

    monkeypatch.setattr(DeltaSink, "write_in_driver", counted)
    return found


def rows_by_topic(records: DataFrame) -> dict[str, RawRows]:
    """Return raw records that Spark has read, as the driver has those that it reads."""
    rows = row_sequence(records.where(fn.col("value").isNotNull()))
    return RowsByTopic(records.sparkSession, records.schema).of(rows)
