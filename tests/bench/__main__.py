"""``python -m tests.bench``: how fast each phase is on this machine, on real servers. Nothing is asserted."""

from __future__ import annotations

import argparse
import sys
import time

from tailrace.runtime.errors import TailraceError
from tests.bench import customer, phases, report
from tests.bench.stack import Stack
from tests.bench.usage import Usage

_PHASES = ("snapshot", "log", "consumer", "all")
_PER_TRANSACTION = 20
_LATENCY_CHANGES = 500


def main(arguments: list[str]) -> int:
    """Run the chosen phases and print their figures; return the exit code."""
    options = _options(arguments)
    begun = time.monotonic()

    def say(text: str) -> None:
        sys.stderr.write(f"{time.monotonic() - begun:6.1f} s  {text}\n")

    last = _PHASES.index(options.phase)
    results: list[phases.Result] = []
    latency: dict[str, float] | None = None
    say("starting MySQL and Kafka")
    with Stack(dict(options.set)) as stack, Usage() as usage:
        say(f"filling {options.rows:,} rows")
        customer.fill(stack.mysql, options.rows)
        say("snapshot into Kafka")
        results.append(phases.snapshot(stack, usage, options.rows))
        if last >= _PHASES.index("log"):
            say(f"{options.changes:,} changes, then the log into Kafka")
            results.append(_log(stack, usage, "mixed", options.changes))
        if last == _PHASES.index("log") or options.phase == "all":
            for kind, per_transaction in (("insert", 20), ("update", 20), ("mixed", 1)) if options.variants else ():
                say(f"log: {kind}, {per_transaction} a transaction")
                results.append(_log(stack, usage, kind, options.changes, per_transaction))
            say("latency of single changes")
            latency = phases.latency(stack, min(_LATENCY_CHANGES, options.rows // 2))
        if last >= _PHASES.index("consumer"):
            say("consumer into Delta")
            applied = options.rows + sum(each.rows for each in results[1:]) + (_LATENCY_CHANGES if latency else 0)
            results.append(phases.consume(stack, usage, applied))
        say("stopping")
    report.show(results, latency, rows=options.rows, changes=options.changes)
    return 0


def _log(stack: Stack, usage: Usage, kind: str, changes: int, per_transaction: int = _PER_TRANSACTION) -> phases.Result:
    return phases.log(stack, usage, kind, changes, per_transaction=per_transaction)


def _options(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="bench", description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000, help="rows of the table (1,000,000)")
    parser.add_argument("--changes", type=int, default=200_000, help="changes in the log (200,000)")
    parser.add_argument("--phase", choices=_PHASES, default="all", help="the last phase; those before it make its data")
    parser.add_argument("--variants", action="store_true", help="also logs of only inserts, only updates, and one-row")
    parser.add_argument(
        "--set", action="append", default=[], type=_setting, metavar="NAME=VALUE", help="a property of the producer"
    )
    return parser.parse_args(arguments)


def _setting(text: str) -> tuple[str, str]:
    name, _, value = text.partition("=")
    return name, value


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except TailraceError as error:
        sys.exit(f"error: {error}")
