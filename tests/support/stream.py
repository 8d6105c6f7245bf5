"""Parts of a binlog stream without servers: a producer and a listener that keep what they get."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from tailrace.producer.kafka.state_store import SplitState, StoredOffset, TableState
from tailrace.producer.kafka.transactional_producer import Headers
from tailrace.producer.model.table import TableId
from tailrace.producer.mysql.gtid import GtidSet
from tailrace.producer.mysql.offset import MySqlOffset
from tailrace.producer.ops.status import Status
from tailrace.producer.streaming.heartbeat import Heartbeat
from tailrace.producer.streaming.offset import StreamOffset
from tailrace.producer.streaming.split_registry import SplitRegistry
from tailrace.producer.streaming.stream_transaction import CommitSettings, StreamTransaction

SERVER = "aaaaaaaa-aaaa-aaaa-aaaa-aaaaaaaaaaaa"
FILE = "f.000001"
START = MySqlOffset(1, FILE, 4, GtidSet({}), SERVER)

Sent = tuple[str, bytes | None, bytes | None]
"""Topic, key, value."""


class FakeProducer:
    """A transactional producer that keeps what is sent, one list for each committed transaction."""

    def __init__(self) -> None:
        self.in_transaction = False
        self.records_in_transaction = 0
        self.open: list[Sent] = []
        self.committed: list[list[Sent]] = []

    def begin(self) -> None:
        """Open a transaction, unless one is open."""
        if not self.in_transaction:
            self.in_transaction, self.records_in_transaction, self.open = True, 0, []

    def send(self, topic: str, key: bytes | None, value: bytes | None, *_: Headers | None, partition: int = -1) -> None:
        """Keep a record."""
        assert self.in_transaction
        assert partition in {-1, 0}
        self.records_in_transaction += 1
        self.open.append((topic, key, value))

    def send_all(self, topic: str, records: Sequence[tuple[bytes, bytes | None]], headers: Headers | None) -> None:
        """Keep many records."""
        for key, value in records:
            self.send(topic, key, value, headers)

    def partitions(self, topic: str) -> int:  # noqa: ARG002 - part of the protocol
        """Return a number."""
        return 1

    def commit(self) -> None:
        """End the transaction."""
        assert self.in_transaction
        self.in_transaction = False
        self.committed.append(self.open)


def stream_transaction(
    producer: FakeProducer,
    registry: SplitRegistry | None = None,
    *,
    stored: StoredOffset | None = None,
    heartbeat: Heartbeat | None = None,
    max_records: int = 1000,
) -> StreamTransaction:
    """Return a stream transaction of the prefix ``p`` that is committed every second."""
    return StreamTransaction(
        producer,  # type: ignore[arg-type]
        StreamOffset(stored if stored is not None else StoredOffset(START)),
        registry if registry is not None else SplitRegistry(),
        settings=CommitSettings("p", interval_s=1.0, max_records=max_records),
        status=Status(),
        heartbeat=heartbeat,
    )


NO_SOURCE: Any = None
"""Of streams that read no GRANT."""


class FakeListener:
    """Keeps the reports of snapshots as (event, table, incremental)."""

    def __init__(self) -> None:
        self.reports: list[tuple[str, TableId, bool]] = []
        self.required = False
        """Whether the topics of removed tables lack rows."""

    def on_table_started(self, table: TableId, *, incremental: bool) -> None:
        """See ``SnapshotProgressListener``."""
        self.reports.append(("started", table, incremental))

    def on_split_completed(self, table: TableId, state: SplitState, plan: TableState, *, incremental: bool) -> None:
        """See ``SnapshotProgressListener``."""
        assert state.snapshot == plan.snapshot
        self.reports.append(("split", table, incremental))

    def on_table_completed(self, table: TableId, rows: int, *, incremental: bool) -> None:
        """See ``SnapshotProgressListener``."""
        self.reports.append((f"completed {rows}", table, incremental))

    def on_table_removed(self, table: TableId, *, incremental: bool, request: int | None = None) -> bool:  # noqa: ARG002
        """See ``SnapshotProgressListener``."""
        self.reports.append(("removed", table, incremental))
        return self.required

    def request_reading(self, table: TableId) -> None:
        """See ``SnapshotProgressListener``."""
        self.reports.append(("requested", table, True))

    def requires_reading(self, table: TableId) -> bool:
        """See ``SnapshotProgressListener``."""
        return self.required or ("requested", table, True) in self.reports

    def on_change_skipped(self, tables: Iterable[TableId]) -> None:
        """See ``SnapshotProgressListener``."""
        self.reports += [("skipped", table, True) for table in tables]
