"""Compares what two connectors wrote for the same changes, record by record and token by token.

Every difference is covered by a named exception, or it is a difference. Compared are keys, values, headers, partitions,
and for every key the order of its records.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest

from tests.debezium_parity.difference import Difference, NamedException
from tests.debezium_parity.rows import Row, render
from tests.debezium_parity.tokens import Tree, member


@dataclass(frozen=True)
class Report:
    """What a comparison found, by table."""

    equal: Counter[str] = field(default_factory=Counter)
    """Records without any difference but ``quiet`` exceptions."""
    excepted: defaultdict[str, Counter[str]] = field(default_factory=lambda: defaultdict(Counter))
    """Table -> name of the exception -> records that it covers something of."""
    different: defaultdict[str, list[Difference]] = field(default_factory=lambda: defaultdict(list))
    """Table -> differences that nothing covers."""
    values: defaultdict[tuple[str, str], Counter[str]] = field(default_factory=lambda: defaultdict(Counter))
    """(table, column) -> values of rows and versions of its schema: ``equal``, ``excepted``, ``different``."""

    @property
    def tables(self) -> list[str]:
        """All tables seen."""
        return sorted({*self.equal, *self.excepted, *self.different})


def compare(
    expected: Sequence[Row],
    actual: Sequence[Row],
    exceptions: Sequence[NamedException],
    *,
    quiet: frozenset[str] = frozenset(),
    further: Sequence[Difference] = (),
) -> Report:
    """Compare two sides; a record with no exceptions but those named in ``quiet`` counts as equal.

    ``further`` are differences that do not come from comparing records.
    """
    report = Report()
    ours = {(row.topic, row.identity): row for row in actual}
    theirs = {(row.topic, row.identity) for row in expected}
    for row in expected:
        other = ours.get((row.topic, row.identity))
        _judge(report, row, list(_differences(row, other)), exceptions, quiet, shared=other is not None)
    for row in actual:
        if (row.topic, row.identity) not in theirs:
            _judge(report, row, [Difference(row, ("record",), None, "exists")], exceptions, quiet)
    shared = theirs & ours.keys()
    for difference in (*_order(expected, actual, shared), *further):
        _judge(report, difference.row, [difference], exceptions, quiet, counted=False)
    return report


def _judge(
    report: Report,
    row: Row,
    differences: Sequence[Difference],
    exceptions: Sequence[NamedException],
    quiet: frozenset[str],
    *,
    counted: bool = True,
    shared: bool = False,
) -> None:
    names = set()
    bad = False
    touched: dict[tuple[str, ...], str] = {}
    for difference in differences:
        name = next((each.name for each in exceptions if each.covers(difference)), None)
        if name not in quiet and (column := _column(difference.path)):
            touched[column] = "different" if name is None else touched.get(column, "excepted")
        if name is None:
            bad = True
            report.different[row.table].append(difference)
        elif name not in quiet:
            names.add(name)
    for column in {*touched, *(_columns(row) if shared else ())}:
        report.values[row.table, column[-1]][touched.get(column, "equal")] += 1
    report.excepted[row.table].update(names)
    if counted and not names and not bad:
        report.equal[row.table] += 1


def _column(path: tuple[str, ...]) -> tuple[str, ...]:
    """Return the part of a path that names a column of a row or of its schema, empty where it does not."""
    if path[0] == "schema" or path[:2] in {("value", "before"), ("value", "after")}:
        length = 2 if path[0] == "schema" else 3
        return path[:length] if len(path) >= length and path[1] != "members" else ()
    return ()


def _columns(row: Row) -> Iterator[tuple[str, ...]]:
    """Yield the columns of a record's rows, as ``_column`` names them."""
    for part in ("before", "after"):
        values = member(row.value, part) if isinstance(row.value, tuple) else None
        if isinstance(values, tuple):
            yield from (("value", part, name.strip('"')) for name, _ in values)


def _differences(row: Row, other: Row | None) -> Iterator[Difference]:
    if other is None:
        yield Difference(row, ("record",), "exists", None)
        return
    if row.record.partition != other.record.partition:
        yield Difference(row, ("partition",), str(row.record.partition), str(other.record.partition))
    yield from _trees(row, ("key",), row.key, other.key)
    yield from _trees(row, ("value",), row.value, other.value)
    theirs, ours = ([(name, (value or b"").decode()) for name, value in each.record.headers] for each in (row, other))
    if [name for name, _ in theirs] != [name for name, _ in ours]:
        yield Difference(row, ("headers",), str([n for n, _ in theirs]), str([n for n, _ in ours]))
    known = dict(ours)
    for name, value in theirs:
        if name in known and known[name] != value:
            yield Difference(row, ("header", name), value, known[name])


def _trees(row: Row, path: tuple[str, ...], expected: Tree | None, actual: Tree | None) -> Iterator[Difference]:
    """Yield the differences of two trees, at the deepest place where both still have the same shape."""
    if expected == actual:
        return
    if isinstance(expected, tuple) and isinstance(actual, tuple):
        if [name for name, _ in expected] == [name for name, _ in actual]:
            for (name, left), (_, right) in zip(expected, actual, strict=True):
                yield from _trees(row, (*path, name.strip('"')), left, right)
            return
        names = [" ".join(name.strip('"') for name, _ in side) for side in (expected, actual)]
        yield Difference(row, (*path, "members"), names[0], names[1])
        return
    if isinstance(expected, list) and isinstance(actual, list):
        for index, (left, right) in enumerate(zip_longest(expected, actual)):
            yield from _trees(row, (*path, str(index)), left, right)
        return
    yield Difference(row, path, expected, actual)


def _order(
    expected: Sequence[Row], actual: Sequence[Row], shared: set[tuple[str, tuple[str, ...]]]
) -> list[Difference]:
    """Return one difference for each key of a topic whose shared records come in another order."""

    def sequences(rows: Sequence[Row]) -> dict[tuple[str, str], list[Row]]:
        found: dict[tuple[str, str], list[Row]] = defaultdict(list)
        for row in rows:
            if row.key is not None and (row.topic, row.identity) in shared:
                found[row.topic, render(row.key)].append(row)
        return found

    ours = sequences(actual)
    wrong = []
    for at, rows in sequences(expected).items():
        order = [row.identity for row in rows]
        other = [row.identity for row in ours.get(at, [])]
        if order != other and sorted(order) == sorted(other):
            wrong.append(Difference(rows[0], ("order",), str(order), str(other)))
    return wrong
