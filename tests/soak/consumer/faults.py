"""The faults of a consumer's soak. Each returns when the fault is over; the consumer may still be recovering."""

from __future__ import annotations

import os
import random
import shutil
import signal
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from tests.bench.usage import descendants
from tests.embedded.kafka import KafkaBroker
from tests.embedded.spark_cluster import SparkCluster
from tests.soak.consumer.process import stop
from tests.support.capture import CaptureProcess
from tests.support.driver_process import DriverProcess


@dataclass
class ConsumerContext:
    """What a fault can break."""

    rng: random.Random
    broker: KafkaBroker
    producer: CaptureProcess
    consumer: DriverProcess
    folder: Path
    """Has the checkpoint, the tables and the copies of the checkpoint."""
    cluster: SparkCluster | None = None
    copies: list[Path] = field(default_factory=list)
    starts: int = 0

    @property
    def checkpoint(self) -> Path:
        """The checkpoint of the consumer."""
        return self.folder / "checkpoint"

    def start(self) -> None:
        """Start the consumer."""
        self.starts += 1
        self.consumer.start()

    def pids(self) -> list[int]:
        """Return the processes of the driver."""
        return [self.consumer.pid, *descendants(self.consumer.pid)] if self.consumer.running else []


def kill_driver(context: ConsumerContext) -> None:
    """SIGKILL of Python and Java, in any state of a batch; a supervisor starts it again. The checkpoint is copied."""
    _end(context)
    if context.checkpoint.is_dir():
        copy = context.folder / f"copy{len(context.copies)}"
        shutil.copytree(context.checkpoint, copy)
        context.copies.append(copy)
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
    _end(context)
    if context.copies:
        shutil.rmtree(context.checkpoint, ignore_errors=True)
        shutil.copytree(context.rng.choice(context.copies), context.checkpoint)
    context.start()


def delete_checkpoint(context: ConsumerContext) -> None:
    """The driver is killed, and its checkpoint is removed."""
    _end(context)
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


def _end(context: ConsumerContext) -> None:
    if context.consumer.running:
        context.consumer.kill()


Fault = Callable[[ConsumerContext], None]

FAULTS: Final[Mapping[str, tuple[Fault, int]]] = {
    fault.__name__: (fault, weight)
    for fault, weight in (
        (kill_driver, 6),
        (stop_driver, 2),
        (pause_driver, 2),
        (restore_checkpoint, 4),
        (delete_checkpoint, 2),
        (kill_producer, 2),
        (kill_kafka, 1),
    )
}
"""Faults with their weights."""
CLUSTER_FAULTS: Final[Mapping[str, tuple[Fault, int]]] = {
    **FAULTS,
    kill_executor.__name__: (kill_executor, 8),
    kill_worker.__name__: (kill_worker, 2),
}
"""Faults of a consumer on a cluster."""
