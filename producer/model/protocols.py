"""The interface of a source database: what the rest of the producer asks of it.

``Source`` opens everything else. docs/contributing/add-a-database.md says which of these a new database implements.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, NamedTuple, Protocol, Self

from tailrace.producer.model.binlog_events import (
    Event,
    PositionAdvanced,
    QueryEvent,
    TableVersion,
    TransactionBegin,
    TransactionCommit,
    TransactionPrepared,
)
from tailrace.producer.model.codec import KeyTuple, RowKeys, SnapshotEncoder, SnapshotEnvelope, SnapshotRows
from tailrace.producer.model.ddl import DdlEffect
from tailrace.producer.model.split import KeyColumn, Range, SortKey
from tailrace.producer.model.table import CatalogTable, Column, Table, TableId
from tailrace.producer.model.value_options import ValueOptions
from tailrace.runtime.errors import SchemaError
from tailrace.schemas.verification import Request, TextForm

ReadOffset = Callable[[Mapping[str, Any]], "Offset"]
"""Reads an offset from the form that ``Offset.to_json`` returns."""

TableFilter = Callable[[TableId], bool]
"""Decides which tables are captured."""


SortedKeys = Sequence[tuple[SortKey | None, SortKey | None]]
"""The sort keys before and after, per row of an event; as ``RowKeys``."""


class LogDistance(NamedTuple):
    """How far a position is behind the end of the log, and what the source logs."""

    files: int
    """Files behind the one of the position."""
    bytes: int
    transactions: int | None
    """Transactions that are executed, and not included; None: they cannot be counted."""
    purge_left_s: float | None
    """Time for which the source keeps the log behind the position, at least; None: for ever. 0: it may be purged."""
    retention_s: float | None
    """Time for which the source keeps a complete file."""
    row_metadata: str | None
    """FULL, or MINIMAL: definitions come from the catalog. The setting of now; None: the source has none."""


class SplitQuery(NamedTuple):
    """The rows of a split: a range of a table's key, and a condition in the language of the source."""

    table: TableId
    columns: tuple[KeyColumn, ...]
    range: Range
    condition: str = ""
    """Empty: all rows of the range."""


class TableSize(NamedTuple):
    """What the source estimates of a table, may be stale or 0: its rows, and the average size of one."""

    rows: int
    row_bytes: int


class Offset(Protocol):
    """An immutable position in the log of a source: where it is, and which transactions it includes.

    The split rules ask ``contains`` and ``before``. A low watermark answers ``contains``: its transactions are visible
    to a SELECT. Positions of one server and one epoch are totally ordered by ``before``; others do not compare.
    """

    @property
    def epoch(self) -> int:
        """Return a number that grows whenever later positions no longer compare with earlier ones."""

    def contains(self, transaction: TransactionBegin) -> bool:
        """Return whether the offset includes this transaction."""

    def before(self, other: Self) -> bool:
        """Return whether the offset is strictly before ``other``."""

    def reached_by(self, event: TransactionCommit | QueryEvent) -> bool:
        """Return whether the end of a transaction is here or behind: ``not after(event).before(self)``."""

    def reaches(self, target: Self) -> bool:
        """Return whether all that ``target`` includes is included, or, if it names no transactions, is passed.

        Raises BinlogError if it names none, and belongs to another server.
        """

    def same_server(self, other: Self) -> bool:
        """Return whether both offsets belong to one server, so that ``before`` is defined."""

    def to_json(self) -> dict[str, Any]:
        """Return the form written in watermark and state records; ``kind`` names the kind of source."""

    def at_begin(self, transaction: TransactionBegin) -> Self:
        """Return the offset from which a restart reads this transaction again."""

    def after(self, *events: TransactionCommit | QueryEvent) -> Self:
        """Return the offset behind transactions that follow each other, all of which it includes; at least one."""

    def advanced_to(self, event: PositionAdvanced) -> Self:
        """Return the offset moved forward outside a transaction."""

    def including(self, transaction_id: str) -> Self:
        """Return the offset at the same position with one more transaction included."""


class NotComparedError(Exception):
    """Both sides have no text of a column that must be equal; the message says why."""


class CanonicalText(NamedTuple):
    """The texts of a column; the expression is NULL only where the server could not make one."""

    form: TextForm
    sql: str


class RowTexts(NamedTuple):
    """The texts of a row: expressions of its key columns, and of all compared columns."""

    key: Sequence[str]
    row: Sequence[str]


class KeyRows(Protocol):
    """The rows of some keys of a table, which are given by their texts."""

    @property
    def condition(self) -> str:
        """The condition that the rows of the keys meet, and no others."""

    @property
    def unbounded(self) -> str:
        """The name of the first key column, if an index does not find the rows of each key by it; or ''."""

    def absent(self, task: SplitQuery) -> list[str]:
        """Return the keys that have no row now."""

    def packets(self, columns: Sequence[Column], key: str) -> bytes:
        """Return a result set whose only row has a key and nothing else. Raises SourceError if that is impossible."""


class KeyOrdering(Protocol):
    """The order of the keys of one table, as the source defines it."""

    @property
    def columns(self) -> tuple[KeyColumn, ...]:
        """Return the splitting columns: the prefix of the key that decides the order."""

    def sort_keys(self, keys: Sequence[KeyTuple]) -> list[SortKey]:
        """Return the sort key of each key."""

    def sort_rows(self, keys: RowKeys) -> SortedKeys:
        """Return the sort keys of the rows of an event."""

    def require_same_key(self, table: TableId, key: Sequence[Column]) -> None:
        """Raise SchemaError if the key of the table no longer begins with the splitting columns."""


class SplitReader(Protocol):
    """Reads the rows of a split between its two watermarks, over one session."""

    def low_watermark(self, barrier: Offset, timeout_s: float) -> Offset:
        """Wait until a SELECT sees everything that ``barrier`` includes, then return the low watermark."""

    def stable_definition(self) -> AbstractContextManager[None]:
        """Keep DDL away from the tables that are read inside."""

    def definition_text(self, table: TableId) -> str:
        """Return the CREATE statement of a table, which ``stable_definition`` then protects."""

    def describe(self, table: TableId) -> CatalogTable:
        """Return the definition of a table now. Raises SchemaError if it does not exist."""

    def estimated_size(self, table: TableId) -> TableSize:
        """Return about how large a table is; may wait for its metadata lock."""

    def splitting_columns(self, found: CatalogTable, key: Sequence[str]) -> tuple[KeyColumn, ...]:
        """Return the columns whose ranges cut the table; empty: it is read in one split."""

    def clock_us(self) -> int:
        """Return the clock of the server in microseconds since the epoch."""

    def key_rows(self, table: Table, options: ValueOptions, keys: Sequence[str]) -> KeyRows:
        """Return what looks for the rows of keys. Raises NotComparedError if a key column has no texts."""

    def read_rows(self, task: SplitQuery, codec: SnapshotEncoder, envelope: SnapshotEnvelope) -> Iterator[SnapshotRows]:
        """Yield the encoded rows of a split, a block at a time."""

    def high_watermark(self, low: Offset) -> Offset:
        """Return the high watermark. Raises SourceUnavailableError if the server changed since ``low``."""


class SnapshotSession(SplitReader, Protocol):
    """A session that plans and reads splits. Not thread-safe."""

    def describe_all(self, tables: Sequence[TableId]) -> Iterator[tuple[TableId, CatalogTable | SchemaError]]:
        """Yield the definition of each table that exists, or the reason for which it cannot be captured."""

    def bound_lock_waits(self) -> None:
        """Let statements fail soon with TableLockedError where a table is locked."""

    def shared_lock(self, table: TableId) -> AbstractContextManager[None]:
        """Keep DDL away from a table that is read inside. Raises TableLockedError if it cannot be read now."""

    def lock_holders(self, table: TableId) -> str:
        """Return what locks a table, for people."""

    def wait_until_executed(self, offset: Offset, timeout_s: float) -> None:
        """Wait until a statement sees what ``offset`` includes. Raises SourceUnavailableError on timeout."""

    def exists(self, table: TableId) -> bool:
        """Return whether the source has a table of this name now."""

    def triggers(self, table: TableId) -> str:
        """Return why a change of a table may change others by triggers; '' if it does not."""

    def key_ordering(self, columns: Sequence[KeyColumn]) -> KeyOrdering:
        """Return the order of a table's keys; it uses this session."""

    def check_condition(self, table: TableId, condition: str) -> None:
        """Raise SourceError if the source does not accept ``condition`` for the rows of a table."""

    def current_offset(self) -> Offset:
        """Return the end of the log."""

    def require_index(self, table: TableId, columns: Sequence[KeyColumn]) -> None:
        """Raise SourceError if a query of keys in their order reads the whole table."""

    def max_key(self, table: TableId, columns: Sequence[KeyColumn]) -> KeyTuple | None:
        """Return the greatest key; None: the table is empty."""

    def min_key(self, table: TableId, columns: Sequence[KeyColumn], within: Range) -> KeyTuple | None:
        """Return the least key in a range."""

    def next_bound(self, table: TableId, columns: Sequence[KeyColumn], within: Range, size: int) -> KeyTuple | None:
        """Return the key ``size`` rows into a range; None: the range has fewer rows."""

    def bound_after(
        self, table: TableId, columns: Sequence[KeyColumn], key: KeyTuple, within: Range
    ) -> KeyTuple | None:
        """Return the least key in a range that is greater than ``key``."""

    def canonical_text(self, column: Column, options: ValueOptions) -> CanonicalText:
        """Return the texts of a column. Raises NotComparedError."""

    def bucket_sums(self, task: SplitQuery, texts: RowTexts, sample: int) -> list[tuple[int, int, int]]:
        """Return number, rows and XOR of the checksums of each of the first buckets that a range has rows of."""

    def compared_rows(self, task: SplitQuery, texts: RowTexts, request: Request) -> list[tuple[str, str]]:
        """Return the text of the key, and the checksum or the text, of the requested rows of a range."""

    def close(self) -> None:
        """Close the session."""


class CatalogSession(Protocol):
    """A session that is used now and then; it reconnects when the server has closed it. Not thread-safe."""

    def describe_all(self, tables: Sequence[TableId]) -> Iterator[tuple[TableId, CatalogTable | SchemaError]]:
        """Yield the definition of each table that exists, or the reason for which it cannot be captured."""

    def describe(self, table: TableId) -> CatalogTable:
        """Return the definition of a table now. Raises SchemaError if it does not exist."""

    def create_statement(self, table: TableId) -> str:
        """Return the CREATE statement of a table. Raises SourceError if it does not exist."""

    def server_charset(self) -> tuple[str, str]:
        """Return the default character set and collation of the server."""

    def database_charset(self, database: str) -> tuple[str, str]:
        """Return the default character set and collation of a database."""

    def execute(self, statement: str) -> None:
        """Run a statement of the user and discard its result."""

    def close(self) -> None:
        """Close the session at once; a statement that is running is cut off."""


class LogMonitor(Protocol):
    """Measures how far a position is behind, over a session that reconnects. Not thread-safe."""

    def distance(self, stored: Offset) -> LogDistance | None:
        """Return the distance now; None: it is a position of another server."""

    def close(self) -> None:
        """Close the session at once."""


class ChangeStream(Protocol):
    """Follows the log of the source. Not thread-safe, except ``wake``."""

    @property
    def caught_up(self) -> bool:
        """Whether the last ``poll`` returned no event because the source had sent nothing more."""

    @property
    def received_at(self) -> float:
        """When the source last sent something, an event or a heartbeat: seconds of ``time.monotonic``."""

    def poll(self, timeout_s: float) -> list[Event]:
        """Return the next events; [] after ``timeout_s`` or ``wake``."""

    def wake(self) -> None:
        """Make the running or the next ``poll`` return at once."""

    def ddl_effects(self, event: QueryEvent) -> Sequence[DdlEffect]:
        """Return what a statement of the log does to tables and databases."""

    def close(self) -> None:
        """Disconnect; safe to call twice."""


class Source(Protocol):
    """A source database. It opens sessions and streams, which the caller closes."""

    def check(self, tables: Sequence[TableId]) -> Sequence[str]:
        """Check the prerequisites for capturing ``tables``; return warnings. Raises PrerequisiteError."""

    def list_tables(self, captures: TableFilter) -> list[TableId]:
        """Return the tables for which ``captures`` is true, sorted."""

    def stored_name(self, table: TableId) -> TableId:
        """Return a configured name of a table as the source writes it."""

    def condition_problem(self, condition: str) -> str:
        """Return why an SQL condition may not restrict a snapshot, '' if it may."""

    def start_offset(self, *, epoch: int = 1) -> Offset:
        """Return the offset of a stream that starts now, at the end of the log."""

    def earlier_offset(self, text: str, *, epoch: int) -> Offset:
        """Return the offset of a stream that starts at an older place of the log, as ``tailrace.start.at`` names it.

        Raises ConfigError if the source does not have all that follows, or names places otherwise.
        """

    def resume_offset(
        self,
        stored: Offset,
        *,
        started: Sequence[str],
        required: Sequence[Offset],
        last: TransactionCommit | None = None,
    ) -> Offset:
        """Return the offset to resume from.

        Its epoch grows if its position cannot be compared with ``stored``: the source is another server of the same
        history, or numbers its log from the start. The source must have all transactions of ``stored`` and
        ``required``, those in ``started``, and, if it is the same server, ``last`` as it was read. Raises
        SourceBehindError if it does not have them (yet), BinlogError if it no longer has the log that follows
        ``stored``, or has another history.
        """

    def end_offset(self, *, epoch: int) -> Offset:
        """Return the end of the log now."""

    def named_offset(self, text: str) -> Offset:
        """Return what a person means by a position: the end of the log now (``latest``), or one in the source's words.

        Raises ConfigError if the log cannot have it.
        """

    def read_offset(self, body: Mapping[str, Any]) -> Offset:
        """Read an offset that ``Offset.to_json`` returned."""

    def open_stream(
        self,
        start: Offset,
        captures: TableFilter,
        prepared: Iterable[TransactionPrepared] = (),
        definitions: Iterable[TableVersion] = (),
    ) -> ChangeStream:
        """Return a connected stream of all that ``start`` does not include, with the rows of captured tables.

        ``prepared``: transactions before ``start`` that were prepared, and whose end was not read. ``definitions``:
        those in force at ``start``, where the log does not have them.
        """

    def open_snapshot_session(self) -> SnapshotSession:
        """Return a new session that plans and reads splits."""

    def open_catalog(self) -> CatalogSession:
        """Return a session that connects at its first use."""

    def open_log_monitor(self) -> LogMonitor:
        """Return what measures how far a position is behind; it connects at its first use."""
