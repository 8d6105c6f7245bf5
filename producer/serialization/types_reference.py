"""docs/types.md: the Connect schema of every MySQL type by mode, from the families themselves.

``python -m tailrace.producer.serialization.types_reference`` prints the page.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import groupby
from typing import Any, Final, get_args

from tailrace.producer.config.sections.values import ValuesConfig
from tailrace.producer.model.table import Column
from tailrace.producer.model.value_options import (
    BigintUnsignedHandling,
    BinaryHandling,
    DecimalHandling,
    TimePrecision,
)
from tailrace.producer.mysql.types.registry import BINLOG_TYPES, CATALOG_NAMES, FAMILIES, column_type, family_of
from tailrace.schemas.connect import ConnectSchema

_HEAD: Final = """# Types

Which Kafka Connect schema each column type of MySQL and MariaDB has, in JSON with schemas and in Avro; JSON without
schemas has values in the same form. Lengths, digits and labels stand for any other. Only MariaDB has `UUID`, `INET4`
and `INET6`. The page is generated from the code:
`python -m tailrace.producer.serialization.types_reference`.

| column | Connect schema | with another mode |
| --- | --- | --- |
"""
_KEYS: Final = """
## Keys and masks

- A table is split by its leading key columns of the types
  {split}.
  A key that begins with another type is read as one split; so is one that begins with text in `big5_chinese_ci`,
  `cp1250_czech_cs` or `tis620_thai_ci`, which the server compares in another order than it sorts.
- `column.mask.*` applies to {masked}, as in Debezium.
- Other names of these types: {others}.
"""
_MODES: Final[tuple[tuple[str, str, Any], ...]] = (
    ("decimal.handling.mode", "decimal_handling_mode", DecimalHandling),
    ("bigint.unsigned.handling.mode", "bigint_unsigned_handling_mode", BigintUnsignedHandling),
    ("binary.handling.mode", "binary_handling_mode", BinaryHandling),
    ("time.precision.mode", "time_precision_mode", TimePrecision),
)
DEFAULTS: Final = ValuesConfig().options


def examples() -> Iterator[tuple[str, Column]]:
    """Yield a column of every type, with its declaration."""
    sized = {"char": 80, "varchar": 80, "binary": 16, "varbinary": 16, "text": 65_535, "blob": 65_535}
    for data_type in dict.fromkeys(name for family in FAMILIES for name in family.data_types):
        column = Column("c", data_type, nullable=False, length=sized.get(data_type, 0))
        family = family_of(data_type)
        declared = data_type.upper()
        if data_type in {"char", "varchar", "text"}:
            column = replace(column, charset="utf8mb4")
        elif family.has_labels:
            column = replace(column, enum_values=("a", "b"), charset="utf8mb4")
            declared += "('a','b')"
        elif data_type == "decimal":
            column = replace(column, precision=10, scale=2)
            declared += "(10,2)"
        if data_type in {"char", "varchar", "binary", "varbinary"}:
            declared += "(20)" if data_type in {"char", "varchar"} else "(16)"
        if data_type == "bit":
            yield "BIT(1)", replace(column, length=1)
            yield "BIT(8)", replace(column, length=8)
            continue
        yield declared, column
        if any(known.data_type == data_type and known.option.name == "SIGN" for known in BINLOG_TYPES.values()):
            yield f"{declared} UNSIGNED", replace(column, unsigned=True)
        if data_type == "datetime":
            yield "DATETIME(6)", replace(column, fsp=6)


def schema_text(schema: ConnectSchema) -> str:
    """Return the cell of a schema: its type, or its name with parameters and the type."""
    parameters = "".join(f", {name}={value}" for name, value in schema.parameters)
    return f"`{schema.name}` (`{schema.type}`{parameters})" if schema.name else f"`{schema.type}`"


def page() -> str:
    rows: dict[tuple[str, str], list[str]] = {}
    for declared, column in examples():
        default = schema_text(column_type(column, DEFAULTS).connect())
        rows.setdefault((default, "<br>".join(_other_modes(column, default))), []).append(f"`{declared}`")
    lines = [f"| {', '.join(columns)} | {default} | {modes} |\n" for (default, modes), columns in rows.items()]
    names = [(data_type, family) for family in FAMILIES for data_type in family.data_types]
    keys = _KEYS.format(
        split=_listed(name for name, family in names if name in family.key_kinds),
        masked=_listed(name for name, family in names if family.is_text),
        others=_listed(sorted(name for name, data_type in CATALOG_NAMES.items() if name != data_type)),
    )
    return "".join([_HEAD, *lines, keys])


def _other_modes(column: Column, default: str) -> Iterator[str]:
    """Yield the schemas of a column with modes that change it."""
    for title, option, literal in _MODES:
        found = []
        for mode in get_args(literal):
            schema = schema_text(column_type(column, replace(DEFAULTS, **{option: mode})).connect())
            if schema != default:
                found.append((schema, mode))
        for schema, group in groupby(found, key=lambda pair: pair[0]):
            modes = ", ".join(f"`{mode}`" for _, mode in group)
            yield f"`{title}` {modes}: {schema}"


def _listed(names: Iterable[str]) -> str:
    return ", ".join(f"`{name.upper()}`" for name in names)


if __name__ == "__main__":
    sys.stdout.write(page())
