"""What a sink reads of a change event: row images, and fields of the envelope as metadata columns.

Those are named as Debezium's ``add.fields`` names them: ``op``, ``table``, ``source.ts_ms``, ``op:change``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Final

from pyspark.sql import types as tp

from tailrace.runtime.config.value_types import InvalidValueError, ValueType


class Images(Enum):
    """The input form of a sink; it decides what is decoded and how a batch is normalized."""

    UPSERT = "upsert"
    """The last change per key is enough: the whole ``after`` image and the key columns of ``before``."""
    UPSERT_WITH_BEFORE = "upsert with before"
    """As UPSERT, with the whole ``before`` image: a sink keeps the last values of deleted rows."""
    CHANGELOG = "changelog"
    """Every change counts: both images whole, and one row per key for each snapshot split."""


_TEXT: Final = tp.StringType()
_LONG: Final = tp.LongType()

BLOCKS: Final[Mapping[str, Mapping[str, tp.DataType]]] = {
    "": {"op": _TEXT, "ts_ms": _LONG, "ts_us": _LONG, "ts_ns": _LONG},
    "source": {
        **dict.fromkeys(("version", "connector", "name", "snapshot", "db", "sequence", "table"), _TEXT),
        **dict.fromkeys(("ts_ms", "ts_us", "ts_ns", "server_id", "pos", "row", "thread"), _LONG),
        **dict.fromkeys(("gtid", "file", "query"), _TEXT),
    },
    "transaction": {"id": _TEXT, "total_order": _LONG, "data_collection_order": _LONG},
}
"""The fields by the block of the envelope that has them; '' is the envelope itself."""
_ENTRY: Final = re.compile(r"(?:(?P<block>\w+)\.)?(?P<name>\w+)(?::(?P<alias>\w+))?", re.ASCII)


@dataclass(frozen=True, slots=True)
class MetadataField:
    """One field of the envelope, and the column that it becomes."""

    column: str
    block: str
    name: str

    @property
    def type(self) -> tp.DataType:
        """The type of the column."""
        return BLOCKS[self.block][self.name]

    def with_prefix(self, prefix: str) -> MetadataField:
        """Return the field with a prefix before the name of its column."""
        return MetadataField(f"{prefix}{self.column}", self.block, self.name)


def read_fields(text: str) -> tuple[MetadataField, ...]:
    """Read ``add.fields``, without the prefix of the columns. Raises InvalidValueError with all problems."""
    entries = [entry.strip() for entry in text.split(",") if entry.strip()]
    found, unknown = [], []
    for entry in entries:
        field = _field(entry)
        if field is None:
            unknown.append(entry)
        else:
            found.append(field)
    problems = []
    if unknown:
        problems.append(f"unknown fields: {', '.join(unknown)}")
    twice = repeated(field.column for field in found)
    if twice:
        problems.append(f"several fields have one column: {', '.join(twice)}; rename one, as in op:{twice[0]}2")
    if problems:
        raise InvalidValueError("; ".join(problems))
    return tuple(found)


def repeated(names: Iterable[str]) -> list[str]:
    """Return the names that occur more than once, without regard to case."""
    listed = [name.lower() for name in names]
    return sorted({name for name in listed if listed.count(name) > 1})


def _field(entry: str) -> MetadataField | None:
    match = _ENTRY.fullmatch(entry)
    if match is None:
        return None
    block, name, alias = match["block"], match["name"], match["alias"]
    if block is None:
        # A name alone is looked for as Debezium does: in the envelope, then in the transaction, else in the source.
        block = next((each for each in ("", "transaction", "source") if name in BLOCKS[each]), "source")
        column = alias or name
    else:
        column = alias or f"{block}_{name}"
    return MetadataField(column, block, name) if name in BLOCKS.get(block, {}) else None


FIELDS: Final = ValueType(
    "a list of fields of the envelope such as op,table,source.ts_ms,transaction.id, each perhaps with :name",
    read_fields,
    lambda fields: ",".join(
        f"{field.block}{'.' if field.block else ''}{field.name}:{field.column}" for field in fields
    ),
)
"""The type of ``add.fields``."""
