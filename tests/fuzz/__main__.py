"""``python -m tests.fuzz``: damaged rows, packets and table maps for both implementations of the codec."""

from __future__ import annotations

import argparse
import logging
import os
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import structlog

from tailrace.producer.native import loader
from tests.fuzz.sanitizer import FOLDER, run_sanitized


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the fuzzer; return 1 if the implementations differ or one of them failed."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--inputs", type=int, default=100_000, help="inputs for the compiled code (default 100,000)")
    parser.add_argument("--seconds", type=float, default=86_400, help="ends the run before that (default: a day)")
    parser.add_argument("--compared", type=float, default=0.1, help="share that Python gets too (default 0.1)")
    parser.add_argument("--logs", type=int, default=50, help="whole logs for each 10,000 inputs (default 50)")
    parser.add_argument("--seed", type=int, default=1, help="seed of tables, values and damage (default 1)")
    parser.add_argument("--subject", type=int, default=0, help="number of the first table (default 0)")
    parser.add_argument(
        "--sanitizer", action="store_true", help="with an extension built for AddressSanitizer and UBSan"
    )
    parser.add_argument(
        "--jobs", type=int, default=1, help="processes that share the inputs, with --sanitizer (default 1)"
    )
    options = parser.parse_args(arguments)
    if options.sanitizer:
        return run_sanitized([_of_job(options, number) for number in range(options.jobs)])
    folder = os.environ.get(FOLDER)
    if not loader.is_used():
        sys.stderr.write(f"the compiled extension is not used: {loader.unused_because()}\n")
        return 2
    # Imports the extension.
    from tests.fuzz.campaign import Campaign, FuzzError, Limits  # noqa: PLC0415

    # Values that are replaced are counted; each is logged too.
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))
    last = Path(tempfile.gettempdir(), f"tailrace-fuzz-{os.getpid()}")
    sys.stdout.write(f"seed {options.seed}: the last input is named in {last}\n")
    sys.stdout.flush()
    with last.open("wb", buffering=0) as file:

        def note(name: str) -> None:
            os.pwrite(file.fileno(), name.ljust(60).encode(), 0)

        campaign = Campaign(options.seed, options.compared, guards=bool(folder), note=note)
        start = time.monotonic()
        try:
            campaign.run(Limits(options.inputs, options.seconds, logs=options.logs), options.subject)
        except FuzzError as error:
            sys.stdout.write(f"FAILED: {error}\n{error.__cause__!r}\n")
            return 1
        finally:
            sys.stdout.write(f"seed {options.seed}: {campaign.tally}; {time.monotonic() - start:,.0f} s\n")
    last.unlink()
    return 0


def _of_job(options: argparse.Namespace, number: int) -> list[str]:
    """Return the arguments of one of several processes: each has a seed of its own."""
    values = {
        "inputs": options.inputs // options.jobs,
        "seconds": options.seconds,
        "compared": options.compared,
        "logs": options.logs,
        "seed": options.seed + number,
        "subject": options.subject,
    }
    return [f"--{name}={value}" for name, value in values.items()]


if __name__ == "__main__":
    sys.exit(main())
