"""Bytes that no server sends: every one ends in the project's own error, with its position, or in events."""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from unittest import mock

import pytest

from tailrace.producer.errors import BinlogError
from tailrace.producer.model.binlog_events import Event, RowsEvent
from tailrace.producer.model.table import Column, Table, TableId
from tailrace.producer.mysql.binlog.parser import BinlogParser
from tailrace.producer.mysql.binlog.server_error import from_err_packet
from tailrace.producer.mysql.gtid import GtidSet
from tailrace.producer.mysql.text.ddl import ddl_effects
from tailrace.producer.mysql.types.json_binary import json_text
from tailrace.producer.native.loader import SWITCH
from tailrace.producer.serialization.table_codec import TableCodec
from tailrace.runtime.errors import SchemaError, TailraceError
from tests.support.binary_json import binary_json
from tests.support.binlog_bytes import (
    ALL_KINDS,
    ALL_KINDS_IMAGE,
    MAP,
    PAYLOAD,
    QUERY,
    ROW,
    UPDATE,
    WRITE_BODY,
    XA_PREPARE,
    XID,
    LogBytes,
    inner,
    mutated,
    orders,
    parse,
    payload,
    query_body,
)
from tests.support.codec import EVENT_ENVELOPE
from tests.support.values import DEFAULT_CODEC

SEED = 20_260
MUTATIONS = 800


def sample() -> bytes:
    """Return a log with an event of each kind that is parsed."""
    log = LogBytes(checksum=False)
    log.transaction().transaction(ROW * 2, UPDATE).transaction(table="other")
    log.gtid().query("ALTER TABLE orders ADD c INT").begin().query("INSERT INTO other VALUES ('\\'', 1)").xid()
    log.gtid().query("XA START X'61',X'',1").table_map().rows(ROW).query("XA END X'61',X'',1")
    log.add(XA_PREPARE, b"\0" * 14).gtid().query("XA COMMIT X'61',X'',1")
    events = inner((QUERY, query_body("BEGIN")), (19, MAP), (30, WRITE_BODY + ROW), (XID, b"\1" + b"\0" * 7))
    log.gtid().add(PAYLOAD, payload(events)).gtid().add(PAYLOAD, payload(events, 255))
    status = b"\0" * 5 + b"\1" + b"\0" * 8 + b"\6\3std" + b"\3" + b"\0" * 4 + b"\4\x21\0\x21\0\x21\0"
    log.gtid().query("DROP TABLE a, b", status=status).begin().table_map(columns=ALL_KINDS)
    log.rows(ALL_KINDS_IMAGE, columns=12, bitmaps=b"\xff\x0f").xid()
    return log.rotate("binlog.000002").transaction().data


def parse_and_encode(data: bytes) -> int:
    """Parse a log and encode its rows, as the stream does; return the number of rows events."""
    parser = BinlogParser(orders)
    events: list[Event] = parser.feed(data)
    while parser.pending:
        events += parser.feed(b"")
    for event in events:
        if isinstance(event, RowsEvent):
            table = Table(
                event.table.id, event.table.columns, event.table.primary_key or (event.table.columns[0].name,)
            )
            encoder = TableCodec(table, "topic", DEFAULT_CODEC).encoders[event.op]
            encoder(event.data, event.start, event.stop, EVENT_ENVELOPE)
    return sum(isinstance(event, RowsEvent) for event in events)


def test_sample_is_valid() -> None:
    """The faults are applied to events that are parsed and encoded."""
    assert parse_and_encode(sample()) == 7


def own_error(read: Callable[[], object], number: int) -> TailraceError | None:
    """Return the own error that a call ends in, if any; another exception is a fault, and names its input."""
    try:
        read()
    except TailraceError as error:
        return error
    except Exception as error:
        error.add_note(f"input {number}")
        raise
    return None


@pytest.mark.parametrize("part", range(4))
def test_mutated_logs_end_in_own_errors_with_their_position(part: int) -> None:
    """A fixed seed, so that a failure can be repeated."""
    data, errors = sample(), 0
    for number in range(part * MUTATIONS // 4, (part + 1) * MUTATIONS // 4):
        wrong = mutated(data, random.Random(SEED + number))
        error = own_error(lambda: parse_and_encode(wrong), number)  # noqa: B023 - called at once
        errors += error is not None
        assert not isinstance(error, BinlogError) or {"file", "pos"} <= error.context.keys(), f"{number}: {error}"
    assert errors > MUTATIONS // 20


@pytest.mark.parametrize(
    "read",
    [
        lambda data: ddl_effects(data.decode("latin-1"), "d"),
        lambda data: GtidSet.parse(data.decode("latin-1")),
        lambda data: from_err_packet(b"\xff" + data, "f", 4),
    ],
    ids=["ddl", "gtid set", "server error"],
)
def test_random_bytes_end_in_own_errors(read: Callable[[bytes], object]) -> None:
    """What takes text or bytes of the server."""
    choose = random.Random(SEED)
    for number in range(2_000):
        data = choose.randbytes(choose.randint(1, 60))
        own_error(lambda: read(data), number)  # noqa: B023 - called at once


def test_json_containers_that_point_to_one_another_are_rejected() -> None:
    """205 bytes that would print 2^20 values."""
    levels = 20
    # Offsets count from the container itself: the next one is ten bytes behind.
    body = b"".join(b"\2\0\x0a\0" + b"\2\x0a\0" * 2 for _ in range(levels)) + b"\0\0\4\0"
    with pytest.raises(SchemaError, match=r"(?s)more values than bytes.*hint: correct the row, or exclude"):
        json_text(b"\2" + body, str)


def test_json_values_that_share_the_bytes_of_a_string_are_rejected() -> None:
    """Each entry points to the same text: 40 KB that would print 60 MB."""
    count, text = 6_000, b"x" * 10_000
    at = (4 + 3 * count).to_bytes(2, "little")
    body = count.to_bytes(2, "little") + b"\0\0" + (b"\x0c" + at) * count + b"\x90\x4e" + text
    with pytest.raises(SchemaError, match=r"(?s)more values than bytes.*hint: correct the row, or exclude"):
        json_text(b"\2" + body, str)


@pytest.mark.parametrize("kind", [b"\x0c", b"\x0f\xfc"])
def test_a_json_length_beyond_32_bits_is_rejected(kind: bytes) -> None:
    """Its bytes are not added up: a document of them would take hours."""
    with pytest.raises(SchemaError, match=r"(?s)more than 32 bits.*hint: correct the row, or exclude"):
        json_text(kind + b"\xff" * 2_000_000, str)


@pytest.mark.parametrize(("levels", "is_read"), [(100, True), (101, False)])
def test_json_has_as_many_levels_as_the_server_accepts(levels: int, is_read: bool) -> None:
    """Deeper documents end in an error of their own, not at the depth of Python's stack."""
    document: list[object] = []
    for _ in range(levels - 1):
        document = [document]
    data = binary_json(document)
    if is_read:
        assert json_text(data, str) == "[" * levels + "]" * levels
        return
    with pytest.raises(SchemaError, match=r"(?s)too many levels.*hint: correct the row, or exclude"):
        json_text(data, str)


def test_the_error_of_a_row_depends_on_its_bytes_alone() -> None:
    """Not on the rows before it, although frequent patterns of NULLs get functions that read in another order."""
    columns = (Column("id", "int", nullable=False), Column("a", "int"), *(Column(f"b{i}", "bigint") for i in range(2)))
    table = Table(TableId("d", "t"), columns, ("id",))
    null, wrong = b"\2\1\0\0\0" + b"\0" * 16, b"\2\1\0\0\0" + b"\0" * 9
    errors = []
    for rows_before in (0, 40):
        with mock.patch.dict(os.environ, {SWITCH: "0"}):
            codec = TableCodec(table, "topic", DEFAULT_CODEC)
        for _ in range(rows_before):
            codec.inserts(null, 0, len(null), EVENT_ENVELOPE)
        with pytest.raises(SchemaError) as caught:
            codec.inserts(wrong, 0, len(wrong), EVENT_ENVELOPE)
        errors.append((caught.value.message, caught.value.context))
    assert errors[0] == errors[1]


def test_a_required_column_that_is_null_is_an_error_at_any_time() -> None:
    """Also once the pattern of NULLs is frequent; the bits after the last column have no meaning."""
    table = Table(TableId("d", "t"), (Column("id", "int", nullable=False), Column("a", "int")), ("id",))
    with mock.patch.dict(os.environ, {SWITCH: "0"}):
        codec = TableCodec(table, "topic", DEFAULT_CODEC)
    for _ in range(40):
        with pytest.raises(SchemaError, match=r"(?s)NOT NULL is NULL.*hint: restart the producer to read"):
            codec.inserts(b"\1\1\0\0\0", 0, 5, EVENT_ENVELOPE)
        assert codec.inserts(b"\xfe\1\0\0\0", 0, 5, EVENT_ENVELOPE).row_count == 1


@pytest.mark.parametrize(
    ("usual", "wrong", "what"),
    [
        (b"\x0a\x02\x04", b"\x0c\x28\x04", "number of digits"),
        (b"\x0a\x02\x04", b"\0\0\x04", "number of digits"),
        (b"\x0a\x02\x04", b"\x42\x02\x04", "number of digits"),
        (b"\x04\x01\x08", b"\0\0\x08", "number of bits"),
        (b"\x04\x01\x08", b"\x04\x08\x08", "number of bits"),
        (b"\x01\x03\x0a", b"\x01\x07\x0a", "number of fractional digits"),
    ],
)
def test_a_table_map_with_impossible_sizes_is_refused(usual: bytes, wrong: bytes, what: str) -> None:
    """DECIMAL(12, 40), (0, 0), (66, 2); BIT(0), BIT(68); DATETIME(7): their values have no known width."""
    types, metadata, nulls, options = ALL_KINDS
    assert metadata.count(usual) == 1
    columns = (types, metadata.replace(usual, wrong), nulls, options)
    log = (
        LogBytes(checksum=False)
        .begin()
        .table_map(columns=columns)
        .rows(ALL_KINDS_IMAGE, columns=12, bitmaps=b"\xff\x0f")
    )
    with pytest.raises(BinlogError, match=f"(?s)impossible {what}.*hint: check the event with mysqlbinlog; if the"):
        parse(log)


def test_superscript_digits_are_no_numbers() -> None:
    """``str.isdigit`` accepts them, ``int`` does not."""
    with pytest.raises(BinlogError):
        GtidSet.parse("3e11fa47-71ca-11e1-9e33-c80aa9429562:¹")
