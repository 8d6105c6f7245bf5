"""``./run bench``: measures the speed of each phase on this machine with real servers. It asserts nothing."""

from __future__ import annotations

import argparse
import signal
import sys
import time
from collections.abc import Callable, Sequence

from tailrace.runtime.errors import TailraceError
from tailrace.runtime.interrupt import interrupt_on
from tests.bench import customer, growth, phases, report
from tests.bench.options import setting
from tests.bench.rivals import compare
from tests.bench.stack import Stack
from tests.bench.usage import Usage
from tests.embedded.prepare import prepare

_PHASES = ("snapshot", "stream", "consumer", "all")
_PER_TRANSACTION = 20
_LATENCY_CHANGES = 500


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the program and return the exit code: 130 after Ctrl-C."""
    interrupt_on(signal.SIGINT, signal.SIGTERM)
    options = _options(arguments)
    try:
        if options.rivals is not None:
            rivals = options.rivals or sorted(compare.RIVALS)
            compare.run(rivals, rows=options.rows, changes=options.changes, turns=options.turns, say=_say())
        elif options.growth:
            prepare(("mysql", "kafka"))
            growth.run(dict(options.set), _say())
        else:
            prepare(("mysql", "kafka", "spark"))
            _run(options, _say())
    except KeyboardInterrupt:
        return 130
    except TailraceError as error:
        sys.stderr.write(f"error: {error}\n")
        return 1
    return 0


def _say() -> Callable[[str], None]:
    begun = time.monotonic()

    def say(text: str) -> None:
        sys.stderr.write(f"{time.monotonic() - begun:6.1f} s  {text}\n")

    return say


def _run(options: argparse.Namespace, say: Callable[[str], None]) -> None:
    """Run the chosen phases and print their results."""
    last = _PHASES.index(options.phase)
    results: list[phases.Result] = []
    latency: dict[str, float] | None = None
    say("starting MySQL and Kafka")
    with Stack(dict(options.set)) as stack, Usage() as usage:
        say(f"filling {options.rows:,} rows")
        customer.fill(stack.mysql, options.rows)
        say("snapshot into Kafka")
        results.append(phases.snapshot(stack, usage, options.rows))
        if last >= _PHASES.index("stream"):
            say(f"{options.changes:,} changes, then the stream into Kafka")
            results.append(_stream(stack, usage, "mixed", options.changes))
        if last == _PHASES.index("stream") or options.phase == "all":
            for kind, per_transaction in (("insert", 20), ("update", 20), ("mixed", 1)) if options.variants else ():
                say(f"stream: {kind}, {per_transaction} per transaction")
                results.append(_stream(stack, usage, kind, options.changes, per_transaction))
            say("latency of single changes")
            latency = phases.latency(stack, min(_LATENCY_CHANGES, options.rows // 2))
        if last >= _PHASES.index("consumer"):
            say("consumer into Delta")
            applied = options.rows + sum(each.rows for each in results[1:]) + (_LATENCY_CHANGES if latency else 0)
            results.append(phases.consume(stack, usage, applied))
        say("stopping")
    report.show(results, latency, rows=options.rows, changes=options.changes)


def _stream(
    stack: Stack, usage: Usage, kind: str, changes: int, per_transaction: int = _PER_TRANSACTION
) -> phases.Result:
    return phases.stream(stack, usage, kind, changes, per_transaction=per_transaction)


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="./run bench", description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000, help="rows of the table (default 1,000,000)")
    parser.add_argument("--changes", type=int, default=200_000, help="changes to stream (default 200,000)")
    parser.add_argument(
        "--phase", choices=_PHASES, default="all", help="the last phase to run; earlier phases create its data"
    )
    parser.add_argument(
        "--variants", action="store_true", help="also stream inserts only, updates only, and transactions of one row"
    )
    parser.add_argument(
        "--rivals",
        nargs="*",
        choices=sorted(compare.RIVALS),
        help="instead of the phases: the producer next to these (default: all), in turns",
    )
    parser.add_argument("--turns", type=int, default=3, help="turns of --rivals (default 3)")
    parser.add_argument(
        "--growth",
        action="store_true",
        help="instead of the phases: the cost of a row from 100,000 to 10,000,000 rows and from 1 to 1,000 tables",
    )
    parser.add_argument(
        "--set", action="append", default=[], type=setting, metavar="NAME=VALUE", help="a property of the producer"
    )
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main())
