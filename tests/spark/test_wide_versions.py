"""Versions of a table of several hundred columns: the rows, of plans whose size grows with the square of a struct."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

from tailrace.schemas.connect import ConnectField
from tests.embedded.kafka import KafkaBroker
from tests.spark.records import Feed, Message, connect, table_schema
from tests.spark.running import consume, settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

COLUMNS: Final = 300


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_versions_of_a_table_with_many_columns(
    spark: SparkSession, kafka_broker: KafkaBroker, prefix: str, tmp_path: Path
) -> None:
    """A new target, and a batch that ends versions."""
    session, feed = spark.newSession(), Feed(kafka_broker, prefix)
    extra = [ConnectField(f"c{n}", connect("int64" if n % 2 else "string")) for n in range(COLUMNS)]
    table = feed.table(table_schema(prefix, "t", *extra))
    tables = settings(kafka_broker, prefix, tmp_path, sink__shape="scd2")

    def run(*records: Iterable[Message]) -> None:
        feed.write(message for each in records for message in each)
        consume(session, tables)

    def row(key: int, text: str) -> dict[str, Any]:
        return {"id": key, "name": "n"} | {f"c{n}": n if n % 2 else text for n in range(COLUMNS)}

    run(*(table.change("c", None, row(key, "a"), pos=100 + key) for key in (1, 2, 3)))
    run(table.change("u", row(1, "a"), row(1, "b"), pos=110), table.change("d", row(2, "a"), None, pos=111))

    found = session.read.format("delta").load(str(tmp_path / "tables" / "shop" / "t"))
    assert sorted((each["id"], each["c0"], each["c299"], each["__current"]) for each in found.collect()) == [
        (1, "a", 299, False),
        (1, "b", 299, True),
        (2, "a", 299, False),
        (3, "a", 299, True),
    ]
