"""Compares what two connectors wrote for the same changes, record by record and token by token.

It compares keys, values, headers, partitions and the order of the records of each key. A named exception can cover a
difference.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest

from tests.debezium_parity.difference import Difference, NamedException
from tests.debezium_parity.records import ParsedRecord, render
from tests.debezium_parity.tokens import Tree, member


@dataclass(frozen=True)
class Report:
    """The result of a comparison, by table."""

    equal: Counter[str] = field(default_factory=Counter)
    """The number of records whose differences are all covered by ``quiet`` exceptions."""
    excepted: defaultdict[str, Counter[str]] = field(default_factory=lambda: defaultdict(Counter))
    """Table -> name of an exception -> number of records with such a difference."""
    different: defaultdict[str, list[Difference]] = field(default_factory=lambda: defaultdict(list))
    """Table -> differences that no exception covers."""
    values: defaultdict[tuple[str, str], Counter[str]] = field(default_factory=lambda: defaultdict(Counter))
    """(table, column) -> number of values and schema versions that are ``equal``, ``excepted`` or ``different``."""

    @property
    def tables(self) -> list[str]:
        """All tables."""
        return sorted({*self.equal, *self.excepted, *self.different})


def compare(
    expected: Sequence[ParsedRecord],
    actual: Sequence[ParsedRecord],
    exceptions: Sequence[NamedException],
    *,
    quiet: frozenset[str] = frozenset(),
    further: Sequence[Difference] = (),
) -> Report:
    """Compare two sides; a record with no exceptions but those named in ``quiet`` counts as equal.

    ``further`` are differences that do not come from comparing records.
    """
    report = Report()
    actual_by_identity = {(record.topic, record.identity): record for record in actual}
    expected_identities = {(record.topic, record.identity) for record in expected}
    for record in expected:
        other = actual_by_identity.get((record.topic, record.identity))
        _add(report, record, list(_differences(record, other)), exceptions, quiet, shared=other is not None)
    for record in actual:
        if (record.topic, record.identity) not in expected_identities:
            _add(report, record, [Difference(record, ("record",), None, "exists")], exceptions, quiet)
    shared = expected_identities & actual_by_identity.keys()
    for difference in (*_order(expected, actual, shared), *further):
        _add(report, difference.record, [difference], exceptions, quiet, counted=False)
    return report


def _add(
    report: Report,
    record: ParsedRecord,
    differences: Sequence[Difference],
    exceptions: Sequence[NamedException],
    quiet: frozenset[str],
    *,
    counted: bool = True,
    shared: bool = False,
) -> None:
    names = set()
    covered = True
    states: dict[tuple[str, ...], str] = {}
    for difference in differences:
        name = next((each.name for each in exceptions if each.covers(difference)), None)
        if name not in quiet and (column := _column(difference.path)):
            states[column] = "different" if name is None else states.get(column, "excepted")
        if name is None:
            covered = False
            report.different[record.table].append(difference)
        elif name not in quiet:
            names.add(name)
    for column in {*states, *(_columns(record) if shared else ())}:
        report.values[record.table, column[-1]][states.get(column, "equal")] += 1
    report.excepted[record.table].update(names)
    if counted and not names and covered:
        report.equal[record.table] += 1


def _column(path: tuple[str, ...]) -> tuple[str, ...]:
    """Return the part of a path that names a column of a row or of a schema; empty for other paths."""
    if path[0] == "schema" or path[:2] in {("value", "before"), ("value", "after")}:
        length = 2 if path[0] == "schema" else 3
        return path[:length] if len(path) >= length and path[1] != "members" else ()
    return ()


def _columns(record: ParsedRecord) -> Iterator[tuple[str, ...]]:
    """Yield the paths of the columns of a record."""
    for part in ("before", "after"):
        values = member(record.value, part) if isinstance(record.value, tuple) else None
        if isinstance(values, tuple):
            yield from (("value", part, name.strip('"')) for name, _ in values)


def _differences(record: ParsedRecord, other: ParsedRecord | None) -> Iterator[Difference]:
    if other is None:
        yield Difference(record, ("record",), "exists", None)
        return
    if record.raw.partition != other.raw.partition:
        yield Difference(record, ("partition",), str(record.raw.partition), str(other.raw.partition))
    yield from _trees(record, ("key",), record.key, other.key)
    yield from _trees(record, ("value",), record.value, other.value)
    expected, actual = (
        [(name, (value or b"").decode()) for name, value in each.raw.headers] for each in (record, other)
    )
    if [name for name, _ in expected] != [name for name, _ in actual]:
        yield Difference(record, ("headers",), str([name for name, _ in expected]), str([name for name, _ in actual]))
    values = dict(actual)
    for name, value in expected:
        if name in values and values[name] != value:
            yield Difference(record, ("header", name), value, values[name])


def _trees(
    record: ParsedRecord, path: tuple[str, ...], expected: Tree | None, actual: Tree | None
) -> Iterator[Difference]:
    """Yield the differences of two trees at the deepest paths that both have."""
    if expected == actual:
        return
    if isinstance(expected, tuple) and isinstance(actual, tuple):
        if [name for name, _ in expected] == [name for name, _ in actual]:
            for (name, left), (_, right) in zip(expected, actual, strict=True):
                yield from _trees(record, (*path, name.strip('"')), left, right)
            return
        names = [" ".join(name.strip('"') for name, _ in side) for side in (expected, actual)]
        yield Difference(record, (*path, "members"), names[0], names[1])
        return
    if isinstance(expected, list) and isinstance(actual, list):
        for index, (left, right) in enumerate(zip_longest(expected, actual)):
            yield from _trees(record, (*path, str(index)), left, right)
        return
    yield Difference(record, path, expected, actual)


def _order(
    expected: Sequence[ParsedRecord], actual: Sequence[ParsedRecord], shared: set[tuple[str, tuple[str, ...]]]
) -> list[Difference]:
    """Return one difference for each key whose shared records are in another order."""

    def sequences(records: Sequence[ParsedRecord]) -> dict[tuple[str, str], list[ParsedRecord]]:
        found: dict[tuple[str, str], list[ParsedRecord]] = defaultdict(list)
        for record in records:
            if record.key is not None and (record.topic, record.identity) in shared:
                found[record.topic, render(record.key)].append(record)
        return found

    actual_sequences = sequences(actual)
    wrong = []
    for key, records in sequences(expected).items():
        order = [record.identity for record in records]
        other = [record.identity for record in actual_sequences.get(key, [])]
        if order != other and sorted(order) == sorted(other):
            wrong.append(Difference(records[0], ("order",), str(order), str(other)))
    return wrong
