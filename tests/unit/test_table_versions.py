"""The version in use of each table: which schema is published when, and which headers name it; no servers."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any

import orjson
import pytest

from tailrace.producer.config import load
from tailrace.producer.errors import EarlierKeyError, as_definition
from tailrace.producer.kafka.state_store import known_key_key
from tailrace.producer.model.binlog_events import QueryEvent, RowsEvent, TableVersion, TransactionBegin
from tailrace.producer.model.ddl import Change, DdlEffect
from tailrace.producer.model.table import CatalogTable, Column, Table, TableId
from tailrace.producer.model.table_mode import TableFault, TableMode
from tailrace.producer.mysql.gtid import GtidSet
from tailrace.producer.ops.status import Status
from tailrace.producer.serialization.captured_tables import CapturedTables
from tailrace.producer.streaming import table_versions
from tailrace.producer.streaming.context import StreamContext, StreamSettings
from tailrace.producer.streaming.mailbox import Mailbox
from tailrace.producer.streaming.new_tables import NewTables
from tailrace.producer.streaming.refused_changes import table_fault
from tailrace.producer.streaming.split_registry import SplitRegistry
from tailrace.producer.streaming.table_versions import IncrementalKeyChangedError, TableVersions
from tailrace.runtime.errors import SchemaError
from tailrace.schemas.names import SCHEMA_HEADER
from tests.support.stream import FILE, NO_SOURCE, SERVER, START, FakeListener, FakeProducer, stream_transaction
from tests.unit.test_config_load import BASE

TABLE = TableId("shop", "t")
CONTEXT = ("__debezium.context.taskId", b"0")
SCHEMAS = "p.tailrace.schemas"
EXECUTED = START._replace(gtids=GtidSet.parse(f"{SERVER}:1-20"))


def definition(fsp: int, *, comment: bytes = b"") -> TableVersion:
    """Return a version of TABLE; ``comment`` stands for what changes the event and not the schema."""
    columns = (Column("id", "int", nullable=False), Column("at", "datetime", fsp=fsp))
    return TableVersion(TABLE, columns, ("id",), b"%d" % fsp + comment)


class Versions:
    """Table versions on a stream without servers; the catalog has ``catalog``."""

    def __init__(self, catalog: TableVersion | None = None, unique: tuple[str, ...] = ()) -> None:
        self.unique = unique
        self.producer, registry = FakeProducer(), SplitRegistry()
        registry.track(TABLE, TableMode.STREAMING)
        config = load(None, {}, BASE)
        settings = StreamSettings(
            "p",
            config.filters.tables,
            [CONTEXT],
            frozenset(),
            tombstones=True,
            include_query=False,
            max_waiting_splits=256,
        )
        self.transaction = stream_transaction(self.producer, registry)
        self._catalog = catalog
        self.executed = START
        """What the source has executed."""
        self.tables = CapturedTables(config, self._describe, source_offset=lambda: self.executed)
        context = StreamContext(
            settings,
            self.transaction,
            registry,
            self.tables,
            Mailbox(lambda: None, threading.Event()),
            Status(),
        )
        topics: Any = None
        self.versions = TableVersions(
            context, NewTables(context, topics, FakeListener(), NO_SOURCE, reads=lambda _table: True)
        )
        self._begin = TransactionBegin(f"{SERVER}:5", FILE, 100, 180, 7, 0, 1, 1)
        self.transaction.offset.begin(self._begin)
        self._number = 0

    def _describe(self, table: TableId) -> CatalogTable:
        if self._catalog is None:
            raise SchemaError(f"no table {table}")
        found = Table(TABLE, self._catalog.columns, ("id",))
        return CatalogTable(found, () if self.unique else ("id",), self.unique, frozenset(), {})

    def key_of(self, table: TableVersion) -> tuple[str, ...]:
        """Return the key of the version in use."""
        return self.versions.in_use[table.fingerprint].captured.table.key

    def statement(self, effect: DdlEffect, number: int = 6) -> None:
        """Let the stream read a statement, the transaction ``number`` of the source."""
        event = QueryEvent(f"{SERVER}:{number}", "shop", effect.sql, FILE, 700, 800, 7, 1, None, query_pos=750)
        self.versions.on_statement(event, effect)

    def event(self, table: TableVersion, pos: int) -> RowsEvent:
        """Return an empty rows event."""
        self._number += 1
        return RowsEvent("c", table, b"", 0, 0, FILE, pos, pos + 10, 7, 1, number=self._number)

    def schema_at(self, table: TableVersion, pos: int) -> str:
        """Let the stream read an event, as the binlog reader does; return the fingerprint in its headers."""
        event = self.event(table, pos)
        version = self.versions.in_use.get(table.fingerprint) or self.versions.change(event)
        assert version is not None
        assert version.definition is table
        headers = version.headers
        assert [name for name, _ in headers] == [SCHEMA_HEADER, CONTEXT[0]]
        return str(headers[0][1], "ascii")  # type: ignore[arg-type]

    @property
    def published(self) -> list[tuple[str, list[int]]]:
        """The fingerprint and the sequence of each record of the schemas topic, in order."""
        found = []
        for topic, key, value in self.producer.open:
            if topic == SCHEMAS:
                assert key is not None
                assert value is not None
                body = orjson.loads(value)
                assert key.decode() == f"{body['topic']}/{body['fingerprint']}"
                found.append((body["fingerprint"], list(body["sequence"].values())))
        return found


def test_a_version_that_returns_is_published_at_its_position_too() -> None:
    stream, milli, micro = Versions(), definition(3), definition(6)

    a = stream.schema_at(milli, 200)
    assert stream.schema_at(milli, 300) == a
    b = stream.schema_at(micro, 400)
    assert stream.schema_at(milli, 500) == a
    assert stream.schema_at(micro, 600) == b

    assert a != b
    assert stream.published == [
        (a, [1, 1, 200, 1, 0]),
        (b, [1, 1, 400, 3, 0]),
        (a, [1, 1, 500, 4, 0]),
        (b, [1, 1, 600, 5, 0]),
    ]


def test_a_definition_with_the_same_schema_is_published_once() -> None:
    stream, first, second = Versions(), definition(3), definition(3, comment=b"x")

    assert stream.schema_at(first, 200) == stream.schema_at(second, 300) == stream.schema_at(first, 400)

    assert len(stream.published) == 1


def test_a_proven_definition_is_stored_until_a_statement() -> None:
    """The version stays known: a statement is compared with it, and its schema is not published twice."""
    stream, table = Versions(), definition(3)._replace(since="0-1-4")
    keys = stream.tables.keys

    def stored() -> Any:
        values = [value or b"{}" for _, key, value in stream.producer.open if key == known_key_key(TABLE)]
        return orjson.loads(values[-1]).get("definition")

    schema = stream.schema_at(table, 200)
    assert keys.definitions() == [table._replace(fingerprint=b"")]
    assert stored()["since"] == "0-1-4"
    stream.statement(DdlEffect(Change.ALTER, TABLE, None, "ALTER TABLE t ADD n INT"))
    stream.versions.forget_definitions([TABLE])
    assert (keys.definitions(), stored()) == ([], None)
    assert stream.versions.definition(TABLE) is table
    assert stream.versions.in_use == {}
    assert stream.schema_at(table, 900) == schema
    assert keys.definitions() == [table._replace(fingerprint=b"")]
    assert [found for found, _ in stream.published] == [schema]


def test_a_table_that_left_is_published_when_it_is_back() -> None:
    """Its versions are forgotten, and so is which one was in use."""
    stream, version = Versions(), definition(3)
    stream.schema_at(version, 200)

    stream.versions.forget(TABLE)
    assert stream.versions.in_use == {}
    stream.schema_at(version, 300)

    assert [sequence[2] for _, sequence in stream.published] == [200, 300]


@pytest.mark.parametrize("rows_first", [True, False])
def test_a_statement_has_the_headers_of_the_rows_before_it(rows_first: bool) -> None:
    """Before the first rows event the catalog is asked."""
    stream, version = Versions(catalog=definition(3)), definition(3)
    truncate = QueryEvent(f"{SERVER}:6", "shop", "TRUNCATE t", FILE, 700, 800, 7, 1, None, query_pos=750)
    before = stream.schema_at(version, 200) if rows_first else None

    headers = stream.versions.statement_headers(TABLE, truncate)

    ((fingerprint, sequence),) = stream.published
    assert headers == [(SCHEMA_HEADER, fingerprint.encode()), CONTEXT]
    assert (sequence[2], fingerprint) == ((200, before) if rows_first else (750, fingerprint))


def test_a_statement_on_a_table_that_is_gone_names_no_schema() -> None:
    stream = Versions()
    truncate = QueryEvent(f"{SERVER}:6", "shop", "TRUNCATE t", FILE, 700, 800, 7, 1, None, query_pos=750)

    assert stream.versions.statement_headers(TABLE, truncate) == [CONTEXT]
    assert stream.published == []


def test_versions_are_evicted_when_they_are_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each has compiled functions. One in use is not compiled a second time, also when others are evicted."""
    monkeypatch.setattr(table_versions, "MAX_COLUMNS", 6)
    stream, hot = Versions(), definition(3)
    compiled = stream.versions.change(stream.event(hot, 100))
    cold = [definition(6, comment=b"%d" % n) for n in range(40)]
    for n, each in enumerate(cold):
        assert stream.versions.change(stream.event(each, 200 + n)) is not None
        assert stream.versions.change(stream.event(hot, 300 + n)) is compiled
        assert len(stream.versions.in_use) + len(stream.versions._unused) <= 8


def test_a_stand_in_key_changes_with_the_statement_that_changes_it() -> None:
    """The definition in the binlog is the same before and after; the state has the key that is in use."""
    stream = Versions(catalog=definition(3), unique=("id",))
    keyless = definition(3)._replace(primary_key=())
    assert stream.schema_at(keyless, 200)
    assert stream.key_of(keyless) == ("id",)
    stream.unique = ("at",)
    stream.schema_at(keyless, 300)
    assert stream.key_of(keyless) == ("id",)

    stream.statement(DdlEffect(Change.TRUNCATE, TABLE, None, "TRUNCATE t"))
    assert stream.key_of(keyless) == ("id",)
    stream.statement(DdlEffect(Change.INDEX, TABLE, None, "CREATE UNIQUE INDEX b ON t (at)"))
    stream.schema_at(keyless, 400)

    assert stream.key_of(keyless) == ("at",)
    stored = [orjson.loads(value or b"{}")["unique"] for _, key, value in stream.producer.open if key == b"key/shop.t"]
    assert stored == [["id"], None, ["at"]]


def test_a_key_of_the_catalog_stays_until_a_later_statement(capsys: pytest.CaptureFixture[str]) -> None:
    """The catalog already had what a statement did. A change before it may have the wrong key, which is said."""
    stream = Versions(catalog=definition(3), unique=("at",))
    keyless = definition(3)._replace(primary_key=())
    stream.executed = EXECUTED
    assert stream.schema_at(keyless, 200)
    assert stream.key_of(keyless) == ("at",)
    stream.unique = ("id",)

    stream.statement(DdlEffect(Change.ALTER, TABLE, None, "ALTER TABLE t ADD COLUMN x INT"), 19)
    assert "later definition" not in capsys.readouterr().out
    stream.statement(DdlEffect(Change.ALTER, TABLE, None, "ALTER TABLE t DROP KEY a, ADD UNIQUE b (at)"), 20)
    said = capsys.readouterr().out
    assert "changes may have been written with the key of a later definition" in said
    assert f"gtid={SERVER}:20" in said
    stream.schema_at(keyless, 300)
    assert stream.key_of(keyless) == ("at",)
    stream.statement(DdlEffect(Change.ALTER, TABLE, None, "ALTER TABLE t DROP KEY b, ADD UNIQUE c (id)"), 21)
    assert "later definition" not in capsys.readouterr().out
    stream.schema_at(keyless, 400)

    assert stream.key_of(keyless) == ("id",)


def test_a_key_that_a_snapshot_is_planned_on_needs_no_warning(capsys: pytest.CaptureFixture[str]) -> None:
    """The changes before the plan are contained in its rows; the statement before it leaves the key as planned."""
    stream = Versions(catalog=definition(3), unique=("id",))
    keyless = definition(3)._replace(primary_key=())
    stream.versions.plan_key(TABLE, ("at",), EXECUTED)
    stream.schema_at(keyless, 200)
    stream.statement(DdlEffect(Change.ALTER, TABLE, None, "ALTER TABLE t DROP KEY a, ADD UNIQUE b (at)"), 20)
    stream.schema_at(keyless, 300)

    assert stream.key_of(keyless) == ("at",)
    assert "later definition" not in capsys.readouterr().out


@pytest.mark.parametrize("snapshot", [False, True], ids=["streaming", "incremental"])
def test_changes_with_a_key_of_before_wait_for_the_statement(*, snapshot: bool) -> None:
    """A retry before it would find the same changes. To cancel a snapshot that was asked for is enough."""
    stream = Versions(catalog=definition(3))
    registry = stream.versions._context.registry
    if snapshot:
        registry.start_incremental(TABLE)

    def another_key(_table: TableId, _key: object) -> None:
        raise SchemaError("the key has changed")

    registry.tables[TABLE].compare_by(SimpleNamespace(require_same_key=another_key))
    before, now = definition(3)._replace(primary_key=("at",)), definition(4)
    if snapshot:
        with pytest.raises(IncrementalKeyChangedError):
            stream.versions.change(stream.event(before, 200))
        registry.tables[TABLE].fault = TableFault("another reason", {}, defined=True)
    with pytest.raises(EarlierKeyError, match=r"the key \(at\) here, and the table has the key \(id\)") as caught:
        stream.versions.change(stream.event(before, 200))
    assert not table_fault(TABLE, as_definition(caught.value), "").defined
    with pytest.raises(IncrementalKeyChangedError if snapshot else SchemaError):
        stream.versions.change(stream.event(now, 300))
