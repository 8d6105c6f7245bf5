"""``./run demo``: everything from MySQL to Delta tables on this machine, live, then compared row by row."""

from __future__ import annotations

import argparse
import contextlib
import os
import shlex
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from types import FrameType

from rich.console import Console

from tailrace.runtime.errors import TailraceError
from tests.demo import shop
from tests.demo.course import add_options, follow, judge, load
from tests.demo.stack import ROOT, Stack
from tests.demo.writer import Writer
from tests.embedded.artifacts import fetch
from tests.embedded.java import java_home
from tests.embedded.kafka import VERSION


def main() -> int:
    """Run the demo; 0 when every sink table equals its source table, 1 when not, 130 after Ctrl-C."""
    options = _options()
    console = Console()
    if not console.is_terminal:
        console = Console(width=140)
    signal.signal(signal.SIGTERM, _interrupt)
    try:
        with Stack() as stack:
            equal = _run(stack, options, console)
            if options.keep:
                _tell_how_to_connect(stack, console)
                # Spark, asked for the comparison, has put its own handler of Ctrl-C in place.
                signal.signal(signal.SIGINT, _interrupt)
                signal.pause()
            return 0 if equal else 1
    except KeyboardInterrupt:
        console.print("stopped; nothing is left running")
        return 130
    except (TailraceError, TimeoutError) as error:
        console.print(f"error: {error}", style="red", markup=False, highlight=False)
        return 1


def _run(stack: Stack, options: argparse.Namespace, console: Console) -> bool:
    """Start everything, watch it, and compare at the end; whether all tables are equal."""
    sizes = shop.Sizes.of(options.rows)
    for section in ("kafka", "spark"):
        fetch(section)
    console.print(f"starting MySQL {stack.mysql.version} and Kafka {VERSION} ...")
    stack.mysql.start()
    stack.kafka.start()
    load(stack, sizes, console)
    writer = Writer(stack.mysql, sizes, rate=options.rate)
    writer.start()
    stack.start_producer()
    stack.start_consumer()
    if not follow(stack, writer, options, console):
        console.print(stack.log("produce"), stack.log("consume"), markup=False, highlight=False)
    if not options.keep:
        stack.end_processes()
    with _quiet(stack.work / "compare.log"):
        return judge(stack, console, work=stack.work / "compare")


@contextlib.contextmanager
def _quiet(log: Path) -> Iterator[None]:
    """Send what this process and those it starts say on stderr into a file: Spark's first words are not for users."""
    sys.stderr.flush()
    kept = os.dup(2)
    try:
        with log.open("wb") as file:
            os.dup2(file.fileno(), 2)
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)


def _tell_how_to_connect(stack: Stack, console: Console) -> None:
    """Print addresses, and a spark-submit line that reads the same topics into other tables."""
    incremental = {
        "bootstrap.servers": stack.kafka.bootstrap,
        "topic.prefix": shop.PREFIX,
        "checkpointLocation": stack.work / "checkpoint-2",
        "sink": "delta",
        "sink.path": stack.work / "tables-2",
    }
    config = stack.write_settings("incremental", incremental)
    properties = stack.work / "spark.properties"
    lines = [f"{name}={value}" for name, value in stack.spark_settings().items()]
    properties.write_text("\n".join(lines) + "\n", encoding="utf-8")
    submit = Path(sys.executable).with_name("spark-submit")
    command = [submit, "--properties-file", properties, ROOT / "spark_consumer" / "app.py", "--config", config]
    topics = sorted(name for name in stack.kafka.admin().list_topics(timeout=10).topics if name.startswith(shop.PREFIX))
    console.print(
        f"\nKafka      {stack.kafka.bootstrap}\n"
        f"topics     {', '.join(topics)}\n"
        f"MySQL      {stack.mysql.host}:{stack.mysql.port}, user {stack.mysql.user}, password {stack.mysql.password},"
        f" database {shop.DATABASE}\n"
        f"tables     {stack.sink}\n"
        f"producer   {stack.producer_status}\n"
        f"consumer   http://127.0.0.1:{stack.consumer_port}/status\n"
        "another consumer:\n"
        f"  JAVA_HOME={java_home()} PYSPARK_PYTHON={sys.executable} {shlex.join(map(str, command))}\n\n"
        "Everything stays up until Ctrl-C.",
        soft_wrap=True,
        markup=False,
        highlight=False,
    )


def _interrupt(_number: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="./run demo", description=__doc__)
    add_options(parser)
    parser.add_argument("--keep", action="store_true", help="leave everything up and tell how to connect")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
