"""What a query leaves behind is the same whether the driver or queries process its small tables."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import orjson
import pytest

from tailrace.schemas.connect import ConnectField
from tailrace.spark_consumer.sink.delta_sink import DeltaSink
from tailrace.spark_consumer.tables.driver_decoder import DriverDecoder
from tests.embedded.kafka import KafkaBroker
from tests.spark.driver_batches import FIELDS, VALUES, count_driver_batches
from tests.spark.records import Feed, Message, Row, Table, connect, table_schema
from tests.spark.running import consume, settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]


def some_changes(chosen: random.Random, table: Table, number: int, count: int) -> Iterator[Message]:
    """Yield changes of a few keys: late ones, equal positions, repeated records, deletes of what is not there."""
    earlier: list[Message] = []
    for _ in range(count):
        row: Row = {name: chosen.choice(values) for name, values in VALUES.items()}
        row |= {"id": chosen.randrange(6), "name": chosen.choice(VALUES["name"][1:])}
        op, pos = chosen.choice("ccuud"), chosen.choice((number, number, number - 2)) * 100 + chosen.randrange(8)
        before, after = None if op == "c" else row, None if op == "d" else row
        made = table.change(op, before, after, pos=max(pos, 1), row=chosen.randrange(3))
        if chosen.random() < 0.2:
            body = orjson.loads(made[0].value or b"")
            del body["source"]["ts_ms"]
            made[0] = replace(made[0], value=orjson.dumps(body))
        earlier += made
        yield from made
        if chosen.random() < 0.2:
            yield chosen.choice(earlier)


def left_behind(spark: SparkSession, given: dict[str, str], work: Path, names: list[str]) -> dict[str, Any]:
    """Run a query; return the rows, the commits, the states of the tables and what the status tells."""
    status = consume(spark, given)
    found: dict[str, Any] = {}
    for name in names:
        path = work / "tables" / "shop" / name
        found[f"{name} rows"] = sorted(map(str, spark.read.format("delta").load(str(path)).collect()))
        history = spark.sql(f"DESCRIBE HISTORY delta.`{path}`").orderBy("version").collect()
        found[f"{name} commits"] = [
            (row["operation"], _without_writer(row["userMetadata"]), row["operationParameters"].get("epochId"))
            for row in history
        ]
    for file in sorted((work / "checkpoint" / "tables").glob("*/*.json")):
        found[str(file.relative_to(work))] = orjson.loads(file.read_bytes())
    known = status.as_dict()
    for topic, table in known["tables"].items():
        found[f"{topic} status"] = {name: value for name, value in table.items() if name != "lag_ms"}
    found["states"] = known["table_states"]
    return found


def _without_writer(metadata: str | None) -> dict[str, Any] | None:
    """Return the ledger of a commit without the name of its writer, which each query draws."""
    if metadata is None:
        return None
    ledger: dict[str, Any] = orjson.loads(metadata)["tailrace"]
    assert ledger.pop("writer")
    return ledger


@pytest.mark.parametrize(("seed", "batches"), [(1, 3), pytest.param(2, 5, marks=pytest.mark.long)])
def test_as_by_queries(
    spark: SparkSession,
    kafka_broker: KafkaBroker,
    prefix: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    *,
    seed: int,
    batches: int,
) -> None:
    """Random changes of tables with two partitions, soft deletes, a key of several columns, and a metadata column."""
    feed, chosen = Feed(kafka_broker, prefix), random.Random(seed)
    schemas = [
        table_schema(prefix, "plain", *FIELDS),
        table_schema(prefix, "soft", *FIELDS),
        table_schema(prefix, "pair", *FIELDS, key=("id", "name")),
        table_schema(prefix, "other", *FIELDS),
    ]
    tables = [feed.table(schema, partitions=2) for schema in schemas]
    for number in range(1, batches + 1):
        for table in tables:
            feed.write(some_changes(chosen, table, number, 12))
    names = [schema.table for schema in schemas]
    more = {
        "maxOffsetsPerTrigger": "64",
        "tailrace.table.threads": "1",
        "sink.shape.overrides": "shop\\.soft:soft-delete",
        "add.fields": "source.pos,op",
    }
    written = count_driver_batches(monkeypatch)
    one, other = tmp_path / "driver", tmp_path / "queries"
    in_driver = left_behind(spark, settings(kafka_broker, prefix, one) | more, one, names)
    assert all(written[name] >= 2 for name in names), written
    monkeypatch.setattr(DeltaSink, "takes_from_driver", lambda *_: False)
    written.clear()
    by_queries = left_behind(spark, settings(kafka_broker, prefix, other) | more, other, names)
    assert not written
    assert in_driver.keys() == by_queries.keys()
    for name, expected in by_queries.items():
        assert in_driver[name] == expected, name


def test_tables_that_the_driver_cannot_write_are_not_decoded_there(
    spark: SparkSession, kafka_broker: KafkaBroker, prefix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A query writes all rows of a table whose key is a DOUBLE."""
    feed = Feed(kafka_broker, prefix)
    ratio = ConnectField("ratio", connect("double", optional=False))
    tables = [feed.table(table_schema(prefix, f"t{number}", ratio)) for number in range(2)]
    tables += [feed.table(table_schema(prefix, f"f{number}", ratio, key=("ratio",))) for number in range(2)]
    for number in range(6):
        for table in tables:
            row = {"id": 1, "name": f"{number}", "ratio": 0.5}
            feed.write(table.change("u" if number else "c", row if number else None, row, pos=1 + number))
    decoded: Counter[str] = Counter()
    decode = DriverDecoder.last_changes

    def counted(self: DriverDecoder, *arguments: Any) -> Any:
        decoded[self.schema.table] += 1
        return decode(self, *arguments)

    monkeypatch.setattr(DriverDecoder, "last_changes", counted)
    consume(spark, settings(kafka_broker, prefix, tmp_path, maxOffsetsPerTrigger=8, tailrace__table__threads=1))
    assert decoded["t0"] >= 2
    assert not decoded["f0"], decoded
    for table in tables:
        rows = spark.read.format("delta").load(str(tmp_path / "tables" / "shop" / table.schema.table))
        assert [row["name"] for row in rows.collect()] == ["5"]
