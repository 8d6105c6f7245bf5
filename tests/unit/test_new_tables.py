"""Tables that enter the capture while it streams: empty, with rows, or in error; no servers."""

from __future__ import annotations

import threading
import time
from types import SimpleNamespace
from typing import Any

import orjson
import pytest

from tailrace.producer.config import load
from tailrace.producer.errors import BinlogError, TableFailedError
from tailrace.producer.kafka.state_store import TableState, table_key
from tailrace.producer.model.binlog_events import QueryEvent, RowsEvent, TableVersion, TransactionBegin
from tailrace.producer.model.ddl import Change
from tailrace.producer.model.table import CatalogTable, Column, Table, TableId
from tailrace.producer.model.table_mode import TableFault, TableMode
from tailrace.producer.mysql.text.ddl import ddl_effects
from tailrace.producer.notifications.notification import NotificationService
from tailrace.producer.ops.status import Status
from tailrace.producer.serialization.captured_tables import CapturedTables
from tailrace.producer.signals.moves import Moves
from tailrace.producer.signals.processor import SignalProcessor
from tailrace.producer.signals.queue import IncrementalSnapshotQueue, SnapshotRequest
from tailrace.producer.streaming.context import SnapshotProgressListener, StreamContext, StreamSettings
from tailrace.producer.streaming.former_tables import former_key
from tailrace.producer.streaming.mailbox import Mailbox
from tailrace.producer.streaming.new_tables import NewTables
from tailrace.producer.streaming.refused_changes import RefusedChanges
from tailrace.producer.streaming.replay import Replay
from tailrace.producer.streaming.snapshot_coordinator import SnapshotCoordinator
from tailrace.producer.streaming.split_registry import SplitRegistry
from tailrace.producer.streaming.table_lifecycle import TableLifecycle
from tailrace.producer.streaming.table_versions import TableVersions
from tailrace.runtime.errors import KafkaRequestError, SchemaError
from tailrace.schemas.names import watermarks_topic
from tests.support.stream import FILE, NO_SOURCE, SERVER, FakeListener, FakeProducer, stream_transaction

BASE = {
    "database.hostname": "h",
    "database.user": "u",
    "database.password": "p",
    "database.server.id": "7",
    "database.include.list": "db",
    "topic.prefix": "p",
    "bootstrap.servers": "k:1",
}
COLUMNS = (Column("id", "int", nullable=False), Column("v", "int"))
T, U = TableId("db", "t"), TableId("db", "u")
EVENT = QueryEvent(f"{SERVER}:9", "db", "", FILE, 1, 2, 3, 1, None)


class Stream:
    """A stream over a catalog that the test changes; ``catalog`` maps tables to their primary keys."""

    queue: IncrementalSnapshotQueue | None = None
    """Where requests go; without one they are only kept."""

    def __init__(self, **changes: str) -> None:
        self.catalog: dict[TableId, tuple[str, ...]] = {}
        self.producer, self.registry, self.listener, self.status = (
            FakeProducer(),
            SplitRegistry(),
            FakeListener(),
            Status(),
        )
        self.with_topic: set[TableId] = set()
        self.topics_refused = False
        self.columns: tuple[Column, ...] = COLUMNS
        config = load(None, {}, {**BASE, **changes})
        settings = StreamSettings(
            "p",
            config.filters.tables,
            [],
            config.values.skipped_operations,
            tombstones=True,
            include_query=False,
            max_waiting_splits=8,
        )
        self.transaction = stream_transaction(self.producer, self.registry)
        self.signals = SignalProcessor(
            self.queue or IncrementalSnapshotQueue(),
            self.registry,
            self.transaction,
            NotificationService(self.transaction, topic=None, to_log=False),
            config.filters.tables,
            condition_problem=lambda _condition: "",
            moves=Moves(lambda text, _epoch: pytest.fail(text), {}, Replay()),
        )
        listener: SnapshotProgressListener = self.listener if self.queue is None else self.signals
        tables = CapturedTables(config, self._describe)
        mailbox = Mailbox(lambda: None, threading.Event())
        context = StreamContext(settings, self.transaction, self.registry, tables, mailbox, self.status)
        topics: Any = SimpleNamespace(
            ensure_tables=self._ensure_topics,
            without_topic=lambda tables: [table for table in tables if table not in self.with_topic],
        )
        new_tables = NewTables(context, topics, listener, NO_SOURCE, reads=lambda table: table.table != "unread")
        self.new_tables = new_tables
        self.versions = TableVersions(context, new_tables)
        self.coordinator = SnapshotCoordinator(context, self.versions, listener)
        self.refused = RefusedChanges(context, self.versions, listener)
        self.lifecycle = TableLifecycle(
            context, self.coordinator, None, versions=self.versions, new_tables=new_tables, refused=self.refused
        )
        self.transaction.offset.begin(TransactionBegin(f"{SERVER}:5", FILE, 100, 180, 7, 0, 1, 1))

    def _describe(self, table: TableId) -> CatalogTable:
        if table not in self.catalog:
            raise SchemaError(f"table {table} does not exist")
        key = self.catalog[table]
        return CatalogTable(Table(table, self.columns, key), key, (), frozenset(), {})

    def _ensure_topics(self, tables: list[TableId]) -> None:
        if self.topics_refused:
            raise KafkaRequestError("the account may not create topics")
        self.with_topic.update(tables)

    def ddl(self, sql: str) -> None:
        """Let the stream read a statement."""
        self.lifecycle.apply(EVENT._replace(sql=sql), ddl_effects(sql, "db"))

    def insert(self, table: TableId, *key: str, definition: TableVersion | None = None) -> bool:
        """Let the stream read a rows event; return whether it is written."""
        definition = definition or TableVersion(table, COLUMNS, key, f"{table}{key}".encode())
        event = RowsEvent("c", definition, b"", 0, 0, FILE, 200, 300, 7, 1)
        return (self.versions.in_use.get(definition.fingerprint) or self.versions.change(event)) is not None

    def mode(self, table: TableId) -> TableMode | None:
        """Return the mode of a table, which the state has too; None: it is not tracked."""
        tracked = self.registry.tables.get(table)
        stored = [value for _, key, value in self.producer.open if key == table_key(table)]
        if tracked is None:
            assert not stored or stored[-1] is None
            return None
        assert not stored or orjson.loads(stored[-1] or b"{}").get("mode") == tracked.mode
        return tracked.mode

    @property
    def reported_as_created(self) -> int:
        """The number of records that tell readers of the topic that the table is a new one."""
        records = [value or b"" for topic, _, value in self.producer.open if topic == watermarks_topic("p")]
        return sum(b'"CREATED"' in value for value in records)

    @property
    def requested(self) -> list[TableId]:
        """The tables whose rows are to be read."""
        return [table for event, table, _ in self.listener.reports if event == "requested"]


class StreamWithQueue(Stream):
    """A stream whose requests are those of its signals."""

    def __init__(self, *requests: SnapshotRequest) -> None:
        self.queue = IncrementalSnapshotQueue().adding(requests)
        super().__init__()


def test_created_table_is_streamed_from_its_first_change() -> None:
    """The binlog has all of its rows, so nothing is read."""
    stream = Stream()
    stream.ddl("CREATE TABLE t (id INT PRIMARY KEY, v INT)")
    assert stream.mode(T) is None
    assert stream.insert(T, "id")
    assert (stream.mode(T), stream.requested, stream.with_topic) == (TableMode.STREAMING, [], {T})


def test_a_created_table_whose_changes_were_refused_is_read() -> None:
    """The catalog did not have it yet, so nothing knew the names of its columns."""
    stream = Stream()
    stream.ddl("CREATE TABLE t (id INT PRIMARY KEY, v INT)")
    stream.catalog.pop(T, None)
    stream.refused.refuse(SchemaError("no names"), [T])
    stream.catalog[T] = ("id",)
    assert stream.mode(T) is None
    assert stream.insert(T, "id")
    assert (stream.mode(T), stream.requested) == (TableMode.STREAMING, [T])


def test_table_that_may_have_existed_before_its_create_is_read() -> None:
    """The server logs CREATE TABLE IF NOT EXISTS also for a table that exists, which the account may not have seen."""
    stream = Stream()
    stream.ddl("CREATE TABLE IF NOT EXISTS t (id INT PRIMARY KEY, v INT)")
    assert stream.insert(T, "id")
    assert (stream.mode(T), stream.requested) == (TableMode.STREAMING, [T])


def test_table_that_was_created_before_is_not_read_for_a_repeated_create() -> None:
    """The first CREATE has told that it is empty; a DROP ends that."""
    stream = Stream()
    stream.ddl("CREATE TABLE t (id INT PRIMARY KEY, v INT)")
    stream.ddl("CREATE TABLE IF NOT EXISTS t (id INT PRIMARY KEY, v INT)")
    assert stream.insert(T, "id")
    assert stream.requested == []
    stream.ddl("DROP TABLE t")
    stream.ddl("CREATE TABLE IF NOT EXISTS t (id INT PRIMARY KEY, v INT)")
    assert stream.insert(T, "id")
    assert stream.requested == [T]


def test_table_that_the_account_could_not_see_is_read() -> None:
    """Its changes are in the binlog, but not its CREATE: it has rows from before."""
    stream = Stream()
    assert stream.insert(T, "id")
    assert (stream.mode(T), stream.requested) == (TableMode.STREAMING, [T])


@pytest.mark.parametrize(
    "sql", ["RENAME TABLE elsewhere.x TO t", "ALTER TABLE elsewhere.x RENAME TO db.t, ADD w INT", "RENAME TABLE x TO t"]
)
def test_renamed_table_is_read(sql: str) -> None:
    stream = Stream()
    stream.catalog[T] = ("id",)
    stream.ddl(sql)
    assert (stream.mode(T), stream.requested) == (TableMode.STREAMING, [T])


def test_swap_with_another_table_is_read_under_the_same_name() -> None:
    """The atomic reload of a table: the former one leaves, the new one has other rows."""
    stream = Stream()
    stream.registry.track(T, TableMode.STREAMING)
    stream.catalog = {T: ("id",), TableId("db", "t_before"): ("id",)}
    stream.ddl("RENAME TABLE t TO t_before, elsewhere.loaded TO t")
    assert stream.mode(T) is TableMode.STREAMING
    assert stream.requested == [TableId("db", "t_before"), T]


GH_OST = [
    "create /* gh-ost */ table `db`.`_t_gho` like `db`.`t`",
    "alter /* gh-ost */ table `db`.`_t_gho` engine=innodb",
]
PT_OSC = [
    "CREATE TABLE `db`.`_t_new` (id INT PRIMARY KEY, v INT)",
    *(
        f"CREATE DEFINER=`u`@`%` TRIGGER `pt_osc_db_t_{when[:3]}` AFTER {when} ON `db`.`t` FOR EACH ROW DELETE IGNORE "
        "FROM `db`.`_t_new`"
        for when in ("INSERT", "UPDATE", "DELETE")
    ),
]
GH_OST_SWAP_IN_TWO = [
    "rename /* gh-ost */ table `db`.`t` to `db`.`_t_del`",
    "rename /* gh-ost */ table `db`.`_t_gho` to `db`.`t`",
]
GH_OST_SWAP = "rename /* gh-ost */ table `db`.`t` to `db`.`_t_del`, `db`.`_t_gho` to `db`.`t`"
PT_OSC_SWAP = "RENAME TABLE `db`.`t` TO `db`.`_t_old`, `db`.`_t_new` TO `db`.`t`"


def swapped(statements: list[str]) -> Stream:
    """Return a stream that has read statements while the table was streamed."""
    stream = Stream()
    stream.registry.track(T, TableMode.STREAMING)
    stream.catalog[T] = ("id",)
    stream.catalog |= {TableId("db", name): ("id",) for name in ("_t_del", "_t_20260101120000_del", "_t_old")}
    for sql in statements:
        stream.ddl(sql)
    assert stream.mode(T) is TableMode.STREAMING
    return stream


@pytest.mark.parametrize(
    "statements",
    [
        [*GH_OST, GH_OST_SWAP],
        [
            *GH_OST,
            "rename /* gh-ost */ table `db`.`t` to `db`.`_t_20260101120000_del`",
            "rename /* gh-ost */ table `db`.`_t_gho` to `db`.`t`",
        ],
        [*PT_OSC, PT_OSC_SWAP],
    ],
)
def test_swap_of_an_online_schema_change_needs_no_reading(statements: list[str]) -> None:
    """The copy has the same rows, and every change of them is in the topic."""
    stream = swapped(statements)
    assert T not in stream.requested
    assert stream.reported_as_created == len(stream.requested)  # the former table is read in the second case
    assert str(T) not in stream.registry.former


@pytest.mark.parametrize(("before", "after", "read"), [("INT", "BIGINT", False), ("BIGINT", "INT", True)])
def test_copy_is_compared_with_the_columns_that_earlier_statements_have_defined(
    before: str, after: str, read: bool
) -> None:
    """The version in use has INT, and the RENAME of the swap has not made that unknown yet."""
    stream = Stream()
    stream.registry.track(T, TableMode.STREAMING)
    stream.catalog = {T: ("id",), TableId("db", "_t_del"): ("id",)}
    stream.insert(T, "id")
    for sql in (f"ALTER TABLE t MODIFY v {before}", GH_OST[0], f"ALTER TABLE _t_gho MODIFY v {after}", GH_OST_SWAP):
        stream.ddl(sql)
    assert stream.requested == [T] * read


@pytest.mark.parametrize(
    ("action", "kept"),
    [
        ("ADD w INT NOT NULL DEFAULT 5, ADD INDEX (w)", False),  # its default is not in the catalog of this test
        ("ADD INDEX (v)", True),
        ("DROP v", False),
        ("ADD CHECK (v > 0)", False),
        ("ADD UNIQUE (v)", False),
        ("PARTITION BY HASH (id)", False),
        ("MODIFY v SMALLINT", False),
        ("MODIFY v BIGINT", True),
        ("CHANGE v w INT", False),
    ],
)
@pytest.mark.parametrize("tool", ["gh-ost", "pt-osc"])
def test_copy_that_may_lack_rows_or_values_is_read_after_a_record_created(tool: str, action: str, kept: bool) -> None:
    """The tools copy with INSERT IGNORE: rows that the copy did not take stayed in targets for ever."""
    stream = Stream()
    stream.registry.track(T, TableMode.STREAMING)
    stream.catalog |= {TableId("db", name): ("id",) for name in ("t", "_t_del", "_t_old")}
    stream.insert(T, "id")
    if tool == "gh-ost":
        statements = [GH_OST[0], f"alter /* gh-ost */ table _t_gho {action}", GH_OST_SWAP]
    else:
        statements = [PT_OSC[0], f"ALTER TABLE _t_new {action}", *PT_OSC[1:], PT_OSC_SWAP]
    for sql in statements:
        stream.ddl(sql)
    assert (stream.requested, stream.reported_as_created) == (([], 0) if kept else ([T], 1))


@pytest.mark.parametrize(
    "statements",
    [
        [GH_OST_SWAP],  # the stream has not read what the copy is
        [*GH_OST, "ALTER TABLE _t_gho ADD UNIQUE (v)", GH_OST_SWAP],  # rows may be missing in it
        [*GH_OST, GH_OST_SWAP.replace("/* gh-ost */ ", "")],
        [*PT_OSC[:-1], PT_OSC_SWAP],
        [*PT_OSC, "DROP TRIGGER IF EXISTS `db`.`pt_osc_db_t_INS`", PT_OSC_SWAP],
        ["CREATE TABLE _t_new LIKE t", PT_OSC_SWAP],
        ["RENAME TABLE t TO _t_old, other_new TO t"],
    ],
)
def test_swap_that_only_looks_like_that_of_a_tool_is_one_of_two_tables(statements: list[str]) -> None:
    """Anybody may give such names, to a table with other rows."""
    stream = swapped(statements)
    assert T in stream.requested
    assert stream.reported_as_created


def test_copy_of_a_table_that_has_not_begun_does_not_keep_the_rows_of_a_former_one() -> None:
    """It was created while the capture was down, and waits for its snapshot: its topic has the rows of another one."""
    for statements in ([*GH_OST, GH_OST_SWAP], [*GH_OST, *GH_OST_SWAP_IN_TWO], [*PT_OSC, PT_OSC_SWAP]):
        stream = Stream()
        stream.registry.track(T, TableMode.WAITING)
        stream.registry.former.add(str(T))
        stream.catalog |= {T: ("id",), TableId("db", "_t_del"): ("id",), TableId("db", "_t_old"): ("id",)}
        for sql in statements:
            stream.ddl(sql)
        assert (stream.mode(T), str(T) in stream.registry.former) == (TableMode.WAITING, True)


@pytest.mark.parametrize("waits_since", ["statement", "start"])
@pytest.mark.parametrize("running", [False, True])
@pytest.mark.parametrize(
    "statements",
    [[*GH_OST, GH_OST_SWAP], [*GH_OST, *GH_OST_SWAP_IN_TWO], [*PT_OSC, PT_OSC_SWAP]],
    ids=["one", "two", "pt-osc"],
)
def test_copy_of_a_table_that_waits_for_a_reading_is_read(
    statements: list[str], waits_since: str, *, running: bool
) -> None:
    """Readers have removed what they had, and the topic has nothing for it yet: nor is it that of the copy."""
    stream = StreamWithQueue(*[SnapshotRequest(T, required=True)] * (waits_since == "start"))
    stream.catalog |= {T: ("id",), TableId("db", "_t_del"): ("id",), TableId("db", "_t_old"): ("id",)}
    if waits_since == "start":
        stream.registry.track(T, TableMode.STREAMING)
        stream.registry.former.add(str(T))
        stream.new_tables.restore([T])
    else:
        stream.ddl("RENAME TABLE elsewhere.x TO t")
    if running:
        stream.registry.start_incremental(T)
    for sql in statements:
        stream.ddl(sql)
    number = max(request.number for request in stream.signals.queue.requests if request.table == T and request.required)
    assert number > 1, "the former table was to be read"


def test_table_that_left_during_its_initial_snapshot_enters_when_that_goes_on() -> None:
    """Its topic was deleted: it is not another one again for a statement that only makes a table if there is none."""
    stream = StreamWithQueue(SnapshotRequest(T, required=True))
    stream.catalog[T] = ("id",)
    stream.registry.track(T, TableMode.WAITING)
    stream.registry.former.add(str(T))
    stream.new_tables.restore([T])
    plan = TableState(TableMode.SNAPSHOT, snapshot="s", greatest=[1], key=("id",))
    order: Any = SimpleNamespace()
    stream.coordinator.resume_table(T, order, plan, (1,))
    [records] = stream.producer.committed  # before any split is read again
    assert [key for topic, key, _ in records if topic == watermarks_topic("p")] == [b"p.db.t"]
    assert not stream.registry.former

    stream.coordinator.all_read(T)
    stream.coordinator.end_splits()
    assert stream.mode(T) is TableMode.STREAMING
    stream.ddl("CREATE TABLE IF NOT EXISTS t (id INT PRIMARY KEY, v INT)")
    assert stream.reported_as_created == 0
    assert stream.signals.queue.requests == (SnapshotRequest(T, required=True),)


@pytest.mark.parametrize(("table", "read"), [("t", True), ("unread", False)])
def test_table_that_perhaps_was_there_is_read_if_its_former_rows_are_removed(table: str, *, read: bool) -> None:
    """The statement may have done nothing: then no change brings the rows that the table has."""
    stream = Stream()
    stream.registry.track(TableId("db", table), TableMode.STREAMING)
    stream.registry.former.add(f"db.{table}")
    stream.ddl(f"CREATE TABLE IF NOT EXISTS {table} (id INT PRIMARY KEY, v INT)")
    assert (stream.reported_as_created, stream.requested) == (int(read), [TableId("db", table)] * read)


@pytest.mark.parametrize("missed", [0, 1, 2], ids=["before", "between", "not at all"])
@pytest.mark.parametrize("planned", [False, True])
def test_copy_of_a_table_whose_initial_snapshot_ends_between_two_renames_is_read(missed: int, *, planned: bool) -> None:
    """A reader did not find the table: the rest of its snapshot is left out, and its topic has some rows, or none."""
    stream = StreamWithQueue()
    stream.catalog |= {T: ("id",), TableId("db", "_t_del"): ("id",)}
    stream.registry.track(T, TableMode.WAITING)
    if planned:
        stream.registry.start_planning(T)
        stream.registry.set_range(T, (1,))
    for sql in GH_OST:
        stream.ddl(sql)
    for number, sql in enumerate(GH_OST_SWAP_IN_TWO):
        if number == missed:
            stream.coordinator.abandon_table(T)
        stream.ddl(sql)
    continues = stream.registry.tables[T].mode in {TableMode.WAITING, TableMode.SNAPSHOT}
    assert continues == (missed == 2)
    assert stream.signals.requires_reading(T) == (not continues)


@pytest.mark.parametrize("swap", [[GH_OST_SWAP], GH_OST_SWAP_IN_TWO], ids=["one", "two"])
def test_copy_of_a_table_whose_reading_did_not_find_it_is_read(swap: list[str]) -> None:
    """Its request is gone before the stream has read that the table is, and its rows lack still."""
    stream = StreamWithQueue(SnapshotRequest(T, required=True))
    stream.catalog |= {T: ("id",), TableId("db", "_t_del"): ("id",)}
    stream.registry.track(T, TableMode.STREAMING)
    for sql in GH_OST:
        stream.ddl(sql)
    stream.coordinator.cancel_incremental(T, missing=True)
    assert (stream.mode(T), stream.signals.queue.requests) == (TableMode.STREAMING, ())
    for sql in swap:
        stream.ddl(sql)
    assert stream.signals.requires_reading(T)


def test_copy_of_a_table_that_was_not_captured_is_read() -> None:
    """Its first copy lacks a column, and the catalog did not have it: nothing of it was read before the second one."""
    stream = StreamWithQueue()
    stream.registry.track(T, TableMode.STREAMING)
    for sql in (GH_OST[0], "alter /* gh-ost */ table _t_gho DROP v", GH_OST_SWAP):
        stream.ddl(sql)
    assert (stream.mode(T), stream.signals.queue.requests) == (None, ())
    stream.catalog[T] = ("id",)
    for sql in (*GH_OST, GH_OST_SWAP):
        stream.ddl(sql)
    assert stream.signals.requires_reading(T)


def test_swap_that_is_read_after_its_table_is_gone_leaves_a_former_table() -> None:
    """The catalog is ahead of the stream: the copy never begins, and its topic keeps the rows of the table."""
    stream = Stream()
    stream.registry.track(T, TableMode.STREAMING)
    for sql in (*GH_OST, GH_OST_SWAP):
        stream.ddl(sql)
    assert (stream.mode(T), stream.requested) == (None, [])
    stream.ddl("DROP TABLE t")
    stream.ddl("CREATE TABLE t (id INT PRIMARY KEY, v INT)")
    assert stream.reported_as_created == 1


def test_rows_that_a_statement_moves_are_read_also_during_a_snapshot() -> None:
    stream = Stream()
    stream.registry.track(T, TableMode.STREAMING)
    stream.registry.track(U, TableMode.WAITING)
    stream.catalog = {T: ("id",), U: ("id",)}
    stream.ddl("ALTER TABLE t EXCHANGE PARTITION p WITH TABLE u WITHOUT VALIDATION")
    stream.ddl("ALTER TABLE t DISCARD TABLESPACE")
    stream.ddl("ALTER TABLE t IMPORT TABLESPACE")
    assert stream.requested == [T, T]  # u waits for its snapshot, which will read the rows
    stream.registry.start_incremental(T)
    stream.ddl("ALTER TABLE t IMPORT PARTITION p TABLESPACE")
    assert stream.requested == [T, T, T]


@pytest.mark.parametrize(("table", "reads"), [("u", True), ("unread", False)])
def test_table_that_was_a_partition_has_rows(table: str, reads: bool) -> None:
    """MariaDB: its CREATE would say that it has none. A former table of the name is gone if the rows are read."""
    found = TableId("db", table)
    stream = Stream()
    stream.registry.track(T, TableMode.STREAMING)
    stream.registry.former.add(str(found))
    stream.catalog = {T: ("id",), found: ("id",)}
    stream.ddl(f"ALTER TABLE t CONVERT PARTITION p TO TABLE {table}")
    assert stream.mode(found) is TableMode.STREAMING
    assert stream.requested == ([found] if reads else [])
    assert stream.reported_as_created == reads

    stream.catalog.pop(found)
    stream.ddl(f"ALTER TABLE t CONVERT TABLE {table} TO PARTITION p VALUES LESS THAN (5)")
    assert stream.mode(found) is None
    assert stream.requested[reads:] == [T]


def test_table_without_a_key_is_in_error_until_it_has_one() -> None:
    """One developer's table must not end the capture of the others."""
    stream = Stream()
    stream.catalog[T] = ()
    stream.ddl("CREATE TABLE t (id INT, v INT)")
    assert not stream.insert(T)
    assert stream.mode(T) is TableMode.ERROR
    assert "neither a primary key" in stream.status.snapshot()["tables"]["db.t"]["error"]
    assert stream.status.snapshot()["snapshot"]["tables_in_error"] == 1
    assert stream.insert(U, "id")

    stream.catalog[T] = ("id",)
    stream.ddl("ALTER TABLE t ADD PRIMARY KEY (id)")

    assert stream.insert(T, "id")
    assert (stream.mode(T), stream.requested) == (TableMode.STREAMING, [U, T])
    assert stream.status.snapshot()["tables"]["db.t"]["error"] == ""


@pytest.mark.parametrize("retried_by", ["change", "statement"])
def test_created_table_is_read_if_its_first_changes_were_skipped(
    retried_by: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its topic could not be created: the binlog has all of its rows, but the stream has passed some of them."""
    stream = Stream()
    stream.topics_refused = True
    stream.ddl("CREATE TABLE t (id INT PRIMARY KEY, v INT)")
    definition = TableVersion(T, COLUMNS, ("id",), b"t")
    assert not stream.insert(T, definition=definition)
    assert (stream.mode(T), stream.requested) == (TableMode.ERROR, [])

    stream.topics_refused = False
    if retried_by == "change":
        later = time.monotonic() + 11
        monkeypatch.setattr(time, "monotonic", lambda: later)
    else:
        stream.catalog[T] = ("id",)
        stream.ddl("ALTER TABLE t ADD COLUMN n INT")
    assert stream.insert(T, definition=definition)
    assert (stream.mode(T), stream.requested) == (TableMode.STREAMING, [T])
    assert stream.reported_as_created == 1


SECRET = Column("secret", "int")
TRUNCATED = {"skipped.operations": "none", "key.converter.schemas.enable": "true"}
TRUNCATED |= {"value.converter.schemas.enable": "true"}


def test_statement_that_makes_a_table_impossible_to_capture_stops_no_other() -> None:
    """A column that a mask cannot be applied to: what was written before it stays written, its first change is not."""
    stream = Stream(**{"column.mask.with.3.chars": r"db\.t\.secret"})
    stream.catalog[T] = ("id",)
    stream.registry.track(T, TableMode.STREAMING)
    assert stream.insert(T, "id")
    stream.columns = (*COLUMNS, SECRET)
    stream.ddl("ALTER TABLE t ADD secret INT")
    assert stream.mode(T) is TableMode.STREAMING
    with stream.refused.confined_to(T, EVENT):
        stream.insert(T, definition=TableVersion(T, stream.columns, ("id",), b"2"))
    assert stream.mode(T) is TableMode.ERROR
    assert stream.insert(U, "id")

    stream.columns = COLUMNS
    stream.ddl("ALTER TABLE t DROP secret")
    assert (stream.mode(T), stream.requested) == (TableMode.STREAMING, [U, T])
    assert stream.reported_as_created == len(stream.requested)


def test_truncate_of_a_table_that_has_lost_its_key_stops_no_other() -> None:
    """The record needs a schema, and with it a key. A table that is read ends the session, as with a change."""
    stream = Stream(**TRUNCATED)
    stream.catalog[T] = ()
    stream.registry.track(T, TableMode.STREAMING)
    stream.ddl("TRUNCATE TABLE t")
    assert stream.mode(T) is TableMode.ERROR
    status = stream.status.snapshot()["tables"]["db.t"]
    assert "neither a primary key" in status["error"]
    assert status["failed_at"]["file"] == FILE
    stream.ddl("TRUNCATE TABLE t")
    stream.ddl("CREATE TABLE u (id INT)")
    stream.ddl("TRUNCATE TABLE u")
    assert stream.insert(TableId("db", "v"), "id")

    stream = Stream(**TRUNCATED)
    stream.catalog[T] = ()
    stream.registry.track(T, TableMode.STREAMING)
    stream.registry.start_incremental(T)
    with pytest.raises(TableFailedError):
        stream.ddl("TRUNCATE TABLE t")


@pytest.mark.parametrize("sql", ["CREATE TABLE t (id INT PRIMARY KEY, v INT)", "TRUNCATE TABLE t"])
def test_new_table_whose_topic_kafka_refuses_stops_no_other(sql: str) -> None:
    stream = Stream(**{"skipped.operations": "none"})
    stream.topics_refused = True
    stream.registry.former.add(str(T))
    stream.ddl(sql)
    assert (stream.mode(T), stream.with_topic) == (TableMode.ERROR, set())

    stream.topics_refused = False
    assert stream.insert(T, "id")
    assert (stream.mode(T), stream.requested, stream.reported_as_created) == (TableMode.STREAMING, [T], 1)


def test_table_whose_topic_kafka_refuses_stops_no_other_where_it_is_read_or_refused() -> None:
    """A signal to read it, and a change of it in a form that cannot be written."""
    stream = Stream()
    stream.topics_refused = True
    stream.catalog[T] = ("id",)
    stream.refused.refuse(BinlogError("rows without columns"), [T])
    assert (stream.mode(T), stream.coordinator.prepare_incremental(T, whole=True)) == (TableMode.ERROR, None)

    stream.topics_refused = False
    assert stream.coordinator.prepare_incremental(T, whole=True) is not None
    assert stream.mode(T) is TableMode.STREAMING


def test_table_in_error_checks_the_catalog_once_in_a_while() -> None:
    """Each of its changes would otherwise read the catalog."""
    stream = Stream()
    stream.catalog[T] = ()
    definition = TableVersion(T, COLUMNS, (), b"x")
    assert not stream.insert(T, definition=definition)
    stream.catalog[T] = ("id",)
    assert not stream.insert(T, definition=definition)
    assert stream.insert(T, "id")  # another definition


def test_table_that_is_gone_before_its_change_is_read_is_forgotten_with_its_drop() -> None:
    """A unique key is looked up in the catalog, where the table is no more."""
    stream = Stream()
    assert not stream.insert(T)
    assert stream.mode(T) is TableMode.ERROR
    stream.ddl("DROP TABLE t")
    assert stream.mode(T) is None
    stream.ddl("CREATE TABLE t (id INT PRIMARY KEY, v INT)")
    assert stream.insert(T, "id")
    assert stream.requested == []


def test_keyless_table_that_is_created_filled_and_dropped_is_written_with_its_whole_row() -> None:
    """The catalog has it no more when its first change is read."""
    stream = Stream(**{"tailrace.tables.without.key": "full-row"})
    stream.ddl("CREATE TABLE t (id INT, v INT)")
    assert stream.insert(T)
    stream.ddl("DROP TABLE t")
    assert (stream.mode(T), stream.requested) == (None, [])


def test_dropped_tables_leave_nothing_behind() -> None:
    """Tables that are created and dropped all day."""
    stream = Stream()
    for n in range(5):
        table = TableId("db", f"x{n}")
        stream.ddl(f"CREATE TABLE x{n} (id INT PRIMARY KEY, v INT)")
        stream.insert(table, "id")
        stream.ddl(f"DROP TABLE x{n}")
    assert (stream.registry.tables, stream.versions.in_use, stream.status.snapshot()["tables"]) == ({}, {}, {})


def test_changes_of_a_waiting_table_are_not_compiled() -> None:
    """They may be logged with a definition that cannot be captured; the snapshot reads the table as it is."""
    stream = Stream()
    stream.registry.track(T, TableMode.WAITING)
    assert not stream.insert(T)
    assert stream.mode(T) is TableMode.WAITING


def test_mode_that_reads_nothing_reads_no_arriving_table() -> None:
    stream = Stream()
    table = TableId("db", "unread")
    stream.catalog[table] = ("id",)
    stream.ddl("RENAME TABLE x TO unread")
    assert (stream.mode(table), stream.requested) == (TableMode.STREAMING, [])


def test_tables_of_other_databases_do_not_arrive() -> None:
    stream = Stream()
    stream.ddl("RENAME TABLE t TO elsewhere.t")
    stream.ddl("ALTER TABLE elsewhere.a EXCHANGE PARTITION p WITH TABLE elsewhere.b")
    assert (stream.requested, stream.registry.tables) == ([], {})
    assert Change.EXCHANGE in {
        effect.change for effect in ddl_effects("ALTER TABLE a EXCHANGE PARTITION p WITH TABLE b", "x")
    }


UNREAD = TableId("db", "unread")
CREATE_UNREAD = "CREATE TABLE unread (id INT PRIMARY KEY, v INT)"
CREATE_COPY = "CREATE TABLE copy (id INT PRIMARY KEY, v INT)"


@pytest.mark.parametrize(
    ("statements", "changed", "created"),
    [
        ([CREATE_UNREAD], None, True),
        (["CREATE TABLE IF NOT EXISTS unread (id INT PRIMARY KEY, v INT)"], None, False),
        (["RENAME TABLE away TO unread"], None, False),
        ([CREATE_COPY, "RENAME TABLE copy TO unread"], None, True),
        ([CREATE_COPY, "RENAME TABLE copy TO unread"], TableId("db", "copy"), False),
        (["CREATE TABLE excluded.copy LIKE unread", "RENAME TABLE excluded.copy TO unread"], None, False),
        (["rename /* gh-ost */ table `db`.`_unread_gho` to `db`.`unread`"], None, False),
        ([], None, False),
    ],
    ids=["created", "perhaps created", "renamed", "empty copy", "copy with rows", "unseen copy", "gh-ost", "included"],
)
def test_readers_keep_the_former_rows_of_a_table_whose_rows_do_not_follow(
    statements: list[str], changed: TableId | None, created: bool
) -> None:
    """A table that is not read replaces the rows of a former one only if it is certainly empty when it begins."""
    stream = Stream()
    stream.registry.former.add(str(UNREAD))
    stream.catalog |= {UNREAD: ("id",), TableId("db", "copy"): ("id",)}
    for sql in statements:
        stream.ddl(sql)
        if changed is not None and sql == CREATE_COPY:
            stream.insert(changed, "id")
    stream.insert(UNREAD, "id")
    marks = [value or b"" for topic, _, value in stream.producer.open if topic == watermarks_topic("p")]
    assert any(b'"CREATED"' in value and b"p.db.unread" in value for value in marks) == created
    assert str(UNREAD) not in stream.registry.former
    assert UNREAD not in stream.requested


@pytest.mark.parametrize("mode", ["streaming", "waiting", "error"])
def test_a_table_whose_changes_are_lost_is_another_one_once(mode: str) -> None:
    """Before any change of it. One in error is not read yet, so that its rows stay."""
    stream = Stream()
    stream.catalog[T] = ("id",)
    stream.registry.track(T, TableMode(mode))
    stream.registry.former.add(str(T))

    for _ in range(2):
        stream.new_tables.restore([T, U])

    assert stream.reported_as_created == (mode == "streaming")
    assert (str(T) in stream.registry.former) == (mode != "streaming")
    stream.new_tables.restore([U])
    assert not [key for _, key, value in stream.producer.open if key == former_key(T) and value is not None]


def test_creation_is_written_at_once_for_a_start_before_the_first_change() -> None:
    """A start does not know any more that the table is new: without the record its readers would keep the rows."""
    stream = Stream()
    stream.registry.former.add(str(UNREAD))
    stream.ddl(CREATE_UNREAD)
    assert stream.reported_as_created == 1
    assert stream.mode(UNREAD) is None


def test_table_that_perhaps_existed_is_announced_and_read_before_it_has_a_change() -> None:
    """It may stay empty, and its topic has the rows of a former one."""
    stream = Stream()
    stream.registry.former.add(str(T))
    stream.catalog[T] = ("id",)
    stream.ddl("CREATE TABLE IF NOT EXISTS t (id INT PRIMARY KEY, v INT)")
    assert (stream.reported_as_created, stream.requested) == (1, [T])
    assert str(T) not in stream.registry.former


def test_swap_of_a_tool_does_not_end_the_fault_of_its_table() -> None:
    """Changes of a table in error are missing in its topic, whatever its copy has."""
    for statements in ([*GH_OST, GH_OST_SWAP], [*PT_OSC, PT_OSC_SWAP]):
        stream = Stream()
        stream.registry.track(T, TableMode.STREAMING)
        stream.catalog |= {T: ("id",), TableId("db", "_t_del"): ("id",), TableId("db", "_t_old"): ("id",)}
        stream.versions.fail(T, TableFault("a fault", {}))
        for sql in statements:
            stream.ddl(sql)
        assert T in stream.requested
        assert stream.reported_as_created


@pytest.mark.parametrize(
    ("required", "missing", "mode"), [(True, False, "error"), (True, True, "streaming"), (False, False, "streaming")]
)
def test_table_whose_topic_lacks_rows_does_not_stream_on_when_its_reading_ends_early(
    required: bool, missing: bool, mode: str
) -> None:
    """It arrived with rows: readers have removed what they had. A table that is gone has its end in the log."""
    stream = Stream()
    stream.catalog[T] = ("id",)
    stream.ddl("RENAME TABLE other.t TO t")
    assert stream.requested == [T]
    stream.listener.required = required
    stream.coordinator.cancel_incremental(T, missing=missing)
    tracked = stream.registry.tables[T]
    assert (tracked.mode, tracked.fault is None) == (mode, mode == "streaming")
    if mode == "error":
        assert stream.insert(T, "id"), "its next change takes it up"
        assert stream.requested == [T, T]


def test_former_tables_without_a_topic_are_forgotten_while_tables_come_and_go() -> None:
    """The state has no more of them than there are topics, whatever the time between two starts."""
    stream = Stream()
    for number in range(1_500):
        table = TableId("db", f"daily_{number}")
        stream.registry.track(table, TableMode.STREAMING)
        stream.with_topic |= {table} if number < 100 else set()
        stream.ddl(f"DROP TABLE {table.table}")
    assert 100 < len(stream.registry.former) < 700
    forgotten = [key for _, key, value in stream.producer.open if (key or b"").startswith(b"former/") and value is None]
    assert len(forgotten) > 800
