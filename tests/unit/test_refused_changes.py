"""Changes that cannot be written: raised with tables and remedy, or skipped with a request for each table."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from structlog.testing import capture_logs

from tailrace.producer.config import load
from tailrace.producer.errors import BinlogError, TableFailedError
from tailrace.producer.model.binlog_events import QueryEvent
from tailrace.producer.model.ddl import Change, DdlEffect
from tailrace.producer.model.table import CatalogTable, TableId
from tailrace.producer.model.table_mode import TableMode
from tailrace.producer.model.value_options import ProcessingFailureHandling
from tailrace.producer.ops.status import Status
from tailrace.producer.serialization.captured_tables import CapturedTables
from tailrace.producer.streaming.context import StreamContext, StreamSettings
from tailrace.producer.streaming.mailbox import Mailbox
from tailrace.producer.streaming.new_tables import NewTables
from tailrace.producer.streaming.refused_changes import RefusedChanges
from tailrace.producer.streaming.split_registry import SplitRegistry
from tailrace.producer.streaming.table_versions import TableVersions
from tailrace.runtime.errors import SchemaError
from tests.support.stream import NO_SOURCE, FakeListener, FakeProducer, stream_transaction
from tests.unit.test_config_load import BASE

STREAMING, WAITING, UNKNOWN = TableId("shop", "a"), TableId("shop", "b"), TableId("shop", "WHERE")
SIGNALS = TableId("shop", "signals")


class Refusing:
    """Refused changes of one streaming table and one that waits for its snapshot."""

    def __init__(self, mode: ProcessingFailureHandling, triggers: str = "") -> None:
        registry, config = SplitRegistry(), load(None, {}, BASE)
        self.registry = registry
        registry.track(STREAMING, TableMode.STREAMING)
        registry.track(WAITING, TableMode.WAITING)
        self.listener, self.status = FakeListener(), Status()
        self.requested: list[TableId] = []
        """What the catalog was requested for."""
        settings = StreamSettings(
            "p",
            config.filters.tables,
            [],
            frozenset(),
            tombstones=True,
            include_query=False,
            max_waiting_splits=256,
            processing_failures=mode,
        )
        context = StreamContext(
            settings,
            stream_transaction(FakeProducer(), registry),
            registry,
            CapturedTables(config, self._missing, triggers=lambda _table: triggers),
            Mailbox(lambda: None, threading.Event()),
            self.status,
        )
        topics: Any = None
        new_tables = NewTables(context, topics, self.listener, NO_SOURCE, reads=lambda _table: True)
        self.changes = RefusedChanges(context, TableVersions(context, new_tables), self.listener, SIGNALS)

    def _missing(self, table: TableId) -> CatalogTable:
        self.requested.append(table)
        raise SchemaError(f"no table {table}")

    @property
    def refused(self) -> int:
        """The counted events."""
        return int(self.status.snapshot()["stream"]["refused"])


def test_mode_fail_raises_with_the_tables_and_the_way_on() -> None:
    """Nothing is requested or counted."""
    refusing = Refusing("fail")
    with pytest.raises(BinlogError) as caught:
        refusing.changes.refuse(BinlogError("logged as text", hint="SET it"), [STREAMING, UNKNOWN])

    assert caught.value.context["tables"] == "shop.a"
    assert caught.value.hint.startswith("SET it; or set event.processing.failure.handling.mode=warn")
    assert (refusing.listener.reports, refusing.refused) == ([], 0)
    with pytest.raises(SchemaError) as stopped:
        refusing.changes.fail_table(SchemaError("text is not valid", hint="convert the column"), STREAMING)
    assert stopped.value.hint.startswith(
        "convert the column; or set event.processing.failure.handling.mode=table: this"
    )
    going_on = Refusing("table")
    going_on.changes.fail_table(SchemaError("text is not valid"), STREAMING)
    assert going_on.registry.tables[STREAMING].mode is TableMode.ERROR


def test_way_on_of_an_error_without_a_hint() -> None:
    with pytest.raises(BinlogError) as caught:
        Refusing("fail").changes.refuse(BinlogError("damaged"), [STREAMING])

    assert caught.value.hint.startswith("set event.processing.failure.handling.mode=warn")


def test_a_table_that_is_gone_is_looked_for_once_per_statement() -> None:
    """A refused rows event each would ask the catalog."""
    refusing = Refusing("table")
    for _ in range(3):
        refusing.changes.refuse(BinlogError("rows"), [UNKNOWN])
    assert refusing.requested == [UNKNOWN]
    refusing.changes.known_effects(_STATEMENT._replace(has_replaced=False), ())
    refusing.changes.refuse(BinlogError("rows"), [UNKNOWN])
    assert refusing.requested == [UNKNOWN, UNKNOWN]


def test_each_lost_signal_is_reported() -> None:
    """Nothing else says that it was not read."""
    refusing = Refusing("table")
    with capture_logs() as logs:
        for _ in range(2):
            refusing.changes.refuse(BinlogError("no names", pos=4), [SIGNALS])

    assert [entry["log_level"] for entry in logs] == ["error", "error"]
    assert "signals are lost: send" in logs[1]["event"]


_STATEMENT = QueryEvent("u:1", "shop", "DROP TABLE \ufffd", "f", 4, 9, 0, 1, None, has_replaced=True)


@pytest.mark.parametrize(
    ("named", "refused"),
    [
        (TableId("shop", "\ufffd"), True),
        (TableId("\ufffd", "a"), True),
        (TableId("s\ufffdp", ""), True),
        (TableId("shop", "a\ufffd"), True),
        (TableId("shop", "c\ufffd"), False),
        (TableId("other", "a\ufffd"), False),
        (STREAMING, False),
    ],
)
def test_a_name_that_is_no_text_may_be_any_captured_table_of_its_database(named: TableId, refused: bool) -> None:
    """The effect is refused, and not applied to a name that nobody gave; what is known is applied."""
    refusing = Refusing("warn")
    effects = [DdlEffect(Change.DROP, named, None, "")]

    assert refusing.changes.known_effects(_STATEMENT, effects) == ([] if "\ufffd" in str(named) else effects)
    assert refusing.listener.reports == [("skipped", STREAMING, True)] * refused
    assert refusing.changes.known_effects(_STATEMENT._replace(has_replaced=False), effects) == effects
    if refused:
        with pytest.raises(BinlogError, match=r"(?s)character set.*hint: use SET NAMES utf8mb4 for such names; or set"):
            Refusing("fail").changes.known_effects(_STATEMENT, effects)


def test_statement_with_a_name_that_is_no_text_concerns_the_tables_that_may_be_meant() -> None:
    """These are in error, and the producer goes on; a table that is renamed to such a name has left."""
    refusing = Refusing("table")
    other = TableId("shop", "other")
    refusing.registry.track(other, TableMode.STREAMING)
    drop = DdlEffect(Change.DROP, TableId("shop", "a\ufffd"), None, "")
    rename = DdlEffect(Change.RENAME, TableId("shop", "x\ufffd"), other, "sql")
    known = refusing.changes.known_effects(_STATEMENT, [drop, rename])
    assert known == [DdlEffect(Change.DROP, other, None, "sql")]
    modes = {table: tracked.mode for table, tracked in refusing.registry.tables.items()}
    assert modes == {STREAMING: TableMode.ERROR, WAITING: TableMode.WAITING, other: TableMode.STREAMING}


def test_mode_table_puts_the_tables_in_error_that_have_rows_in_kafka() -> None:
    """A table under snapshot ends the session; a change that may be of any table stops the producer."""
    refusing = Refusing("table")
    refusing.changes.refuse(BinlogError("rows without columns", pos=7), [STREAMING, WAITING, UNKNOWN])

    modes = {table: tracked.mode for table, tracked in refusing.registry.tables.items()}
    assert modes == {STREAMING: TableMode.ERROR, WAITING: TableMode.WAITING}
    status = refusing.status.snapshot()["tables"]["shop.a"]
    assert (status["error"], status["failed_at"]["pos"], status["changes_skipped"]) == ("rows without columns", "7", 1)
    assert refusing.listener.reports == [("removed", STREAMING, False)]
    refusing.registry.start_planning(WAITING)
    with pytest.raises(TableFailedError):
        refusing.changes.refuse(BinlogError("rows without columns"), [WAITING])
    for tables, others in ([], False), ([STREAMING], True):
        with pytest.raises(BinlogError, match="logged as text"):
            refusing.changes.refuse(BinlogError("logged as text"), tables, others=others)


@pytest.mark.parametrize("reason", ["", "shop.a has triggers"])
def test_statement_on_one_table_stops_that_table_unless_it_has_triggers(reason: str) -> None:
    """A view, or a table that is not captured, may change further tables as well."""
    refusing = Refusing("table", triggers=reason)
    with pytest.raises(BinlogError) as caught:
        refusing.changes.refuse(BinlogError("logged as text"), [UNKNOWN], triggers=True)
    assert caught.value.context["others"] == "shop.WHERE is no table that is captured now"
    if reason:
        with pytest.raises(BinlogError) as caught:
            refusing.changes.refuse(BinlogError("logged as text"), [STREAMING], triggers=True)
        assert caught.value.context["others"] == reason
    else:
        refusing.changes.refuse(BinlogError("logged as text"), [STREAMING], triggers=True)
    assert (refusing.registry.tables[STREAMING].mode is TableMode.ERROR) == (not reason)


@pytest.mark.parametrize("mode", ["warn", "skip"])
@pytest.mark.parametrize("tables", [[STREAMING, WAITING, UNKNOWN], []], ids=["named", "unknown"])
def test_other_modes_request_the_tables_that_have_rows_in_kafka(
    mode: ProcessingFailureHandling, tables: list[TableId]
) -> None:
    """A word of the statement is no table; the splits of a waiting table will contain the change."""
    refusing = Refusing(mode)

    refusing.changes.refuse(BinlogError("logged as text"), tables)

    assert refusing.listener.reports == [("skipped", STREAMING, True)]
    assert refusing.refused == 1
