"""Random logs: transactions as servers write them, and some that no server writes."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Final

from tailrace.producer.mysql.binlog.event_types import GTID_TAGGED
from tests.support.binlog_bytes import (
    ALL_KINDS,
    ALL_KINDS_IMAGE,
    DELETE,
    INTS,
    MAP,
    PAYLOAD,
    QUERY,
    ROW,
    ROWS_QUERY,
    TAGGED_GTID,
    UPDATE,
    WRITE,
    WRITE_BODY,
    XA_PREPARE,
    XID,
    Columns,
    LogBytes,
    inner,
    payload,
    query_body,
)

_INNER: Final = inner((QUERY, query_body("BEGIN")), (19, MAP), (30, WRITE_BODY + ROW * 2), (XID, b"\1" + b"\0" * 7))
_OTHER_SOURCE: Final = "aaaaaaaa-bbbb-cccc-dddd-eeeeeeeeeeee"
_LATER: Final = 1_700_000_000_000_000


def random_log(choose: random.Random, *, is_valid: bool, transactions: int = 6) -> LogBytes:
    """Return a log of usual and unusual transactions; positions may pass 4 GB, those that are not valid 2^63."""
    beyond = () if is_valid else ((1 << 62) - 900, (1 << 63) - 900)
    log = LogBytes(checksum=choose.random() < 0.7, pos=choose.choice((4, 0xFFFFFE00, *beyond)))
    if is_valid or choose.random() < 0.5:
        unusual = _valid_transactions(log)
    else:
        unusual = _valid_transactions(log) + _invalid_transactions(log)
    for _ in range(transactions):
        if choose.random() < 0.3:
            choose.choice(unusual)()
            continue
        _add_begin(log, choose)
        for _ in range(choose.randint(0, 5)):
            _add_statement(log, choose)
        if choose.random() < 0.9:
            log.xid()
        else:
            log.query("COMMIT")
        if choose.random() < 0.2:
            log.gtid().add(PAYLOAD, payload(_INNER, choose.choice((0, 255))))
    return log


def _add_begin(log: LogBytes, choose: random.Random) -> None:
    """Append GTID and BEGIN in one of the forms that servers write."""
    forms: list[Callable[[], object]] = [
        log.gtid,
        log.gtid,
        lambda: log.gtid(original_us=5),
        lambda: log.gtid(original_us=(1 << 55) - 1),
        lambda: log.gtid(commit_us=(1 << 55) - 1),
        lambda: log.gtid(stamp=choose.choice((b"", b"\1\2\3"))),
        lambda: log.gtid(source=_OTHER_SOURCE, number=choose.choice((1, (1 << 63) - 2))),
        lambda: log.add(GTID_TAGGED, TAGGED_GTID),
    ]
    choose.choice(forms)()
    if choose.random() < 0.9:
        log.query("BEGIN", thread=choose.choice((0, 7, 0xFFFFFFFF)))
    else:
        log.query("BEGIN", database=choose.choice(("", "d" * 255)), status=b"\0" * choose.choice((1, 300)))


def _add_statement(log: LogBytes, choose: random.Random) -> None:
    if choose.random() < 0.2:
        log.add(ROWS_QUERY, choose.choice((b"\0UPDATE orders", b"\0\xff\xc3\x28", b"\0")))
    columns = choose.choice((INTS, INTS, ALL_KINDS))
    log.table_map(choose.choice(("orders", "orders", "other")), columns)
    for _ in range(choose.randint(1, 3)):
        _add_rows(log, choose, columns)
    if choose.random() < 0.1:
        log.query("SAVEPOINT a")


def _valid_transactions(log: LogBytes) -> list[Callable[[], object]]:
    start, end = "XA START X'61',X'',1", "XA END X'61',X'',1"

    def xa() -> LogBytes:
        return log.gtid().query(start).table_map().rows(ROW).query(end)

    return [
        lambda: log.gtid().query("CREATE TABLE x (i INT)"),
        lambda: log.begin().query("CREATE TABLE y (i INT) START TRANSACTION").table_map().rows(ROW).xid(),
        lambda: log.begin().table_map("other").rows(ROW).query("ROLLBACK"),
        lambda: xa().add(XA_PREPARE, b"\1" + b"\0" * 13),
        lambda: xa().add(XA_PREPARE, b"\0" * 14).gtid().query("XA COMMIT X'61',X'',1"),
        lambda: xa().xid(),
        lambda: log.rotate("binlog.000002", pos=log.pos).format(),
        lambda: log.add(27, b"binlog.000001", in_file=False),
        lambda: log.begin().xid(),
    ]


def _invalid_transactions(log: LogBytes) -> list[Callable[[], object]]:
    anonymous, of_mariadb, its_begin = 34, 162, b"\1\0\0\0\0\0\0\0" + b"\0" * 11
    return [
        lambda: log.add(anonymous, b"\0" * 61).query("BEGIN").table_map().rows(ROW).xid(),
        lambda: log.add(GTID_TAGGED, b"\0" * 61).query("BEGIN").table_map().rows(ROW).xid(),
        lambda: log.add(of_mariadb, its_begin).table_map().rows(ROW).xid(),
        lambda: log.query("BEGIN").table_map().rows(ROW).xid(),
        lambda: log.begin().query("BEGIN").xid(),
        lambda: log.gtid().gtid().query("BEGIN").xid(),
        lambda: log.begin().table_map().rows(ROW).gtid(),
        lambda: log.begin().xid().xid(),
        lambda: log.gtid().xid(),
        lambda: log.gtid(number=-log.number).query("BEGIN").xid(),
        lambda: log.gtid(stamp=(_LATER | 1 << 55).to_bytes(7, "little")).query("BEGIN").xid(),
        lambda: log.gtid(stamp=(_LATER | 1 << 55).to_bytes(7, "little") + b"\1\2").query("BEGIN").xid(),
        lambda: log.begin().rows(ROW, table_id=17).xid(),
        lambda: log.begin().add(XID, b"\1\0"),
        lambda: log.gtid().add(QUERY, b"BEGIN"),
        lambda: log.gtid().add(QUERY, query_body("BEGIN")[:13]),
        lambda: log.gtid().query("BEGIN "),
    ]


def _add_rows(log: LogBytes, choose: random.Random, columns: Columns) -> None:
    kind = choose.choice((WRITE, UPDATE, DELETE))
    extra = b"\0\0" if choose.random() < 0.1 else b""
    if columns is ALL_KINDS:
        log.rows(ALL_KINDS_IMAGE, kind, columns=12, bitmaps=b"\xff\x0f" * (2 if kind == UPDATE else 1), extra=extra)
    else:
        log.rows(ROW * choose.randint(1, 3), kind, extra=extra)
