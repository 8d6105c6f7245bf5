"""The faults of a consumer's soak. Each returns when the fault is over; the consumer may still be recovering."""

from __future__ import annotations

import os
import shutil
import signal
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Final

from tests.soak.consumer.context import ConsumerContext
from tests.soak.consumer.process import stop
from tests.soak.consumer.sources import add_partition, recreate_table, rename_table
from tests.soak.consumer.stored import damage_offsets, damage_position, damage_sinks, damage_state
from tests.soak.consumer.targets import restore_table_copy, restore_version, second_driver, second_query


def kill_driver(context: ConsumerContext) -> None:
    """SIGKILL of Python and Java, in any state of a batch; checkpoint and tables are copied; a new start."""
    context.end()
    context.copy()
    context.start()


def stop_driver(context: ConsumerContext) -> None:
    """SIGTERM, and a new start."""
    if context.consumer.running:
        stop(context.consumer)
    context.start()


def pause_driver(context: ConsumerContext) -> None:
    """SIGSTOP of all processes for some seconds, then SIGCONT."""
    pids = context.pids()
    for number in (signal.SIGSTOP, signal.SIGCONT):
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(pid, number)
        if number is signal.SIGSTOP:
            time.sleep(context.rng.uniform(0.5, 5))


def restore_checkpoint(context: ConsumerContext) -> None:
    """The driver is killed, and an older copy of its checkpoint is restored."""
    context.end()
    copies = [copy / context.checkpoint.name for copy in context.copies]
    found = [copy for copy in copies if copy.is_dir()]
    if found:
        shutil.rmtree(context.checkpoint, ignore_errors=True)
        shutil.copytree(context.rng.choice(found), context.checkpoint)
    context.start()


def delete_checkpoint(context: ConsumerContext) -> None:
    """The driver is killed, and its checkpoint is removed."""
    context.end()
    shutil.rmtree(context.checkpoint, ignore_errors=True)
    context.start()


def kill_producer(context: ConsumerContext) -> None:
    """SIGKILL of the producer, and a new start: transactions are aborted."""
    if context.producer.running():
        context.producer.kill()
    context.producer.start()


def kill_kafka(context: ConsumerContext) -> None:
    """SIGKILL and restart of the broker."""
    context.broker.kill()
    context.broker.start()


def kill_executor(context: ConsumerContext) -> None:
    """SIGKILL of an executor."""
    assert context.cluster is not None
    context.cluster.kill_executor(context.rng.randrange(2))


def kill_worker(context: ConsumerContext) -> None:
    """SIGKILL of a worker with its executor, and a new start."""
    assert context.cluster is not None
    worker = context.rng.choice(context.cluster.workers)
    worker.kill()
    worker.start()


Fault = Callable[[ConsumerContext], None]

FAULTS: Final[Mapping[str, tuple[Fault, int]]] = {
    fault.__name__: (fault, weight)
    for fault, weight in (
        (kill_driver, 6),
        (stop_driver, 2),
        (pause_driver, 2),
        (restore_checkpoint, 3),
        (delete_checkpoint, 2),
        (kill_producer, 2),
        (kill_kafka, 1),
        (restore_table_copy, 5),
        (restore_version, 5),
        (second_driver, 1),
        (second_query, 1),
        (add_partition, 3),
        (recreate_table, 5),
        (rename_table, 5),
        (damage_position, 1),
        (damage_state, 1),
        (damage_sinks, 1),
        (damage_offsets, 1),
    )
}
"""Faults, with how often each is made before all are made again."""
CLUSTER_FAULTS: Final[Mapping[str, tuple[Fault, int]]] = {
    **FAULTS,
    kill_executor.__name__: (kill_executor, 8),
    kill_worker.__name__: (kill_worker, 2),
}
"""Faults of a consumer on a cluster."""
