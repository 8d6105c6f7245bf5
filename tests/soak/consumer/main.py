"""``./run soak --consumer``: faults of the consumer under random writers, then the Delta tables against the source."""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
import time
from collections import Counter
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

from tailrace.spark_consumer import archive
from tests.embedded.kafka import KafkaBroker
from tests.embedded.mysql import MySqlServer
from tests.embedded.prepare import prepare
from tests.embedded.spark import start_session
from tests.embedded.spark_cluster import SparkCluster
from tests.soak.consumer.context import NotRecoveredError
from tests.soak.consumer.round import ConsumerRound, Plan, Running

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def soak(options: argparse.Namespace) -> int:
    """Run rounds until the time is over; return 1 if a table differs or a fault was not survived."""
    prepare(("mysql", "kafka", "spark"))
    until = time.monotonic() + options.minutes * 60
    folder = Path(tempfile.mkdtemp(prefix="tailrace-soak-"))
    rounds: list[ConsumerRound] = []
    keep = True
    sessions: list[SparkSession] = []

    def session() -> SparkSession:
        sessions[:] = sessions or [start_session(folder, **{"spark.driver.memory": "1g"})]
        return sessions[0]

    try:
        with ExitStack() as stack:
            server = stack.enter_context(MySqlServer())
            broker = stack.enter_context(KafkaBroker())
            cluster = stack.enter_context(SparkCluster()) if options.cluster else None
            zip_file = folder / archive.DEFAULT_NAME
            archive.build(zip_file)
            while not rounds or time.monotonic() < until:
                plan = Plan(len(rounds) + 1, options.seed, options.rows, options.faults, until)
                rounds.append(Running(plan, server, broker, folder).run(session, cluster, zip_file))
                _print_round(len(rounds), rounds[-1])
        keep = any(each.verdict.problems for each in rounds)
    except NotRecoveredError as error:
        sys.stdout.write(f"FAILED: {error}\n")
        return 1
    finally:
        for started in sessions:
            started.stop()
        sys.stdout.write(f"files: {folder}\n") if keep else shutil.rmtree(folder, ignore_errors=True)
    return _print_total(rounds)


def _print_round(number: int, result: ConsumerRound) -> None:
    verdict = result.verdict
    sys.stdout.write(
        f"round {number}: {result.faults.total()} faults, {result.starts} starts, {verdict.rows} rows, "
        f"{verdict.lost} lost, {verdict.doubled} doubled, longest recovery {result.longest_s:.1f} s "
        f"({result.slowest})\n"
    )
    for problem in verdict.problems[:10]:
        sys.stdout.write(f"  {problem[:500]}\n")
    for said, count in sorted(result.complaints.items()):
        sys.stdout.write(f"  {count:3} x {said}\n")
    sys.stdout.flush()


def _print_total(rounds: list[ConsumerRound]) -> int:
    faults: Counter[str] = sum((each.faults for each in rounds), Counter())
    lost = sum(each.verdict.lost for each in rounds)
    doubled = sum(each.verdict.doubled for each in rounds)
    for name, count in sorted(faults.items()):
        sys.stdout.write(f"{count:6}  {name.replace('_', ' ')}\n")
    sys.stdout.write(
        f"{faults.total()} faults survived, {sum(each.verdict.rows for each in rounds)} rows, {lost} lost, "
        f"{doubled} doubled, longest recovery {max(each.longest_s for each in rounds):.1f} s\n"
    )
    return 1 if lost or doubled else 0
