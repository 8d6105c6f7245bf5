"""The course of a demo once everything is up: the shop writes, closes, and the sink catches up."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from pathlib import Path

from rich.console import Console

from tests.demo import shop
from tests.demo.progress import Observer, Progress
from tests.demo.running import Running
from tests.demo.screen import Screen, verdict_table
from tests.demo.verdict import Comparison, compare
from tests.demo.writer import Writer
from tests.embedded.spark import start_session

_LOOK_EVERY_S = 0.5


def follow(running: Running, writer: Writer, options: argparse.Namespace, console: Console) -> bool:
    """Show everything until the sink has caught up with the closed shop; False when it has not by the deadline."""
    observer = Observer(running)

    def watch(seconds: float, over: Callable[[Progress], bool], doing: str) -> bool:
        """Show progress until it is ``over``; False when it was not within ``seconds``."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            running.check()
            writer.check()
            now = observer.look()
            screen.show(now, doing=doing, changes=writer.changes)
            if over(now):
                return True
            time.sleep(_LOOK_EVERY_S)
        return False

    def caught_up(now: Progress) -> bool:
        return now.behind == 0 and now.phase == "streaming" and observer.log_is_written(now)

    try:
        with Screen(console) as screen:
            watch(options.seconds, lambda _: False, "the shop is at work")
            writer.stop()
            done = watch(options.deadline, caught_up, "the shop is closed")
    finally:
        observer.close()
    if not done:
        console.print(f"the sink has not caught up within {options.deadline:g} s", style="red")
    return done


def judge(running: Running, console: Console, *, work: Path) -> bool:
    """Compare every table in a Spark session of its own, print the verdict, and return whether all are equal."""
    console.print("comparing every row ...")
    session = start_session(work)
    try:
        found: list[Comparison] = [
            compare(running.source, session, running.sink / shop.DATABASE / table, table) for table in shop.TABLES
        ]
    finally:
        session.stop()
    console.print(verdict_table(found))
    for each in found:
        for example in each.examples:
            console.print(f"  {each.table}: {example}", markup=False, highlight=False)
    return all(each.equal for each in found)


def load(running: Running, sizes: shop.Sizes, console: Console) -> None:
    """Make the shop's tables and fill them; a shop that is there already stays as it is."""
    started = time.monotonic()
    with running.source.connect() as session:
        if shop.exists(session):
            console.print("the shop is there already")
            return
        shop.create(session)
        shop.load(session, sizes)
    console.print(f"loaded {sum(sizes):,} rows into {len(shop.TABLES)} tables in {time.monotonic() - started:.1f} s")


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options that say how long and how much."""
    parser.add_argument("--seconds", type=float, default=30, help="how long the shop writes (default 30)")
    parser.add_argument("--rows", type=int, default=shop.ROWS, help=f"rows loaded in all (default {shop.ROWS:,})")
    parser.add_argument("--rate", type=float, default=60, help="transactions of the shop a second (default 60)")
    parser.add_argument("--deadline", type=float, default=300, help="seconds given to catch up (default 300)")
