"""The demo's shop and verdict beside parts that run already, as in docker/compose.yaml: ``load``, then ``verdict``."""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console

from tailrace.runtime.errors import TailraceError
from tests.demo import shop
from tests.demo.course import add_options, follow, judge, load
from tests.demo.writer import Writer
from tests.embedded.mysql import ROOT_PASSWORD

if TYPE_CHECKING:
    from pymysql import Connection


class Address:
    """A MySQL server by host and port, as its owner."""

    def __init__(self, address: str) -> None:
        self.host, _, port = address.partition(":")
        self.port = int(port or 3306)

    def connect(self, **changes: Any) -> Connection[Any]:
        """Open a session with autocommit; ``changes`` are arguments of ``pymysql.connect``."""
        import pymysql  # noqa: PLC0415

        arguments = {
            "host": self.host,
            "port": self.port,
            "user": "root",
            "password": ROOT_PASSWORD,
            "autocommit": True,
        }
        return pymysql.connect(**{**arguments, "charset": "utf8mb4", **changes})


class Attached:
    """Addresses from the environment, with those of docker/compose.yaml as defaults."""

    def __init__(self) -> None:
        self.source = Address(os.environ.get("DEMO_MYSQL", "mysql:3306"))
        self.bootstrap = os.environ.get("DEMO_KAFKA", "kafka:9092")
        self.producer_status = os.environ.get("DEMO_PRODUCER", "http://producer:8083/status")
        data = Path(os.environ.get("DEMO_DATA", "/var/lib/tailrace"))
        self.sink, self.checkpoint = data / "tables", data / "checkpoint"

    def check(self) -> None:
        """Do nothing: whoever started the parts watches them."""


def main() -> int:
    """Load the shop, or write, wait and compare; 0 when all went well and every table is equal."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("step", choices=("load", "verdict"))
    add_options(parser)
    options = parser.parse_args()
    console = Console(width=140)
    sizes = shop.Sizes.of(options.rows)
    running = Attached()
    try:
        if options.step == "load":
            load(running, sizes, console)
            return 0
        writer = Writer(running.source, sizes, rate=options.rate)
        writer.start()
        follow(running, writer, options, console)
        with tempfile.TemporaryDirectory(prefix="tailrace-") as work:
            return 0 if judge(running, console, work=Path(work)) else 1
    except (TailraceError, TimeoutError) as error:
        console.print(f"error: {error}", style="red", markup=False, highlight=False)
        return 1


if __name__ == "__main__":
    sys.exit(main())
