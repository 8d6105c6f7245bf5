"""``./run demo``: everything from MySQL to Delta tables on this machine, live, then compared row by row."""

from __future__ import annotations

import argparse
import contextlib
import os
import shlex
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType

from rich.console import Console

from schemas.errors import TailraceError
from tests.demo import shop
from tests.demo.progress import Observer, Progress
from tests.demo.screen import Screen, verdict_table
from tests.demo.stack import PREFIX, ROOT, Stack
from tests.demo.verdict import Comparison, compare
from tests.demo.writer import Writer
from tests.embedded.artifacts import fetch
from tests.embedded.java import java_home
from tests.embedded.spark import start_session

_LOOK_EVERY_S = 0.5


def main() -> int:
    """Run the demo; 0 when every sink table equals its source table, 1 when not, 130 after Ctrl-C."""
    options = _options()
    console = Console()
    if not console.is_terminal:
        console = Console(width=140)
    signal.signal(signal.SIGTERM, _interrupt)
    try:
        with Stack() as stack:
            found = _run(stack, options, console)
            good = all(each.equal for each in found)
            if options.keep:
                _tell_how_to_connect(stack, console)
                signal.pause()
            return 0 if good else 1
    except KeyboardInterrupt:
        console.print("stopped; nothing is left running")
        return 130
    except (TailraceError, TimeoutError) as error:
        console.print(f"error: {error}", style="red", markup=False, highlight=False)
        return 1


def _run(stack: Stack, options: argparse.Namespace, console: Console) -> list[Comparison]:
    """Start everything, watch it, and compare at the end."""
    sizes = shop.Sizes.of(options.rows)
    _start_servers(stack, sizes, console)
    writer = Writer(stack.mysql, sizes, rate=options.rate)
    observer = Observer(stack)

    def watch(seconds: float, over: Callable[[Progress], bool], doing: str) -> bool:
        """Show progress until it is ``over``; False when it was not within ``seconds``."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            stack.check()
            writer.check()
            now = observer.look()
            screen.show(now, doing=doing, changes=writer.changes)
            if over(now):
                return True
            time.sleep(_LOOK_EVERY_S)
        return False

    def caught_up(now: Progress) -> bool:
        return now.behind == 0 and now.phase == "log" and observer.log_is_written(now)

    try:
        with Screen(console) as screen:
            writer.start()
            stack.start_producer()
            stack.start_consumer()
            watch(options.seconds, lambda _: False, "the shop is at work")
            writer.stop()
            done = watch(options.deadline, caught_up, "the shop is closed; the rest is on its way")
    finally:
        observer.close()
    if not done:
        console.print(f"the sink has not caught up within {options.deadline:g} s", style="red")
        console.print(stack.log("produce"), stack.log("consume"), markup=False, highlight=False)
    if not options.keep:
        stack.end_processes()
    return _judge(stack, console)


def _start_servers(stack: Stack, sizes: shop.Sizes, console: Console) -> None:
    """Bring MySQL with the shop in it, and Kafka."""
    for section in ("kafka", "spark"):
        fetch(section)
    console.print(f"starting MySQL {stack.mysql.version} and Kafka ...")
    stack.mysql.start()
    stack.kafka.start()
    started, total = time.monotonic(), 0

    def report(rows: int) -> None:
        nonlocal total
        total += rows

    with stack.mysql.connect() as session:
        shop.create(session)
        shop.load(session, sizes, report)
    console.print(f"loaded {total:,} rows into {len(shop.TABLES)} tables in {time.monotonic() - started:.1f} s")


def _judge(stack: Stack, console: Console) -> list[Comparison]:
    """Compare every table in a Spark session of its own, and print the verdict."""
    console.print("comparing every row ...")
    with _quiet(stack.work / "compare.log"):
        session = start_session(stack.work / "compare")
    try:
        found = [compare(stack.mysql, session, stack.sink / shop.DATABASE / table, table) for table in shop.TABLES]
    finally:
        session.stop()
    console.print(verdict_table(found))
    for each in found:
        for example in each.examples:
            console.print(f"  {each.table}: {example}", markup=False, highlight=False)
    return found


@contextlib.contextmanager
def _quiet(log: Path) -> Iterator[None]:
    """Send what this process and those it starts say on stderr into a file; the new Java keeps it there."""
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
    again = {
        "bootstrap.servers": stack.kafka.bootstrap,
        "topic.prefix": PREFIX,
        "checkpointLocation": stack.work / "checkpoint-2",
        "sink": "delta",
        "sink.path": stack.work / "tables-2",
    }
    config = stack.write_settings("again", again)
    properties = stack.work / "spark.properties"
    lines = [f"{name}={value}" for name, value in stack.spark_settings().items()]
    properties.write_text("\n".join(lines) + "\n", encoding="utf-8")
    submit = Path(sys.executable).with_name("spark-submit")
    command = [submit, "--properties-file", properties, ROOT / "spark_consumer" / "app.py", "--config", config]
    topics = sorted(name for name in stack.kafka.admin().list_topics(timeout=10).topics if name.startswith(PREFIX))
    console.print(
        f"\nKafka      {stack.kafka.bootstrap}\n"
        f"topics     {', '.join(topics)}\n"
        f"MySQL      {stack.mysql.host}:{stack.mysql.port}, user {stack.mysql.user}, password {stack.mysql.password},"
        f" database {shop.DATABASE}\n"
        f"tables     {stack.sink}\n"
        f"producer   http://127.0.0.1:{stack.producer_port}/status\n"
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
    parser.add_argument("--seconds", type=float, default=30, help="how long the shop writes (default 30)")
    parser.add_argument("--rows", type=int, default=shop.ROWS, help=f"rows loaded in all (default {shop.ROWS:,})")
    parser.add_argument("--rate", type=float, default=60, help="transactions of the shop a second (default 60)")
    parser.add_argument("--deadline", type=float, default=300, help="seconds given to catch up (default 300)")
    parser.add_argument("--keep", action="store_true", help="leave everything up and tell how to connect")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
