"""The rows that stand for keys which a table does not have, without a server: none is made of a text of no value."""

from __future__ import annotations

import struct
from types import SimpleNamespace
from typing import Any, cast

import orjson
import pytest

from tailrace.producer.errors import KeysRefusedError, SourceError
from tailrace.producer.model.codec import SnapshotEnvelope
from tailrace.producer.model.table import CatalogTable, Column, Table, TableId
from tailrace.producer.mysql.key_rows import MySqlKeyRows
from tailrace.producer.mysql.types.canonical import canonical_text
from tailrace.producer.serialization.table_codec import CodecOptions, TableCodec
from tailrace.schemas.verification import TextForm
from tests.support.values import value_options

INT = Column("k", "int", nullable=False)


def key_rows(column: Column, *texts: str, **options: Any) -> MySqlKeyRows:
    """Return the rows of keys of a table whose key is a column; no statement is run."""
    table = Table(TableId("d", "t"), (column, Column("v", "varchar", length=40, charset="utf8mb4")), ("k",))
    found = cast("CatalogTable", SimpleNamespace(collations={"k": SimpleNamespace(name="utf8mb4_bin")}))
    return MySqlKeyRows(cast("Any", None), found, table, value_options(**options), texts)


def deleted(column: Column, text: str, **options: Any) -> object:
    """Return the key of the record that deletes a key."""
    rows = key_rows(column, text, **options)
    table = Table(TableId("d", "t"), (column,), ("k",))
    codec = TableCodec(table, "p.d.t", CodecOptions(value_options(**options)))
    records = codec.deleted_rows(rows.packets(codec.published, text), SnapshotEnvelope(b',"source":{}}'))
    return orjson.loads(records[0][0])["k"]


def double(number: float) -> str:
    return struct.pack(">d", number).hex().upper()


@pytest.mark.parametrize("text", ["7 ", "07", "+7", "A", "-", "-0", "", "7.0", "1 -- ", "٧"])
def test_a_text_that_is_not_canonical_refuses_the_request(text: str) -> None:
    with pytest.raises(KeysRefusedError, match="not the one that its column makes") as caught:
        key_rows(INT, "7", text)
    assert caught.value.context["column"] == "k"
    assert caught.value.hint == "take the texts from a comparison of the table as it is now"


@pytest.mark.parametrize(
    ("column", "text"),
    [
        (Column("k", "date", nullable=False), "+10000-01-01"),
        (Column("k", "date", nullable=False), "2024-02-30"),
        (Column("k", "date", nullable=False), "AB"),
        (Column("k", "datetime", nullable=False, fsp=6), "2024-02-03 04:05:06"),
        (Column("k", "year", nullable=False), "A"),
        (Column("k", "decimal", nullable=False, precision=9, scale=2), "7.10"),
        (Column("k", "double", nullable=False), "8000000000000000"),
        (Column("k", "double", nullable=False), double(float("inf"))),
        (Column("k", "varchar", nullable=False, length=8, charset="utf8mb4"), "c3bc"),
        (Column("k", "varchar", nullable=False, length=8, charset="utf8mb4"), "C3 BC"),
    ],
)
def test_each_form_has_one_text_of_a_value(column: Column, text: str) -> None:
    with pytest.raises(KeysRefusedError):
        key_rows(column, text)


@pytest.mark.parametrize(
    ("column", "text", "options"),
    [
        (INT, "N", {}),
        (INT, "99999999999", {}),
        (Column("k", "tinyint", nullable=False, unsigned=True), "-1", {}),
        (Column("k", "bigint", nullable=False, unsigned=True), str(2**64 - 1), {}),
        (Column("k", "bigint", nullable=False, unsigned=True), "-1", {"bigint_unsigned_handling_mode": "precise"}),
        (Column("k", "year", nullable=False), "5", {}),
        (Column("k", "bit", nullable=False, length=1), "2", {}),
        (Column("k", "bit", nullable=False, length=9), "FFFF", {}),
        (Column("k", "time", nullable=False), "1500000", {}),
        (Column("k", "time", nullable=False), str(839 * 3600 * 10**6), {}),
        (Column("k", "datetime", nullable=False), "2024-01-02 03:04:05.500000", {}),
        (Column("k", "decimal", nullable=False, precision=9, scale=2), "7.001", {}),
        (
            Column("k", "decimal", nullable=False, precision=9, scale=2),
            double(7.001),
            {"decimal_handling_mode": "double"},
        ),
        (
            Column("k", "decimal", nullable=False, precision=9, scale=2),
            b"7.0".hex().upper(),
            {"decimal_handling_mode": "string"},
        ),
        (Column("k", "float", nullable=False), double(0.1), {}),
        (Column("k", "float", nullable=False), double(1e300), {}),
        (Column("k", "varchar", nullable=False, length=8, charset="utf8mb4"), "FF", {}),
        (Column("k", "enum", nullable=False, charset="utf8mb4", enum_values=("a", "b")), "63", {}),
        (Column("k", "binary", nullable=False, length=3, charset="binary"), "6162", {}),
        (Column("k", "varbinary", nullable=False, length=3, charset="binary"), "4142", {"binary_handling_mode": "hex"}),
    ],
)
def test_a_text_of_no_value_makes_no_row(column: Column, text: str, options: dict[str, Any]) -> None:
    """The row of a value that is near would delete that one."""
    rows = key_rows(column, text, **options)
    with pytest.raises(SourceError, match=r"(?s)a key is not deleted.*hint: delete the row in the target, or load"):
        rows.packets((column,), text)


@pytest.mark.parametrize(
    ("column", "text", "key", "options"),
    [
        (INT, "-7", -7, {}),
        (Column("k", "int"), "N", None, {}),
        (Column("k", "bigint", nullable=False, unsigned=True), "-1", -1, {}),
        (
            Column("k", "bigint", nullable=False, unsigned=True),
            str(2**63 - 1),
            2**63 - 1,
            {},
        ),
        (Column("k", "float", nullable=False), double(struct.unpack("f", struct.pack("f", 0.1))[0]), 0.1, {}),
        (
            Column("k", "decimal", nullable=False, precision=9, scale=2),
            double(7.01),
            7.01,
            {"decimal_handling_mode": "double"},
        ),
        (
            Column("k", "decimal", nullable=False, precision=9, scale=2),
            b"7.00".hex().upper(),
            "7.00",
            {"decimal_handling_mode": "string"},
        ),
        (
            Column("k", "varbinary", nullable=False, length=3, charset="binary"),
            b"ab".hex().upper(),
            "ab",
            {"binary_handling_mode": "hex"},
        ),
    ],
)
def test_a_row_has_the_value_of_its_text(column: Column, text: str, key: object, options: dict[str, Any]) -> None:
    assert deleted(column, text, **options) == key


@pytest.mark.parametrize(
    ("length", "charset", "form"),
    [
        (4 * 255, "utf8mb4", TextForm.BYTES),
        (4 * 257, "utf8mb4", TextForm.DIGEST),
        (3 * 255, "utf8mb3", TextForm.BYTES),
        (1000, "ascii", TextForm.BYTES),
        (255, "latin1", TextForm.BYTES),
        (300, "latin1", TextForm.DIGEST),
    ],
)
def test_a_text_is_a_digest_if_it_can_be_long(length: int, charset: str, form: TextForm) -> None:
    """The length of a column is in bytes."""
    column = Column("k", "varchar", nullable=False, length=length, charset=charset)
    assert canonical_text(column, value_options()).form is form


@pytest.mark.parametrize(
    ("column", "text", "term", "options"),
    [
        (Column("k", "binary", nullable=False, length=2, charset="binary"), "6162", "`k`=x'6162'", {}),
        (
            Column("k", "binary", nullable=False, length=2, charset="binary"),
            b"00ff".hex().upper(),
            "`k`=x'00ff'",
            {"binary_handling_mode": "hex"},
        ),
        (
            Column("k", "binary", nullable=False, length=2, charset="binary"),
            b"00FF".hex().upper(),
            "`k`=NULL",
            {"binary_handling_mode": "hex"},
        ),
        (Column("k", "year", nullable=False), "2155", "`k`=2155", {}),
        (Column("k", "year", nullable=False), "1900", "", {}),
        (Column("k", "bit", nullable=False, length=9), "2C01", "`k`=300", {}),
        (Column("k", "bit", nullable=False, length=1), "1", "`k`=1", {}),
        (Column("k", "float", nullable=False), double(0.5), "", {}),
        (Column("k", "int"), "N", "", {}),
    ],
)
def test_an_index_finds_the_rows_of_a_key(column: Column, text: str, term: str, options: dict[str, Any]) -> None:
    rows = key_rows(column, text, **options)
    assert rows.unbounded == ("" if term else "k")
    assert rows.condition.startswith(f"(({term}))" if term else "(1=1)")
