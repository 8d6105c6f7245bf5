"""Measures how long a change takes from its COMMIT in MySQL until its row is in a commit of the Delta table.

python -m tests.bench.consumer_latency [--rows N] [--seconds N] [--rate N] [--trigger TEXT]
    [--warm-up N] [--set NAME=VALUE]

It asserts nothing. One row is changed in each transaction, at a steady rate. A row is readable as soon as the log of
the table has the commit, so the time is that of the file in the log.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Sequence
from itertools import count
from pathlib import Path
from statistics import median
from typing import Any
from urllib.parse import unquote

import pyarrow.parquet as pq  # type: ignore[import-untyped]

from tests.bench import customer, report
from tests.bench.options import setting
from tests.bench.stack import Program, Stack
from tests.embedded.prepare import prepare

_DEADLINE_S = 600.0


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the program and return the exit code."""
    options = _options(arguments)
    prepare(("mysql", "kafka", "spark"))
    with Stack({}) as stack:
        customer.fill(stack.mysql, options.rows)
        programs = [stack.produce()]
        programs.append(
            stack.consume(
                {
                    "trigger.availableNow": "false",
                    "trigger.processingTime": options.trigger,
                    # Otherwise Hadoop starts processes for each file on a local disk (docs/sinks/delta.md).
                    "spark.hadoop.fs.file.impl": "org.apache.hadoop.fs.RawLocalFileSystem",
                    "spark.hadoop.fs.AbstractFileSystem.file.impl": "org.apache.hadoop.fs.local.RawLocalFs",
                    **dict(options.set),
                }
            )
        )
        table = _loaded_table(stack, programs)
        committed = _change(stack, options, table, programs)
        readable = _readable(table, set(committed), programs)
        commits = len(set(readable.values()))
        batches = _batches(programs[-1])[-commits:]
    # Spark's own phases are those of the batch before.
    phases = [batch["phases"] | {f"spark.{name}": each for name, each in batch["spark"].items()} for batch in batches]
    for each in phases:
        each.pop("spark.batch", None)
    delays = sorted(readable[text] - at for text, at in committed.items())
    at = {"median": 0.5, "p95": 0.95, "p99": 0.99, "maximum": 1.0}
    latency = {name: delays[min(int(len(delays) * part), len(delays) - 1)] for name, part in at.items()}
    found = {
        "machine": report.machine(),
        "rows": options.rows,
        "changes_per_second": options.rate,
        "trigger": options.trigger,
        "changes": len(delays),
        "commits": commits,
        "latency_s": {name: round(seconds, 2) for name, seconds in latency.items()},
        "batch_s": round(median(batch["seconds"] for batch in batches), 2),
        "phases_s": {
            name: round(median(each.get(name, 0.0) for each in phases), 2)
            for name in sorted({name for each in phases for name in each})
        },
    }
    sys.stdout.write(json.dumps(found) + "\n")
    return 0


def _loaded_table(stack: Stack, programs: Sequence[Program]) -> Path:
    """Wait until the first snapshot is in the table and return the table."""
    expected = customer.count_rows(stack.mysql)
    until = time.monotonic() + _DEADLINE_S
    while True:
        _check(programs, until)
        for log in stack.sink.rglob("_delta_log"):
            # The rows of a first snapshot are appended.
            if sum(_added_rows(commit) for commit in _commits(log.parent)) >= expected:
                return log.parent
        time.sleep(0.5)


def _change(stack: Stack, options: argparse.Namespace, table: Path, programs: Sequence[Program]) -> dict[str, float]:
    """Change rows at a steady rate; return the wall time of the COMMIT by the text that the row has since.

    What is changed before the table has some commits more is left out.
    """
    committed: dict[str, float] = {}
    wanted = len(_commits(table)) + options.warm_up
    counted = int(options.rate * options.seconds)
    until = time.monotonic() + _DEADLINE_S
    with stack.mysql.connect(database=customer.DATABASE) as session, session.cursor() as cursor:
        begin = time.monotonic()
        for number in count():
            time.sleep(max(0.0, begin + number / options.rate - time.monotonic()))
            text, key = f"l{number}", 1 + number % options.rows
            cursor.execute(f"UPDATE {customer.TABLE} SET c_login = %s WHERE c_customer_sk = %s", (text, key))
            if wanted:
                _check(programs, until)
                wanted = 0 if len(_commits(table)) >= wanted else wanted
            else:
                committed[text] = time.time()
            if len(committed) == counted:
                return committed
    raise AssertionError


def _commits(table: Path) -> list[Path]:
    return sorted((table / "_delta_log").glob("*.json"))


def _readable(table: Path, wanted: set[str], programs: Sequence[Program]) -> dict[str, float]:
    """Return the time of the first commit that has each text; two changes of a row in one batch give the last one."""
    found: dict[str, float] = {}
    until = time.monotonic() + _DEADLINE_S
    last = max(wanted, key=lambda text: int(text[1:]))
    for version in count():
        commit = table / "_delta_log" / f"{version:020d}.json"
        while not commit.is_file():
            if last in found:
                return found
            _check(programs, until)
            time.sleep(0.2)
        at = commit.stat().st_mtime
        for line in commit.read_text(encoding="utf-8").splitlines():
            if add := json.loads(line).get("add"):
                texts = pq.read_table(table / unquote(add["path"]), columns=["c_login"])["c_login"].to_pylist()
                for text in wanted.intersection(texts):
                    found.setdefault(text, at)
    raise AssertionError


def _batches(consumer: Program) -> list[dict[str, Any]]:
    """Return what the consumer logged about its micro-batches."""
    lines = consumer.log.read_text(encoding="utf-8", errors="replace").splitlines()
    logged = [json.loads(line) for line in lines if line.startswith("{")]
    return [line for line in logged if line.get("event") == "batch applied"]


def _added_rows(commit: Path) -> int:
    actions = (json.loads(line) for line in commit.read_text(encoding="utf-8").splitlines())
    return sum(json.loads(action["add"]["stats"])["numRecords"] for action in actions if "add" in action)


def _check(programs: Sequence[Program], until: float) -> None:
    for program in programs:
        program.check()
    if time.monotonic() > until:
        raise TimeoutError("".join(program.tail() for program in programs))


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.consumer_latency", description=__doc__)
    parser.add_argument("--rows", type=int, default=100_000, help="rows of the table (default 100,000)")
    parser.add_argument("--seconds", type=float, default=60, help="measured seconds (default 60)")
    parser.add_argument("--rate", type=float, default=50, help="transactions per second (default 50)")
    parser.add_argument("--trigger", default="1 second", help="trigger.processingTime (default 1 second)")
    parser.add_argument(
        "--warm-up",
        type=int,
        default=40,
        help="commits before the first change that counts, while the JVM still compiles (default 40)",
    )
    parser.add_argument(
        "--set", action="append", default=[], type=setting, metavar="NAME=VALUE", help="a property of the consumer"
    )
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main())
