"""The steps of a demo: load the sample database, run the workload until the sink has caught up, verify."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from rich.console import Console

from tailrace.producer.ops.status import Phase
from tests.demo import sample_database
from tests.demo.deployment import Deployment
from tests.demo.progress import Observer, Progress
from tests.demo.screen import Screen, comparison_table
from tests.demo.verification import Comparison, compare
from tests.demo.workload import Workload
from tests.embedded.spark import start_session

_INTERVAL_S: Final = 0.5
WORKLOAD_RUNS: Final = "workload running"
"""What the screen says while rows change."""


def load(deployment: Deployment, sizes: sample_database.Sizes, console: Console) -> None:
    """Create and fill the sample database, unless it exists."""
    started = time.monotonic()
    with deployment.source.connect() as session:
        if sample_database.exists(session):
            console.print("the sample database exists already")
            return
        sample_database.create(session)
        sample_database.load(session, sizes)
    tables = len(sample_database.TABLES)
    console.print(f"loaded {sum(sizes):,} rows into {tables} tables in {time.monotonic() - started:.1f} s")


def watch(deployment: Deployment, workload: Workload, options: argparse.Namespace, console: Console) -> bool:
    """Show progress until the sink has every change of the finished workload. Return False at the deadline."""
    observer = Observer(deployment)

    def show_until(seconds: float, finished: Callable[[Progress], bool], doing: str) -> bool:
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            deployment.check()
            workload.check()
            now = observer.look()
            screen.show(now, doing=doing, changes=workload.changes)
            if finished(now):
                return True
            time.sleep(_INTERVAL_S)
        return False

    def caught_up(now: Progress) -> bool:
        return now.lag_records == 0 and now.phase == Phase.STREAMING and observer.has_streamed_all(now)

    try:
        with Screen(console) as screen:
            show_until(options.seconds, lambda _: False, WORKLOAD_RUNS)
            workload.stop()
            done = show_until(options.deadline, caught_up, "workload finished, sink catching up")
    finally:
        observer.close()
    if not done:
        console.print(f"the sink did not catch up within {options.deadline:g} s", style="red")
    return done


def verify(deployment: Deployment, console: Console, *, work: Path) -> bool:
    """Compare every table in a Spark session of its own, print the result, and return whether all are equal."""
    console.print("comparing every row ...")
    session = start_session(work)
    database = deployment.sink / sample_database.DATABASE
    try:
        found: list[Comparison] = [
            compare(deployment.source, session, database / table, table) for table in sample_database.TABLES
        ]
    finally:
        session.stop()
    console.print(comparison_table(found))
    for each in found:
        for example in each.examples:
            console.print(f"  {each.table}: {example}", markup=False, highlight=False)
    return all(each.equal for each in found)


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options for durations and sizes."""
    rows = sample_database.ROWS
    parser.add_argument("--seconds", type=float, default=30, help="how long the workload runs (default 30)")
    parser.add_argument("--rows", type=int, default=rows, help=f"rows loaded into all tables (default {rows:,})")
    parser.add_argument("--rate", type=float, default=60, help="transactions per second (default 60)")
    parser.add_argument("--deadline", type=float, default=900, help="seconds the sink has to catch up (default 900)")
