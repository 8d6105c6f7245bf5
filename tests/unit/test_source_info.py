"""Envelopes without their rows: the exact bytes of Debezium 3.6's JSON without schemas."""

from __future__ import annotations

from time import time_ns

import orjson

from tailrace.producer.model.binlog_events import RowsEvent, TableVersion, TransactionBegin
from tailrace.producer.model.table import TableId
from tailrace.producer.serialization.envelope.headers import context_headers, event_header
from tailrace.producer.serialization.envelope.source_info import SourceInfo, source_time_us

TABLE = TableId("shop", "customers")
NOW = 1_700_000_009_123_456
FIELDS = "version connector name ts_ms snapshot db sequence ts_us ts_ns table server_id gtid file pos row thread query"


def begin(commit_ts_us: int = 0) -> TransactionBegin:
    """Return the begin of a transaction."""
    return TransactionBegin(
        "3e11fa47-71ca-11e1-9e33-c80aa9429562:23", "bin.000007", 100, 180, 1_700_000_000, commit_ts_us, 42, 5
    )


def rows(query: str | None = None) -> RowsEvent:
    """Return a rows event of TABLE."""
    mapped = TableVersion(TABLE, (), (), b"")
    return RowsEvent("c", mapped, b"", 0, 0, "bin.000007", 220, 300, 1_700_000_001, 5, query)


def test_snapshot_envelope_has_the_bytes_of_debezium() -> None:
    """All that follows ``after``; server id 0, no GTID, row 0."""
    envelope = SourceInfo("fullfillment", TABLE).snapshot_envelope(
        {"file": "bin.000003", "pos": 797}, read_at_us=1_731_327_511_000_001, now_us=NOW
    )

    expected = (
        b',"source":{"version":"tailrace-0.1.0","connector":"mysql","name":"fullfillment","ts_ms":1731327511000,'
        b'"snapshot":"true","db":"shop","sequence":null,"ts_us":1731327511000001,"ts_ns":1731327511000001000,'
        b'"table":"customers","server_id":0,"gtid":null,"file":"bin.000003","pos":797,"row":0,"thread":null,'
        b'"query":null},"transaction":null,"op":"r","ts_ms":1700000009123,"ts_us":1700000009123456,'
        b'"ts_ns":1700000009123456000}'
    )
    assert expected == envelope.suffix


def test_event_envelope_has_the_bytes_of_debezium() -> None:
    """Joined with row number and op."""
    envelope = SourceInfo("shop", TABLE).event_envelope(
        ts_us=1_700_000_000_000_000,
        server_id=5,
        gtid=begin().gtid,
        file="bin.000007",
        pos=220,
        thread=42,
        now_us=NOW,
        first_row=3,
    )

    expected = (
        b',"source":{"version":"tailrace-0.1.0","connector":"mysql","name":"shop","ts_ms":1700000000000,'
        b'"snapshot":"false","db":"shop","sequence":null,"ts_us":1700000000000000,"ts_ns":1700000000000000000,'
        b'"table":"customers","server_id":5,"gtid":"3e11fa47-71ca-11e1-9e33-c80aa9429562:23","file":"bin.000007",'
        b'"pos":220,"row":4,"thread":42,"query":null},"transaction":null,"op":"u","ts_ms":1700000009123,'
        b'"ts_us":1700000009123456,"ts_ns":1700000009123456000}'
    )
    assert expected == envelope.before_row + b"4" + envelope.before_op + b"u" + envelope.after_op
    assert envelope.first_row == 3


def test_names_and_queries_are_escaped() -> None:
    """A quote in a table name, line breaks in a query; the fields keep their order; no GTID is null."""
    source_info = SourceInfo("shop", TableId('a"b', "größe\\"))

    envelope = source_info.event_envelope(ts_us=1, server_id=1, gtid="", file="bin.1", pos=4, query='SELECT "x"\n\t')
    value = orjson.loads(
        b'{"before":null,"after":{}' + envelope.before_row + b"0" + envelope.before_op + b"c" + envelope.after_op
    )

    assert list(value) == ["before", "after", "source", "transaction", "op", "ts_ms", "ts_us", "ts_ns"]
    source = value["source"]
    assert list(source) == FIELDS.split()
    assert (source["db"], source["table"], source["query"]) == ('a"b', "größe\\", 'SELECT "x"\n\t')
    assert (source["gtid"], source["thread"]) == (None, None)


def test_time_of_rows_event() -> None:
    """The original commit in microseconds, else the second of the event. The query is included only if configured."""
    source_info = SourceInfo("shop", TABLE)

    assert source_time_us(rows(), begin(commit_ts_us=1_699_999_999_123_456)) == 1_699_999_999_123_456
    assert source_time_us(rows(), begin()) == 1_700_000_001_000_000
    assert b'"query":null' in source_info.rows_event_envelope(rows("UPDATE x"), begin()).before_op
    envelope = source_info.rows_event_envelope(rows("UPDATE x"), begin(), query=True)
    assert b'"thread":42,"query":"UPDATE x"' in envelope.before_op
    assert b'"pos":220,"row":' in envelope.before_row


def test_context_and_event_headers() -> None:
    """In Debezium's order; extended.headers.enabled=false disables them."""
    assert context_headers("shop", run_id="r1") == [
        ("__debezium.context.connectorLogicalName", b"shop"),
        ("__debezium.context.taskId", b"0"),
        ("__debezium.context.connectorName", b"mysql"),
        ("__debezium.context.runId", b"r1"),
    ]
    assert context_headers("shop", run_id="r1", enabled=False) == []
    assert event_header(2, 17) == ("tailrace.event", b"2.17")


def test_transactions_share_nothing_but_what_is_equal() -> None:
    """What is kept of the transaction before gives the same bytes as a whole envelope."""
    source_info, number = SourceInfo("shop", TableId("100%", "a%sb")), 0
    for file in ("bin.000007", "bin.000008"):
        for server_id in (5, 6):
            for thread in (42, None, 43, 43):
                for commit_ts_us in (1_699_999_999_123_456, 0):
                    number += 1
                    gtid = f"3e11fa47-71ca-11e1-9e33-c80aa9429562:{number}"
                    start = begin(commit_ts_us)._replace(gtid=gtid, file=file, thread=thread, server_id=server_id)
                    for pos in (220, 330):
                        event = rows()._replace(file=file, pos=pos, server_id=server_id)
                        found = source_info.rows_event_envelope(event, start)
                        expected = SourceInfo("shop", TableId("100%", "a%sb")).event_envelope(
                            ts_us=source_time_us(event, start),
                            server_id=server_id,
                            gtid=gtid,
                            file=file,
                            pos=pos,
                            thread=thread,
                        )
                        assert found[:2] == expected[:2]


def test_a_change_is_not_processed_before_its_commit() -> None:
    """The processing time is read for some changes only: it may be older than the commit of the next transaction."""
    source_info = SourceInfo("shop", TABLE)
    for _ in range(100):
        commit_ts_us = time_ns() // 1000
        envelope = source_info.rows_event_envelope(rows(), begin(commit_ts_us)._replace(gtid=f"u:{commit_ts_us}"))
        processed = orjson.loads(b'{"op":"c' + envelope.after_op)
        assert processed["ts_us"] >= commit_ts_us
