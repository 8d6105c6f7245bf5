"""``python -m tests.oracle``: real Debezium beside Tailrace, and a table of what is equal, excepted, different.

Ends with 0 only where nothing is different. ``--record`` writes what Debezium wrote to ``golden/`` instead.
"""

from __future__ import annotations

import argparse
import json
import pickle
import sys
import time
from collections import Counter
from pathlib import Path

from tests.oracle import golden
from tests.oracle.artifacts import debezium_version
from tests.oracle.compare import Report, compare
from tests.oracle.debezium import debezium_prefix
from tests.oracle.exceptions import EXCEPTIONS, QUIET
from tests.oracle.rows import rows_of
from tests.oracle.schemas import debezium_schemas, published_differences, schema_differences, tailrace_schemas
from tests.oracle.script import AFTER_SNAPSHOT, BEFORE_SNAPSHOT, DATABASE, SESSION
from tests.oracle.session import Outcome, run
from tests.oracle.tailrace import tailrace_prefix
from tests.oracle.variants import VARIANTS


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

    if options.again:
        outcomes = pickle.loads(options.again.read_bytes())  # noqa: S301 - a file of one's own
    else:
        outcomes = run(chosen, with_tailrace=not options.record, say=say)
    if options.keep:
        options.keep.write_bytes(pickle.dumps(outcomes))
    if options.record:
        _record(outcomes)
        return 0
    reports = {outcome.variant.name: _report(outcome) for outcome in outcomes if outcome.variant.offered}
    _print_table(reports, not_offered=[each.name for each in chosen if not each.offered])
    return _print_differences(reports, limit=options.show)


def _report(outcome: Outcome) -> Report:
    expected = rows_of(outcome.debezium, prefix=debezium_prefix(outcome.variant))
    actual = rows_of(outcome.tailrace, prefix=tailrace_prefix(outcome.variant))
    theirs = debezium_schemas(outcome.debezium, prefix=debezium_prefix(outcome.variant))
    ours = tailrace_schemas(outcome.tailrace, prefix=tailrace_prefix(outcome.variant))
    published = published_differences(outcome.variant, outcome.debezium, outcome.tailrace)
    return compare(expected, actual, EXCEPTIONS, quiet=QUIET, beside=[*schema_differences(theirs, ours), *published])


def _print_table(reports: dict[str, Report], *, not_offered: list[str]) -> None:
    """Print tables x variants: equal records / records with a named exception / differences."""
    tables = sorted({table for report in reports.values() for table in report.tables})
    names = list(reports)
    print(f"Debezium {debezium_version()} beside Tailrace, JSON: equal / named exception / different")
    print(f"{'table':24}" + "".join(f"{name:>18}" for name in names))
    total: dict[str, Counter[str]] = {name: Counter() for name in names}
    for table in tables:
        cells = []
        for name in names:
            report = reports[name]
            counts = report.equal[table], sum(report.excepted[table].values()), len(report.different[table])
            total[name].update(dict(zip(("equal", "excepted", "different"), counts, strict=True)))
            cells.append("{} / {} / {}".format(*counts))
        print(f"{table:24}" + "".join(f"{cell:>18}" for cell in cells))
    cells = [f"{each['equal']} / {each['excepted']} / {each['different']}" for each in total.values()]
    print(f"{'all':24}" + "".join(f"{cell:>18}" for cell in cells))
    for name in not_offered:
        print(f"not offered so far: {name}")
    used = sum((sum(report.excepted.values(), Counter()) for report in reports.values()), Counter())
    print("\nnamed exceptions met:")
    for exception in EXCEPTIONS:
        if used[exception.name]:
            print(f"  {used[exception.name]:5} {exception.name}: {exception.reason}")


def _print_differences(reports: dict[str, Report], *, limit: int) -> int:
    count = 0
    for name, report in reports.items():
        for differences in report.different.values():
            count += len(differences)
            for difference in differences[:limit]:
                print(f"DIFFERENT {name}: {difference}")
    print(f"\n{count} different" if count else "\nnothing is different")
    return 1 if count else 0


def _record(outcomes: list[Outcome]) -> None:
    golden.FOLDER.mkdir(exist_ok=True)
    for outcome in outcomes:
        name = outcome.variant.name
        golden.write(golden.FOLDER / f"{name}.jsonl", outcome.debezium, prefix=debezium_prefix(outcome.variant))
    about = {
        "debezium": debezium_version(),
        "mysql": "8.0.15",
        "kafka_connect": "4.3.1",
        "database": DATABASE,
        "variants": {outcome.variant.name: outcome.variant.debezium for outcome in outcomes},
        "session": SESSION,
        "before_snapshot": BEFORE_SNAPSHOT,
        "after_snapshot": AFTER_SNAPSHOT,
    }
    text = json.dumps(about, ensure_ascii=False, indent=1)
    (golden.FOLDER / "about.json").write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
