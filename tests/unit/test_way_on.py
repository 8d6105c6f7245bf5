"""Errors that no other test provokes: each names what it is about, and a way on."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from io import BufferedReader, BytesIO
from socket import socketpair
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tailrace.producer.config import load
from tailrace.producer.errors import (
    BinlogError,
    SourceError,
    SourceUnavailableError,
    StateLostError,
    TableNotReadError,
    TakeoverError,
)
from tailrace.producer.kafka.client import KafkaSettings
from tailrace.producer.kafka.state_store import State, StoredOffset, TableState
from tailrace.producer.kafka.topic_reader import messages
from tailrace.producer.mariadb.catalog import read_types_with_end, versioned
from tailrace.producer.model.table import Column, ColumnCatalog, TableId
from tailrace.producer.model.table_mode import TableMode
from tailrace.producer.mysql import catalog, engine_commits, snapshot_session
from tailrace.producer.mysql.binlog.packets import dump_from_file
from tailrace.producer.mysql.connection import binlog_position
from tailrace.producer.mysql.gtid import GtidSet
from tailrace.producer.mysql.key_order import from_select
from tailrace.producer.mysql.offset import MySqlOffset
from tailrace.producer.mysql.result_stream import _blocks
from tailrace.producer.mysql.text.collation import decode
from tailrace.producer.serialization.column_default import connect_default
from tailrace.producer.takeover.takeover import TakeoverOptions, take_over
from tailrace.producer.verify.progress import ProducerProgress
from tailrace.runtime.errors import KafkaUnavailableError, SchemaError, TailraceError
from tests.support.values import value_options
from tests.unit.test_config_load import BASE

T = TableId("shop", "t")
AT = MySqlOffset(1, "b.000001", 4, GtidSet({}), "one")


class Answers:
    """A connection of the driver whose server has one answer."""

    host = "h"

    def __init__(self, rows: Sequence[Sequence[object]]) -> None:
        self.rows = rows

    @contextmanager
    def cursor(self) -> Iterator[Answers]:
        yield self

    def execute(self, *_: object) -> None:
        """Send a statement."""

    def fetchall(self) -> Sequence[Sequence[object]]:
        return self.rows


SILENT = SimpleNamespace(assign=lambda _: None, poll=lambda _: None)
"""A client of Kafka that gets nothing."""


def _progress(state: State) -> object:
    """Return how far the producer is by its state."""
    progress = ProducerProgress(KafkaSettings("b:1", {}, transaction_timeout_ms=60_000), "p", T, MySqlOffset.from_json)
    with closing(progress):
        return progress._stored(state)


def _raise(error: Exception) -> None:
    raise error


def _described(native_type: str, charset: str | None) -> object:
    """Describe a column as the catalog of the server has it."""
    row = ("c", native_type, f"{native_type}(3)", "YES", 3, None, None, None, charset, None, None, "", "", "")
    return catalog._column(T, row, {})


@pytest.mark.parametrize(
    ("refused", "kind", "text", "hint"),
    [
        (
            lambda: dump_from_file("binlog.000007", 1, 1 << 32),
            BinlogError,
            "file: binlog.000007\n  pos: 4294967296",
            "set gtid_mode=ON and max_binlog_size to at most 1 GB, then take a new snapshot under another topic.prefix",
        ),
        (
            lambda: _described("newtype", None),
            SchemaError,
            "column c of shop.t has a type that is not known\n  type: newtype(3)",
            "exclude the table, or change the column's type",
        ),
        (
            lambda: _described("varchar", "klingon"),
            SchemaError,
            "column c of shop.t has a character set that is not known\n  charset: klingon",
            "convert the column to utf8mb4",
        ),
        (
            lambda: decode(b"\xff", "utf8mb4", what="the name of a column"),
            SchemaError,
            "the name of a column is not text of its character set\n  charset: utf8mb4\n  bytes: ff",
            "check the column's character set",
        ),
        (
            lambda: from_select(Column("k", "int"), None),
            SchemaError,
            "a key column holds NULL\n  column: k",
            "choose key columns that are NOT NULL in message.key.columns",
        ),
        (
            lambda: snapshot_session.MySqlSnapshotSession(cast("Any", None)).check_condition(T, "SLEEP(9)"),
            SourceError,
            "the condition on shop.t is not a predicate: the function SLEEP is not allowed",
            "use operators and common functions on the columns of the table, without subqueries",
        ),
        (
            lambda: connect_default(
                Column("n", "int", catalog=ColumnCatalog("int", None, "x", False, False, False, "")), value_options()
            ),
            SchemaError,
            "the default of column n cannot be read\n  default: x",
            "give the column a default of its own type, or exclude the table",
        ),
        (
            lambda: binlog_position(cast("Any", Answers([]))),
            SourceError,
            "the source writes no binlog",
            "start the server with log_bin",
        ),
        (
            lambda: catalog.read_with_end(cast("Any", Answers([("b.1", 4, "shop", "")])), None, lambda _: True),
            BinlogError,
            "the log lacks statements that are run with another database in use (binlog_do_db: shop)",
            "SET GLOBAL binlog_row_metadata=FULL (since MySQL 8.0), or start the server without these options",
        ),
        (
            lambda: read_types_with_end(cast("Any", Answers([("b.1", 4, "", "x")])), None, lambda _: True),
            BinlogError,
            "the binlog lacks statements that are run with another database in use (binlog_ignore_db: x)",
            "exclude the table, or start the server without these options",
        ),
        (
            lambda: AT.reaches(AT._replace(server_uuid="other")),
            BinlogError,
            "another one does not tell where to stop\n  file: b.000001\n  pos: 4",
            "set tailrace.stop.at to a GTID set or a time",
        ),
        (
            lambda: take_over(
                load(None, {}, {**BASE, "connector.class": "io.debezium.connector.mariadb.MariaDbConnector"}),
                TakeoverOptions(),
                kafka=cast("Any", None),
                source=cast("Any", None),
            ),
            TakeoverError,
            "the offset of a MariaDB connector cannot be taken over",
            "capture under another topic.prefix, which begins with a snapshot",
        ),
        (
            lambda: list(messages(cast("Any", SILENT), "p.tailrace.state", {0: 0}, 0.0, {0: 5})),
            KafkaUnavailableError,
            "reading a topic to its end made no progress\n  topic: p.tailrace.state",
            "check that the brokers are up and no transaction of another producer is open on the topic",
        ),
        (
            lambda: list(_blocks(BufferedReader(cast("Any", BytesIO())), socketpair()[0], *cast("Any", (None, None)))),
            SourceUnavailableError,
            "the server closed the connection while a table was read",
            "check the server's log",
        ),
        (
            lambda: _progress(State()),
            StateLostError,
            "no producer has written the state of this prefix\n  topic: p.tailrace.state",
            "check topic.prefix and bootstrap.servers",
        ),
        (
            lambda: _progress(State(offset=StoredOffset(AT), tables={str(T): TableState(TableMode.WAITING)})),
            TableNotReadError,
            "rows\n  table: shop.t\n  state: in mode waiting\n  pending_snapshots: 0",
            (
                "wait until the status of the producer shows it as streaming, and no pending incremental snapshot; a "
                "new table without rows needs its first one"
            ),
        ),
        (
            lambda: _raise(engine_commits._stuck(None, 60.0)),
            SourceUnavailableError,
            "other sessions read it all the time\n  waited_s: 60.0",
            "let nothing else query information_schema.INNODB_TRX more often than once a second",
        ),
        (
            lambda: _raise(snapshot_session._no_text(cast("Any", SimpleNamespace(table=T)), 2)),
            SourceError,
            "the server made no text of some rows that are to be compared\n  table: shop.t\n  rows: 2",
            "raise max_allowed_packet of the server, to which the texts of a row must fit",
        ),
        (
            lambda: _raise(versioned(T)),
            SchemaError,
            "table shop.t has system versioning",
            "exclude it with table.exclude.list, or ALTER TABLE `shop`.`t` DROP SYSTEM VERSIONING",
        ),
    ],
    ids=[
        *("position", "type", "charset", "name", "key", "condition", "default"),
        *("no binlog", "left out", "left out of MariaDB", "other server", "takeover"),
        *("no progress", "closed", "no state", "not read", "list of transactions", "no text", "versioned"),
    ],
)
def test_errors_name_what_they_are_about_and_a_way_on(
    refused: Callable[[], object], kind: type[TailraceError], text: str, hint: str
) -> None:
    with pytest.raises(kind) as caught:
        refused()
    assert text in str(caught.value)
    assert caught.value.hint == hint
