"""The state store: everything that a restart needs, in the compacted topic ``<prefix>.tailrace.state``.

A state record is committed in one Kafka transaction with the data it describes. Keys, and their JSON values::

    offset                   StoredOffset: how far the binlog is in Kafka
    generation               Generation: which instance owns the prefix (generation.py)
    takeover                 Generation: the process that has announced itself last (generation.py)
    readers                  {"count": n}: how many snapshot readers may have open transactions
    table/<db>.<table>       TableState
    key/<db>.<table>         what the catalog said of the keys of a table (serialization/key_memory.py)
    split/<split id>         SplitState: a split that is completely in Kafka and has no END yet
    backfill/<split id>      {"count": n}: number of its backfill events that are in Kafka
    range/<range id>         RangeState: neighboring splits that have their END
    structure                {}: the topic of schema changes begins with definitions
    structure/<db>.<table>   {}: the definition of the table is in the topic of schema changes
    prepared/<xid>           TransactionPrepared: an XA transaction that is neither committed nor rolled back
    signals                  the last processed signals (signals/queue.py)
    request/<number>         one pending incremental snapshot
    former/<db>.<table>      {}: the topic has rows of a former table of this name (streaming/former_tables.py)
    moved                    MovedPosition: where a signal has set the stream; the next start begins there
    replay                   ReplayedPart: what the stream reads a second time (streaming/replay.py)
    format                   {"format": n, "program": version}: see runtime/stored_format.py

Snapshot readers pause while too many splits wait for END, and ended splits that touch are one record. So the topic has
few records of a table under snapshot, however many splits it has, and each has the size of its bounds and GTID sets.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Final

import orjson

from tailrace.producer.errors import StateDamagedError
from tailrace.producer.kafka.client import KafkaSettings
from tailrace.producer.kafka.generation import GENERATION_KEY
from tailrace.producer.kafka.moved_position import MOVED_KEY, REPLAY_KEY, MovedPosition, ReplayedPart
from tailrace.producer.kafka.topic_reader import read_compacted
from tailrace.producer.model.binlog_events import TransactionCommit, TransactionMark, TransactionPrepared
from tailrace.producer.model.protocols import Offset, ReadOffset
from tailrace.producer.model.split import EndedRange, Range, SortKey, key_from_json, key_to_json
from tailrace.producer.model.table import TableId
from tailrace.producer.model.table_mode import TableFault, TableMode
from tailrace.runtime.stored_format import NewerFormatError, require_known_format
from tailrace.runtime.versions import program_version
from tailrace.schemas.known_fields import known_fields
from tailrace.schemas.watermark import OtherKindError

OFFSET_KEY: Final = b"offset"
READERS_KEY: Final = b"readers"
STRUCTURE_KEY: Final = b"structure"
SIGNALS_KEY: Final = b"signals"
FORMAT_KEY: Final = b"format"
REQUEST_START: Final = b"request/"
FORMAT: Final = 1
"""Raise it if a program that does not know a new field or kind of record would go on wrongly."""


@dataclass(frozen=True, slots=True)
class StoredOffset:
    """How far the binlog is in Kafka.

    A restart reads from ``position``: the end of a transaction, or the start of one that is partly done.
    """

    position: Offset
    transactions: tuple[TransactionMark, ...] = ()
    """Transactions that are partly done: at most one, unless another server has them in another order."""
    last: TransactionCommit | None = None
    """The transaction that ends at ``position``, by which its server is recognized; None: unknown."""

    def to_json(self) -> bytes:
        last = None if self.last is None else self.last._asdict()
        return orjson.dumps({**_fields(self), "position": self.position.to_json(), "last": last})


@dataclass(frozen=True, slots=True)
class TableState:
    """The mode of a table, and the plan of its snapshot in modes SNAPSHOT and INCREMENTAL."""

    mode: TableMode
    snapshot: str = ""
    """Id of the snapshot run."""
    greatest: list[Any] | None = None
    """Greatest key that the plan covers, in JSON form; None: the splits are unbounded."""
    key: tuple[str, ...] = ()
    """Names of the columns that the bounds of splits belong to."""
    key_order: tuple[str, ...] = ()
    """What the order of each of these columns depends on (``KeyColumn.definition``)."""
    fault: TableFault | None = None
    """Of a table in mode ERROR that has been captured, and until it is read again; left out of the record if None."""

    def to_json(self) -> bytes:
        body = _fields(self)
        if self.fault is None:
            del body["fault"]
        return orjson.dumps(body)


@dataclass(frozen=True, slots=True)
class SplitState:
    """A split that is completely in Kafka: its range, its watermarks, and the content of its certificate so far."""

    database: str
    table: str
    snapshot: str
    number: int
    lower: list[Any] | None
    upper: list[Any] | None
    closed: bool
    low: Offset
    high: Offset
    rows: int
    checksum: int
    schema: str
    lower_open: bool = False
    """``lower`` is not included: the split of the keys above the greatest planned one."""

    @property
    def id(self) -> str:
        """The split's id, which names the record."""
        return f"{self.database}.{self.table}:{self.snapshot}:{self.number}"

    @property
    def key(self) -> bytes:
        return split_key(self.id)

    @property
    def table_id(self) -> TableId:
        return TableId(self.database, self.table)

    def to_json(self) -> bytes:
        """Return the record value; the checksum as text, since it has 64 bits."""
        positions = {"low": self.low.to_json(), "high": self.high.to_json()}
        return orjson.dumps({**_fields(self), **positions, "checksum": f"{self.checksum:016x}"})


@dataclass(frozen=True, slots=True)
class RangeState:
    """Neighboring splits of a run that have their END, see ``model.split.EndedRange``."""

    database: str
    table: str
    snapshot: str
    number: int
    next_number: int
    lower: list[Any] | None
    upper: list[Any] | None
    closed: bool
    splits: int
    rows: int

    @classmethod
    def of(cls, ended: EndedRange) -> RangeState:
        span = ended.range
        return cls(
            ended.table.database,
            ended.table.table,
            ended.snapshot,
            ended.number,
            ended.next_number,
            key_to_json(span.lower),
            key_to_json(span.upper),
            span.closed,
            splits=ended.splits,
            rows=ended.rows,
        )

    def ended_range(self, lower: SortKey | None, upper: SortKey | None) -> EndedRange:
        """Return the range, whose bounds have these sort keys."""
        span = Range(key_from_json(self.lower), key_from_json(self.upper), self.closed)
        return EndedRange(
            self.table_id,
            self.snapshot,
            self.number,
            self.next_number,
            span,
            lower,
            upper,
            splits=self.splits,
            rows=self.rows,
        )

    @property
    def key(self) -> bytes:
        return range_key(f"{self.database}.{self.table}:{self.snapshot}:{self.number}")

    @property
    def table_id(self) -> TableId:
        return TableId(self.database, self.table)

    def to_json(self) -> bytes:
        return orjson.dumps(_fields(self))


@dataclass(frozen=True, slots=True)
class StoredSplits:
    """What is stored of the splits of one table."""

    splits: list[SplitState] = field(default_factory=list)
    ranges: list[RangeState] = field(default_factory=list)

    def of_run(self, snapshot: str) -> StoredSplits:
        splits = [split for split in self.splits if split.snapshot == snapshot]
        return StoredSplits(splits, [ended for ended in self.ranges if ended.snapshot == snapshot])

    def record_keys(self) -> list[bytes]:
        """Return the keys of all records of these splits, with those of their backfill counts."""
        counts = [backfill_key(split.id) for split in self.splits]
        return [split.key for split in self.splits] + [ended.key for ended in self.ranges] + counts


@dataclass(slots=True)
class State:
    """The content of the topic."""

    offset: StoredOffset | None = None
    readers: int = 0
    generation: int = 0
    tables: dict[str, TableState] = field(default_factory=dict)
    keys: dict[str, Mapping[str, Any]] = field(default_factory=dict)
    """What is known of the keys of tables, as stored."""
    structure: frozenset[str] | None = None
    """Tables whose definitions are in the topic of schema changes; None: none was ever written."""
    splits: dict[TableId, StoredSplits] = field(default_factory=dict)
    """By table; a table without stored splits is missing."""
    backfill: dict[str, int] = field(default_factory=dict)
    """Number of backfill events in Kafka, by split id; 0 is missing."""
    signals: Mapping[str, Any] | None = None
    """As stored; None before the first signal."""
    requests: dict[int, Mapping[str, Any]] = field(default_factory=dict)
    """Pending incremental snapshots by number, as stored."""
    prepared: dict[str, TransactionPrepared] = field(default_factory=dict)
    """XA transactions that are neither committed nor rolled back, by their ids."""
    former: set[str] = field(default_factory=set)
    """Names of former tables whose rows are in their topics."""
    moved: MovedPosition | None = None
    """The stream has not begun there yet."""
    replay: ReplayedPart | None = None

    @property
    def captured(self) -> set[str]:
        """The tables whose topics have what the source has, as far as they are read: not those in error."""
        return {name for name, table in self.tables.items() if table.mode is not TableMode.ERROR}

    def splits_of(self, table: TableId) -> StoredSplits:
        return self.splits.get(table, StoredSplits())


def table_key(table: object) -> bytes:
    return f"table/{table}".encode()


def structure_key(table: str) -> bytes:
    return b"%b/%b" % (STRUCTURE_KEY, table.encode())


def request_key(number: int) -> bytes:
    return b"%b%d" % (REQUEST_START, number)


def known_key_key(table: object) -> bytes:
    return f"key/{table}".encode()


def split_key(split_id: str) -> bytes:
    return f"split/{split_id}".encode()


def backfill_key(split_id: str) -> bytes:
    return f"backfill/{split_id}".encode()


def range_key(range_id: str) -> bytes:
    return f"range/{range_id}".encode()


def backfill_value(count: int) -> bytes:
    return orjson.dumps({"count": count})


def prepared_key(xid: str) -> bytes:
    return f"prepared/{xid}".encode()


def prepared_to_json(prepared: TransactionPrepared) -> bytes:
    return orjson.dumps(prepared._asdict())


def format_value() -> bytes:
    """Return the value of the record that says which program wrote the state."""
    return orjson.dumps({"format": FORMAT, "program": program_version()})


def _fields(record: StoredOffset | TableState | SplitState | RangeState) -> dict[str, Any]:
    return {field.name: getattr(record, field.name) for field in fields(record)}


def decode(records: Mapping[bytes, bytes], read_offset: ReadOffset) -> State:
    """Return the state of these records (last value per key).

    Raises StateDamagedError for one that is none, NewerFormatError if a later program wrote them in its format.
    """
    if FORMAT_KEY in records:  # first: what follows may be damaged for this program alone
        records = {FORMAT_KEY: records[FORMAT_KEY], **records}
    state = State(structure=_structure(records), former=_names(records, b"former/"))
    for key, value in records.items():
        try:
            if key == FORMAT_KEY:
                require_known_format("the state", orjson.loads(value), FORMAT)
            else:
                _decode_record(state, key, value, read_offset)
        except OtherKindError as error:
            hint = "restore the former connector.class, or capture under another topic.prefix"
            raise StateDamagedError("the state is of another kind of source", hint=hint, cause=str(error)) from error
        except (ValueError, TypeError, LookupError, AttributeError, RecursionError) as error:
            raise StateDamagedError(
                "a record of the state is damaged",
                hint="find out what else writes to the topic; capture under another topic.prefix",
                key=key.decode(errors="backslashreplace"),
                cause=f"{type(error).__name__}: {error}",
            ) from error
    return state


def _decode_record(  # noqa: PLR0912 - one for each kind of record
    state: State, key: bytes, value: bytes, read_offset: ReadOffset
) -> None:
    kind, _, name = key.decode().partition("/")
    body = orjson.loads(value)
    if not isinstance(body, dict):
        raise TypeError("the value is not a JSON object")
    if key == OFFSET_KEY:
        marks = tuple(TransactionMark(**known_fields(TransactionMark, mark)) for mark in body["transactions"])
        last = body.get("last") and TransactionCommit(**known_fields(TransactionCommit, body["last"]))
        state.offset = StoredOffset(read_offset(body["position"]), marks, last)
    elif key == READERS_KEY:
        state.readers = body["count"]
    elif key == GENERATION_KEY:
        state.generation = body["number"]
    elif key == SIGNALS_KEY:
        state.signals = body
    elif key == MOVED_KEY:
        state.moved = MovedPosition(read_offset(body["position"]), read_offset(body["origin"]))
    elif key == REPLAY_KEY:
        state.replay = ReplayedPart(read_offset(body["until"]), tuple(body["tables"]))
    elif kind == "request":
        state.requests[int(name)] = body
    elif kind == "table":
        order = {field: tuple(body.get(field, ())) for field in ("key", "key_order")}
        fault = TableFault(**known_fields(TableFault, body["fault"])) if "fault" in body else None
        known = known_fields(TableState, body)
        state.tables[name] = TableState(**{**known, "mode": TableMode(body["mode"]), **order, "fault": fault})
    elif kind == "key":
        state.keys[name] = body
    elif kind == "prepared":
        tables = tuple(map(tuple, body.get("tables", ())))
        state.prepared[name] = TransactionPrepared(**{**known_fields(TransactionPrepared, body), "tables": tables})
    elif kind == "split":
        positions = {"low": read_offset(body["low"]), "high": read_offset(body["high"])}
        split = SplitState(**{**known_fields(SplitState, body), **positions, "checksum": int(body["checksum"], 16)})
        state.splits.setdefault(split.table_id, StoredSplits()).splits.append(split)
    elif kind == "range":
        ended = RangeState(**known_fields(RangeState, body))
        state.splits.setdefault(ended.table_id, StoredSplits()).ranges.append(ended)
    elif kind == "backfill":
        state.backfill[name] = body["count"]


def _structure(records: Mapping[bytes, bytes]) -> frozenset[str] | None:
    if STRUCTURE_KEY not in records:
        return None
    return frozenset(_names(records, STRUCTURE_KEY + b"/"))


def _names(records: Iterable[bytes], prefix: bytes) -> set[str]:
    return {key.removeprefix(prefix).decode() for key in records if key.startswith(prefix)}


def read(settings: KafkaSettings, topic: str, read_offset: ReadOffset) -> State:
    """Read all committed records of the topic.

    Call this after fencing every producer that writes to the topic: then no transaction is open.
    Raises what ``decode`` raises.
    """
    try:
        return decode(read_compacted(settings, topic), read_offset)
    except (StateDamagedError, NewerFormatError) as error:
        error.add_context(topic=topic)
        raise
