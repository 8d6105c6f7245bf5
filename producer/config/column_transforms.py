"""Column transforms: which columns are dropped, masked, hashed or truncated, and whose schemas carry the source type.

A rule is a list of regular expressions for ``db.table.column``. In Debezium only the first kind of rule that matches a
column applies: truncate, mask, source type, hash. That may let a value through that another rule hides, so Tailrace
rejects rules that contradict each other. Record keys are never changed.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from tailrace.producer.config.filters import InvalidExpressionError, compile_list
from tailrace.producer.model.table import Column

HIDDEN: Final = "********"
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
    # Also in a name that is misspelled, before its error is printed.
    head = re.match(r"column\.mask\.hash\.(?:v2\.)?[^.]*\.|.*with\.salt\.", name)
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
