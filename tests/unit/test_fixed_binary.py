"""UUID, INET4 and INET6: the text of their bytes, and of their defaults."""

from __future__ import annotations

import ipaddress
import random

import pytest

from tailrace.producer.model.table import Column
from tailrace.producer.mysql.types.fixed_binary import FixedBinaryType, inet6_text
from tailrace.producer.mysql.types.registry import column_type
from tailrace.runtime.errors import SchemaError
from tests.support.values import value_options


@pytest.mark.parametrize(
    ("data_type", "image", "text"),
    [
        ("uuid", "", "00000000-0000-0000-0000-000000000000"),
        ("uuid", "01890a5dac96774bbcceb302099a8057", "01890a5d-ac96-774b-bcce-b302099a8057"),
        ("inet4", "7f", "127.0.0.0"),
        ("inet6", "", "::"),
        ("inet6", "00" * 15 + "01", "::1"),
        ("inet6", "00" * 12 + "01020304", "::1.2.3.4"),
        ("inet6", "00" * 10 + "ffff01020304", "::ffff:1.2.3.4"),
        ("inet6", "00" * 10 + "fffe01020304", "::fffe:102:304"),
        ("inet6", "20010db8000000010001000100010001", "2001:db8::1:1:1:1:1"),
        ("inet6", "00010000000000020000000000000003", "1:0:0:2::3"),
        ("inet6", "ffff", "ffff::"),
        ("inet6", "ff" * 16, "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff"),
    ],
)
def test_text_of_an_image(data_type: str, image: str, text: str) -> None:
    """The binlog lacks the zero bytes at the end; the texts are those of the server."""
    decode = column_type(Column("v", data_type), value_options()).from_image().decode
    assert decode(bytes.fromhex(image)) == text.encode()


def test_texts_have_the_addresses() -> None:
    """Whatever the zeros are."""
    pick = random.Random(3)
    for _ in range(2000):
        data = b"".join(pick.choice((0, 0, 0xFFFF, pick.randrange(1 << 16))).to_bytes(2, "big") for _ in range(8))
        assert ipaddress.IPv6Address(inet6_text(data).decode()).packed == data


@pytest.mark.parametrize("data_type", FixedBinaryType.data_types)
def test_longer_image_is_refused(data_type: str) -> None:
    """The column has another type than is known."""
    decode = column_type(Column("v", data_type), value_options()).from_image().decode
    with pytest.raises(SchemaError, match=r"(?s)17 bytes.*hint: take a new snapshot: the binlog is damaged here, or"):
        decode(bytes(17))


@pytest.mark.parametrize(
    ("data_type", "default", "text"),
    [
        ("uuid", "6CCD780CBABA-1026-9564-5B8C656024DB", "6ccd780c-baba-1026-9564-5b8c656024db"),
        ("inet6", "2001:DB8:0:0:0:0:0:1", "2001:db8::1"),
        ("inet4", "10.0.0.1", "10.0.0.1"),
        ("uuid", "no uuid", "no uuid"),
    ],
)
def test_default_is_the_value_of_a_row(data_type: str, default: str, text: str) -> None:
    """The catalog has it as the statement has written it."""
    assert FixedBinaryType.default_bytes(Column("v", data_type), default) == text.encode()
