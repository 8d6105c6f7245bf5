"""Column transforms: which columns are dropped, masked, hashed or truncated, and whose schemas carry the source type.

A rule is a list of regular expressions for ``db.table.column``. In Debezium only the first kind of rule that matches a
column applies: truncate, mask, source type, hash. That may let a value through that another rule hides, so Tailrace
rejects rules that contradict each other. Record keys are never changed.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from tailrace.producer.config.filters import ColumnFilter, InvalidExpressionError, any_matches, compile_list
from tailrace.producer.model.source_type import source_type
from tailrace.producer.model.table import Column, TableId
from tailrace.runtime.errors import SchemaError

HIDDEN: Final = "********"
_TEXT_KINDS: Final = frozenset({"char", "varchar", "text", "enum", "set"})
"""The types that Debezium masks. It writes values of other types unchanged."""
_LENGTH_RULE: Final = re.compile(r"column\.(truncate\.to|mask\.with)\.(.*)\.chars", re.DOTALL)
_HASH_RULE: Final = re.compile(r"column\.mask\.hash\.(v2\.)?(.+?)\.with\.salt\.(.+)", re.DOTALL)
_MAX_LENGTH: Final = 2**31 - 1

ALGORITHMS: Final[Mapping[str, str]] = {
    "MD5": "md5",
    "SHA": "sha1",
    "SHA1": "sha1",
    "SHA-1": "sha1",
    **{f"SHA{dash}{bits}": f"sha{bits}" for bits in (224, 256, 384, 512) for dash in ("-", "")},
    **{f"SHA{dash}512/{bits}": f"sha512_{bits}" for bits in (224, 256) for dash in ("-", "")},
    **{f"SHA3-{bits}": f"sha3_{bits}" for bits in (224, 256, 384, 512)},
}
"""Java's names of hash algorithms, in upper case, and Python's."""


@dataclass(frozen=True, slots=True)
class Truncate:
    """Truncates text to ``length`` UTF-16 units, and binary strings to as many bytes."""

    length: int


@dataclass(frozen=True, slots=True)
class Mask:
    """Replaces every value, also NULL, with ``length`` asterisks."""

    length: int


@dataclass(frozen=True, slots=True)
class Hash:
    """Replaces text with the hash of salt and text in hexadecimal, truncated to the column's length. NULL is kept."""

    algorithm: str
    """Python's name of the algorithm."""
    salt: bytes = field(repr=False)
    plain: bool
    """The hash covers the text in UTF-8 (v2), not as Java serializes it (v1)."""


Transform = Truncate | Mask | Hash


@dataclass(frozen=True, slots=True)
class TransformRule:
    """One property that transforms columns. The salt in ``name`` is masked."""

    name: str
    text: str
    columns: tuple[re.Pattern[str], ...]
    transform: Transform

    def __str__(self) -> str:
        return f"{self.name}={self.text}"


@dataclass(frozen=True, slots=True)
class ColumnProjection:
    """The dropped and the transformed columns of one table version."""

    dropped: frozenset[str] = frozenset()
    """Names of columns that records do not contain."""
    transforms: Mapping[str, Transform] = field(default_factory=dict)
    """Transforms by column name."""

    def visible(self, columns: Iterable[Column]) -> list[Column]:
        """Return the columns that records contain."""
        return [column for column in columns if column.name not in self.dropped]


def without_salt(name: str) -> str:
    """Return the name of a property with its salt masked: the salt is a secret, although it is part of the name."""
    found = _HASH_RULE.fullmatch(name)
    if found:
        return name[: found.start(3)] + HIDDEN
    head = re.match(r"column\.mask\.hash\.(?:v2\.)?[^.]*\.", name)
    return head[0] + HIDDEN if head and head[0] != name else name


def read_rule(name: str, text: str) -> TransformRule:
    """Read one property. Raises InvalidExpressionError for an expression, a length or a hash that is not valid."""
    return TransformRule(without_salt(name), text, compile_list(text), _transform(name))


def _transform(name: str) -> Transform:
    number = _LENGTH_RULE.fullmatch(name)
    if number:
        if not re.fullmatch(r"[0-9]+", number[2]) or int(number[2]) > _MAX_LENGTH:
            raise InvalidExpressionError(f"{number[2]!r} is not a whole number of characters, at least 0")
        length = int(number[2])
        return Truncate(length) if number[1] == "truncate.to" else Mask(length)
    hashed = _HASH_RULE.fullmatch(name)
    if not hashed:
        raise InvalidExpressionError("the name is not of the form column.mask.hash.ALGORITHM.with.salt.SALT")
    algorithm = ALGORITHMS.get(hashed[2].upper())
    if algorithm is None or algorithm not in hashlib.algorithms_available:
        raise InvalidExpressionError(f"{hashed[2]!r} is not a known hash algorithm: use one of {', '.join(ALGORITHMS)}")
    return Hash(algorithm, hashed[3].encode(), plain=hashed[1] is not None)


class ColumnTransforms:
    """All rules of a configuration."""

    def __init__(
        self,
        column_filter: ColumnFilter,
        rules: Sequence[TransformRule] = (),
        *,
        source_types: str = "",
        source_types_by_type: str = "",
    ) -> None:
        """``source_types*`` are lists of expressions for ``db.table.column`` and for ``db.table.TYPE``."""
        self._filter = column_filter
        self._rules = tuple(rules)
        self._source_types = compile_list(source_types)
        self._by_type = compile_list(source_types_by_type)

    @property
    def trivial(self) -> bool:
        """Whether no column is dropped or transformed."""
        return self._filter.trivial and not self._rules

    def project(self, table: TableId, columns: Sequence[Column], key: Sequence[str]) -> ColumnProjection | None:
        """Return the projection of a table; None if it changes nothing. Raises SchemaError for its ``problems``."""
        if self.trivial:
            return None
        problems = self.problems(table, columns, key)
        if problems:
            raise SchemaError("; ".join(problems), hint="correct the column properties, or exclude the table")
        dropped = frozenset(column.name for column in columns if not self._filter.includes(table, column.name))
        transforms = {column.name: rule.transform for column in columns for rule in self._matching(table, column)}
        transforms = {name: transform for name, transform in transforms.items() if name not in dropped}
        return ColumnProjection(dropped, transforms) if dropped or transforms else None

    def carries_source_type(self, table: TableId, column: Column) -> bool:
        """Return whether a column's schema carries its source type. As in Debezium, a transformed column has none."""
        return self._is_selected_for_source_type(table, column) and not self._matching(table, column)

    def problems(self, table: TableId, columns: Sequence[Column], key: Sequence[str]) -> list[str]:
        """Return the reasons for which the rules cannot be applied to a table: one text for each column and rule."""
        found: list[str] = []
        for column in columns:
            name = f"{table}.{column.name}"
            if not self._filter.includes(table, column.name):
                if column.name in key:
                    found.append(
                        f"{self._filter} drops {name}, which is a key column: "
                        f"keep it, or set other key columns in message.key.columns"
                    )
                continue
            rules = self._matching(table, column)
            if len(rules) > 1:
                conflicting = " and ".join(map(str, rules))
                found.append(f"{name} is matched by properties of which only one can apply: {conflicting}")
            for rule in rules:
                if not isinstance(rule.transform, Truncate) and column.data_type not in _TEXT_KINDS:
                    found.append(
                        f"{rule} matches {name}, which is {source_type(column).name}: only text can be masked, so that "
                        f"its values would be written unchanged; drop it with column.exclude.list"
                    )
                elif isinstance(rule.transform, Hash) and self._is_selected_for_source_type(table, column):
                    found.append(
                        f"{rule} matches {name}, and so does column.propagate.source.type or "
                        f"datatype.propagate.source.type: Debezium would write its values unchanged; "
                        f"remove the column from one of them"
                    )
        return found

    def transformed_keys(self, table: TableId, columns: Sequence[Column], key: Sequence[str]) -> list[str]:
        """Return the key columns whose values are transformed in rows. Record keys keep the original values."""
        return [column.name for column in columns if column.name in key and self._matching(table, column)]

    def unmatched(self, columns: Iterable[tuple[TableId, Column]]) -> list[str]:
        """Return the rules that match none of these columns, for messages."""
        names = [f"{table}.{column.name}" for table, column in columns]
        return [str(rule) for rule in self._rules if not any(any_matches(rule.columns, name) for name in names)]

    def _matching(self, table: TableId, column: Column) -> list[TransformRule]:
        name = f"{table}.{column.name}"
        return [rule for rule in self._rules if any_matches(rule.columns, name)]

    def _is_selected_for_source_type(self, table: TableId, column: Column) -> bool:
        if any_matches(self._source_types, f"{table}.{column.name}"):
            return True
        return bool(self._by_type) and any_matches(self._by_type, f"{table}.{source_type(column).name}")
