"""Which columns are left out, masked, hashed, cut, or tell their source type: by name, resolved once per version.

As in Debezium, a rule is a list of expressions for ``db.table.column``, and the first kind of rule that matches a
column is the only one that has an effect: cut, mask, source types, hash. Where that would let a value through which
another rule asks to hide, the rules contradict each other: that is a fault here. Keys are never changed.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from tailrace.producer.config.filters import ColumnFilter, FilterFault, any_matches, compile_list
from tailrace.producer.model.source_type import source_type
from tailrace.producer.model.table import Column, TableId
from tailrace.runtime.errors import SchemaError

HIDDEN: Final = "********"
_TEXT_KINDS: Final = frozenset({"char", "varchar", "text", "enum", "set"})
"""What Debezium masks; every other kind it writes as it is."""
_NUMBER_OF: Final = re.compile(r"column\.(truncate\.to|mask\.with)\.(.*)\.chars", re.DOTALL)
_HASH_OF: Final = re.compile(r"column\.mask\.hash\.(v2\.)?(.+?)\.with\.salt\.(.+)", re.DOTALL)
_MOST_CHARS: Final = 2**31 - 1

ALGORITHMS: Final[Mapping[str, str]] = {
    "MD5": "md5",
    "SHA": "sha1",
    "SHA1": "sha1",
    "SHA-1": "sha1",
    **{f"SHA{dash}{bits}": f"sha{bits}" for bits in (224, 256, 384, 512) for dash in ("-", "")},
    **{f"SHA{dash}512/{bits}": f"sha512_{bits}" for bits in (224, 256) for dash in ("-", "")},
    **{f"SHA3-{bits}": f"sha3_{bits}" for bits in (224, 256, 384, 512)},
}
"""Java's names of digests, in capitals, and Python's."""


@dataclass(frozen=True, slots=True)
class Truncate:
    """Text of at most ``length`` UTF-16 units, binary strings of as many bytes."""

    length: int


@dataclass(frozen=True, slots=True)
class Mask:
    """So many asterisks, whatever the value is, NULL included."""

    length: int


@dataclass(frozen=True, slots=True)
class Hash:
    """The digest of salt and text in hex, cut to the column's length; NULL stays."""

    algorithm: str
    """Python's name."""
    salt: bytes = field(repr=False)
    plain: bool
    """The text is digested as UTF-8 (v2), not as Java serializes it (v1)."""


Transform = Truncate | Mask | Hash


@dataclass(frozen=True, slots=True)
class TransformRule:
    """One property that changes the values of columns; ``name`` is without the salt."""

    name: str
    text: str
    columns: tuple[re.Pattern[str], ...]
    change: Transform

    def __str__(self) -> str:
        return f"{self.name}={self.text}"


@dataclass(frozen=True, slots=True)
class ColumnProjection:
    """What becomes of the columns of one table version."""

    dropped: frozenset[str] = frozenset()
    """Names of columns that are in no row."""
    changes: Mapping[str, Transform] = field(default_factory=dict)
    """By name of column."""

    def kept(self, columns: Iterable[Column]) -> list[Column]:
        """Return the columns that rows have."""
        return [column for column in columns if column.name not in self.dropped]


def without_salt(name: str) -> str:
    """Return a property's name fit to be shown: the salt of a hash is a secret, though it is part of the name."""
    found = _HASH_OF.fullmatch(name)
    if found:
        return name[: found.start(3)] + HIDDEN
    head = re.match(r"column\.mask\.hash\.(?:v2\.)?[^.]*\.", name)
    return head[0] + HIDDEN if head and head[0] != name else name


def read_rule(name: str, text: str) -> TransformRule:
    """Read one property. Raises FilterFault for an expression, a number or a digest that cannot be used."""
    return TransformRule(without_salt(name), text, compile_list(text), _change(name))


def _change(name: str) -> Transform:
    number = _NUMBER_OF.fullmatch(name)
    if number:
        if not re.fullmatch(r"[0-9]+", number[2]) or int(number[2]) > _MOST_CHARS:
            raise FilterFault(f"{number[2]!r} is not a whole number of characters, at least 0")
        length = int(number[2])
        return Truncate(length) if number[1] == "truncate.to" else Mask(length)
    hashed = _HASH_OF.fullmatch(name)
    if not hashed:
        raise FilterFault("the name is not of the form column.mask.hash.ALGORITHM.with.salt.SALT")
    algorithm = ALGORITHMS.get(hashed[2].upper())
    if algorithm is None or algorithm not in hashlib.algorithms_available:
        raise FilterFault(f"{hashed[2]!r} is not a known digest: use one of {', '.join(ALGORITHMS)}")
    return Hash(algorithm, hashed[3].encode(), plain=hashed[1] is not None)


class ColumnTransforms:
    """All rules of a configuration."""

    def __init__(
        self,
        wanted: ColumnFilter,
        rules: Sequence[TransformRule] = (),
        *,
        source_types: str = "",
        source_types_by_type: str = "",
    ) -> None:
        """The last two are lists of expressions for ``db.table.column`` and for ``db.table.TYPE``."""
        self._wanted = wanted
        self._rules = tuple(rules)
        self._source_types = compile_list(source_types)
        self._by_type = compile_list(source_types_by_type)

    @property
    def trivial(self) -> bool:
        """No column is left out or changed."""
        return self._wanted.trivial and not self._rules

    def shape(self, table: TableId, columns: Sequence[Column], key: Sequence[str]) -> ColumnProjection | None:
        """Return what becomes of a table's columns; None for nothing. Raises SchemaError where ``faults`` finds any."""
        if self.trivial:
            return None
        faults = self.faults(table, columns, key)
        if faults:
            raise SchemaError("; ".join(faults), hint="correct the rules of columns, or exclude the table")
        dropped = frozenset(column.name for column in columns if not self._wanted.wanted(table, column.name))
        changes = {column.name: rule.change for column in columns for rule in self._matching(table, column)}
        changes = {name: change for name, change in changes.items() if name not in dropped}
        return ColumnProjection(dropped, changes) if dropped or changes else None

    def propagates(self, table: TableId, column: Column) -> bool:
        """Tell whether a column's schema carries its source type; a column that is cut or masked has none, as there."""
        return self._asks_for_source(table, column) and not self._matching(table, column)

    def faults(self, table: TableId, columns: Sequence[Column], key: Sequence[str]) -> list[str]:
        """Return what cannot be done for a table: one text for each column and rule."""
        found: list[str] = []
        for column in columns:
            name = f"{table}.{column.name}"
            if not self._wanted.wanted(table, column.name):
                if column.name in key:
                    found.append(
                        f"{self._wanted} leaves out {name}, which is part of the table's key: "
                        f"keep it, or name other key columns in message.key.columns"
                    )
                continue
            rules = self._matching(table, column)
            if len(rules) > 1:
                all_of_them = " and ".join(map(str, rules))
                found.append(f"{name} is named by rules of which only one can hold: {all_of_them}")
            for rule in rules:
                if not isinstance(rule.change, Truncate) and column.data_type not in _TEXT_KINDS:
                    found.append(
                        f"{rule} names {name}, which is {source_type(column).name}: only text can be masked, "
                        f"its values would be written as they are; leave it out with column.exclude.list"
                    )
                elif isinstance(rule.change, Hash) and self._asks_for_source(table, column):
                    found.append(
                        f"{rule} names {name}, and so does column.propagate.source.type or "
                        f"datatype.propagate.source.type: Debezium would write its values as they are; "
                        f"take the column out of one of them"
                    )
        return found

    def changed_keys(self, table: TableId, columns: Sequence[Column], key: Sequence[str]) -> list[str]:
        """Return the key columns whose values are changed in rows, but never in keys."""
        return [column.name for column in columns if column.name in key and self._matching(table, column)]

    def idle(self, columns: Iterable[tuple[TableId, Column]]) -> list[str]:
        """Return the rules that name none of these columns, fit to be shown."""
        names = [f"{table}.{column.name}" for table, column in columns]
        return [str(rule) for rule in self._rules if not any(any_matches(rule.columns, name) for name in names)]

    def _matching(self, table: TableId, column: Column) -> list[TransformRule]:
        name = f"{table}.{column.name}"
        return [rule for rule in self._rules if any_matches(rule.columns, name)]

    def _asks_for_source(self, table: TableId, column: Column) -> bool:
        if any_matches(self._source_types, f"{table}.{column.name}"):
            return True
        return bool(self._by_type) and any_matches(self._by_type, f"{table}.{source_type(column).name}")
