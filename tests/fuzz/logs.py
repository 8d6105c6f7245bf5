"""Damaged table maps before valid rows: the parser makes tables of them, whose rows both codecs get."""

from __future__ import annotations

import random
from typing import Final

from tailrace.producer.model.binlog_events import Event, RowsEvent
from tailrace.producer.model.table import Table
from tailrace.producer.mysql.binlog.parser import BinlogParser
from tailrace.runtime.errors import TailraceError
from tailrace.schemas.rowkind import Op
from tests.fuzz.mutations import Sample, mutated
from tests.support.binlog_bytes import ALL_KINDS, ALL_KINDS_IMAGE, TABLE_MAP, LogBytes, orders, table_map_body
from tests.support.both_codecs import BothCodecs
from tests.support.codec_matrix import FORMS, MODES

_BODY: Final = table_map_body("shop", "orders", ALL_KINDS)
_MARKS: Final = tuple(_BODY.index(part) + i for part in ALL_KINDS for i in range(len(part)))
_TABLE_ID: Final = (90).to_bytes(6, "little")


def compare_log(choose: random.Random) -> tuple[bytes, bool]:
    """Parse a log with a damaged table map, encode its rows with both; return its bytes, and whether it was refused."""
    body = mutated(Sample(_BODY, _MARKS), Sample(_BODY, ()), choose)
    log = LogBytes(checksum=False).begin().add(TABLE_MAP, _TABLE_ID + body)
    log.rows(ALL_KINDS_IMAGE, columns=12, bitmaps=b"\xff\x0f").xid()
    options, form = choose.choice(MODES), choose.choice(FORMS)
    try:
        parser = BinlogParser(orders)
        events: list[Event] = parser.feed(log.data)
        for event in events:
            if isinstance(event, RowsEvent):
                columns = event.table.columns
                table = Table(event.table.id, columns, event.table.primary_key or (columns[0].name,))
                codecs = BothCodecs(table, options, form)
                codecs.event("inserts", event.data, event.start, event.stop, keys=True)
                assert event.op == Op.CREATE
    except TailraceError:
        return log.data, True
    return log.data, False
