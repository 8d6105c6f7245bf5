"""Table expressions of signals: the regular expressions of the filters, bounded in the time that they can take.

A signal may come from anyone who may write to a channel, and it is matched on the stream's thread. So an expression is
refused if the number of ways in which it can match a name is too great, before it is compiled.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from tailrace.producer.config.filters import InvalidExpressionError, compile_expression
from tailrace.producer.model.table import TableId

MAX_LENGTH: Final = 1_000
MAX_NESTING: Final = 20
MAX_COST: Final = 3_000_000
"""Of one expression: three wildcards."""
MAX_TOTAL_COST: Final = 1_000_000_000
"""Of all expressions of a signal, for all captured tables: some seconds."""
_CALL_COST: Final = 20
_NAME_LENGTH: Final = 130
"""Length of the longest ``db.table``."""
_MAX_COUNT: Final = 1_000
_COUNT: Final = re.compile(r"\{(\d{0,9})(,?)(\d{0,9})\}")
_GROUP_PREFIX: Final = re.compile(r"\?(?:<[=!]|[=!>]|[a-zA-Z-]*:)")
_GROUP_FLAGS: Final = re.compile(r"\?[a-zA-Z-]*\)")
_PLAIN_NAME: Final = re.compile(r"[A-Za-z0-9_-]+\\?\.[A-Za-z0-9_-]+")
"""Without characters that have a meaning, except the one between database and table: it matches only itself."""


@dataclass(frozen=True, slots=True)
class TableExpression:
    """An expression for ``db.table``."""

    text: str
    cost: int
    """An upper bound of the steps that a match of one name takes; 0: the expression is the name of a table."""

    @classmethod
    def parse(cls, text: str) -> TableExpression:
        """Check an expression. Raises InvalidExpressionError."""
        if len(text) > MAX_LENGTH:
            raise InvalidExpressionError(f"{text[:50]!r}... has more than {MAX_LENGTH} characters")
        if _PLAIN_NAME.fullmatch(text):
            return cls(text, 0)
        cost = _Cost(text).read()
        compile_expression(text)
        return cls(text, cost)

    def fullmatch(self, name: str) -> bool:
        """Return whether the expression matches the whole name."""
        if not self.cost:
            return name.lower() == self._name
        return compile_expression(self.text).fullmatch(name) is not None

    def among(self, tables: TableNames) -> list[TableId]:
        """Return the tables that the expression matches."""
        if not self.cost:
            return tables.by_name.get(self._name, [])
        matches = compile_expression(self.text).fullmatch
        return [table for table in tables.tables if matches(str(table))]

    @property
    def _name(self) -> str:
        return self.text.replace("\\", "").lower()


class TableNames:
    """Tables that expressions select from."""

    def __init__(self, tables: Iterable[TableId]) -> None:
        self.tables = sorted(tables)
        self.by_name: dict[str, list[TableId]] = defaultdict(list)
        for table in self.tables:
            self.by_name[str(table).lower()].append(table)

    def require_bounded(self, expressions: Sequence[TableExpression]) -> None:
        """Raise InvalidExpressionError if matching all expressions may take too long."""
        cost = sum(expression.cost + _CALL_COST for expression in expressions if expression.cost)
        if cost * len(self.tables) > MAX_TOTAL_COST:
            raise InvalidExpressionError(
                f"{len(expressions)} expressions may take too long to match {len(self.tables)} tables: "
                "use fewer expressions, with fewer wildcards"
            )


class _Cost:
    """Counts the ways in which an expression can match a name; refuses what has no useful bound."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._depth = 0

    def read(self) -> int:
        cost = self._alternatives()
        if self._at < len(self._text):
            raise InvalidExpressionError(f"{self._text!r} has a closing parenthesis too many")
        return cost

    def _next_is(self, chars: str) -> bool:
        return self._at < len(self._text) and self._text[self._at] in chars

    def _alternatives(self) -> int:
        cost = self._sequence()
        while self._next_is("|"):
            self._at += 1
            cost += self._sequence()
        return cost

    def _sequence(self) -> int:
        cost = 1
        while self._at < len(self._text) and self._text[self._at] not in "|)":
            cost *= self._repeated()
            if cost > MAX_COST:
                raise InvalidExpressionError(f"{self._text!r} may take too long to match: use fewer wildcards")
        return cost

    def _repeated(self) -> int:
        body = self._atom()
        if self._next_is("*+?"):
            char = self._text[self._at]
            self._at += 1
            low, high = {"*": (0, None), "+": (1, None), "?": (0, 1)}[char]
        elif found := _COUNT.match(self._text, self._at):
            self._at = found.end()
            low, high = int(found[1] or 0), int(found[3]) if found[3] else None
            high = high if found[2] else low
        else:
            return body
        if self._next_is("?+"):
            self._at += 1
        if max(low, high or 0) > _MAX_COUNT:
            raise InvalidExpressionError(f"{self._text!r} repeats a part more than {_MAX_COUNT} times")
        if high == 1:
            return body + 1 - low
        if body == 1:
            return max(1, min(_NAME_LENGTH, high if high is not None else _NAME_LENGTH) - low + 1)
        raise InvalidExpressionError(
            f"{self._text!r} repeats a group that matches in several ways: it may take too long to match"
        )

    def _atom(self) -> int:
        char = self._text[self._at]
        self._at += 1
        if char == "\\":
            self._at += 1
        elif char == "[":
            self._skip_class()
        elif char == "(":
            return self._group()
        return 1

    def _skip_class(self) -> None:
        """Skip a class; the syntax check after this one refuses ``]`` as its first member."""
        while self._at < len(self._text) and self._text[self._at] != "]":
            self._at += 2 if self._text[self._at] == "\\" else 1
        self._at += 1

    def _group(self) -> int:
        if flags := _GROUP_FLAGS.match(self._text, self._at):
            self._at = flags.end()
            return 1
        if prefix := _GROUP_PREFIX.match(self._text, self._at):
            self._at = prefix.end()
        self._depth += 1
        if self._depth > MAX_NESTING:
            raise InvalidExpressionError(f"{self._text[:50]!r}... has more than {MAX_NESTING} nested groups")
        cost = self._alternatives()
        self._depth -= 1
        self._at += 1  # the closing parenthesis; the syntax check after this one finds a missing one
        return cost
