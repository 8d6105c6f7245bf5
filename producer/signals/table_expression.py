"""Table expressions of signals: the regular expressions of the filters, bounded in the time that they can take.

A signal may come from anyone who may write to a channel, and it is matched on the stream's thread. So an expression is
refused if a match may take too many steps, before it is compiled. Each construct that is accepted has a bound here.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from tailrace.producer.config.filters import GROUP, InvalidExpressionError, compile_expression
from tailrace.producer.model.table import TableId

MAX_LENGTH: Final = 1_000
MAX_NESTING: Final = 20
MAX_COST: Final = 30_000_000
"""Of one expression: three wildcards."""
MAX_TOTAL_COST: Final = 2_000_000_000
"""Of all expressions of a signal, for all captured tables: seconds."""
_CALL_COST: Final = 20
_NAME_LENGTH: Final = 130
"""Length of the longest ``db.table``."""
_MAX_COUNT: Final = 1_000
_COUNT: Final = re.compile(r"\{([0-9]*)(,?)([0-9]*)\}")
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
        if not self.cost:
            return name.lower() == self._name
        return compile_expression(self.text).fullmatch(name) is not None

    def among(self, tables: TableNames) -> list[TableId]:
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


class _Bound(NamedTuple):
    """Of a part of an expression, for a match that starts at one place of a name."""

    choices: int
    """In how many forms it can match."""
    steps: int
    """The number of steps to try all of them."""


class _Cost:
    """Counts the steps that an expression can take for a name; refuses what has no useful bound."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._depth = 0

    def read(self) -> int:
        cost = self._alternatives()
        if self._at < len(self._text):
            raise InvalidExpressionError(f"{self._text!r} has a closing parenthesis too many")
        return cost.steps

    def _next_is(self, chars: str) -> bool:
        return self._at < len(self._text) and self._text[self._at] in chars

    def _alternatives(self) -> _Bound:
        choices, steps = self._sequence()
        while self._next_is("|"):
            self._at += 1
            more = self._sequence()
            choices, steps = choices + more.choices, steps + more.steps
        return _Bound(choices, steps)

    def _sequence(self) -> _Bound:
        choices = steps = 1
        while self._at < len(self._text) and self._text[self._at] not in "|)":
            part = self._repeated()
            choices, steps = choices * part.choices, steps + choices * part.steps
            if steps > MAX_COST:
                raise InvalidExpressionError(f"{self._text!r} may take too long to match: use fewer wildcards")
        return _Bound(choices, steps)

    def _repeated(self) -> _Bound:
        body = self._atom()
        if self._next_is("*+?"):
            char = self._text[self._at]
            self._at += 1
            low, high = {"*": (0, _MAX_COUNT), "+": (1, _MAX_COUNT), "?": (0, 1)}[char]
        elif found := _COUNT.match(self._text, self._at):
            self._at = found.end()
            low, high = self._count(found[1], 0), self._count(found[3], _MAX_COUNT)
            high = high if found[2] else low
        else:
            return body
        if self._next_is("?+"):
            self._at += 1
        if high == 1:
            return _Bound(body.choices + 1 - low, body.steps + 1)
        if body.choices > 1:
            raise InvalidExpressionError(
                f"{self._text!r} repeats a group that matches in several ways: it may take too long to match"
            )
        # What is matched beyond the least number has a character at least.
        optional = max(0, min(_NAME_LENGTH, high - low))
        return _Bound(optional + 1, (low + optional) * body.steps + optional + 1)

    def _count(self, digits: str, default: int) -> int:
        if len(digits) > len(str(_MAX_COUNT)) or int(digits or default) > _MAX_COUNT:
            raise InvalidExpressionError(f"{self._text!r} repeats a part more than {_MAX_COUNT} times")
        return int(digits or default)

    def _atom(self) -> _Bound:
        char = self._text[self._at]
        self._at += 1
        if char == "\\":
            self._at += 1
            # A reference to a group has the length of what the group matched.
            return _Bound(1, _NAME_LENGTH if self._text[self._at - 1 : self._at].isdigit() else 1)
        if char == "[":
            self._skip_class()
        elif char == "(":
            return self._group()
        return _Bound(1, 1)

    def _skip_class(self) -> None:
        """Skip a class; the syntax check after this one refuses ``]`` as its first member."""
        while self._at < len(self._text) and self._text[self._at] != "]":
            self._at += 2 if self._text[self._at] == "\\" else 1
        self._at += 1

    def _group(self) -> _Bound:
        if self._next_is("?"):
            prefix = GROUP.match(self._text, self._at)
            if prefix is None:
                raise InvalidExpressionError(f"{self._text!r} has a group that is not supported: write it without")
            self._at = prefix.end()
            if prefix[0].endswith(")"):
                return _Bound(1, 1)
        self._depth += 1
        if self._depth > MAX_NESTING:
            raise InvalidExpressionError(f"{self._text[:50]!r}... has more than {MAX_NESTING} nested groups")
        found = self._alternatives()
        self._depth -= 1
        self._at += 1  # the closing parenthesis; the syntax check after this one finds a missing one
        return found
