"""The console sink passes the conformance suite as far as output for people can."""

from __future__ import annotations

import io
import json
from collections import defaultdict
from contextlib import AbstractContextManager, redirect_stdout
from decimal import Decimal
from typing import Any, ClassVar

from tailrace.schemas.table import TableSchema
from tests.sinks.backend import Changelog, ChangelogBackend
from tests.sinks.conformance import SinkConformance, row
from tests.sinks.conformance_recovery import RECOVERY
from tests.sinks.conformance_schema import NO_MODES, SCHEMA
from tests.sinks.harness import BatchRunner

_NO_TARGET = "the console sink has no target; its guarantee is none"


class ConsoleBackend(ChangelogBackend):
    """The printed lines of all batches."""

    sink = "console"

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._output = io.StringIO()

    def capture(self) -> AbstractContextManager[object]:
        """Collect standard output."""
        return redirect_stdout(self._output)

    def changelog(self, schema: TableSchema) -> Changelog:
        """Parse the lines: topic, row kind, row."""
        found: Changelog = defaultdict(list)
        lines = self._output.getvalue().splitlines()
        for line in (line for line in lines if line.startswith(f"{schema.topic} ")):  # the others are the log
            _, kind, text = line.split(" ", 2)
            if kind == "truncate":
                continue
            each = json.loads(text, parse_float=Decimal)
            found[each["id"]].append((kind, each))
        return dict(found)


class TestConsoleSink(SinkConformance):
    """Conformance of the console sink."""

    backend_type = ConsoleBackend
    not_claimed: ClassVar = {
        "test_truncate": "the console does not know the rows that it has printed",
        "test_out_of_order": "a changelog keeps the order of the topic and compares no sequences",
        "test_repeated_batch": _NO_TARGET,
        "test_batch_cut_off": _NO_TARGET,
    }
    not_applicable: ClassVar = {
        "test_killed": _NO_TARGET,
        "test_million_rows": "only the first rows of a batch are printed",
        "test_restored_checkpoint": _NO_TARGET,
        SCHEMA: _NO_TARGET,
        **NO_MODES,
    }
    # The console prints the changelog that the Kafka sink writes, whose cases are quick tests.
    long: ClassVar = frozenset(
        {
            "test_insert_after_delete",
            "test_key_change",
            "test_empty_batch",
            "test_snapshot_with_backfill",
            "test_incremental_snapshot",
            "test_new_column",
            "test_wider_number",
            "test_type_change",
            "test_batch_cut_off",
        }
        | RECOVERY
    )

    def test_truncate(self, run: BatchRunner) -> None:
        """A truncate event is printed; it gives no changelog row. Older rows that are read later stay out."""
        self.write_truncate(run)

        self.expect(run, *(row(key) for key in (1, 2, 3)), row(5, 1))

    def test_out_of_order(self, run: BatchRunner) -> None:
        """The older change is printed at its position in the topic."""
        self.write_out_of_order(run)

        self.expect(run, row(1, 1), changelog={1: "+I -U +U"})

    def test_repeated_batch(self, run: BatchRunner) -> None:
        """The rows of a repeated batch are printed again."""
        self.repeat_batches(run)

        self.expect(run, row(1, 1), row(3), changelog={1: "+I +I -U +U -U +U", 2: "+I +I -D -D", 3: "+I +I"})

    def test_batch_cut_off(self, run: BatchRunner) -> None:
        """A batch that was cut off after its output is printed again."""
        self.cut_batches(run)

        self.expect(run, row(0, 2), row(1), row(2), changelog={0: "+I -U +U -U +U -U +U", 1: "+I", 2: "+I +I"})
