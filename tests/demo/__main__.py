"""``./run demo``: MySQL to Delta tables on this machine, shown live, then compared row by row."""

from __future__ import annotations

import argparse
import contextlib
import os
import shlex
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

from rich.console import Console

from tailrace.runtime.errors import TailraceError
from tailrace.runtime.interrupt import interrupt_on
from tests.demo import fan_out, sample_database
from tests.demo.stack import ROOT, Stack
from tests.demo.steps import add_options, load, verify, watch
from tests.demo.targets import TARGETS
from tests.demo.workload import Workload
from tests.embedded.java import java_home
from tests.embedded.kafka import VERSION
from tests.embedded.prepare import prepare


def main() -> int:
    """Run the demo. Return 0 if every sink table equals its source table, 1 if not, 130 after Ctrl-C."""
    interrupt_on(signal.SIGINT, signal.SIGTERM)
    options = _options()
    console = Console()
    if not console.is_terminal:
        console = Console(width=140)
    try:
        if options.sinks:
            return _fan_out(options, console)
        prepare(("mysql", "kafka", "spark"))
        with Stack() as stack:
            equal = _run(stack, options, console)
            if options.keep:
                _print_addresses(stack, console)
                # The comparison's Spark session replaced the handler of SIGINT.
                interrupt_on(signal.SIGINT)
                signal.pause()
            return 0 if equal else 1
    except KeyboardInterrupt:
        console.print("stopped; no process is left")
        return 130
    except (TailraceError, TimeoutError) as error:
        console.print(f"error: {error}", style="red", markup=False, highlight=False)
        return 1


def _fan_out(options: argparse.Namespace, console: Console) -> int:
    sinks = fan_out.check_options(options)
    prepare(("mysql", "kafka", "spark", *(("postgresql",) if "postgres" in sinks else ())))
    with fan_out.FanOut(sinks, options.tables) as stack, _stderr_to(stack.work / "compare.log"):
        return 0 if fan_out.run(stack, options, console) else 1


def _run(stack: Stack, options: argparse.Namespace, console: Console) -> bool:
    """Start everything, show its progress, and compare at the end. Return whether all tables are equal."""
    sizes = sample_database.Sizes.of(options.rows)
    console.print(f"starting MySQL {stack.mysql.version} and Kafka {VERSION} ...")
    stack.mysql.start()
    stack.kafka.start()
    load(stack, sizes, console)
    workload = Workload(stack.mysql, sizes, rate=options.rate)
    workload.start()
    stack.start_producer()
    stack.start_consumer()
    if not watch(stack, workload, options, console):
        console.print(stack.log("produce"), stack.log("consume"), markup=False, highlight=False)
    if not options.keep:
        stack.stop_processes()
    with _stderr_to(stack.work / "compare.log"):
        return verify(stack, console, work=stack.work / "compare")


@contextlib.contextmanager
def _stderr_to(log: Path) -> Iterator[None]:
    """Redirect the stderr of this process and its children into a file: Spark's start-up messages are noise here."""
    sys.stderr.flush()
    saved = os.dup(2)
    try:
        with log.open("wb") as file:
            os.dup2(file.fileno(), 2)
        yield
    finally:
        os.dup2(saved, 2)
        os.close(saved)


def _print_addresses(stack: Stack, console: Console) -> None:
    """Print addresses, and a spark-submit command that reads the same topics into other tables."""
    second = {
        "bootstrap.servers": stack.kafka.bootstrap,
        "topic.prefix": sample_database.PREFIX,
        "checkpointLocation": stack.work / "checkpoint-2",
        "sink": "delta",
        "sink.path": stack.work / "tables-2",
    }
    config = stack.write_settings("consume-2", second)
    properties = stack.work / "spark.properties"
    lines = [f"{name}={value}" for name, value in stack.spark_settings().items()]
    properties.write_text("\n".join(lines) + "\n", encoding="utf-8")
    submit = Path(sys.executable).with_name("spark-submit")
    command = [submit, "--properties-file", properties, ROOT / "spark_consumer" / "app.py", "--config", config]
    known = stack.kafka.admin().list_topics(timeout=30).topics
    topics = sorted(name for name in known if name.startswith(sample_database.PREFIX))
    console.print(
        f"\nKafka      {stack.kafka.bootstrap}\n"
        f"topics     {', '.join(topics)}\n"
        f"MySQL      {stack.mysql.host}:{stack.mysql.port}, user {stack.mysql.user}, password {stack.mysql.password},"
        f" database {sample_database.DATABASE}\n"
        f"tables     {stack.sink}\n"
        f"producer   {stack.producer_status}\n"
        f"consumer   http://127.0.0.1:{stack.consumer_port}/status\n"
        "a second consumer:\n"
        f"  JAVA_HOME={java_home()} PYSPARK_PYTHON={sys.executable} {shlex.join(map(str, command))}\n\n"
        "Everything runs until Ctrl-C.",
        soft_wrap=True,
        markup=False,
        highlight=False,
    )


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="./run demo", description=__doc__)
    add_options(parser)
    parser.add_argument("--sinks", help=f"several sinks in one consumer, separated by commas: {', '.join(TARGETS)}")
    parser.add_argument("--tables", type=int, default=40, help="number of tables with --sinks (default 40)")
    parser.add_argument("--keep", action="store_true", help="keep everything running at the end and print addresses")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
