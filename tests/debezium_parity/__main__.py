"""Compares Tailrace with the real Debezium connector.

Prints what is equal, what a named exception covers and what is different. The exit code is 0 if nothing is different.
With --record it stores what Debezium writes as golden records instead.
"""

from __future__ import annotations

import argparse
import pickle
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from tailrace.runtime.interrupt import interrupt_on
from tests.debezium_parity import about, golden
from tests.debezium_parity.compare import Report
from tests.debezium_parity.debezium import debezium_prefix
from tests.debezium_parity.run import Outcome, run
from tests.debezium_parity.table import column_types, print_tables
from tests.debezium_parity.variants import VARIANTS, Variant
from tests.debezium_parity.verdict import verdict
from tests.embedded.prepare import prepare


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the program and return the exit code: 130 after Ctrl-C."""
    interrupt_on(signal.SIGINT, signal.SIGTERM)
    try:
        return _run(_options(arguments))
    except KeyboardInterrupt:
        return 130


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="./run parity", description=__doc__)
    parser.add_argument("--record", action="store_true", help="store golden records; compare nothing")
    parser.add_argument("--variants", default="", help="names of variants, comma-separated (default: all)")
    parser.add_argument("--show", type=int, default=3, help="number of differences to print per table and variant")
    parser.add_argument("--save", type=Path, help="save all records to this file")
    parser.add_argument("--load", type=Path, help="use the records of a file made with --save; run nothing")
    return parser.parse_args(arguments)


def _run(options: argparse.Namespace) -> int:
    chosen = [each for each in VARIANTS if not options.variants or each.name in options.variants.split(",")]
    started = time.monotonic()

    def report(text: str) -> None:
        sys.stderr.write(f"{time.monotonic() - started:6.1f} s  {text}\n")

    if options.load:
        outcomes = pickle.loads(options.load.read_bytes())  # noqa: S301 - a file that --save wrote
    else:
        prepare(("mysql", "kafka", "registry", "debezium"))
        outcomes = run(chosen, with_tailrace=not options.record, report=report)
    if options.save:
        options.save.write_bytes(pickle.dumps(outcomes))
    if options.record:
        _record(outcomes)
        return 0
    reports = {outcome.variant: verdict(outcome) for outcome in outcomes}
    print_tables(reports, {name: kind for outcome in outcomes for name, kind in column_types(outcome).items()})
    return _print_differences(reports, limit=options.show)


def _print_differences(reports: dict[Variant, Report], *, limit: int) -> int:
    count = 0
    for variant, report in reports.items():
        for differences in report.different.values():
            count += len(differences)
            for difference in differences[:limit]:
                print(f"DIFFERENT {variant.name}: {difference}")
    print(f"\n{count} different" if count else "\nnothing is different")
    return 1 if count else 0


def _record(outcomes: list[Outcome]) -> None:
    current, stored = about.current(), about.stored()
    recorded = {outcome.variant.name: outcome for outcome in outcomes}
    kept = current["variants"].keys() - recorded.keys()
    if kept and current | {"variants": stored.get("variants")} != stored:
        raise SystemExit("the statements or a version changed; record all variants")
    golden.write(
        {name: outcome.debezium for name, outcome in recorded.items()},
        prefixes={name: debezium_prefix(outcome.variant) for name, outcome in recorded.items()},
    )
    for name in kept:
        current["variants"][name] = stored["variants"].get(name)
    about.store(current)


if __name__ == "__main__":
    sys.exit(main())
