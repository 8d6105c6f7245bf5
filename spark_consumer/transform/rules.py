"""The rules of the configuration: which tables they are for, and their texts; the words are those of Flink CDC.

The first transform that matches a table is the one that it gets, and likewise the first route.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from tailrace.spark_consumer.transform.text import Fragment, Source

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
