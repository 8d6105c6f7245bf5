"""A column's default as its Connect schema carries it: the catalog's text, decoded like a value read by SELECT.

An expression has no default here; where it is the time of the insert, Debezium takes the epoch, except for a TIMESTAMP
that may be NULL.
"""

from __future__ import annotations

import json
import re
from base64 import b64encode
from dataclasses import replace
from typing import Any, Final

from tailrace.producer.model.table import Column
from tailrace.producer.model.value_options import ValueOptions
from tailrace.producer.mysql.types.base import NULL, ExpressionKind, RawBytes
from tailrace.producer.mysql.types.registry import column_type, connect_field
from tailrace.producer.serialization.codegen import CodeBuilder
from tailrace.runtime.errors import SchemaError
from tailrace.schemas.connect import ConnectField

_EPOCH: Final = b"1970-01-01 00:00:00"
_INT64_MAX: Final = (1 << 63) - 1


def field_with_default(column: Column, name: str, settings: ValueOptions) -> ConnectField:
    """Return a column as a member of the row's struct, under ``name``, with the default that the catalog tells."""
    schema = connect_field(column, settings).schema
    return ConnectField(name, replace(schema, default=connect_default(column, settings)))


def connect_default(column: Column, settings: ValueOptions) -> Any:
    """Return the default as int, float, bool, or text (bytes in base64); None for none."""
    data = _stored(column)
    if data is None:
        return None
    if column.data_type in {"char", "varchar", "text"}:
        return data.decode()  # the catalog has it as text already, whatever the column's character set
    family = column_type(column, settings)
    if family.connect().type in {"struct", "array"}:
        return None
    space = CodeBuilder()
    value = family.from_result_set(RawBytes(space.bind, "0", "len(B)"))
    decode = space.compile("default", "B, S", [f"return {value.expr}"])
    try:
        return _plain(decode(data, str(data, "latin-1")), value.kind, column)
    except (ValueError, LookupError, SchemaError) as error:
        raise SchemaError(
            f"the default of column {column.name} cannot be read",
            hint="give the column a default of its own type, or exclude the table",
            default=data.decode("utf-8", "replace"),
            cause=error,
        ) from error


def _stored(column: Column) -> bytes | None:
    """Return the default as a SELECT would give it, None for none."""
    known = column.catalog
    if known is None or known.default is None or known.generated:
        return None
    text = known.default
    if known.default_is_expression:
        now = column.data_type in {"datetime", "timestamp"} and text.upper().startswith("CURRENT_TIMESTAMP")
        if not now or (column.data_type == "timestamp" and column.nullable):
            return None
        return _EPOCH + (b"." + b"0" * column.fsp if column.fsp and column.data_type == "datetime" else b"")
    if column.data_type == "bit":
        bits = re.fullmatch(r"b'([01]+)'", text)
        number = int(bits[1], 2) if bits else int(text)
        return number.to_bytes((column.length + 7) // 8, "big")
    if column.charset == "binary" and column.data_type in {"binary", "varbinary", "blob"}:
        stored = bytes.fromhex(text[2:]) if re.fullmatch(r"0x(?:[0-9A-Fa-f]{2})*", text) else text.encode()
        return stored.ljust(column.length, b"\0") if column.data_type == "binary" else stored
    if column.data_type == "timestamp" and text.startswith("0000-00-00"):
        return b"0000-00-00 00:00:00"
    return text.encode()


def _plain(found: Any, form: ExpressionKind, column: Column) -> Any:
    """Return a decoded value as the Python value of its JSON."""
    if form in {ExpressionKind.FLOAT32, ExpressionKind.FLOAT64}:
        return float(found)
    if form is ExpressionKind.BYTES:
        return b64encode(found).decode()
    if form is ExpressionKind.TEXT:
        return str(found).encode("latin-1").decode()
    if found == NULL and form in {ExpressionKind.INT, ExpressionKind.JSON}:
        return None
    if form is ExpressionKind.PLAIN:
        return json.loads(f'"{found}"'.encode("latin-1"))
    if form is ExpressionKind.JSON:
        return json.loads(found.encode("latin-1"))
    if column.data_type == "bigint" and column.unsigned and column.catalog and column.catalog.default:
        # As Debezium: a default beyond 63 bits is the greatest number, though such a value wraps.
        return min(int(column.catalog.default), _INT64_MAX)
    return int(found)
