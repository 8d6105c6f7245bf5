"""What is compared: a tool that reads the measured table of MySQL and writes its changes to one topic."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from typing import ClassVar, Final

from tailrace.schemas.names import state_topic
from tests.bench import customer, stack, topics
from tests.bench.stack import Program, Stack

HEAP: Final = ("-Xms256m", "-Xmx2g")
"""The heap of a tool in Java."""
PRODUCER: Final = {"batch.size": "524288", "linger.ms": "20", "buffer.memory": "67108864", "compression.type": "lz4"}
"""Settings of Kafka's producer in Java for a high rate."""


_POLL_S: Final = 0.05
_DEADLINE_S: Final = 1800.0


class System(ABC):
    """A tool, with the settings that its documentation advises for a high rate."""

    title: ClassVar[str]
    topic: ClassVar[str]
    update_records: ClassVar[int] = 1
    """Records of one updated row."""
    delete_records: ClassVar[int] = 1
    """Records of one deleted row."""

    def __init__(self, servers: Stack) -> None:
        self.servers = servers

    @abstractmethod
    def start(self) -> Program:
        """Start the tool; a later start resumes."""

    def mark(self) -> int:
        """Return what ``wait_stream`` needs to know of the time before the changes."""
        return topics.end_offset(self.servers.kafka.bootstrap, self.topic)

    def wait_snapshot(self, program: Program, rows: int) -> float:
        """Wait until all rows can be read; return the wall time."""
        return self._wait(program, rows)

    def wait_stream(self, program: Program, mark: int, changes: int) -> float:
        """Wait until all mixed changes can be read; return the wall time."""
        insert, update, delete = customer.mixed(changes)
        return self._wait(program, mark + insert + self.update_records * update + self.delete_records * delete)

    def _wait(self, program: Program, end: int) -> float:
        """Wait until the topic ends at an offset."""
        until = time.monotonic() + _DEADLINE_S
        bootstrap = self.servers.kafka.bootstrap
        while time.monotonic() < until:
            program.check()
            if topics.exists(bootstrap, self.topic):
                found = topics.end_offset(bootstrap, self.topic)
                if found > end:
                    raise AssertionError(f"{self.title} wrote {found - end} records too many{program.tail()}")
                if found == end:
                    return time.time()
            time.sleep(_POLL_S)
        raise TimeoutError(f"{self.title} did not finish within {_DEADLINE_S:.0f} s{program.tail()}")


class Tailrace(System):
    """The producer of this repository with its default settings. Its topic has markers of transactions as well."""

    title = "Tailrace"
    topic = stack.TOPIC

    def start(self) -> Program:
        """Start the producer."""
        return self.servers.produce()

    def mark(self) -> int:
        """Return the end of the topic of offsets."""
        return topics.end_offset(self.servers.kafka.bootstrap, state_topic(stack.PREFIX))

    def wait_snapshot(self, program: Program, rows: int) -> float:
        """Wait for the END watermarks of all splits."""
        return topics.wait_snapshot(self.servers.kafka.bootstrap, rows, program)[1]

    def wait_stream(self, program: Program, mark: int, changes: int) -> float:  # noqa: ARG002
        """Wait for the stored offset after the last change."""
        gtids = customer.executed_gtids(self.servers.mysql)
        return topics.wait_stream(self.servers.kafka.bootstrap, gtids, program, start=mark)
