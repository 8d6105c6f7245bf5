"""``python -m tests.debezium_parity``: compares Tailrace with real Debezium; prints equal, excepted and different.

Ends with 0 only where nothing is different. ``--record`` writes what Debezium wrote to ``golden/`` instead.
"""

from __future__ import annotations

import argparse
import json
import pickle
import sys
import time
from pathlib import Path
from typing import Any

from tests.debezium_parity import golden
from tests.debezium_parity.artifacts import debezium_version
from tests.debezium_parity.compare import Report
from tests.debezium_parity.debezium import debezium_prefix
from tests.debezium_parity.run import Outcome, run
from tests.debezium_parity.statements import AFTER_SNAPSHOT, BEFORE_SNAPSHOT, DATABASE, SESSION
from tests.debezium_parity.table import column_types, print_tables
from tests.debezium_parity.variants import VARIANTS, Variant
from tests.debezium_parity.verdict import judge


def main(arguments: list[str]) -> int:
    """Run the oracle and return the exit code."""
    parser = argparse.ArgumentParser(prog="oracle", description=__doc__)
    parser.add_argument("--record", action="store_true", help="write golden records, compare nothing")
    parser.add_argument("--variants", default="", help="names, comma-separated; all unless told")
    parser.add_argument("--show", type=int, default=3, help="differences printed per table and variant")
    parser.add_argument("--keep", type=Path, help="keep all records in this file")
    parser.add_argument("--again", type=Path, help="compare the records of such a file, run nothing")
    options = parser.parse_args(arguments)
    chosen = [each for each in VARIANTS if not options.variants or each.name in options.variants.split(",")]
    begun = time.monotonic()

    def say(text: str) -> None:
        sys.stderr.write(f"{time.monotonic() - begun:6.1f} s  {text}\n")

    if options.incremental:
        outcomes = pickle.loads(options.incremental.read_bytes())  # noqa: S301 - a file of one's own
    else:
        outcomes = run(chosen, with_tailrace=not options.record, say=say)
    if options.keep:
        options.keep.write_bytes(pickle.dumps(outcomes))
    if options.record:
        _record(outcomes)
        return 0
    reports = {outcome.variant: judge(outcome) for outcome in outcomes}
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
    golden.FOLDER.mkdir(exist_ok=True)
    path = golden.FOLDER / "about.json"
    about: dict[str, Any] = {
        "debezium": debezium_version(),
        "mysql": "8.0.15",
        "kafka_connect": "4.3.1",
        "database": DATABASE,
        "session": list(SESSION),
        "before_snapshot": list(BEFORE_SNAPSHOT),
        "after_snapshot": list(AFTER_SNAPSHOT),
    }
    kept = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    variants = kept.pop("variants", {})
    if kept != about and len(outcomes) < len(VARIANTS):
        raise SystemExit("the script or a version has changed: record all variants")
    for outcome in outcomes:
        name = outcome.variant.name
        golden.write(golden.FOLDER / f"{name}.jsonl", outcome.debezium, prefix=debezium_prefix(outcome.variant))
    recorded = {outcome.variant.name: outcome.variant.debezium for outcome in outcomes}
    about["variants"] = {each.name: (variants | recorded).get(each.name) for each in VARIANTS}
    path.write_text(json.dumps(about, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
