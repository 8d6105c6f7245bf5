"""The rows that the benches of the consumer write: seven columns, about 130 bytes as JSON."""

from __future__ import annotations

from typing import Final

from tailrace.schemas.connect import ConnectField
from tests.spark.records import Row, connect

COLUMNS: Final = {
    "id": "BIGINT",
    "name": "STRING",
    "n": "INT",
    "price": "DOUBLE",
    "note": "STRING",
    "city": "STRING",
    "code": "BIGINT",
}
"""Spark's types by name."""
STRUCT: Final = f"STRUCT<{', '.join(f'{name}: {kind}' for name, kind in COLUMNS.items())}>"
FIELDS: Final = (
    ConnectField("n", connect("int32")),
    ConnectField("price", connect("double")),
    ConnectField("note", connect("string")),
    ConnectField("city", connect("string")),
    ConnectField("code", connect("int64")),
)
"""The columns behind ``id`` and ``name``, which each table of the tests has."""


def row(key: int, version: int = 0) -> Row:
    """Return a version of the row with a key."""
    return {
        "id": key,
        "name": f"name of row {key}",
        "n": (key + version) % 1000,
        "price": (key + version) * 0.25,
        "note": f"a note of about fifty letters, for the row number {key}",
        "city": f"city {key % 97}",
        "code": key * 7919,
    }
