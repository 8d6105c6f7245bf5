"""``./run soak``: random faults under random writers, then topics against source and binlog. Prints what was lost."""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from tests.embedded.kafka import KafkaBroker
from tests.embedded.prepare import prepare
from tests.soak.faults import SoakError
from tests.soak.round import Round, RoundResult
from tests.support.replication import replicating_servers


def main(arguments: Sequence[str] | None = None) -> int:
    """Run rounds until the time is over; return 1 if a record was lost or doubled, or a fault was not survived."""
    parser = argparse.ArgumentParser(prog="./run soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=10, help="how long new faults are made (default 10)")
    parser.add_argument("--seed", type=int, default=1, help="seed of writers and faults (default 1)")
    parser.add_argument("--rows", type=int, default=1500, help="rows of each table at the start of a round")
    parser.add_argument("--faults", type=int, default=60, help="faults of a round (default 60)")
    parser.add_argument(
        "--consumer", action="store_true", help="faults of the consumer, its files and targets; tables are compared"
    )
    parser.add_argument("--cluster", action="store_true", help="with --consumer: on a cluster")
    options = parser.parse_args(arguments)
    if options.consumer:
        from tests.soak.consumer.main import soak  # noqa: PLC0415 - only this mode needs Spark

        return soak(options)
    prepare(("mysql", "kafka"))
    until = time.monotonic() + options.minutes * 60
    results: list[RoundResult] = []
    folder = Path(tempfile.mkdtemp(prefix="tailrace-soak-"))
    keep = False
    try:
        with replicating_servers() as servers, KafkaBroker() as broker:
            cluster = servers
            while time.monotonic() < until:
                number = len(results) + 1
                current = Round(number, options, cluster, broker, folder)
                result = current.run(options.faults, until)
                cluster = current.cluster
                results.append(result)
                _print_round(number, result, folder)
                keep = keep or bool(result.verdict.problems)
    except SoakError as error:
        sys.stdout.write(f"FAILED: {error}\n")
        keep = True
        return 1
    finally:
        if not keep:
            shutil.rmtree(folder, ignore_errors=True)
    return _print_total(results)


def _print_round(number: int, result: RoundResult, folder: Path) -> None:
    verdict = result.verdict
    sys.stdout.write(
        f"round {number}: {result.faults.total()} faults, {result.signals.total()} signals, "
        f"{result.transactions} transactions, {verdict.changes} changes, {verdict.records} records, "
        f"lost {verdict.lost}, doubled {verdict.doubled}, not captured {verdict.not_captured}, "
        f"longest recovery {result.longest_s:.1f} s ({result.slowest}), longest takeover {result.takeover_s:.1f} s\n"
    )
    for error, count in sorted(result.ends.items()):
        sys.stdout.write(f"  ended {count} times: {error}\n")
    shown: Counter[str] = Counter()
    for problem in verdict.problems:
        table = problem.partition(":")[0]
        shown[table] += 1
        if shown[table] <= 2:
            sys.stdout.write(f"  {problem[:700]}\n")
    if verdict.problems:
        problems = folder / f"round{number}" / "problems.txt"
        problems.write_text("\n".join(verdict.problems))
        sys.stdout.write(f"  all {len(verdict.problems)} problems: {problems}\n")
    sys.stdout.flush()


def _print_total(results: Sequence[RoundResult]) -> int:
    faults: Counter[str] = sum((result.faults for result in results), Counter())
    signals: Counter[str] = sum((result.signals for result in results), Counter())
    lost = sum(result.verdict.lost for result in results)
    doubled = sum(result.verdict.doubled for result in results)
    not_captured = sum(result.verdict.not_captured for result in results)
    problems = sum(len(result.verdict.problems) for result in results)
    for name, count in sorted(faults.items()):
        sys.stdout.write(f"{count:6}  {name.replace('_', ' ')}\n")
    for name, count in sorted(signals.items()):
        sys.stdout.write(f"{count:6}  {name.replace('_', ' ')} (no fault)\n")
    sys.stdout.write(
        f"{faults.total()} faults survived, {sum(r.verdict.records for r in results)} records, {lost} lost, "
        f"{doubled} doubled, {not_captured} not captured, "
        f"longest recovery {max(r.longest_s for r in results):.1f} s\n"
    )
    return 1 if lost or doubled or problems else 0


if __name__ == "__main__":
    sys.exit(main())
