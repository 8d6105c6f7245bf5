"""The conformance suite of sinks: cases that every sink must pass, on real engines.

A test module of a sink has a backend and one class::

    class TestDeltaSink(SinkConformance):
        backend_type = DeltaBackend

If a sink does not claim a case, its class says so in ``not_claimed`` with the reason, and overrides the case with a
test of the documented behavior.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Final

import pytest

from tailrace.schemas.connect import ConnectField
from tests.embedded.kafka import KafkaBroker
from tests.sinks.backend import ChangelogBackend, SinkBackend
from tests.sinks.conformance_recovery import INTEGER, RecoveryCases, row
from tests.sinks.harness import BatchRunner, CutOffError
from tests.spark.records import Feed, Message, Row, connect, table_schema

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CASE: Final = "test_"
__all__ = ["CASE", "INTEGER", "SinkConformance", "row"]


class SinkConformance(RecoveryCases):
    """The cases. Each has its own table, target and query; batches are small."""

    backend_type: ClassVar[type[SinkBackend]]
    variant: ClassVar[str] = ""
    """The engine, for a sink that writes to several kinds."""
    not_applicable: ClassVar[Mapping[str, str]] = {}
    """Case to the reason why the sink cannot have it; it is not run."""
    not_claimed: ClassVar[Mapping[str, str]] = {}
    """Case (name of the test) to the reason why the sink does not claim it."""
    long: ClassVar[frozenset[str]] = frozenset()
    """Cases that only run with ``--all``: other sinks have the same path in the quick tests."""

    def __init_subclass__(cls) -> None:
        """Check that exactly the cases that are not claimed are overridden, here or in a suite between."""
        overridden = {case for case in cls.cases() if getattr(cls, case) is not getattr(SinkConformance, case)}
        assert overridden == set(cls.not_claimed), "not_claimed must name exactly the overridden cases"

    @staticmethod
    def cases() -> frozenset[str]:
        """Return the names of all cases."""
        own = {**vars(RecoveryCases), **vars(SinkConformance)}
        return frozenset(name for name in own if name.startswith(CASE))

    @classmethod
    def label(cls) -> str:
        """Return the name of the sink, with its engine."""
        return cls.backend_type.sink + (f" ({cls.variant})" if cls.variant else "")

    @pytest.fixture(scope="class")
    @classmethod
    def feed(cls, kafka_broker: KafkaBroker) -> Feed:
        """The topics of one prefix for all cases of a sink."""
        return Feed(kafka_broker, f"conformance.{cls.__name__}")

    @pytest.fixture
    def run(self, spark: SparkSession, feed: Feed, tmp_path: Path, request: pytest.FixtureRequest) -> BatchRunner:
        """A query over a new table with the columns id, name and n."""
        name = request.node.name.removeprefix(CASE)
        table = feed.table(table_schema(feed.prefix, name, INTEGER), partitions=2)
        return BatchRunner(feed, table, self.backend_type(spark, feed.broker, tmp_path), tmp_path)

    def expect(self, run: BatchRunner, *rows: Row, changelog: Mapping[int, str] | None = None) -> None:
        """Check the rows of the target and, for a changelog, the row kinds by key (such as ``"+I -U +U"``)."""
        columns = dict.fromkeys(column.name for column in run.table.schema.columns)
        found = {key: {**columns, **each} for key, each in run.backend.rows(run.table.schema).items()}

        assert found == {each["id"]: {**columns, **each} for each in rows}
        if changelog is not None and isinstance(run.backend, ChangelogBackend):
            kinds = {
                key: " ".join(kind for kind, _ in entries)
                for key, entries in run.backend.changelog(run.table.schema).items()
            }
            assert kinds == changelog

    def snapshot(self, run: BatchRunner, number: int, *rows: Row, low: int = 10, high: int = 20) -> list[Message]:
        """Return the records of a complete split without backfill."""
        records = run.table.snapshot(run.feed.prefix, number, rows, low=low, high=high)
        return [*records, run.table.end(run.feed.prefix, number, high=high, rows=len(rows))]

    def test_insert(self, run: BatchRunner) -> None:
        """Inserts into a new table and into an existing table."""
        run.batch(run.table.change("c", None, row(1), pos=100))
        run.batch(run.table.change("c", None, row(2), pos=110), run.table.change("c", None, row(3), pos=120))

        self.expect(run, row(1), row(2), row(3), changelog={1: "+I", 2: "+I", 3: "+I"})

    def test_update(self, run: BatchRunner) -> None:
        """Several updates of one key in a batch, and an update of a row of an earlier batch."""
        run.batch(run.table.change("c", None, row(1, 0), pos=100))
        run.batch(
            run.table.change("u", row(1, 0), row(1, 1), pos=110), run.table.change("u", row(1, 1), row(1, 2), pos=120)
        )

        self.expect(run, row(1, 2), changelog={1: "+I -U +U -U +U"})

    def test_delete(self, run: BatchRunner) -> None:
        """A delete of a row of an earlier batch, and of a row of the same batch; tombstones follow both."""
        run.batch(run.table.change("c", None, row(1), pos=100), run.table.change("c", None, row(2), pos=110))
        run.batch(
            run.table.change("d", row(1), None, pos=120),
            run.table.change("c", None, row(3), pos=130),
            run.table.change("d", row(3), None, pos=140),
        )

        self.expect(run, row(2), changelog={1: "+I -D", 2: "+I", 3: "+I -D"})

    def test_insert_after_delete(self, run: BatchRunner) -> None:
        """A deleted key is inserted again, in the same batch and in a later one."""
        run.batch(run.table.change("c", None, row(1, 0), pos=100))
        run.batch(run.table.change("d", row(1, 0), None, pos=110), run.table.change("c", None, row(1, 1), pos=120))
        run.batch(run.table.change("d", row(1, 1), None, pos=130))
        run.batch(run.table.change("c", None, row(1, 2), pos=140))

        self.expect(run, row(1, 2), changelog={1: "+I -D +I -D +I"})

    def test_key_change(self, run: BatchRunner) -> None:
        """An update of the key is a delete of the old key and an insert of the new key, from one row event."""
        run.batch(run.table.change("c", None, row(1), pos=100))
        run.batch(
            run.table.change("d", row(1), None, pos=110),
            run.table.change("c", None, {**row(1), "id": 2}, pos=110, row=1),
        )

        self.expect(run, {**row(1), "id": 2}, changelog={1: "+I -D", 2: "+I"})

    def test_nulls(self, run: BatchRunner) -> None:
        """NULL in an insert, and an update from NULL to a value and back."""
        empty = {"id": 1, "name": None, "n": None}
        run.batch(run.table.change("c", None, empty, pos=100), run.table.change("c", None, row(2, 5), pos=110))
        run.batch(
            run.table.change("u", empty, row(1), pos=120), run.table.change("u", row(2, 5), row(2, None), pos=130)
        )

        self.expect(run, row(1), row(2, None), changelog={1: "+I -U +U", 2: "+I -U +U"})

    def test_empty_batch(self, run: BatchRunner) -> None:
        """A batch without records, and a batch with watermarks only."""
        run.batch()
        run.batch(run.table.change("c", None, row(1), pos=100))
        run.batch(self.snapshot(run, 0))
        run.batch()

        self.expect(run, row(1), changelog={1: "+I"})

    def test_snapshot_with_backfill(self, run: BatchRunner) -> None:
        """A split whose END comes in a later batch: the last record per key wins, later changes follow."""
        split = run.table.split_id(0)
        rows = [row(1, 0), row(2, 0), row(3, 0)]
        run.batch(run.table.snapshot(run.feed.prefix, 0, rows, low=100, high=200))
        run.batch(
            run.table.change("u", row(1, 0), row(1, 1), pos=110, split=split),
            run.table.change("d", row(2, 0), None, pos=120, split=split),
            run.table.change("c", None, row(4, 4), pos=130, split=split),
        )
        run.batch(
            run.table.change("u", row(3, 0), row(3, 3), pos=210),
            [run.table.end(run.feed.prefix, 0, high=200, rows=3, backfill=3)],
        )

        self.expect(run, row(1, 1), row(3, 3), row(4, 4), changelog={1: "+I", 3: "+I -U +U", 4: "+I"})

    def test_incremental_snapshot(self, run: BatchRunner) -> None:
        """Rows of an incremental snapshot repair a row and add a missing one; changes go on without a wait for END."""
        run.batch(self.snapshot(run, 0, row(1, 0), row(2, 0)), run.table.change("u", row(2, 0), row(2, 1), pos=305))
        incremental = replace(run.table, run="run2", incremental=True)
        # Row 2 was read after its change, with a sequence from before it; row 3 is missing in the topic.
        records = incremental.snapshot(run.feed.prefix, 0, [row(1, 5), row(2, 1), row(3, 0)], low=300, high=350)
        run.batch(records)
        run.batch(run.table.change("u", row(3, 0), row(3, 1), pos=400))

        self.expect(run, row(1, 5), row(2, 1), row(3, 1))

    def test_new_column(self, run: BatchRunner) -> None:
        """A column is added: older rows have NULL. A removed column is NULL in newer rows."""
        run.batch(run.table.change("c", None, row(1), pos=100))
        old = run.table.schema
        run.table.schema = table_schema(run.feed.prefix, old.table, INTEGER, ConnectField("added", connect("string")))
        run.batch(
            [run.table.published(run.feed.prefix, version=2)],
            run.table.change("c", None, row(2, added="value"), pos=110),
        )

        self.expect(run, row(1, added=None), row(2, added="value"), changelog={1: "+I", 2: "+I"})

    def test_wider_number(self, run: BatchRunner) -> None:
        """A number column gets a wider type; values that fit the old type are stored."""
        run.batch(run.table.change("c", None, row(1), pos=100))
        old = run.table.schema
        run.table.schema = table_schema(run.feed.prefix, old.table, ConnectField("n", connect("int64")))
        run.batch([run.table.published(run.feed.prefix, version=2)], run.table.change("c", None, row(2, 7), pos=110))

        self.expect(run, row(1), row(2, 7), changelog={1: "+I", 2: "+I"})

    def test_type_change(self, run: BatchRunner) -> None:
        """A column gets another kind of type; newer rows have values of the new type."""
        self.change_type(run)

        self.expect(run, row(1), row(2, "text"), changelog={1: "+I", 2: "+I"})

    def change_type(self, run: BatchRunner) -> None:
        """Write a row, change a number column to text, write another row."""
        run.batch(run.table.change("c", None, row(1), pos=100))
        old = run.table.schema
        run.table.schema = table_schema(run.feed.prefix, old.table, ConnectField("n", connect("string")))
        run.batch(
            [run.table.published(run.feed.prefix, version=2)], run.table.change("c", None, row(2, "text"), pos=110)
        )

    def test_out_of_order(self, run: BatchRunner) -> None:
        """A change with a smaller sequence than that of the stored row is ignored."""
        self.write_out_of_order(run)

        self.expect(run, row(1, 2))

    def write_out_of_order(self, run: BatchRunner) -> None:
        """Write a change, and in a later batch an older change of the same key."""
        run.batch(run.table.change("c", None, row(1, 2), pos=200))
        run.batch(run.table.change("u", row(1, 0), row(1, 1), pos=100))

    def test_repeated_batch(self, run: BatchRunner) -> None:
        """A batch that was written completely is written again: the result does not change."""
        self.repeat_batches(run)

        self.expect(run, row(1, 1), row(3), changelog={1: "+I -U +U", 2: "+I -D", 3: "+I"})

    def repeat_batches(self, run: BatchRunner) -> None:
        """Write two batches, each of them twice."""
        run.batch(self.snapshot(run, 0, row(1, 0), row(2)))
        run.repeat()
        run.batch(
            run.table.change("u", row(1, 0), row(1, 1), pos=100),
            run.table.change("d", row(2), None, pos=110),
            run.table.change("c", None, row(3), pos=120),
        )
        run.repeat()

    def test_batch_cut_off(self, run: BatchRunner) -> None:
        """A batch with snapshot rows and changes is cut off at each step of the sink and then runs again."""
        self.cut_batches(run)

        cuts = range(1, len(run.backend.cuts) + 1)
        changes = "".join(" -U +U" for _ in cuts)
        self.expect(
            run,
            row(0, len(cuts)),
            *(row(key) for key in cuts),
            changelog={0: f"+I{changes}", **dict.fromkeys(cuts, "+I")},
        )

    def cut_batches(self, run: BatchRunner) -> None:
        """Write the first batch, then one batch for each moment; each is cut off and written again."""
        for number, cut in enumerate([run.backend.cuts[0], *run.backend.cuts]):
            records = self.snapshot(run, number, row(number, 0), low=10 + number, high=20 + number)
            if number:
                records += run.table.change("u", row(0, number - 1), row(0, number), pos=100 + number)
            with pytest.raises(CutOffError):
                run.batch(records, cut=cut)
            run.repeat()

    def test_truncate(self, run: BatchRunner) -> None:
        """Rows before a truncate event are removed; rows after it stay, and older rows that are read later stay out."""
        self.write_truncate(run)

        self.expect(run, row(3), row(5, 1), changelog={1: "+I -D", 2: "+I -D", 3: "+I", 5: "+I -U +U"})

    def write_truncate(self, run: BatchRunner) -> None:
        """Write a truncate event and rows before and after it, in several batches."""
        # The event is in one partition; the row 5 of another one was written after it and read before it.
        run.batch(*(run.table.change("c", None, row(key), pos=100 + key) for key in (1, 2)))
        run.batch(run.table.change("c", None, row(5), pos=300))
        run.batch(
            run.table.truncate(pos=200),
            run.table.change("c", None, row(3), pos=210),
            run.table.change("c", None, row(4), pos=190),
        )
        run.repeat()
        run.batch(run.table.change("c", None, row(6), pos=150), run.table.change("u", row(5), row(5, 1), pos=310))
