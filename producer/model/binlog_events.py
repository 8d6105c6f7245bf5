"""The events that the binlog stream returns, as light values.

``pos`` is the position of the first byte of the event in ``file``, ``end`` the position after its last byte. Both have
64 bits, unlike the field of the header. ``ts`` is the time of the header in whole seconds.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from tailrace.producer.model.table import Column, TableId
from tailrace.runtime.errors import TailraceError


def anonymous_name(file: str, pos: int) -> str:
    """Return the name of a transaction without a GTID: the position of its BEGIN, as Debezium writes it."""
    return f"{_ANONYMOUS}{file},pos={pos}"


def gtid_of(name: str) -> str | None:
    """Return what ``gtid`` of an event says as a GTID; None: the transaction has none."""
    return None if not name or name.startswith(_ANONYMOUS) else name


def begin_of(name: str) -> tuple[str, int] | None:
    """Return file and position in the name of a transaction without a GTID; None: it has one."""
    if gtid_of(name) is not None:
        return None
    file, _, pos = name.removeprefix(_ANONYMOUS).rpartition(",pos=")
    return file, int(pos)


_ANONYMOUS: Final = "file="
"""How such a name begins; the compiled extension knows it too."""


class TransactionBegin(NamedTuple):
    """A transaction begins (GTID event and BEGIN together)."""

    gtid: str
    """``uuid:n``; for a transaction without a GTID its name, see ``anonymous_name``."""
    file: str
    pos: int
    """Position of the GTID event: a restart reads this transaction again from there."""
    end: int
    ts: int
    commit_ts_us: int
    """The original commit time in microseconds since the epoch, 0 if the server does not send it (before 8.0.1)."""
    thread: int | None
    """Connection id of the BEGIN, or None if there is none."""
    server_id: int
    xid: str = ""
    """The id of an XA transaction as the server logs it; empty for other transactions, and at XA COMMIT."""


class TableVersion(NamedTuple):
    """A table version as a TABLE_MAP event with FULL metadata describes it, or with a proven definition."""

    id: TableId
    columns: tuple[Column, ...]
    primary_key: tuple[str, ...]
    fingerprint: bytes
    """Of all that the definition is read from: equal only for equal definitions. Codecs are found by it."""
    since: str = ""
    """What precedes the part of the log for which the source proved what the log lacks; '': the log has all of it."""

    def of_earlier_rows(self) -> TableVersion:
        """Return the version for rows that the stream returns behind what followed them in the log.

        It has perhaps ended since, so it must not be stored as the one in force: it is another version than that one.
        """
        if self.since in {"", EARLIER}:
            return self
        return self._replace(since=EARLIER, fingerprint=self.fingerprint + b"earlier")


EARLIER: Final = "earlier"
"""``TableVersion.since`` of rows that are returned later than the log has them."""


class RowsEvent(NamedTuple):
    """Row images of one rows event of a captured table; every image has every column (checked)."""

    op: str
    """``Op.CREATE``, ``UPDATE`` or ``DELETE``."""
    table: TableVersion
    data: bytes
    start: int
    stop: int
    """The images are ``data[start:stop]``, checksum excluded."""
    file: str
    pos: int
    end: int
    ts: int
    server_id: int
    query: str | None = None
    """Original SQL if binlog_rows_query_log_events is on."""
    number: int = 0
    """Number of the event among the rows events of its transaction, those of all tables, from 1 on."""


class TransactionCommit(NamedTuple):
    """A transaction is complete: its GTID counts as executed."""

    gtid: str
    file: str
    end: int
    ts: int


class TransactionPrepared(NamedTuple):
    """XA PREPARE: the transaction that ends next becomes valid with a later XA COMMIT, in another transaction."""

    xid: str
    gtid: str
    """GTID of the prepared transaction: its rows can be read again by it."""
    file: str
    pos: int
    """Position of its GTID event."""
    captured: bool
    """It has rows of captured tables."""
    end: int
    tables: tuple[tuple[str, str], ...] = ()
    """Database and name of the captured tables that it changes; (): not known, or too many."""
    settings: str = ""
    """Fingerprint of the configuration that captured them, once it is stored."""


class PreparedTransactionEnded(NamedTuple):
    """XA COMMIT or XA ROLLBACK, between begin and commit of a transaction without rows of its own."""

    xid: str
    committed: bool
    file: str
    pos: int
    end: int
    ts: int
    server_id: int


class ChangeRefused(NamedTuple):
    """Changes of captured tables that the binlog does not have in a form that can be read."""

    tables: tuple[TableId, ...]
    """The changed tables; (): unknown, any captured table."""
    error: TailraceError
    """Names the cause and a remedy."""
    file: str
    pos: int
    end: int
    number: int = 0
    """As in ``RowsEvent``, which it is counted with."""
    others: bool = False
    """Tables that are not named may have changed too."""
    triggers: bool = False
    """They may have by triggers of the one that is named, if it is a table."""


class QueryEvent(NamedTuple):
    """A statement logged as text that is a separate transaction: DDL and similar."""

    gtid: str
    database: str
    sql: str
    file: str
    pos: int
    end: int
    ts: int
    server_id: int
    thread: int | None
    in_transaction: bool = False
    """Part of a transaction (CREATE TABLE … SELECT since 8.0.21): its GTID counts only after the commit."""
    commit_ts_us: int = 0
    """As in ``TransactionBegin``."""
    query_pos: int = 0
    """Position of the event of the statement, which follows its GTID event."""
    number: int = 0
    """Within a transaction: as in ``RowsEvent``, which it is counted with."""
    sql_mode: int = 0
    """The modes of the session that decide how the statement is read."""
    server_version: int = 0
    """Version of the server that wrote the binlog file, as in version comments; 0: unknown."""
    has_replaced: bool = False
    """``sql`` has U+FFFD for bytes that are no text: names with it are not known."""
    redefined: tuple[TableId, ...] = ()
    """Tables whose proven definitions end here, since the statement may change them."""


class PositionAdvanced(NamedTuple):
    """The binlog advanced without anything to capture: rotation, heartbeat, filtered events."""

    file: str
    end: int
    ts: int
    """0 if the event has no time."""


Event = (
    TransactionBegin
    | RowsEvent
    | TransactionCommit
    | TransactionPrepared
    | PreparedTransactionEnded
    | ChangeRefused
    | QueryEvent
    | PositionAdvanced
)


@dataclass(frozen=True, slots=True)
class TransactionMark:
    """The last event that is done in a transaction which is not complete: part of a stored offset within one.

    On the server that it was read from, events are told apart by their number, which counts the rows events of all
    tables: it does not depend on the configuration. Another server may cut the same rows into other events. There
    ``table_rows`` says what is done.
    """

    gtid: str
    number: int = 0
    """Number of the last event that is done, 0 if there is none."""
    pos: int = 0
    """Position of that event, to recognize it; 0 if it is unknown."""
    rows: int = 0
    """Rows of the next event that are done too, if the offset was taken over from a connector."""
    table_rows: Mapping[str, int] | None = None
    """Number of rows done by table; None: unknown."""
    uncounted: str = ""
    """Operations whose rows ``table_rows`` does not count: those that are not written."""
    relocated: bool = False
    """The source is another server now: only ``table_rows`` is valid."""
    records: Mapping[str, int] = field(default_factory=dict)
    """For transaction metadata: number of records written so far, by table."""
