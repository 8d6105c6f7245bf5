"""A damaged record of the state: one error with its key, whatever the damage is."""

from __future__ import annotations

import orjson
import pytest

from tailrace.producer.errors import StateDamagedError
from tailrace.producer.kafka.state_store import OFFSET_KEY, READERS_KEY, SIGNALS_KEY, decode
from tailrace.producer.mariadb.gtid import GtidPosition
from tailrace.producer.mariadb.offset import MariaDbOffset
from tailrace.producer.mysql.offset import MySqlOffset


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (OFFSET_KEY, b"not json"),
        (OFFSET_KEY, b"\xff\xfe"),
        (OFFSET_KEY, b"{}"),
        (OFFSET_KEY, orjson.dumps({"position": 7, "transactions": []})),
        (OFFSET_KEY, orjson.dumps({"position": {"gtids": 1}, "transactions": [{"no": "mark"}]})),
        (READERS_KEY, b"[]"),
        (SIGNALS_KEY, b"17"),
        (b"table/shop.orders", b'{"mode":"none"}'),
        (b"split/shop.orders:1:0", b'{"low":null,"high":null}'),
        (b"range/shop.orders:1:0", b"{}"),
        (b"prepared/x", b"{}"),
        (b"\xff\xff/x", b"{}"),
        (b"table/x", b"[" * 5000),
    ],
)
def test_damaged_record_is_named(key: bytes, value: bytes) -> None:
    """Not an error of Python without the place."""
    with pytest.raises(StateDamagedError) as caught:
        decode({key: value}, MySqlOffset.from_json)

    assert caught.value.context["key"] == key.decode(errors="backslashreplace")
    assert caught.value.hint == "find out what else writes to the topic; capture under another topic.prefix"


def test_state_of_another_kind_of_source() -> None:
    """Not a damage: the setting was changed."""
    position = MariaDbOffset(1, "b.1", 4, GtidPosition.parse("0-1-5"), "1-a").to_json()
    with pytest.raises(StateDamagedError, match="another kind of source") as caught:
        decode({OFFSET_KEY: orjson.dumps({"position": position, "transactions": []})}, MySqlOffset.from_json)
    assert caught.value.hint == "restore the former connector.class, or capture under another topic.prefix"
