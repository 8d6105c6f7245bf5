"""The rules of the configuration: which tables they are for, and their texts; the words are those of Flink CDC.

The first transform that matches a table is the one that it gets, and likewise the first route. The texts are lists of
expressions; a message shows the position of a fault.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final, TypeVar

from tailrace.spark_consumer.source.topics import split_expressions

_OPENING: Final = {"(": ")", "[": "]", "{": "}"}
_TOKEN: Final = re.compile(
    r"""
    (?P<comment>--[^\n]*)
    | (?P<block>/\*)
    | (?P<raw>(?<![\w`])[rR](?:'[^']*'|"[^"]*"))
    | (?P<text>'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"|`[^`]*`)
    | (?P<open>['"`])
    | (?P<sign>[][(){},])
    """,
    re.VERBOSE | re.DOTALL,
)


@dataclass(frozen=True, slots=True)
class Source:
    """The text of a setting."""

    setting: str
    text: str


@dataclass(frozen=True, slots=True)
class Fragment:
    """A part of the text of a setting."""

    source: Source
    start: int
    text: str

    def fault(self, message: str, index: int = 0, stop: int | None = None) -> str:
        """Return a message with the position of a fault: ``index`` to ``stop`` in this part, both included."""
        at = min(self.start + max(index, 0), len(self.source.text))
        before = self.source.text[:at]
        line, column = before.count("\n") + 1, at - (before.rfind("\n") + 1)
        shown = self.source.text.splitlines()[line - 1] if self.source.text.strip() else ""
        length = 1 if stop is None else max(1, min(stop - index + 1, len(shown) - column))
        marked = re.sub(r"[^\t]", " ", shown[:column]) + "^" * length
        return f"{self.source.setting}, line {line}, column {column + 1}: {message}\n    {shown}\n    {marked}"


class UnbalancedTextError(ValueError):
    """A quote or a parenthesis is not closed; the message has the position."""


def split_list(source: Source) -> list[Fragment]:
    """Return the parts of a list of expressions, as commas outside of quotes, parentheses and comments separate them.

    An empty part is kept: the parser of the expressions reports it.
    """
    return list(_parts(source))


def _parts(source: Source) -> Iterator[Fragment]:
    whole = Fragment(source, 0, source.text)
    open_signs: list[tuple[str, int]] = []
    start = position = 0
    while (found := _TOKEN.search(source.text, position)) is not None:
        position = found.end()
        kind, sign = found.lastgroup, found[0]
        if kind == "block":
            position = _end_of_block(whole, found.start())
        elif kind == "open":
            raise UnbalancedTextError(whole.fault(f"the quote {sign} is not closed", found.start()))
        elif kind == "sign" and sign in _OPENING:
            open_signs.append((_OPENING[sign], found.start()))
        elif kind == "sign" and sign == ",":
            if not open_signs:
                yield _stripped(source, start, found.start())
                start = position
        elif kind == "sign" and (not open_signs or open_signs.pop()[0] != sign):
            raise UnbalancedTextError(whole.fault(f"{sign} closes nothing", found.start()))
    if open_signs:
        raise UnbalancedTextError(whole.fault(f"{source.text[open_signs[-1][1]]} is not closed", open_signs[-1][1]))
    yield _stripped(source, start, len(source.text))


def _end_of_block(whole: Fragment, start: int) -> int:
    depth = 0
    for found in re.finditer(r"/\*|\*/", whole.text[start:]):
        depth += 1 if found[0] == "/*" else -1
        if depth == 0:
            return start + found.end()
    raise UnbalancedTextError(whole.fault("the comment is not closed", start))


def _stripped(source: Source, start: int, end: int) -> Fragment:
    text = source.text[start:end]
    return Fragment(source, start + len(text) - len(text.lstrip()), text.strip())


_GROUP: Final = re.compile(r"\$(\d)")

Tables = tuple[re.Pattern[str], ...]
"""Expressions of ``db.table``; one of them matches a whole name, without regard to case."""


@dataclass(frozen=True, slots=True)
class TransformRule:
    """What is done with the rows of some tables."""

    name: str
    tables: Tables
    projection: tuple[Fragment, ...] = ()
    """The columns of the target; empty: all columns of the source."""
    filter: Fragment | None = None
    """Which rows the target has; None: all rows."""
    primary_keys: tuple[Fragment, ...] = ()
    """The key of the target; empty: the key of the source."""

    @property
    def items(self) -> tuple[Fragment, ...]:
        """The projection."""
        return self.projection or (Fragment(Source(f"transforms.{self.name}.projection", "*"), 0, "*"),)


@dataclass(frozen=True, slots=True)
class RouteRule:
    """The name of the target of some tables; ``$1`` is the first group of the expression."""

    name: str
    tables: Tables
    target: str

    def apply(self, database: str, table: str) -> tuple[str, str] | None:
        """Return database and table of the target; None if the rule is not for the table."""
        for expression in self.tables:
            found = expression.fullmatch(f"{database}.{table}")
            if found is not None:
                parts = _GROUP.split(self.target)
                # Every second part is the number of a group.
                name = "".join((found[int(part)] or "") if at % 2 else part for at, part in enumerate(parts))
                first, _, second = name.partition(".")
                return first, second
        return None


@dataclass(frozen=True, slots=True)
class Rules:
    """All rules of a query."""

    transforms: tuple[TransformRule, ...] = ()
    routes: tuple[RouteRule, ...] = ()

    def transform_of(self, database: str, table: str) -> TransformRule | None:
        """Return the transform of a table."""
        return next((rule for rule in self.transforms if _matches(rule.tables, database, table)), None)

    def target_of(self, database: str, table: str) -> tuple[str, str]:
        """Return database and table of the target of a table."""
        found = (rule.apply(database, table) for rule in self.routes)
        return next((target for target in found if target is not None), (database, table))


def _matches(tables: Iterable[re.Pattern[str]], database: str, table: str) -> bool:
    return any(expression.fullmatch(f"{database}.{table}") for expression in tables)


def groups_used(target: str) -> set[int]:
    """Return the numbers of the groups that the target of a route names."""
    return {int(found[1]) for found in _GROUP.finditer(target)}


TRANSFORM_WORDS: Final = ("source-table", "projection", "filter", "primary-keys")
ROUTE_WORDS: Final = ("source-table", "sink-table")
_NAME: Final = re.compile(r"[\w-]+")

Rule = TypeVar("Rule")


def read_rules(
    transforms: str | None, transform_settings: Mapping[str, str], routes: str | None, route_settings: Mapping[str, str]
) -> tuple[Rules, list[str]]:
    """Return the rules and all problems of their settings.

    ``transforms`` and ``routes`` are the lists of names. The settings are those under ``transforms.`` and ``routes.``.
    """
    problems: list[str] = []
    first = _Reader("transforms", TRANSFORM_WORDS, transform_settings, problems)
    second = _Reader("routes", ROUTE_WORDS, route_settings, problems)
    return Rules(first.read(transforms, first.transform), second.read(routes, second.route)), problems


class _Reader:
    def __init__(self, kind: str, words: Iterable[str], settings: Mapping[str, str], problems: list[str]) -> None:
        self._kind = kind
        self._words = tuple(words)
        self._settings = settings
        self._problems = problems

    def read(self, listed: str | None, make: Callable[[str], Rule | None]) -> tuple[Rule, ...]:
        """Return the rules that are listed."""
        names = [name.strip() for name in (listed or "").split(",") if name.strip()]
        for name in sorted({name for name in names if names.count(name) > 1}):
            self._problems.append(f"{self._kind}: {name} is listed twice")
        names = list(dict.fromkeys(names))
        for name in names:
            if not _NAME.fullmatch(name):
                self._problems.append(f"{self._kind}: {name!r} is not a name of letters, digits, '_' and '-'")
        for setting in sorted(self._settings):
            name, _, word = setting.partition(".")
            if word not in self._words:
                self._problems.append(
                    f"{self._kind}.{setting} is not a known property; there are "
                    + ", ".join(f"{self._kind}.{name}.{each}" for each in self._words)
                )
            elif name not in names:
                self._problems.append(f"{self._kind}.{setting} belongs to no rule: add {name} to {self._kind}")
        return tuple(rule for name in names if _NAME.fullmatch(name) and (rule := make(name)) is not None)

    def transform(self, name: str) -> TransformRule | None:
        """Return one transform."""
        tables = self._tables(name)
        projection = self._list(name, "projection")
        primary_keys = self._list(name, "primary-keys")
        condition = self._list(name, "filter")
        if not (self._text(name, "projection").strip() or self._text(name, "filter").strip()):
            self._problems.append(f"transforms.{name} has no effect: set transforms.{name}.projection or .filter")
        if len(condition) > 1:
            self._problems.append(condition[1].fault("a filter is one expression"))
            condition = condition[:1]
        return TransformRule(name, tables, projection, condition[0] if condition else None, primary_keys)

    def route(self, name: str) -> RouteRule | None:
        """Return one route."""
        tables = self._tables(name)
        target = self._text(name, "sink-table").strip()
        if not re.fullmatch(r"[^.]+\..+", target, re.DOTALL):
            self._problems.append(
                f"routes.{name}.sink-table: {target!r} is not a name such as shop.orders or $1.orders"
            )
            return None
        most = min((expression.groups for expression in tables), default=9)
        missing = sorted(number for number in groups_used(target) if number > most)
        if missing:
            self._problems.append(
                f"routes.{name}.sink-table: ${missing[0]} is not a group of routes.{name}.source-table, "
                f"which has {most}"
            )
            return None
        return RouteRule(name, tables, target)

    def _text(self, name: str, word: str) -> str:
        return self._settings.get(f"{name}.{word}", "")

    def _list(self, name: str, word: str) -> tuple[Fragment, ...]:
        source = Source(f"{self._kind}.{name}.{word}", self._text(name, word))
        if not source.text.strip():
            return ()
        try:
            return tuple(split_list(source))
        except UnbalancedTextError as error:
            self._problems.append(str(error))
            return ()

    def _tables(self, name: str) -> Tables:
        setting, text = f"{self._kind}.{name}.source-table", self._text(name, "source-table")
        parts = split_expressions(text)
        if not parts:
            self._problems.append(f"{setting} is missing: regular expressions of db.table, separated by commas")
        found = []
        for part in parts:
            try:
                found.append(re.compile(part, re.IGNORECASE))
            except re.error as error:
                self._problems.append(f"{setting}: {part!r} is not a regular expression: {error}")
        return tuple(found)
