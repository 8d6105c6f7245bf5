"""The template of an operation gives the bytes that the frame makes of an event's envelope, in all formats."""

from __future__ import annotations

import random

import pytest

from tailrace.producer.model.table import Column, Table, TableId
from tailrace.producer.native import loader
from tailrace.producer.serialization.envelope.source_info import SourceInfo
from tailrace.schemas.rowkind import Op
from tests.support.codec_matrix import FORMS, Form, record_format
from tests.support.values import value_options

pytestmark = pytest.mark.skipif(
    not loader.is_used(), reason=f"the compiled extension is not used: {loader.unused_because()}"
)

SEED = 20_261_124
EVENTS = 300
COLUMNS = (Column("id", "int", nullable=False), Column("n", "int", nullable=True))


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("op", [Op.CREATE, Op.UPDATE, Op.DELETE])
def test_template_gives_the_bytes_of_the_frame(form: Form, op: Op) -> None:
    """Also without GTID or thread, with the largest position, and with names that JSON escapes."""
    from tailrace.producer.native import codec  # noqa: PLC0415 - the module is optional

    pick = random.Random(SEED)
    table = Table(TableId('größe"\\d', "t\n1"), COLUMNS, ("id",))
    record = record_format(table, value_options(), form)
    frame, source = record.frame(), SourceInfo('pre"fix', table.id)
    before, after = (
        codec.Template(pieces, avro=record.value == "avro") for pieces in frame.event_template(source.constants, op)
    )
    for _ in range(EVENTS):
        ts_us = pick.choice((0, pick.randrange(1, 2**51), 1_700_000_000_000_000))
        now_us = pick.randrange(2**51)
        gtid = pick.choice(("", "3e11fa47-71ca-11e1-9e33-c80aa9429562:23", f"0-{pick.randrange(2**32)}-1"))
        thread = pick.choice((None, 0, pick.randrange(2**32)))
        server_id, pos = pick.randrange(2**32), pick.choice((4, pick.randrange(2**63)))
        file = pick.choice(("b.1", "mysql-bin.000007", "x" * 200))
        envelope = source.event_envelope(
            ts_us=ts_us, server_id=server_id, gtid=gtid, file=file, pos=pos, thread=thread, now_us=now_us
        )

        rendered = tuple(
            template.render(
                ts_us=ts_us,
                server_id=server_id,
                gtid=gtid.encode(),
                file=file.encode(),
                pos=pos,
                thread=thread,
                now_us=now_us,
            )
            for template in (before, after)
        )

        assert rendered == frame.event(envelope, op)
