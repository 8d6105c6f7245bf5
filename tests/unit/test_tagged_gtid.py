"""The GTID event with a tag: what MySQL 9.7.4 has logged, and what other servers may log."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace.producer.errors import BinlogError
from tailrace.producer.model.binlog_events import TransactionBegin
from tailrace.producer.mysql.binlog import event_types
from tailrace.producer.mysql.binlog.tagged_gtid import TaggedGtid, read_tagged_gtid
from tests.support.binlog_bytes import ROW, TAGGED_GTID, LogBytes, parse

SERVER = bytes.fromhex("01e6eca6e98c11f19be702fc00000001")
GREATEST = bytes.fromhex(
    "027a0000 0002 22222222222222222222fd03fd03fd03fd03fd03fd03 04fffcffffffffffffff 06027a 0808 0a20"
    "0c7f46bfa1312c6106 108104 1283120b"
)
"""The greatest number that the server gives."""


def of(body: bytes, required: int = 0) -> bytes:
    """Return a body with its own size in front."""
    size = len(body) + 4
    return bytes([2, size << 2 & 0xFF | 1, size >> 6, 2 * required]) + body


def number(value: int) -> bytes:
    """Encode a number as the server does."""
    size = next((size for size in range(1, 9) if value < 1 << 7 * size), 9)
    if size == 9:
        return b"\xff" + value.to_bytes(8, "little")
    return (value << size | (1 << size - 1) - 1).to_bytes(size, "little")


def test_what_the_server_has_logged() -> None:
    assert read_tagged_gtid(TAGGED_GTID) == TaggedGtid(SERVER, "tag_one", 1, 0x06612C31A1B154)
    assert read_tagged_gtid(GREATEST)[:3] == (b"\x11" * 10 + b"\xff" * 6, "z", 2**63 - 2)


def test_transactions_with_and_without_a_tag() -> None:
    log = LogBytes()
    for _ in range(2):
        log.add(event_types.GTID_TAGGED, TAGGED_GTID).query("BEGIN").table_map().rows(ROW).xid().transaction()

    begins = [event for event in parse(log) if isinstance(event, TransactionBegin)]

    assert [event.gtid.partition(":")[2] for event in begins] == ["tag_one:1", "1", "tag_one:1", "2"]
    assert begins[0].gtid == "01e6eca6-e98c-11f1-9be7-02fc00000001:tag_one:1"
    assert [event.commit_ts_us for event in begins[::2]] == [0x06612C31A1B154] * 2


@given(
    st.binary(min_size=16, max_size=16),
    st.integers(1, 2**63 - 2),
    st.from_regex("[a-z_][a-z0-9_]{0,31}", fullmatch=True),
    st.lists(st.integers(0, 2**55 - 1), min_size=1, max_size=2),
    st.binary(max_size=9),
)
def test_every_value(server: bytes, gno: int, tag: str, times: list[int], later: bytes) -> None:
    """A replica writes the first commit time too; a later server may write more."""
    fields = [
        number(1),
        b"".join(map(number, server)),
        number(gno << 1),
        number(len(tag)) + tag.encode(),
        number(0),
        number(1),
        *map(number, times),
    ]
    body = b"".join(number(field) + value for field, value in enumerate(fields)) + number(12) + later

    assert read_tagged_gtid(of(body)) == (server, tag, gno, times[-1])


@pytest.mark.parametrize(
    "body",
    [
        b"\4" + TAGGED_GTID[1:],
        TAGGED_GTID + b"\0",
        TAGGED_GTID[:3] + bytes([2 * 12]) + TAGGED_GTID[4:],
        TAGGED_GTID.replace(b"\x04\x04\x06\x0e", b"\x04\x05\x06\x0e"),
        of(TAGGED_GTID[4:].replace(b"\x06\x0etag_one", b"\x06\x00")),
        of(TAGGED_GTID[4:].replace(b"\x06\x0etag_one", b"\x06\x02\xe9")),
        of(TAGGED_GTID[6:]),
    ],
    ids=["version", "size", "required field", "negative", "no tag", "not ASCII", "no flags"],
)
def test_another_form_is_refused(body: bytes) -> None:
    """With the position, and not read by a guess."""
    with pytest.raises(BinlogError, match="damaged, or has an unknown form") as caught:
        parse(LogBytes().add(event_types.GTID_TAGGED, body))
    assert caught.value.context["file"] == "binlog.000001"


@given(st.data())
def test_damaged_bytes_are_refused_or_read(data: st.DataObject) -> None:
    """No error is raised that the parser does not expect."""
    body = bytearray(TAGGED_GTID)
    for _ in range(data.draw(st.integers(1, 3))):
        body[data.draw(st.integers(0, len(body) - 1))] = data.draw(st.integers(0, 255))
    with suppress(*event_types.MALFORMED):
        read_tagged_gtid(bytes(body))
