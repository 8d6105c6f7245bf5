"""Values of COMPRESSED columns in row images, by hand."""

from __future__ import annotations

import zlib

import pytest

from tailrace.producer.model.table import Column
from tailrace.producer.mysql.types.registry import column_type
from tailrace.runtime.errors import SchemaError
from tests.support.values import value_options

COLUMNS = (
    Column("v", "varchar", length=300, charset="utf8mb4", compressed=True),
    Column("v", "text", length=65535, charset="latin1", compressed=True),
    Column("v", "varbinary", length=300, charset="binary", compressed=True),
)


def _bare(text: bytes) -> bytes:
    packer = zlib.compressobj(wbits=-zlib.MAX_WBITS)
    return packer.compress(text) + packer.flush()


@pytest.mark.parametrize("column", COLUMNS, ids=lambda column: column.data_type)
def test_value_behind_its_first_byte(column: Column) -> None:
    """It says whether and how the value is compressed; an empty value has none."""
    kind = column_type(column, value_options())
    decode, key = kind.from_image().decode, kind.raw_key()
    for image, text in (
        (b"", b""),
        (b"\0abc", b"abc"),
        (b"\x81\x2c" + zlib.compress(b"x" * 44), b"x" * 44),
        (b"\x8a\x01\x2c" + _bare(b"y" * 300), b"y" * 300),
    ):
        assert (decode(image), key(image)) == (text, text)
    assert kind.fast_image() is None


@pytest.mark.parametrize(
    "image",
    [b"\x81\x05" + zlib.compress(b"x" * 44), b"\x81\x2c" + zlib.compress(b"x" * 44)[:-3], b"\x81\x2cno", b"\x90ab"],
)
def test_damaged_value_is_refused(image: bytes) -> None:
    """With the column, and what was found."""
    decode = column_type(COLUMNS[0], value_options()).from_image().decode
    with pytest.raises(SchemaError, match="cannot be uncompressed") as raised:
        decode(image)
    assert raised.value.context["column"] == "v"
    assert raised.value.hint == "correct the row, or exclude the table: the binlog is damaged here"
