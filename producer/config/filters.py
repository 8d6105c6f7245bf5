r"""Filters of databases, tables and columns: Debezium's include and exclude lists of regular expressions.

Expressions are separated by commas; ``\,`` is a comma within an expression; blanks around an expression are ignored. An
expression must match the whole of ``db``, ``db.table`` or ``db.table.column``; the case of ASCII letters is ignored.
Expressions have Java's syntax. An expression that has another meaning in Python is rejected: of the groups ``(?…``, all
that are not listed here. An engine of linear time (RE2) has no look-ahead, which such lists use.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

from tailrace.producer.model.table import Column, TableId
from tailrace.runtime.config.value_types import InvalidValueError

BUILT_IN_DATABASES = frozenset({"mysql", "performance_schema", "sys", "information_schema"})

# In Java, \w, \d, \s and case-insensitivity cover ASCII only. re.ASCII has the same effect in Python.
_FLAGS = re.IGNORECASE | re.ASCII

_JAVA_ONLY_ESCAPES = {
    "p": "a class by property",
    "P": "a class by property",
    "Q": "quoting",
    "E": "quoting",
    "h": "horizontal white space",
    "H": "horizontal white space",
    "v": "vertical white space",
    "V": "vertical white space",
    "R": "a line break",
    "X": "a grapheme",
    "N": "a character by name",
    "G": "the end of the last match",
    "Z": "the end of the input",
    "z": "the end of the input",
    "c": "a control character",
    "e": "the escape character",
    "k": "a reference by name",
    "0": "an octal number",
}


GROUP: Final = re.compile(r"\?(?:<[=!]|[=!>]|[ism]*(?:-[ism]+)?[:)])")
"""What may follow the parenthesis of a group: look-around, an atomic group, flags, or no reference."""


class InvalidExpressionError(InvalidValueError):
    """An expression cannot be used; the message says which and why."""


def split_list(text: str) -> tuple[str, ...]:
    r"""Split a list at its commas; ``\,`` becomes a comma, other escapes are kept, empty parts are dropped."""
    parts = re.findall(r"(?:\\.|[^,\\])+", text, re.DOTALL)
    if len(text) - len(text.rstrip("\\")) & 1:
        raise InvalidExpressionError(f"{text!r} ends in the middle of an escape")
    return tuple(part.strip().replace("\\,", ",") for part in parts if part.strip())


def compile_expression(expression: str) -> re.Pattern[str]:
    """Compile a Java regular expression. Raises InvalidExpressionError if Python has no equivalent."""
    difference = _java_only(expression)
    if difference:
        raise InvalidExpressionError(f"{expression!r} uses {difference}, which is not supported: write it without")
    try:
        return re.compile(expression, _FLAGS)
    except (re.error, OverflowError) as error:
        raise InvalidExpressionError(f"{expression!r} is not a regular expression: {error}") from None


def _java_only(expression: str) -> str:
    """Return the first construct that has another meaning in Java than in Python, or ''."""
    in_class = False
    at = 0
    while at < len(expression):
        char, rest = expression[at], expression[at:]
        if char == "\\":
            if rest[1:2] in _JAVA_ONLY_ESCAPES:
                return f"{rest[:2]} ({_JAVA_ONLY_ESCAPES[rest[1]]})"
            if rest.startswith("\\x{"):
                return "\\x{…} (a character by number)"
            at += 1
        elif in_class:
            if char == "[" or rest.startswith("&&"):
                return "a class within a class, or an intersection of classes (&&)"
            in_class = char != "]"
        elif char == "[":
            in_class = True
            at += rest.startswith("[^")
            if expression.startswith("]", at + 1):
                return "']' as the first member of a class"
        elif rest.startswith("(?") and (found := _java_group(rest, first=at == 0)):
            return found
        at += 1
    return ""


def _java_group(rest: str, *, first: bool) -> str:
    """``(?#…)`` and ``(?(1)…)`` are Python's alone, ``(?<name>…)`` is Java's: only what both have is let through."""
    known = GROUP.match(rest, 1)
    if known is None:
        return f"the group {rest[:4]}…"
    return f"the flags ({known[0]} at this place" if known[0].endswith(")") and not first else ""


def compile_list(text: str) -> tuple[re.Pattern[str], ...]:
    """Compile every expression of a list."""
    return tuple(compile_expression(part) for part in split_list(text))


def any_matches(patterns: Iterable[re.Pattern[str]], name: str) -> bool:
    """Return whether one of the expressions matches the whole name."""
    return any(pattern.fullmatch(name) for pattern in patterns)


class _Selector:
    """A pair of include and exclude lists; a class and not a closure, so that filters can be pickled."""

    def __init__(self, include: str, exclude: str) -> None:
        self._include = compile_list(include)
        self._exclude = compile_list(exclude)

    def __call__(self, name: str) -> bool:
        if self._include:
            return any_matches(self._include, name)
        return not any_matches(self._exclude, name)


_MAX_CACHED_NAMES = 50_000


class TableFilter:
    """Selects databases and tables. Raises InvalidExpressionError if an expression cannot be used."""

    def __init__(
        self,
        *,
        database_include: str = "",
        database_exclude: str = "",
        table_include: str = "",
        table_exclude: str = "",
        ignore_built_in: bool = True,
    ) -> None:
        self._ignored = BUILT_IN_DATABASES if ignore_built_in else frozenset()
        self._database = _Selector(database_include, database_exclude)
        self._table = _Selector(table_include, table_exclude)
        self._cache: dict[TableId, bool] = {}

    def includes_database(self, database: str) -> bool:
        """Return whether tables of a database can be captured."""
        return database.lower() not in self._ignored and self._database(database)

    def includes(self, table: TableId) -> bool:
        """Return whether a table is captured."""
        known = self._cache.get(table)
        if known is None:
            known = self.includes_database(table.database) and self._table(f"{table.database}.{table.table}")
            if len(self._cache) >= _MAX_CACHED_NAMES:
                self._cache.clear()
            self._cache[table] = known
        return known


class ColumnFilter:
    """Selects columns of captured tables, by ``db.table.column``."""

    def __init__(self, *, include: str = "", exclude: str = "") -> None:
        self._column = _Selector(include, exclude)
        self.trivial = not split_list(include) and not split_list(exclude)
        """Whether every column is included."""
        self._text = f"column.include.list={include}" if split_list(include) else f"column.exclude.list={exclude}"

    def __str__(self) -> str:
        return self._text

    def includes(self, table: TableId, column: str) -> bool:
        """Return whether a column of a captured table is captured."""
        return self._column(f"{table.database}.{table.table}.{column}")


@dataclass(frozen=True, slots=True)
class MessageKeys:
    """``message.key.columns``: key columns that replace the primary keys of some tables, as ``db.table:c1,c2``."""

    expressions: tuple[re.Pattern[str], ...] = field(default=())
    """One for each column, matching the whole of ``db.table.column``."""
    entries: tuple[tuple[str, tuple[re.Pattern[str], ...]], ...] = field(default=())
    """The text of each entry, and its expressions."""

    @classmethod
    def parse(cls, text: str) -> MessageKeys:
        """Read the property. Raises InvalidExpressionError for an entry that is not valid."""
        entries: list[tuple[str, tuple[re.Pattern[str], ...]]] = []
        for entry in filter(str.strip, text.split(";")):
            if not re.fullmatch(r"\s*[^:]+:[^:,]+(,[^:,]+)*\s*", entry):
                raise InvalidExpressionError(f"{entry.strip()!r} is not of the form db.table:column,column")
            table, _, columns = entry.partition(":")
            patterns = tuple(compile_expression(f"{table.strip()}.{column.strip()}") for column in columns.split(","))
            entries.append((entry.strip(), patterns))
        return cls(tuple(each for _, patterns in entries for each in patterns), tuple(entries))

    def problems(self, table: TableId, names: Sequence[str]) -> list[str]:
        """Return one text for each entry of which a table has some columns, but not all."""
        found = []
        for text, expressions in self.entries:
            matched = [any(each.fullmatch(f"{table}.{name}") for name in names) for each in expressions]
            if any(matched) and not all(matched):
                columns = text.partition(":")[2].split(",")
                missing = [column for column, found_here in zip(columns, matched, strict=True) if not found_here]
                found.append(
                    f"message.key.columns: {text!r} names columns that {table} does not have: "
                    f"{', '.join(map(str.strip, missing))}"
                )
        return found

    def unmatched(self, columns: Iterable[tuple[TableId, Column]]) -> list[str]:
        """Return the entries that match none of these columns, for messages."""
        names = [f"{table}.{column.name}" for table, column in columns]
        return [
            f"message.key.columns={text}"
            for text, expressions in self.entries
            if not any(any_matches(expressions, name) for name in names)
        ]

    def columns(self, table: TableId, names: Iterable[str]) -> tuple[str, ...]:
        """Return the key columns that are set for a table, in the given order; () if none is."""
        every = tuple(names)
        found: dict[str, None] = {}
        for expression in self.expressions:
            for name in every:
                if expression.fullmatch(f"{table.database}.{table.table}.{name}"):
                    found[name] = None
        return tuple(found)
