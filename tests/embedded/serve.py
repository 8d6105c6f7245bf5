"""Runs one server in the foreground, for a container: ``python -m tests.embedded.serve mysql|kafka``."""

from __future__ import annotations

import argparse
import signal
import sys
from pathlib import Path
from types import FrameType

from tests.embedded.kafka import KafkaBroker
from tests.embedded.mysql import MySqlServer
from tests.embedded.supervised import wait_until

_ANY = "0.0.0.0"  # noqa: S104 - a container is reached from outside itself


def main() -> int:
    """Serve until SIGTERM or SIGINT. Return 1 if the server ends by itself."""
    options = _options()
    stopped: list[int] = []

    def stop(number: int, _frame: FrameType | None) -> None:
        stopped.append(number)

    signal.signal(signal.SIGTERM, stop)
    signal.signal(signal.SIGINT, stop)
    server = _mysql(options) if options.server == "mysql" else _kafka(options)
    server.start()
    sys.stderr.write(f"{options.server} is ready on port {server.port}\n")
    wait_until(lambda: bool(stopped) or not server.running, what="the end", deadline_s=float("inf"), pause_s=0.5)
    ended_by_itself = not server.running
    server.stop()
    return 1 if ended_by_itself else 0


def _mysql(options: argparse.Namespace) -> MySqlServer:
    return MySqlServer(port=options.port, directory=options.data, settings={"bind_address": _ANY})


def _kafka(options: argparse.Namespace) -> KafkaBroker:
    broker = KafkaBroker(port=options.port, directory=options.data, controller_port=options.port + 1)
    broker.listen(_ANY, advertised=f"{options.advertise}:{options.port}")
    return broker


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("server", choices=("mysql", "kafka"))
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--data", type=Path, required=True, help="an existing folder for the data")
    parser.add_argument("--advertise", default="127.0.0.1", help="the host name that clients connect to")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
