"""Checks one Spark SQL expression against the columns of a table; nothing is computed.

An expression is allowed if its value depends on the row alone: no subquery, aggregate, window or generator, no random
value, no clock or user, and no function that somebody registered. Otherwise a record that is read a second time could
give another row.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from pyspark.errors import AnalysisException, ParseException
from pyspark.sql import functions as fn

from tailrace.spark_consumer.spark_line import range_of, silence_contexts
from tailrace.spark_consumer.transform.rules import Fragment

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql import types as tp

_SUBQUERIES: Final = {"ScalarSubquery", "Exists", "InSubquery", "ListQuery", "LateralSubquery"}
_WINDOWS: Final = {"WindowExpression", "UnresolvedWindowExpression"}
_OF_THE_SESSION: Final = {
    "CurrentCatalog",
    "CurrentDatabase",
    "CurrentDate",
    "CurrentTime",
    "CurrentTimestamp",
    "CurrentUser",
    "LocalTimestamp",
    "Now",
    "VariableReference",
}
"""Spark counts them as deterministic, because their value is fixed within one query."""
_REGISTERED: Final = {
    "ApplyFunctionExpression",
    "HiveGenericUDF",
    "HiveSimpleUDF",
    "PythonUDF",
    "SQLFunctionExpression",
    "ScalaUDF",
    "V2ScalarFunction",
}
_POSITION: Final = re.compile(r"\(line (\d+), pos (\d+)\)")
_SENTENCE: Final = re.compile(r"^\[[\w.]+\]\s*(.*?)\s*(?:SQLSTATE: \w+|\(line \d+|$)", re.DOTALL)


class FaultError(Exception):
    """An expression cannot be used; the text has the position of the fault."""


@dataclass(frozen=True, slots=True)
class Output:
    """One column that an item of a projection gives."""

    name: str
    type: tp.DataType
    nullable: bool
    source: str | None
    """The column that it passes through; None if it is computed."""
    references: frozenset[str]
    """The columns that the value depends on."""


@dataclass(frozen=True, slots=True)
class Item:
    """One item of a projection, checked."""

    fragment: Fragment
    is_star: bool
    outputs: tuple[Output, ...]


class Expressions:
    """Checks expressions against the columns of two empty DataFrames with the same session."""

    def __init__(self, columns: DataFrame, with_metadata: DataFrame) -> None:
        """``columns``: those of the table, which ``*`` stands for. ``with_metadata``: the metadata columns too."""
        silence_contexts()  # the faults are reported here
        self._columns = columns
        self._with_metadata = with_metadata
        self._parser: Any = columns.sparkSession._jsparkSession.sessionState().sqlParser()  # noqa: SLF001

    def item(self, fragment: Fragment) -> Item:
        """Return an item of a projection. Raises FaultError."""
        parsed = self._parse(fragment)
        is_star = _name(parsed).startswith("UnresolvedStar")
        if not is_star and _name(parsed) not in {"Alias", "UnresolvedAttribute"}:
            raise FaultError(fragment.fault("a computed column needs a name: add AS and the name", 0, _last(fragment)))
        outputs = self._analyze(fragment, self._columns if is_star else self._with_metadata)
        return Item(fragment, is_star, outputs)

    def condition(self, fragment: Fragment) -> frozenset[str]:
        """Check a filter and return the columns that it uses. Raises FaultError."""
        if _name(self._parse(fragment)) == "Alias":
            raise FaultError(fragment.fault("a filter has no name", 0, _last(fragment)))
        [output] = self._analyze(fragment, self._with_metadata)
        if output.type.simpleString() != "boolean":
            message = f"a filter is true or false, and this is of the type {output.type.simpleString()}"
            raise FaultError(fragment.fault(message, 0, _last(fragment)))
        return output.references

    def _parse(self, fragment: Fragment) -> Any:
        try:
            parsed = self._parser.parseExpression(fragment.text)
        except ParseException as error:
            raise FaultError(fragment.fault(_sentence(error), _position(fragment, error))) from None
        if _name(parsed).startswith("UnresolvedStar"):
            return parsed
        for node in _nodes(parsed):
            if _name(node) in _SUBQUERIES:
                raise FaultError(
                    _fault_at(fragment, node, "a subquery is not allowed: the value must depend on the row")
                )
            if _name(node) in _WINDOWS:
                raise FaultError(_fault_at(fragment, node, "a window is not allowed: the value must depend on the row"))
            if _name(node).startswith("UnresolvedStar"):
                raise FaultError(_fault_at(fragment, node, "* is not allowed within an expression"))
        return parsed

    def _analyze(self, fragment: Fragment, frame: DataFrame) -> tuple[Output, ...]:
        try:
            found = frame.select(fn.expr(fragment.text))
        except AnalysisException as error:
            raise FaultError(fragment.fault(_sentence(error), *range_of(error))) from None
        plan: Any = found._jdf.queryExecution().analyzed()  # noqa: SLF001
        if plan.nodeName() != "Project" or not plan.child().children().isEmpty():
            message = "an aggregate or a function that returns rows is not allowed: the value must depend on the row"
            raise FaultError(fragment.fault(message, 0, _last(fragment)))
        columns = list(_sequence(plan.projectList()))
        for column in columns:
            _check(fragment, column)
        return tuple(
            Output(field.name, field.dataType, field.nullable, _passed_through(column), _references(column))
            for field, column in zip(found.schema.fields, columns, strict=True)
        )


def _check(fragment: Fragment, expression: Any) -> None:
    for node in _nodes(expression):
        name = _name(node)
        if name in _REGISTERED:
            raise FaultError(_fault_at(fragment, node, "only functions of Spark are allowed, not registered ones"))
        if name in _OF_THE_SESSION:
            message = "the value must depend on the row, and this one depends on the time or on the session"
            raise FaultError(_fault_at(fragment, node, message))
    if not expression.deterministic():
        at = next((node for node in _nodes(expression) if _is_random(node)), expression)
        raise FaultError(_fault_at(fragment, at, "the value is another one each time it is computed"))


def _is_random(node: Any) -> bool:
    return not node.deterministic() and all(child.deterministic() for child in _sequence(node.children()))


def _passed_through(column: Any) -> str | None:
    inner = column.child() if _name(column) == "Alias" else column
    return str(inner.name()) if _name(inner) == "AttributeReference" else None


def _references(column: Any) -> frozenset[str]:
    return frozenset(str(each.name()) for each in _sequence(column.references().toSeq()))


def _nodes(expression: Any) -> Iterator[Any]:
    yield expression
    for child in _sequence(expression.children()):
        yield from _nodes(child)


def _sequence(found: Any) -> Iterator[Any]:
    for index in range(found.size()):
        yield found.apply(index)


def _name(node: Any) -> str:
    return str(node.getClass().getSimpleName())


def _last(fragment: Fragment) -> int:
    return len(fragment.text) - 1


def _fault_at(fragment: Fragment, node: Any, message: str) -> str:
    origin = node.origin()
    if origin.startIndex().isEmpty():
        return fragment.fault(message, 0, _last(fragment))
    return fragment.fault(message, origin.startIndex().get(), origin.stopIndex().get())


def _position(fragment: Fragment, error: ParseException) -> int:
    found = _POSITION.search(str(error))
    if found is None:
        return 0
    lines = fragment.text.splitlines(keepends=True)
    return sum(map(len, lines[: int(found[1]) - 1])) + int(found[2])


def _sentence(error: AnalysisException) -> str:
    """Return the message of an error of Spark without its class, SQL state and plan."""
    found = _SENTENCE.match(str(error).lstrip())
    text = found[1] if found else str(error).strip().splitlines()[0]
    return re.sub(r"\s+", " ", text).rstrip(". ")
