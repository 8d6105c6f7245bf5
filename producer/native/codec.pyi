"""The compiled extension, from ``codec.pyx`` and the files that it includes."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Protocol, TypeVar, final, overload

from tailrace.producer.model.binlog_events import Event, RowsEvent, TransactionBegin, TransactionCommit
from tailrace.producer.model.codec import EventEnvelope, KeyChange, KeyTuple, KeyValue

INTERFACE: int
"""Changes with the signatures below, so that a module of another version is not used."""

NewKeyChange = Callable[
    [tuple[bytes, bytes], tuple[bytes, bytes], EventEnvelope, int, tuple[bytes, int, int, int]], KeyChange
]
"""``(rows, keys, envelope, row, (event, offsets of both images and of their end)) -> the record``."""

class Column(Protocol):
    """How the values of one column are written: see ``PlanColumn``.

    A value that is declined gets ``call``, unless ``may_replace``; then its row is declined.
    """

    @property
    def fast(self) -> Any: ...
    @property
    def nullable(self) -> bool: ...
    @property
    def width(self) -> int: ...
    @property
    def prefix(self) -> int: ...
    @property
    def avro(self) -> bool: ...
    @property
    def head(self) -> bytes: ...
    @property
    def tag(self) -> bytes: ...
    @property
    def null(self) -> bytes: ...
    @property
    def call(self) -> Callable[[bytes], bytes] | None: ...
    @property
    def may_replace(self) -> bool: ...
    @property
    def zero(self) -> bytes | None: ...
    @property
    def labels(self) -> tuple[bytes, ...]: ...

class Plan(Protocol):
    """The columns of a row in the order they are read, those of the key, and what surrounds them: see ``RowPlan``."""

    @property
    def columns(self) -> Sequence[Column]: ...
    @property
    def key(self) -> Sequence[tuple[bytes, int, Callable[[bytes], bytes] | None, bytes]]: ...
    @property
    def row_end(self) -> bytes: ...
    @property
    def key_start(self) -> bytes: ...
    @property
    def key_end(self) -> bytes: ...

@final
class Records(Sequence[tuple[bytes, bytes | None]]):
    """Keys and values in one buffer: a sequence that only grows, and makes its items when they are read.

    It does not grow after it was sent: Kafka's client may read the values in place until they are acknowledged.
    """

    def extend(self, records: Iterable[tuple[bytes, bytes | None]]) -> None: ...
    def __len__(self) -> int: ...
    @overload
    def __getitem__(self, at: int) -> tuple[bytes, bytes | None]: ...
    @overload
    def __getitem__(self, at: slice) -> Sequence[tuple[bytes, bytes | None]]: ...

FUNCTIONS: tuple[str, ...]
"""The functions of librdkafka that are used, without ``rd_kafka_``."""

def use_library(addresses: Sequence[int]) -> None:
    """Take the addresses of ``FUNCTIONS``; before anything below is used."""

def buffers_in_flight() -> tuple[int, int, int]:
    """Return how many buffers of records Kafka's clients may read, their bytes, and the number of messages of them.

    A buffer also counts as long as its ``Records`` exist.
    """

def checksum(data: bytes | memoryview) -> int:
    """Return the CRC-32 of bytes, as ``zlib.crc32`` does."""

@final
class Sender:
    """Hands records to the client that was made last with this module as its plugin; ``owner`` keeps it alive."""

    def __init__(self, owner: object) -> None: ...
    @staticmethod
    def records(given: Iterable[tuple[bytes, bytes | None]]) -> Records:
        """Return records in one buffer; those that are in one already as they are."""

    def send(
        self, topic: str, records: Records, start: int, headers: list[tuple[str, str | bytes | None]] | None
    ) -> int:
        """Hand over the records from ``start`` on; return the index of the first one that was not accepted."""

    def failed(self) -> tuple[int, str, bytes, int] | None:
        """Return error code, topic, key and size of the first record whose delivery failed; None if none has.

        Of those that fail with the same error, the largest one.
        """

    def wait_for_batches(self, batch_bytes: int, most_ns: int, idle_ns: int) -> bool:
        """Wait until nothing is in flight and no topic has a batch to send; return False after ``most_ns``.

        A topic has one if more than ``batch_bytes`` for each of its partitions are unanswered. Partitions that have not
        answered yet are not known, so the wait also ends after ``idle_ns`` in which nothing was sent or answered.
        """

    def inferred(self) -> bool:
        """Return whether a record was acknowledged by the success of a later one alone."""

class CachedTable(Protocol):
    """What rows events of a captured table have in common."""

    @property
    def table(self) -> object: ...
    @property
    def single(self) -> bytes:
        """What precedes the images of inserts and deletes, after the table id and the flags."""

    @property
    def double(self) -> bytes:
        """The same of updates."""

_Table = TypeVar("_Table", bound=CachedTable)

class Transaction(Protocol):
    """What the binlog has said of the current transaction; see ``TransactionParser``."""

    number: int
    changed: set[Any]
    current: str | None
    begin_pos: int
    commit_ts_us: int
    is_open: bool
    xid: str
    sources: dict[bytes, str]

@final
class PacketParser:
    """Parses the events of usual transactions in whole packets of usual length.

    These are GTID, BEGIN, TABLE_MAP, rows events, XID, and the text of statements. ``ops`` are the operations of
    inserts, updates and deletes. ``verify`` checks the CRC-32 of each event.
    """

    def __init__(
        self,
        begin: type[TransactionBegin],
        rows: type[RowsEvent],
        commit: type[TransactionCommit],
        *,
        ops: tuple[str, str, str],
        most_tables: int,
        verify: bool,
    ) -> None: ...
    def parse(
        self,
        data: bytes,
        at: int,
        pos: int,
        payload_pos: int,
        crc: int,
        file: str,
        tables: dict[bytes, _Table | None],
        definitions: dict[bytes, _Table | None],
        transaction: Transaction,
        events: list[Event],
        query: str | None,
    ) -> tuple[int, int, str | None]:
        """Append events; return offset, position and query after the last event.

        Stops before the first event that is of another kind, not complete, not consistent, or of a table or a source
        that is not known yet. ``pos``, less than 2^63, is the position in the file of the event at the offset ``at``;
        ``payload_pos`` that of the compressed transaction that contains it, -1 if none does. ``crc`` is the size of a
        checksum. ``tables`` (by table id) and ``transaction`` are kept up to date. With more than ``most_tables`` it
        stops before a GTID.
        """

class Rows:
    """The buffers of a row."""

    def __init__(self, plan: Plan) -> None: ...

class PacketEncoder:
    """Encodes row packets of the text protocol; ``prefix`` precedes each row."""

    def __init__(self, plan: Plan, prefix: bytes) -> None: ...
    def encode(
        self,
        data: bytes | bytearray | memoryview,
        start: int,
        end: int,
        suffix: bytes,
        records: Records,
    ) -> tuple[int, int, int]:
        """Append the records of complete packets; return the offset after them, their checksum, and the declined size.

        The third item is 0 if all complete packets are encoded, else the size of the packet that is declined, whose
        bytes start at the offset.
        """

class ImageEncoder:
    """Encodes row images; ``prefix`` precedes each row, ``between`` follows the first image.

    ``change`` makes the record of a pair whose keys differ; if it raises, the event is declined.

    ``raw_key`` has the columns of the raw key, each with the function from the bytes of a value; None for an integer.
    """

    def __init__(
        self,
        rows: Rows,
        raw_key: Sequence[tuple[int, Callable[[bytes], KeyValue] | None]],
        prefix: bytes,
        between: bytes,
        change: NewKeyChange | None,
        *,
        pairs: bool,
        deletes: bool,
        tombstones: bool,
        skips: bool,
        avro: bool,
    ) -> None: ...
    def encode(
        self,
        data: bytes,
        start: int,
        end: int,
        head: bytes,
        tail: bytes,
        row: int,
        keys: list[tuple[KeyTuple | None, KeyTuple | None]] | None,
        envelope: EventEnvelope,
    ) -> tuple[Records | list[tuple[bytes, bytes | None] | KeyChange], int] | None:
        """Return the records and the number after that of the last row; None if the event is declined.

        Appends the raw keys of each row, before and after, to ``keys`` unless it is None, as it must be with ``skips``.
        ``envelope`` is for ``change``.
        """
    def raw_keys(self, data: bytes, start: int, end: int) -> list[tuple[KeyTuple | None, KeyTuple | None]] | None:
        """Return the raw keys of each row, before and after, and encode nothing; None if the event is declined."""

class Template:
    """The bytes of an envelope before or after the row number.

    A piece is (name, text, replacement): without a name the text is constant, else it precedes the value of the name;
    the replacement stands for both if there is no value.
    """

    def __init__(self, pieces: Iterable[tuple[str, bytes, bytes]], *, avro: bool) -> None: ...
    def render(
        self, *, ts_us: int, server_id: int, gtid: bytes, file: bytes, pos: int, thread: int | None, now_us: int
    ) -> bytes:
        """Return the bytes of one event; an empty ``gtid`` is none."""

@final
class TableEmitter:
    """What the events of one table version need.

    ``prepare`` is called once for each operation, by its index: it returns the encoder, and what precedes and follows
    the row number; None if such events are declined. ``headers`` follow the event header on every record.
    """

    def __init__(
        self,
        topic: str,
        headers: list[tuple[str, str | bytes | None]],
        event_header: str,
        epoch: int,
        prepare: Callable[[int], tuple[ImageEncoder, Template, Template] | None],
    ) -> None: ...

@final
class KeyCover:
    """Which changes of a table under snapshot are written, by spans of the first column of its key, an integer.

    ``starts`` are the first keys of the spans, in order, the first one is that of all 64-bit integers. A span is 0: its
    changes are written, 1: they are skipped, 2: declined, or an object, for which ``decide`` returns one of these once
    for each transaction.
    """

    def __init__(self, starts: list[int], spans: list[Any], decide: Callable[[Any, TransactionBegin], int]) -> None: ...
    def decision(self, key: int, begin: TransactionBegin) -> int:
        """Return the decision on a change of a key in a transaction."""

class EmitterOutput(Protocol):
    """The Kafka transaction that the records belong to."""

    def open(self) -> None:
        """Open a transaction, unless one is open."""

    def sent(self, count: int) -> None:
        """Count records that were handed over."""

    def send(
        self, topic: str, key: bytes | None, value: bytes | None, headers: list[tuple[str, str | bytes | None]] | None
    ) -> None:
        """Send a record that was not accepted; waits, or raises the error."""

@final
class ChangeEmitter:
    """Encodes and sends the changes of usual transactions; ``ops`` are as in ``PacketParser``."""

    def __init__(
        self,
        begin: type[TransactionBegin],
        rows: type[RowsEvent],
        commit: type[TransactionCommit],
        *,
        ops: tuple[str, str, str],
        output: EmitterOutput,
        cover_of: Callable[[Any], KeyCover | None],
        include_query: bool,
    ) -> None: ...
    def emit(
        self,
        sender: Sender,
        events: list[Event],
        at: int,
        end: int,
        versions: Mapping[bytes, Any],
        begin: TransactionBegin | None,
        room: int,
        streaming: object,
    ) -> int:
        """Emit the events from ``at`` to ``end``; return the index of the first that is declined, or that follows
        ``room`` records.

        ``begin`` is the open transaction. ``versions`` have, by the fingerprint of their definition, ``emitter`` (or
        None) and ``tracked``. Unless its ``mode`` is ``streaming``, what ``cover_of`` returns for it decides on events
        that follow each other; None: they are declined. All records have been handed over on return.
        """

    def take_counts(self) -> list[tuple[Any, str, int, int, int]]:
        """Return (version, operation, events, records, events without records) of the last call.

        After an error, without the events whose records were not all handed over.
        """

    def take_rows(self) -> list[tuple[Any, int]]:
        """Return (version, rows) that the last call passed of the transaction that is open after it; call it last."""

    @property
    def begin(self) -> TransactionBegin | None:
        """The transaction that is open after the last call."""

    @property
    def entered(self) -> bool:
        """Whether the last call passed a begin."""

    @property
    def ended(self) -> list[TransactionCommit]:
        """The commits that the last call passed."""

    @property
    def last_begin(self) -> TransactionBegin | None:
        """The begin of the last of ``ended``."""

    @property
    def number(self) -> int:
        """Of the last rows event, 0 after a begin; -1 if the last call passed neither."""

    @property
    def pos(self) -> int:
        """Of the last rows event, 0 after a begin."""

    @property
    def failed_at(self) -> int:
        """The index of the event whose record could not be sent; -1: none."""
