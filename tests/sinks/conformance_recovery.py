"""Cases of the conformance suite about several tables, restarts, large batches and values of all types."""

from __future__ import annotations

import signal
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Final

from tailrace.schemas.connect import ConnectField
from tests.sinks.backend import SinkBackend
from tests.sinks.canonical import EXTREMES, TYPES, canonical, encoded
from tests.sinks.harness import BatchRunner
from tests.spark.model import Run
from tests.spark.records import Feed, Message, Row, Table, connect, table_schema
from tests.spark.running import settings
from tests.spark.test_kill import run_consumer

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

INTEGER: Final = ConnectField("n", connect("int32"))
_MILLION: Final = 1_000_000
_SPLIT: Final = 20_000


def row(key: int, n: int | str | None = 0, **more: object) -> Row:
    """Return a row of the test table."""
    return {"id": key, "name": f"name {key}", "n": n, **more}


def _changed(table: Table, key: int) -> list[Message]:
    """Return the delete of every hundredth row, and the update of another one."""
    before = row(key, key % 1000)
    after = row(key, -1) if key % 100 else None
    return table.change("u" if after else "d", before, after, pos=1000 + key)


class RecoveryCases:
    """The cases; SinkConformance has the fixtures."""

    backend_type: ClassVar[type[SinkBackend]]

    def expect(self, run: BatchRunner, *rows: Row, changelog: Mapping[int, str] | None = None) -> None:
        """Check the rows of the target, and the row kinds of a changelog."""
        raise NotImplementedError

    def test_late_upsert_after_delete(self, run: BatchRunner) -> None:
        """In a batch a delete, and in another partition an older update of its key, as after partitions were added."""
        run.batch(run.table.change("c", None, row(1), pos=100), run.table.change("c", None, row(2), pos=110))
        [late] = run.table.change("u", row(1, 0), row(1, 1), pos=150)
        run.batch(
            run.table.change("d", row(1, 1), None, pos=200),
            [replace(late, partition=1 - late.partition)],
            run.table.change("u", row(2), row(2, 1), pos=210),
        )

        self.expect(run, row(2, 1))

    def test_removed_column(self, run: BatchRunner) -> None:
        """A column is removed: older rows keep their values, newer rows have NULL."""
        old = run.table.schema
        run.table.schema = table_schema(run.feed.prefix, old.table, INTEGER, ConnectField("gone", connect("string")))
        run.batch(
            [run.table.published(run.feed.prefix, version=2)], run.table.change("c", None, row(1, gone="x"), pos=100)
        )
        run.table.schema = old
        run.batch([run.table.published(run.feed.prefix, version=3)], run.table.change("c", None, row(2), pos=110))

        found = run.backend.rows(run.table.schema)
        assert {key: each.get("gone") for key, each in found.items()} == {1: "x", 2: None}
        assert {key: each["n"] for key, each in found.items()} == {1: 0, 2: 0}

    def test_extremes(self, run: BatchRunner) -> None:
        """The greatest and smallest value of every type, NULL in every column, and a change between them."""
        run.table.schema = table_schema(run.feed.prefix, run.table.schema.table, *TYPES)
        full = [{"id": key, "name": "a", **values} for key, values in enumerate(EXTREMES, 1)]
        run.batch(
            [run.table.published(run.feed.prefix, version=2)],
            *(run.table.change("c", None, encoded(each), pos=100 + each["id"]) for each in full),
        )
        swapped = {**full[0], "id": 3}
        run.batch(run.table.change("u", encoded(full[2]), encoded(swapped), pos=200))

        found = run.backend.rows(run.table.schema)
        assert sorted(found) == [1, 2, 3]
        for expected in (full[0], full[1], swapped):
            shown, wanted = canonical(found[expected["id"]]), canonical(expected)
            wrong = {name: (shown[name], text) for name, text in wanted.items() if shown[name] != text}
            assert wrong == {}, wrong

    def test_two_tables(self, run: BatchRunner) -> None:
        """Two tables have changes in the same batches."""
        other = self.second(run)
        run.batch(
            run.table.change("c", None, row(1), pos=100),
            other.change("c", None, row(1, 7), pos=101),
            other.change("c", None, row(2, 7), pos=102),
        )
        run.batch(run.table.change("u", row(1), row(1, 1), pos=110), other.change("d", row(2, 7), None, pos=111))

        self.expect(run, row(1, 1), changelog={1: "+I -U +U"})
        assert run.backend.rows(other.schema) == {1: row(1, 7)}

    def test_parked_table(self, run: BatchRunner) -> None:
        """A table cannot be decoded: the other one is written, and after the cause is removed both are complete."""
        other = self.second(run, publish=False)
        run.batch(run.table.change("c", None, row(1), pos=100), other.change("c", None, row(1), pos=101))
        self.expect(run, row(1))

        run.restart()
        run.batch(
            [other.published(run.feed.prefix)],
            run.table.change("u", row(1), row(1, 1), pos=110),
            other.change("u", row(1), row(1, 2), pos=111),
        )

        self.expect(run, row(1, 1), changelog={1: "+I -U +U"})
        assert run.backend.rows(other.schema) == {1: row(1, 2)}

    def test_restored_checkpoint(self, run: BatchRunner) -> None:
        """The checkpoint of an earlier batch is restored: what the target has is not applied twice."""
        run.batch(run.table.change("c", None, row(1, 0), pos=100), run.table.change("c", None, row(2), pos=110))
        saved = run.save()
        run.batch(
            run.table.change("u", row(1, 0), row(1, 1), pos=120),
            run.table.change("d", row(2), None, pos=130),
            run.table.change("c", None, row(3), pos=140),
        )
        run.restore(saved)
        run.batch(run.table.change("u", row(3), row(3, 1), pos=150))

        self.expect(run, row(1, 1), row(3, 1), changelog={1: "+I -U +U", 2: "+I -D", 3: "+I -U +U"})

    def test_million_rows(self, run: BatchRunner) -> None:
        """A million rows in a batch, then changes of a tenth of them."""
        prefix = run.feed.prefix
        for number in range(_MILLION // _SPLIT):
            keys = range(number * _SPLIT, (number + 1) * _SPLIT)
            rows = (row(key, key % 1000) for key in keys)
            run.write(run.table.snapshot(prefix, number, rows, low=10, high=20))
            run.write([run.table.end(prefix, number, high=20, rows=len(keys))])
        run.batch()
        for start in range(0, _MILLION, 10 * _SPLIT):
            run.write(*(_changed(run.table, key) for key in range(start, start + 10 * _SPLIT, 10)))
        run.batch()

        found = run.backend.rows(run.table.schema)
        expected = {key: -1 if key % 10 == 0 else key % 1000 for key in range(_MILLION) if key % 100}
        assert len(found) == len(expected)
        assert {key: each["n"] for key, each in found.items()} == expected

    def test_killed(self, spark: SparkSession, feed: Feed, tmp_path: Path) -> None:
        """The process is killed (SIGKILL) at each step of the sink and started again."""
        backend = self.backend_type(spark, feed.broker, tmp_path)
        prefix = f"{feed.prefix}-killed"
        own = Feed(feed.broker, prefix)
        table = own.table(table_schema(prefix, "killed", INTEGER), partitions=2)
        run = Run(table, prefix, seed=11, keys=60, events=120)
        for transaction in run.transactions:
            own.write(transaction)
        given = settings(feed.broker, prefix, tmp_path, sink=backend.sink, maxOffsetsPerTrigger=60)
        given |= backend.settings()

        for moment in backend.kills:
            assert run_consumer(tmp_path, given, moment) == -signal.SIGKILL, moment
        assert run_consumer(tmp_path, given, "never") == 0

        assert backend.rows_of_process(table.schema) == run.rows

    def second(self, run: BatchRunner, *, publish: bool = True) -> Table:
        """Return another table of the query, without its schema in Kafka unless ``publish``."""
        schema = table_schema(run.feed.prefix, f"{run.table.schema.table}_other", INTEGER)
        if publish:
            table = run.feed.table(schema)
        else:
            run.feed.broker.create_topic(schema.topic)
            table = Table(schema)
        run.others.append(table)
        return table


RECOVERY: Final = frozenset(name for name in vars(RecoveryCases) if name.startswith("test_"))
"""The names of the cases."""
LONG: Final = frozenset({"test_million_rows", "test_killed"})
"""Cases that are long for every sink."""
