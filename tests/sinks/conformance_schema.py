"""Cases of the conformance suite about ALTER TABLE: every kind of change in each mode of ``schema.change.behavior``.

One query has a table for each kind. EXPECTED says what its target is then; a sink names where it differs, and why.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Final

from tailrace.schemas.alteration import AlterationKind, ColumnChange
from tailrace.schemas.connect import ConnectField
from tests.sinks.backend import SinkBackend
from tests.sinks.harness import BatchRunner
from tests.spark.records import Feed, Message, Row, Table, connect, table_schema

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tailrace.schemas.table import TableSchema

MODES: Final = ("exception", "evolve", "try_evolve", "lenient", "ignore")
DEFAULT: Final = "lenient"


class Outcome(Enum):
    """What a target is after a change."""

    SAME = "same"
    """Equal to the source, rows from before the change too."""
    KEPT = "kept"
    """As SAME, and the former column stays: it is NULL in rows that are written later."""
    WITHOUT = "without"
    """The target does not get the column; a former one stays."""
    CONVERTED = "converted"
    """The column keeps its type: values that fit are converted, and another one parks the table."""
    PARKED = "parked"
    """The target is as before, and the reason has what is to be done."""
    LATER = "later"
    """Rows that are written later are as in the source, those from before stay as they were."""


@dataclass(frozen=True)
class Kind:
    """A kind of change of a table with the columns id, name and ``before``."""

    before: tuple[ConnectField, ...]
    after: tuple[ConnectField, ...]
    first: tuple[Row, Row]
    """What the rows 1 and 2 have in the columns ``before``."""
    changed: Row
    """What the row 2 has after the change."""
    last: Row
    """What the row 3 has, which is inserted later."""
    changes: tuple[ColumnChange, ...] = ()
    same: Row = field(default_factory=dict)
    """What the row 1 has in the source after the change, if it is not what it had."""
    former: Row = field(default_factory=dict)
    """What the row 2 has in the source between the change and its update, if it is not what it had."""
    key: tuple[str, ...] = ("id",)
    """The key after the change."""
    reason: str = "has changed"
    """A part of the reason with which a table is parked whose target cannot follow."""

    def rows(self, outcome: Outcome) -> dict[int, Row]:
        """Return the rows of the target, with their columns that are not NULL."""
        first, changed, last = self.first[0], self.changed, self.last
        match outcome:
            case Outcome.PARKED:
                changed, last = self.first[1], {}
            case Outcome.CONVERTED:
                of = type(self.first[0]["n"])
                changed, last = {"n": of(changed["n"])}, {}
            case Outcome.SAME:
                first = self.same or first
            case Outcome.KEPT:
                first = {**first, **self.same}
            case Outcome.WITHOUT:
                old = {column.name for column in self.before}
                changed, last = ({name: each[name] for name in each if name in old} for each in (changed, last))
        found = {1: first, 2: changed, 3: last}
        return {
            key: {"id": key, "name": f"name {key}", **{name: each[name] for name in each if each[name] is not None}}
            for key, each in found.items()
            if each or key < 3
        }


def _column(name: str, kind: str, *, optional: bool = True) -> ConnectField:
    return ConnectField(name, connect(kind, optional=optional))


_N: Final = _column("n", "int32")
_ONE, _TWO, _NEW, _THREE = {"n": 1}, {"n": 2}, {"n": 22}, {"n": 3}
KINDS: Final = {
    "column added": Kind(
        (_N,),
        (_N, _column("extra", "int32")),
        (_ONE, _TWO),
        {**_NEW, "extra": 8},
        {**_THREE, "extra": 9},
        changes=(ColumnChange(AlterationKind.ADD, "extra", schema=connect("int32"), value=7),),
        same={**_ONE, "extra": 7},
        former={"extra": 7},
    ),
    "column dropped": Kind(
        (_N, _column("gone", "string")),
        (_N,),
        ({**_ONE, "gone": "a"}, {**_TWO, "gone": "b"}),
        _NEW,
        _THREE,
        changes=(ColumnChange(AlterationKind.DROP, "gone"),),
        same=_ONE,
    ),
    "column renamed": Kind(
        (_N, _column("old", "int32")),
        (_N, _column("new", "int32")),
        ({**_ONE, "old": 10}, {**_TWO, "old": 20}),
        {**_NEW, "new": 220},
        {**_THREE, "new": 30},
        changes=(ColumnChange(AlterationKind.RENAME, "new", old="old"),),
        same={**_ONE, "new": 10},
        former={"new": 20},
    ),
    "wider type": Kind(
        (_N,), (_column("n", "int64"),), (_ONE, _TWO), _NEW, {"n": 5_000_000_000}
    ),
    "other type": Kind(
        (_N,), (_column("n", "string"),), (_ONE, _TWO), {"n": "22"}, {"n": "text"}, same={"n": "1"}, former={"n": "2"}
    ),
    "nullable": Kind(
        (_column("n", "int32", optional=False),), (_N,), (_ONE, _TWO), {"n": None}, _THREE
    ),
    "other key": Kind(
        (_N,), (_N,), (_ONE, _TWO), _NEW, _THREE, key=("id", "name"), reason="the key of"
    ),
}  # fmt: skip

_SAME, _KEPT, _WITHOUT = Outcome.SAME, Outcome.KEPT, Outcome.WITHOUT
_CONVERTED, _PARKED = Outcome.CONVERTED, Outcome.PARKED
EXPECTED: Final[dict[str, dict[str, Outcome]]] = {
    kind: dict(zip(MODES, outcomes, strict=True))
    for kind, outcomes in {
        # exception, evolve, try_evolve, lenient, ignore
        "column added": (_PARKED, _SAME, _SAME, _SAME, _WITHOUT),
        "column dropped": (_PARKED, _SAME, _SAME, _KEPT, _KEPT),
        "column renamed": (_PARKED, _SAME, _SAME, _KEPT, _WITHOUT),
        "wider type": (_PARKED, _SAME, _SAME, _SAME, _CONVERTED),
        "other type": (_PARKED, _PARKED, _CONVERTED, _PARKED, _CONVERTED),
        # The columns of a target can be NULL, whatever those of the source can be.
        "nullable": (_SAME, _SAME, _SAME, _SAME, _SAME),
        "other key": (_PARKED, _PARKED, _PARKED, _PARKED, _PARKED),
    }.items()
}

REPAIRED: Final = ("column added", "column dropped", "column renamed", "wider type")
"""Changes that statements can make in every target."""


@dataclass(frozen=True)
class Difference:
    """Where a sink differs from EXPECTED for a kind of change."""

    outcomes: Mapping[str, Outcome]
    """By mode."""
    reason: str


_LATER: Final = Difference({DEFAULT: Outcome.LATER}, "what is written before the change stays as it is")
APPENDED: Final = dict.fromkeys(("column added", "column dropped", "column renamed", "other type"), _LATER)
"""The differences of sinks that only write what comes later."""
CHANGELOG: Final = {
    **APPENDED,
    "other key": Difference({DEFAULT: Outcome.SAME}, "each entry has the key that it was written with"),
}
"""Those of changelogs."""
SCHEMA: Final = "test_schema_changes"
"""The case of the default mode; those of the others are long for every sink."""
OTHER_MODES: Final = frozenset(f"{SCHEMA}_{mode}" for mode in MODES if mode != DEFAULT)
NO_MODES: Final = dict.fromkeys(OTHER_MODES, "the sink has no schema.change.behavior")
"""What is not applicable for sinks that do not change their targets."""


class SchemaCases:
    """The cases; SinkConformance has the fixtures."""

    backend_type: ClassVar[type[SinkBackend]]
    schema_differences: ClassVar[Mapping[str, Difference]] = {}
    """By kind of change."""

    @classmethod
    def outcome(cls, kind: str, mode: str) -> Outcome:
        """Return what a target of this sink is after a change."""
        known = cls.schema_differences.get(kind)
        return EXPECTED[kind][mode] if known is None else known.outcomes.get(mode, EXPECTED[kind][mode])

    @classmethod
    def differences(cls, case: str) -> list[str]:
        """Return the reasons for which the sink differs in a case of this class."""
        mode = mode_of(case)
        found = cls.schema_differences.items()
        return list(dict.fromkeys(f"{kind}: {each.reason}" for kind, each in found if mode in each.outcomes))

    def test_schema_changes(self, spark: SparkSession, feed: Feed, tmp_path: Path) -> None:
        """Every kind of change with the default, lenient."""
        self.change_schemas(self.backend_type(spark, feed.broker, tmp_path), feed, "")

    def test_schema_changes_evolve(self, spark: SparkSession, feed: Feed, tmp_path: Path) -> None:
        """The target changes as the source does, or its table is parked."""
        self.change_schemas(self.backend_type(spark, feed.broker, tmp_path), feed, "evolve")

    def test_schema_changes_try_evolve(self, spark: SparkSession, feed: Feed, tmp_path: Path) -> None:
        """The target changes as the source does, or values are converted."""
        self.change_schemas(self.backend_type(spark, feed.broker, tmp_path), feed, "try_evolve")

    def test_schema_changes_ignore(self, spark: SparkSession, feed: Feed, tmp_path: Path) -> None:
        """The columns of the target stay as they are."""
        self.change_schemas(self.backend_type(spark, feed.broker, tmp_path), feed, "ignore")

    def test_schema_changes_exception(self, spark: SparkSession, feed: Feed, tmp_path: Path) -> None:
        """A table whose target would have to change is parked, until the statements of the reason were run."""
        backend = self.backend_type(spark, feed.broker, tmp_path)
        run, tables = self.change_schemas(backend, feed, "exception")
        parked = run.parked()
        for kind in REPAIRED:
            for statement in parked[tables[kind].schema.topic]["details"]["statement"].split("; "):
                backend.execute(statement)
        run.restart()
        run.retry()

        found = {kind: _stored(backend, tables[kind].schema) for kind in REPAIRED}
        assert found == {kind: KINDS[kind].rows(Outcome.SAME) for kind in REPAIRED}

    def change_schemas(self, backend: SinkBackend, feed: Feed, mode: str) -> tuple[BatchRunner, dict[str, Table]]:
        """Change a table of each kind, and compare its target; return the query and the tables by kind.

        Without a mode the setting is not given.
        """
        settings = {"schema.change.behavior": mode} if mode else {}
        tables = {kind: _table(feed, kind, mode) for kind in KINDS}
        # Its target goes on in every mode; a query whose tables are all parked ends.
        run = BatchRunner(feed, tables["nullable"], backend, backend.work, settings)
        run.others = [table for kind, table in tables.items() if kind != "nullable"]
        run.batch(*_first(tables))
        run.batch(*(_changed(feed, KINDS[kind], table) for kind, table in tables.items()))
        run.batch(*(table.change("c", None, _row(3, KINDS[kind].last), pos=300) for kind, table in tables.items()))

        wanted = {kind: self.outcome(kind, mode or DEFAULT) for kind in KINDS}
        parked = run.parked()
        found = {kind: _stored(backend, table.schema) for kind, table in tables.items()}
        assert found == {kind: KINDS[kind].rows(outcome) for kind, outcome in wanted.items()}
        reasons = {kind: parked.get(table.schema.topic, {}) for kind, table in tables.items()}
        stops = {kind for kind, outcome in wanted.items() if outcome in {Outcome.PARKED, Outcome.CONVERTED}}
        assert {kind for kind, each in reasons.items() if each} == stops
        for kind in stops:
            _check_reason(kind, mode, wanted[kind], reasons[kind])
        return run, tables


def mode_of(case: str) -> str:
    """Return the mode of a case of this class."""
    return case.removeprefix(SCHEMA).removeprefix("_") or DEFAULT


def _check_reason(kind: str, mode: str, outcome: Outcome, position: Mapping[str, object]) -> None:
    """Check that the reason says what is wrong, and what is to be done."""
    text = json.dumps(position)
    assert position["hint"], text
    if outcome is Outcome.CONVERTED:
        assert "does not fit" in text
    elif kind == "other key":
        assert KINDS[kind].reason in text
    else:
        details = position["details"]
        assert isinstance(details, dict)
        assert details["statement"], text
        assert ("exception allows no change" if mode == "exception" else KINDS[kind].reason) in text


def _table(feed: Feed, kind: str, mode: str) -> Table:
    name = f"{mode}_{kind}".replace(" ", "_")
    return feed.table(table_schema(feed.prefix, name, *KINDS[kind].before), partitions=1)


def _row(key: int, values: Row) -> Row:
    return {"id": key, "name": f"name {key}", **values}


def _first(tables: Mapping[str, Table]) -> Iterator[list[Message]]:
    for kind, table in tables.items():
        for key, values in enumerate(KINDS[kind].first, 1):
            yield table.change("c", None, _row(key, values), pos=100 + key)


def _changed(feed: Feed, kind: Kind, table: Table) -> list[Message]:
    """Return the records of the statement and of an update after it."""
    statement = [table.alteration(feed.prefix, 200, *kind.changes)] if kind.changes else []
    after = table_schema(feed.prefix, table.schema.table, *kind.after)
    table.schema = replace(after, key=kind.key)
    # The image before an update has the columns and the types that the table has then.
    former = {**{column.name: kind.first[1].get(column.name) for column in kind.after}, **kind.former}
    update = table.change("u", _row(2, former), _row(2, kind.changed), pos=210)
    return [*statement, table.published(feed.prefix, version=2), *update]


def _stored(backend: SinkBackend, schema: TableSchema) -> dict[int, Row]:
    rows = backend.rows(schema)
    return {key: {name: each[name] for name in each if each[name] is not None} for key, each in rows.items()}
