"""The demo's steps against servers that run already, as in docker/compose.yaml: ``load``, then ``verify``."""

from __future__ import annotations

import argparse
import os
import signal
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console

from tailrace.runtime.errors import TailraceError
from tailrace.runtime.interrupt import interrupt_on
from tests.demo import sample_database
from tests.demo.steps import add_options, load, verify, watch
from tests.demo.workload import Workload
from tests.embedded.mysql import ROOT_PASSWORD

if TYPE_CHECKING:
    from pymysql import Connection


class Address:
    """A MySQL server by host and port."""

    def __init__(self, address: str) -> None:
        self.host, _, port = address.partition(":")
        self.port = int(port or 3306)

    def connect(self, **changes: Any) -> Connection[Any]:
        """Open a session as root with autocommit; ``changes`` are arguments of ``pymysql.connect``."""
        import pymysql  # noqa: PLC0415

        arguments = {
            "host": self.host,
            "port": self.port,
            "user": "root",
            "password": ROOT_PASSWORD,
            "autocommit": True,
        }
        return pymysql.connect(**{**arguments, "charset": "utf8mb4", **changes})


class ExternalDeployment:
    """Addresses from the environment; the defaults are those of docker/compose.yaml."""

    def __init__(self) -> None:
        self.source = Address(os.environ.get("DEMO_MYSQL", "mysql:3306"))
        self.bootstrap = os.environ.get("DEMO_KAFKA", "kafka:9092")
        self.producer_status = os.environ.get("DEMO_PRODUCER", "http://producer:8083/status")
        data = Path(os.environ.get("DEMO_DATA", "/var/lib/tailrace"))
        self.sink, self.checkpoint = data / "tables", data / "checkpoint"

    def check(self) -> None:
        """Do nothing: compose watches the processes."""


def main() -> int:
    """Load the sample database, or run the workload and compare. Return 0 if every table is equal."""
    interrupt_on(signal.SIGINT, signal.SIGTERM)
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("step", choices=("load", "verify"))
    add_options(parser)
    options = parser.parse_args()
    console = Console(width=140)
    sizes = sample_database.Sizes.of(options.rows)
    deployment = ExternalDeployment()
    try:
        if options.step == "load":
            load(deployment, sizes, console)
            return 0
        workload = Workload(deployment.source, sizes, rate=options.rate)
        workload.start()
        watch(deployment, workload, options, console)
        with tempfile.TemporaryDirectory(prefix="tailrace-") as work:
            return 0 if verify(deployment, console, work=Path(work)) else 1
    except KeyboardInterrupt:
        return 130
    except (TailraceError, TimeoutError) as error:
        console.print(f"error: {error}", style="red", markup=False, highlight=False)
        return 1


if __name__ == "__main__":
    sys.exit(main())
