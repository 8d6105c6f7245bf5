"""Runs one embedded server in the foreground, for a container: ``python -m tests.embedded.serve mysql|kafka``.

``--prepare`` only fills the cache, so that an image carries everything and starts without a network.
"""

from __future__ import annotations

import argparse
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType

from tests.embedded.kafka import KafkaBroker
from tests.embedded.mysql import MySqlServer
from tests.embedded.supervised import wait_until

_ANY = "0.0.0.0"  # noqa: S104 - a container is reached from outside itself


def main() -> int:
    """Serve until SIGTERM or SIGINT; 1 when the server ends by itself."""
    options = _options()
    stopped: list[int] = []

    def stop(number: int, _frame: FrameType | None) -> None:
        stopped.append(number)

    signal.signal(signal.SIGTERM, stop)
    signal.signal(signal.SIGINT, stop)
    server = _mysql(options) if options.server == "mysql" else _kafka(options)
    server.start()
    if not options.prepare:
        sys.stderr.write(f"{options.server} is ready on port {server.port}\n")
        over: Callable[[], bool] = lambda: bool(stopped) or not server.running  # noqa: E731
        wait_until(over, what="the end", deadline_s=float("inf"), pause_s=0.5)
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
    parser.add_argument("--data", type=Path, required=True, help="an existing folder; its content is kept")
    parser.add_argument("--advertise", default="127.0.0.1", help="the host name by which clients reach Kafka")
    parser.add_argument("--prepare", action="store_true", help="fill the cache and end")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
