"""Prints the result: the values of each type and the records of each topic, per variant."""

from __future__ import annotations

import json
import re
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from typing import Final

from tailrace.producer.serialization.envelope.name_adjustment import field_name
from tests.debezium_parity.artifacts import debezium_version
from tests.debezium_parity.auxiliary_records import auxiliary_records
from tests.debezium_parity.compare import Report
from tests.debezium_parity.exceptions import EXCEPTIONS
from tests.debezium_parity.records import CHANGES, render
from tests.debezium_parity.run import Outcome
from tests.debezium_parity.tailrace import tailrace_prefix
from tests.debezium_parity.tokens import member
from tests.debezium_parity.variants import Variant

Types = Mapping[tuple[str, str], str]
"""(table, column) -> the column's type as the server prints it."""

_WITH_LENGTH: Final = frozenset({"BIT", "DATETIME", "TIME", "TIMESTAMP"})
"""Types whose length changes how their values are written."""
_UNKNOWN: Final = "(a type before ALTER)"
_STATES: Final = ("equal", "excepted", "different")


def column_types(outcome: Outcome) -> dict[tuple[str, str], str]:
    """Return the types of all columns from the schema changes of a run; the last version counts."""
    found: dict[tuple[str, str], str] = {}
    for row in auxiliary_records(outcome.tailrace, prefix=tailrace_prefix(outcome.variant)):
        changes = member(row.value or "", "tableChanges") if row.topic == CHANGES else None
        for change in json.loads(render(changes)) if changes else ():
            table = change["table"]
            name = json.loads(render(json.dumps(change["id"]))).rpartition('."')[2].strip('"')
            for column in table["columns"] if table is not None else ():
                kind, length = column["typeName"], column["length"]
                kind = f"{kind}({length})" if kind in _WITH_LENGTH and length else kind
                topic = re.sub(r"[^A-Za-z0-9._-]", "_", name)
                found[topic, column["name"]] = found[topic, field_name(column["name"], "avro")] = kind
    return found


def print_tables(reports: Mapping[Variant, Report], types: Types) -> None:
    """Print a line per type and per topic with a column per variant, and the exceptions that occurred."""
    print(f"Debezium {debezium_version()} and Tailrace: equal / covered by an exception / different")
    head = [
        ("", [variant.name for variant in reports]),
        ("converters", [variant.converters for variant in reports]),
    ]
    _print_rows("type (values of columns)", head, _by_type(list(reports.values()), types))
    print()
    _print_rows("topic (records)", head, _by_topic(list(reports.values())))
    used: Counter[str] = Counter()
    for report in reports.values():
        used.update(sum(report.excepted.values(), Counter()))
    print("\nnamed exceptions that occurred:")
    for exception in EXCEPTIONS:
        if used[exception.name]:
            print(f"  {used[exception.name]:5} {exception.name}: {exception.reason}")


_Cells = dict[str, list[Counter[str]]]


def _by_type(reports: Sequence[Report], types: Types) -> _Cells:
    cells: _Cells = defaultdict(lambda: [Counter() for _ in reports])
    for at, report in enumerate(reports):
        for column, counts in report.values.items():
            cells[types.get(column, _UNKNOWN)][at].update(counts)
    return cells


def _by_topic(reports: Sequence[Report]) -> _Cells:
    cells: _Cells = defaultdict(lambda: [Counter() for _ in reports])
    for at, report in enumerate(reports):
        for table in report.tables:
            excepted = sum(report.excepted[table].values())
            different = len(report.different[table])
            cells[table][at].update({"equal": report.equal[table], "excepted": excepted, "different": different})
    return cells


def _print_rows(title: str, head: Sequence[tuple[str, Sequence[str]]], cells: _Cells) -> None:
    width = max(18, *(len(name) + 2 for _, names in head for name in names))
    for label, names in head:
        print(f"{label or title:26}" + "".join(f"{name:>{width}}" for name in names))
    total: list[Counter[str]] = [Counter() for _ in head[0][1]]
    for name in sorted(cells):
        for whole, counts in zip(total, cells[name], strict=True):
            whole.update(counts)
        print(f"{name:26}" + "".join(f"{_cell(counts):>{width}}" for counts in cells[name]))
    print(f"{'all':26}" + "".join(f"{_cell(counts):>{width}}" for counts in total))


def _cell(counts: Counter[str]) -> str:
    return " / ".join(str(counts[state]) for state in _STATES) if counts else "-"
