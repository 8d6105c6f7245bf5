"""The spark-submit entry: arguments, configuration, session, query, exit code.

spark-submit spark_consumer/app.py --config FILE
"""

from __future__ import annotations

import argparse
import logging
import signal
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import structlog

from tailrace.runtime.errors import TailraceError
from tailrace.spark_consumer import config as configuration
from tailrace.spark_consumer import session
from tailrace.spark_consumer.config import ConsumerConfig
from tailrace.spark_consumer.monitor.server import MonitorServer
from tailrace.spark_consumer.monitor.status import Status
from tailrace.spark_consumer.query import RunningQuery
from tailrace.spark_consumer.sink.base import Sink
from tailrace.spark_consumer.sink.registry import make_sink

log = structlog.get_logger(__name__)


def run(config: ConsumerConfig, *, wrap: Callable[[Sink], Sink] = lambda sink: sink) -> None:
    """Run one query until it ends or a signal stops it after the running batch.

    ``wrap`` may put something around the sink; tests enter there. Raises TailraceError when the query fails.
    """
    _configure_logging(config)
    status = Status(config.name, config.sink)
    server = MonitorServer(status, config.monitor_host, config.monitor_port) if config.monitor_port else None
    try:
        spark = session.build(config)
        try:
            running = RunningQuery(spark, config, wrap(make_sink(config)), status)
            # After the session: PySpark sets a handler of its own for SIGINT.
            for number in (signal.SIGTERM, signal.SIGINT):
                signal.signal(number, lambda *_: running.stop())
            log.info("query started", name=config.name, id=running.query.id, sink=config.sink)
            running.wait()
        finally:
            spark.stop()
    finally:
        if server is not None:
            server.close()


def main(arguments: Sequence[str] | None = None) -> int:
    """Run from the command line; a user's error is a message, not a traceback."""
    parser = argparse.ArgumentParser(prog="app.py", description="Apply the topics of a prefix to tables or changelogs.")
    parser.add_argument("--config", type=Path, help="JSON or .properties file; the environment is read over it")
    chosen = parser.parse_args(arguments)
    try:
        run(configuration.load(chosen.config))
    except TailraceError as error:
        sys.stderr.write(f"error: {error}\n")
        return 1
    return 0


def _configure_logging(config: ConsumerConfig) -> None:
    as_json = config.log_format == "json" or (config.log_format == "auto" and not sys.stderr.isatty())
    renderer = structlog.processors.JSONRenderer() if as_json else structlog.dev.ConsoleRenderer()
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            renderer,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(getattr(logging, config.log_level.upper())),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
    )


if __name__ == "__main__":
    sys.exit(main())
