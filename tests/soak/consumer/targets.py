"""Faults at the targets: older copies and versions, and other drivers that write to the same tables."""

from __future__ import annotations

import shutil
import time
from pathlib import Path
from typing import Final

from tests.soak.consumer.context import ConsumerContext, NotRecoveredError, Said
from tests.soak.consumer.process import stop
from tests.soak.tables import SoakTable
from tests.support.driver_process import DriverProcess

_VERSIONS: Final = 30
_ATTEMPTS: Final = 3


def restore_table_copy(context: ConsumerContext) -> None:
    """The driver is killed, and an older copy of a table takes the place of the table."""
    context.end()
    table = context.any_table()
    copies = [copy / context.tables.name / table.name for copy in context.copies]
    found = [copy for copy in copies if copy.is_dir()]
    if found:
        shutil.rmtree(context.tables / table.name, ignore_errors=True)
        shutil.copytree(context.rng.choice(found), context.tables / table.name)
    else:
        context.copy()
    context.start()


def restore_version(context: ConsumerContext) -> None:
    """RESTORE of a table to an earlier version; the driver runs, or is stopped meanwhile."""
    running, table = context.rng.random() < 0.6, context.any_table()
    if running and _restored(context, table):
        return
    if context.consumer.running:
        stop(context.consumer)
    if not _restored(context, table):
        raise NotRecoveredError(f"no RESTORE of {table.name} while no driver ran")
    context.start()


def second_driver(context: ConsumerContext) -> None:
    """Another driver is started on the same checkpoint: one of the two ends, with an error. The other one goes on.

    A position that the ended one has stored in its last batch counts at the next start, which skips what is applied.
    """
    context.keep_running()
    first, second = context.consumer, _another(context, context.checkpoint)
    said = {first: Said(first), second: Said(second)}
    second.start()
    context.wait(lambda: not (first.running and second.running), "of two drivers one ends", running=False)
    time.sleep(context.rng.uniform(0, 10))
    for each, log in said.items():
        if not each.running and not log.error():
            raise NotRecoveredError(f"a driver ended without an error that has a hint; log: {each.log}")
    if not first.running:
        context.consumer = second
    if context.consumer.running:
        stop(context.consumer)
    context.start()


def second_query(context: ConsumerContext) -> None:
    """Another query with an empty checkpoint writes to the same tables for some time."""
    checkpoint = context.folder / f"checkpoint{context.others}"
    other = _another(context, checkpoint)
    said, batches = Said(other), context.rng.randrange(1, 6)
    other.start()
    commits = checkpoint / "commits"
    context.wait(
        lambda: not other.running or (commits.is_dir() and len([*commits.glob("[0-9]*")]) >= batches),
        "the batches of another query",
    )
    if not other.running:
        if not said.error():
            raise NotRecoveredError(f"a query ended without an error that has a hint; log: {other.log}")
    elif context.rng.random() < 0.5:
        other.kill()
    else:
        stop(other)


def _another(context: ConsumerContext, checkpoint: Path) -> DriverProcess:
    context.others += 1
    return context.new_consumer(context.folder / f"driver{context.others}", checkpoint)


def _restored(context: ConsumerContext, table: SoakTable) -> bool:
    """RESTORE a table; return False if Delta refuses it each time, since a driver commits meanwhile."""
    spark, name = context.session(), f"delta.`{context.tables / table.name}`"
    forget_tables(context)
    for _ in range(_ATTEMPTS):
        if not (context.tables / table.name / "_delta_log").is_dir():
            return True
        versions = [row["version"] for row in spark.sql(f"DESCRIBE HISTORY {name} LIMIT {_VERSIONS}").collect()]
        try:
            spark.sql(f"RESTORE TABLE {name} TO VERSION AS OF {context.rng.choice(versions)}")
        except Exception as error:
            if "oncurrent" not in f"{type(error)} {error}":
                raise
        else:
            return True
    return False


def forget_tables(context: ConsumerContext) -> None:
    """Let the session forget the logs of the tables: they may be older than what it has read."""
    jvm = context.session().sparkContext._jvm
    assert jvm is not None
    jvm.org.apache.spark.sql.delta.DeltaLog.clearCache()
