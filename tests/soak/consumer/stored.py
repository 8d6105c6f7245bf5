"""Faults of files in the checkpoint: empty, cut off, or with a wrong checksum. Each is told, and then put back."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from tests.soak.consumer.context import ConsumerContext, NotRecoveredError, Said


def damage_position(context: ConsumerContext) -> None:
    """The stored position of a parked table; its target was unreadable for some time."""
    table = context.any_table()
    topic, target, aside = context.topic(table), context.tables / table.name, context.folder / "aside"
    file = context.checkpoint / "tailrace" / "parked" / f"{topic}.json"
    while True:
        context.keep_running()
        context.wait(target.is_dir, "the table is there")
        context.end()
        said = Said(context.consumer)
        shutil.move(target, aside)
        target.write_text("no directory")
        context.start()
        context.touch([table])
        context.wait(partial(said.parked, topic, ""), "a table is parked whose target is no directory")
        context.end()
        target.unlink()
        shutil.move(aside, target)
        if file.exists():
            break
    _parks(context, topic, file)


def damage_state(context: ConsumerContext) -> None:
    """What the query has counted of a table."""
    table = context.any_table()
    folder = context.checkpoint / "tables" / context.topic(table)
    found: list[Path] = []
    while not found:
        context.keep_running()
        context.touch([table])
        context.wait(lambda: [*folder.glob("*.json")], "a table has a state")
        context.end()
        found = sorted(folder.glob("*.json"))
    file = context.rng.choice(found)
    _parks(context, context.topic(table), file, lambda: context.touch([table]))


def damage_sinks(context: ConsumerContext) -> None:
    """Which sink the tables have."""
    _stops(context, lambda: context.checkpoint / "tailrace" / "sinks.json")


def damage_offsets(context: ConsumerContext) -> None:
    """The offsets of the last batch, which Spark stores."""

    def newest() -> Path:
        folder = context.checkpoint / "offsets"
        numbers = [int(each.name) for each in folder.glob("[0-9]*")]
        return folder / str(max(numbers, default=0))

    _stops(context, newest)


def _parks(context: ConsumerContext, topic: str, file: Path, write: Callable[[], None] = lambda: None) -> None:
    """Damage a file: its table is parked, and goes on when the file is back."""
    put_back = _damage(context, file)
    said = Said(context.consumer)
    context.start()
    write()
    context.wait(lambda: said.parked(topic, str(file)), f"a table is parked because of {file}")
    time.sleep(context.rng.uniform(0, 5))
    put_back()


def _stops(context: ConsumerContext, choose: Callable[[], Path]) -> None:
    """Damage a file: the start ends with an error that names it, and the next one goes on when the file is back."""
    while True:
        context.keep_running()
        context.wait(lambda: choose().exists(), "a file of the checkpoint")
        context.end()
        file = choose()
        if file.exists():
            break
    put_back = _damage(context, file)
    said = Said(context.consumer)
    context.start()
    context.wait(lambda: not context.consumer.running, f"the start ends because of {file}", running=False)
    error = said.error()
    if str(file) not in error:
        raise NotRecoveredError(f"{file} is damaged, and the error is {error!r}; log: {context.consumer.log}")
    put_back()
    context.start()


def _damage(context: ConsumerContext, file: Path) -> Callable[[], None]:
    """Damage a file; return what restores it with its checksum."""
    files = [file, file.with_name(f".{file.name}.crc")]
    good = {each: each.read_bytes() for each in files if each.exists()}
    kind = context.rng.choice(("empty", "half", "wrong checksum"))
    context.note(f"{file} is damaged: {kind}")
    if kind != "wrong checksum":
        files[1].unlink(missing_ok=True)
    size = len(good[file])
    file.write_bytes(good[file][: 0 if kind == "empty" else size // 2] + b"\0" * (size // 2 if kind[0] == "w" else 0))

    def put_back() -> None:
        for each, content in good.items():
            each.write_bytes(content)

    return put_back
