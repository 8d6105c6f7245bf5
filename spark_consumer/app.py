"""The program for spark-submit: reads the configuration, runs the query, returns the exit code.

spark-submit --py-files tailrace-spark.zip app.py --config FILE
"""

from __future__ import annotations

import argparse
import signal
import sys
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path

import structlog

from tailrace.runtime.error_report import reporting_errors
from tailrace.runtime.http import Endpoints, HttpServer
from tailrace.runtime.interrupt import interrupt_on
from tailrace.runtime.logging import configure_logging
from tailrace.runtime.versions import versions_text
from tailrace.spark_consumer import config as configuration
from tailrace.spark_consumer import session
from tailrace.spark_consumer.config import ConsumerConfig
from tailrace.spark_consumer.monitor.status import Status
from tailrace.spark_consumer.query import RunningQuery
from tailrace.spark_consumer.sink.plugin import SinkPlugin, load_sink
from tailrace.spark_consumer.sink.routing import QuerySink

log = structlog.get_logger(__name__)


def run(config: ConsumerConfig, *, wrap: Callable[[SinkPlugin], SinkPlugin] = lambda plugin: plugin) -> None:
    """Run one query until it ends, or until a signal stops it after the current batch.

    ``wrap`` can replace the plug-ins of the sinks, for tests. Raises TailraceError if the query fails.
    """
    configure_logging(config.log_format, config.log_level)
    status = Status(config.name, config.sink_names)
    for warning in config.warnings:
        log.warning("setting has no effect", setting=warning)
    with ExitStack() as stack:
        if config.monitor_port:
            host, port = config.monitor_host, config.monitor_port
            endpoints = Endpoints(
                status=status.as_dict,
                metrics=status.registry,
                is_live=lambda: status.alive,
                is_ready=lambda: status.ready,
            )
            stack.enter_context(HttpServer(endpoints, address=host, port=port, port_property="monitor.port"))
        sinks = load_sinks(config, wrap)
        spark = session.build(config, [sink.plugin for sink in sinks])
        try:
            running = RunningQuery(spark, config, sinks, status)
            # PySpark installs its own handler for SIGINT when the session starts; these must come later.
            for number in (signal.SIGTERM, signal.SIGINT):
                signal.signal(number, lambda *_: running.stop())
            signal.signal(signal.SIGUSR1, lambda *_: running.retry_parked())
            log.info("query started", name=config.name, id=running.query.id, sinks=config.sink_names)
            running.wait()
        finally:
            spark.stop()


def load_sinks(
    config: ConsumerConfig, wrap: Callable[[SinkPlugin], SinkPlugin] = lambda plugin: plugin
) -> tuple[QuerySink, ...]:
    """Return the sinks of a configuration; ``wrap`` can replace their plug-ins."""
    return tuple(
        QuerySink(chosen.name, wrap(load_sink(chosen.kind).with_jars(chosen.options)), chosen.options, chosen.tables)
        for chosen in config.chosen_sinks
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Run from the command line. An error is printed without a traceback, and the exit code is that of the error."""
    parser = argparse.ArgumentParser(
        prog="app.py",
        description="Apply change events to tables or changelogs.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--config", type=Path, help="JSON or .properties file; environment variables override it")
    parser.add_argument("--version", action="version", version=versions_text())
    parser.add_argument("--debug", action="store_true", help="print the traceback of an error")
    parsed = parser.parse_args(arguments)
    interrupt_on(signal.SIGINT)  # until the query runs
    with reporting_errors(debug=parsed.debug, in_log=True):
        run(configuration.load(parsed.config))
    return 0


if __name__ == "__main__":
    sys.exit(main())
