"""Reading a SELECT in blocks from a real server: block borders, long rows, errors, the connection afterwards."""

from __future__ import annotations

import gc
import tracemalloc
from contextlib import closing
from typing import Any

import pytest
from pymysql.connections import Connection

from tailrace.producer.errors import SourceError, SourceUnavailableError
from tailrace.producer.model.codec import SnapshotRows
from tailrace.producer.model.table import Column, Table, TableId
from tailrace.producer.mysql import result_stream as reading
from tailrace.producer.mysql.connection import connect
from tailrace.producer.mysql.result_stream import read_rows
from tailrace.producer.serialization.table_codec import CodecOptions, TableCodec
from tailrace.runtime.errors import SchemaError
from tests.support.binlog import settings_of
from tests.support.codec import SNAPSHOT_ENVELOPE, BothSources, row_of
from tests.support.database import Database
from tests.support.values import DEFAULT_CODEC, value_options

DIGITS = "(SELECT 0 d UNION SELECT 1 UNION SELECT 2 UNION SELECT 3 UNION SELECT 4 UNION SELECT 5 UNION SELECT 6 UNION SELECT 7 UNION SELECT 8 UNION SELECT 9)"  # noqa: E501


def _fill(database: Database, rows: int) -> None:
    tables = ", ".join(f"{DIGITS} d{i}" for i in range(5))
    number = " + ".join(f"d{i}.d * {10**i}" for i in range(5))
    database.execute("CREATE TABLE t (id INT PRIMARY KEY, v VARCHAR(300), n INT) CHARACTER SET utf8mb4")
    database.execute(
        f"INSERT INTO t SELECT n, REPEAT(CHAR(97 + n % 26), n % 300), IF(n % 3, n, NULL) FROM (SELECT {number} n"
        f" FROM {tables}) numbers WHERE n < {rows}"
    )


def _codec(both: BothSources) -> TableCodec:
    return TableCodec(both.table("t"), "topic", DEFAULT_CODEC)


def _sql(both: BothSources, codec: TableCodec, rest: str = "ORDER BY id") -> str:
    return f"SELECT {codec.select_list} FROM {both.database.name}.t {rest}"


def _expected(i: int) -> str:
    return f'{{"id":{i},"v":"{chr(97 + i % 26) * (i % 300)}","n":{i if i % 3 else "null"}}}'


def _answers(session: Connection[Any]) -> bool:
    with session.cursor() as cursor:
        cursor.execute("SELECT 41 + 1")
        return bool(cursor.fetchall() == ((42,),))


@pytest.mark.parametrize("block", [1_000, 4_093, 65_536, 1_048_576])
def test_rows_across_blocks_are_complete(block: int, database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """For any block size each row appears once, in order, and the session accepts the next query."""
    monkeypatch.setattr(reading, "BLOCK_BYTES", block)
    both = BothSources(database)
    _fill(database, 5_000)
    codec = _codec(both)

    with closing(both.session()) as session:
        blocks = list(read_rows(session, _sql(both, codec), codec, SNAPSHOT_ENVELOPE))
        assert _answers(session)

    found = [row_of(value).decode() for b in blocks for _, value in b.records]
    assert found == [_expected(i) for i in range(5_000)]
    assert [b.finished for b in blocks] == [False] * (len(blocks) - 1) + [True]


@pytest.mark.parametrize("ssl_mode", ["disabled", "required"])
def test_small_reads_make_large_blocks(ssl_mode: str, database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """With TLS a read returns 16 KB at most. The last block does not wait for more."""
    monkeypatch.setattr(reading, "_MORE_MS", 60_000)
    both = BothSources(database)
    _fill(database, 5_000)
    codec = _codec(both)

    with closing(connect(settings_of(database.server, ssl_mode))) as session:
        blocks = list(read_rows(session, _sql(both, codec), codec, SNAPSHOT_ENVELOPE))
        assert _answers(session)

    found = [row_of(value).decode() for block in blocks for _, value in block.records]
    assert found == [_expected(i) for i in range(5_000)]
    # 800,000 bytes; the first block is what the driver has buffered, and the last one is what is left.
    assert len(blocks) <= 2 + sum(map(len, found)) // reading._ENOUGH_BYTES


def test_rows_do_not_wait_for_a_slow_query(database: Database) -> None:
    both = BothSources(database)
    _fill(database, 2_000)
    codec = _codec(both)
    session = both.session()

    rows = read_rows(session, _sql(both, codec, "WHERE IF(id = 1999, SLEEP(600), 0) = 0"), codec, SNAPSHOT_ENVELOPE)
    found = 0
    while found < 1_500:
        found += len(next(rows).records)
    thread = session.thread_id()  # type: ignore[no-untyped-call]
    try:
        states = database.execute(f"SELECT state FROM information_schema.processlist WHERE id = {thread}")
    finally:
        database.kill_sessions("id = %s", (thread,))

    assert states == [("User sleep",)]
    with pytest.raises(SourceError):
        list(rows)


@pytest.mark.parametrize("rest", ["WHERE id < 0", "WHERE id = 7", "ORDER BY id LIMIT 2"])
def test_rows_buffered_by_the_driver_are_not_lost(rest: str, database: Database) -> None:
    """The driver buffers a small result set completely before the first row is read."""
    both = BothSources(database)
    _fill(database, 10)
    codec = _codec(both)

    with closing(both.session()) as session:
        for _ in range(20):
            blocks = list(read_rows(session, _sql(both, codec, rest), codec, SNAPSHOT_ENVELOPE))
            assert sum(len(b.records) for b in blocks) == {"WHERE id < 0": 0, "WHERE id = 7": 1}.get(rest, 2)
            assert blocks[-1].finished
        assert _answers(session)


@pytest.mark.parametrize("ssl_mode", ["disabled", "required"])
def test_rows_above_16_mb_have_several_packets(ssl_mode: str, database: Database) -> None:
    """Lengths around the maximum of a packet, between short rows, without and with TLS."""
    both = BothSources(database)
    database.execute("SET GLOBAL max_allowed_packet = 67108864")
    database.execute("CREATE TABLE t (id INT PRIMARY KEY, v LONGBLOB, n INT)")
    sizes = [5, 0xFFFFFF - 10, 0xFFFFFF - 8, 0xFFFFFF - 7, 0xFFFFFF, 40_000_000, 3]
    with closing(both.database.connect()) as writer, writer.cursor() as cursor:
        for i, size in enumerate(sizes):
            cursor.execute(f"INSERT INTO t VALUES ({i}, REPEAT('x', {size}), NULL)")
    table = both.table("t")
    codec = TableCodec(table, "topic", CodecOptions(value_options(binary_handling_mode="hex")))

    with closing(connect(settings_of(database.server, ssl_mode))) as session:
        blocks = list(read_rows(session, _sql(both, codec), codec, SNAPSHOT_ENVELOPE))
        assert _answers(session)

    rows = [row_of(value) for b in blocks for _, value in b.records]
    assert [row.count(b"78") for row in rows] == sizes
    assert all(row.endswith(b'","n":null}') for row in rows)


def test_memory_is_constant(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """Memory holds one block, not the result set."""
    monkeypatch.setattr(reading, "BLOCK_BYTES", 32_768)
    both = BothSources(database)
    _fill(database, 100_000)
    codec = _codec(both)

    with closing(both.session()) as session:
        rows = read_rows(session, _sql(both, codec), codec, SNAPSHOT_ENVELOPE)
        next(rows)
        gc.collect()
        tracemalloc.start()
        count = sum(len(block.records) for block in rows)
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()

    assert count > 90_000
    assert peak < 2_000_000


def test_early_close_closes_the_connection(database: Database) -> None:
    """Unread rows would remain in the socket."""
    both = BothSources(database)
    _fill(database, 50_000)
    codec = _codec(both)
    session = both.session()

    rows = read_rows(session, _sql(both, codec), codec, SNAPSHOT_ENVELOPE)
    first: SnapshotRows = next(rows)
    rows.close()  # type: ignore[attr-defined]

    assert first.records
    assert not session.open


def test_rejected_statement_is_source_error(database: Database) -> None:
    """The error contains the server's code and text."""
    both = BothSources(database)
    _fill(database, 1)
    codec = _codec(both)
    session = both.session()

    with pytest.raises(SourceError, match="1146"):
        list(read_rows(session, f"SELECT 1 FROM {database.name}.missing", codec, SNAPSHOT_ENVELOPE))

    assert not session.open


def test_error_after_some_rows_is_source_error(database: Database) -> None:
    """An ERR packet after rows raises; the rows before it do not count as the result."""
    both = BothSources(database)
    _fill(database, 2_000)
    codec = _codec(both)
    expression = "id, v, (SELECT 1 FROM t2 WHERE t2.a <= IF(t.id = 1999, 2, 1))"
    database.execute("CREATE TABLE t2 (a INT)")
    database.execute("INSERT INTO t2 VALUES (1), (2)")
    session = both.session()
    session.select_db(database.name)

    with pytest.raises(SourceError, match="1242"):
        list(read_rows(session, f"SELECT {expression} FROM t ORDER BY id", codec, SNAPSHOT_ENVELOPE))

    assert not session.open


def test_killed_connection_is_retriable_error(database: Database) -> None:
    """The server closes the connection between rows."""
    both = BothSources(database)
    _fill(database, 100_000)
    codec = _codec(both)
    session = both.session()
    sql = _sql(both, codec, f"JOIN (SELECT 1 FROM {database.name}.t LIMIT 5) again")
    rows = read_rows(session, sql, codec, SNAPSHOT_ENVELOPE)
    next(rows)

    database.execute(f"KILL {session.thread_id()}")  # type: ignore[no-untyped-call]

    with pytest.raises(SourceUnavailableError):
        list(rows)
    assert not session.open


def test_different_number_of_columns_is_schema_error(database: Database) -> None:
    """The table changed after its definition was read."""
    both = BothSources(database)
    _fill(database, 3)
    codec = _codec(both)
    session = both.session()

    with pytest.raises(SchemaError, match=r"(?s)different numbers of columns.*hint: restart the producer"):
        list(read_rows(session, f"SELECT id, v FROM {database.name}.t", codec, SNAPSHOT_ENVELOPE))

    assert not session.open


def test_null_in_not_null_column_is_schema_error(database: Database) -> None:
    """The table changed after its definition was read."""
    both = BothSources(database)
    _fill(database, 3)
    columns = (
        Column("id", "int", nullable=False),
        Column("v", "varchar", length=1200, charset="utf8mb4"),
        Column("n", "int", nullable=False),
    )
    codec = TableCodec(Table(TableId(database.name, "t"), columns, ("id",)), "topic", DEFAULT_CODEC)

    with pytest.raises(SchemaError, match="NOT NULL"):
        list(read_rows(both.session(), _sql(both, codec), codec, SNAPSHOT_ENVELOPE))


def test_session_in_another_character_set_is_rejected(database: Database) -> None:
    """Text would have that character set."""
    both = BothSources(database)
    _fill(database, 3)
    codec = _codec(both)

    with pytest.raises(SourceError, match="utf8mb4"):
        list(read_rows(database.connect(charset="latin1"), _sql(both, codec), codec, SNAPSHOT_ENVELOPE))
