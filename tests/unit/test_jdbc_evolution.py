"""The statements of a schema change that was interrupted, for a database in which each of them commits."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final, cast

import pytest
from pyspark.sql import types as tp

from tailrace.schemas.alteration import Alteration, AlterationKind, ColumnChange
from tailrace.schemas.connect import ConnectField, ConnectSchema
from tailrace.schemas.sequence import Sequence
from tailrace.schemas.table import TableSchema
from tailrace.spark_consumer.errors import SinkError
from tailrace.spark_consumer.evolution.attempt import Attempt
from tailrace.spark_consumer.evolution.plan import Fill
from tailrace.spark_consumer.evolution.policy import EvolutionPolicy, SourceNames
from tailrace.spark_consumer.images import MetadataField
from tailrace.spark_consumer.sink.evolve import evolve
from tailrace.spark_consumer.sink.jdbc_columns import TargetForm
from tailrace.spark_consumer.sink.jdbc_dialect import StoredColumn, StoredTable, load_dialect
from tailrace.spark_consumer.sink.jdbc_operations import JdbcOperations
from tailrace.spark_consumer.sink.jdbc_table import JdbcTable
from tailrace.spark_consumer.sink.jdbc_takeover import check_owned
from tailrace.spark_consumer.sink.ledger import Ledger
from tailrace.spark_consumer.sink.shape import Layout
from tailrace.spark_consumer.sink.state import Shard, Stored, TargetState
from tailrace.spark_consumer.sink.target import FillColumns

if TYPE_CHECKING:
    from tailrace.spark_consumer.sink.jdbc_session import Session

TOPIC: Final = "p.d.t"
STATEMENT: Final = re.compile(
    r"ALTER TABLE \S+ (?:DROP COLUMN `(?P<dropped>\w+)`|RENAME COLUMN `(?P<old>\w+)` TO `(?P<new>\w+)`"
    r"|ADD COLUMN `(?P<added>\w+)` (?P<type>\w+)|MODIFY COLUMN `(?P<changed>\w+)` (?P<wider>\w+))"
)


class EndError(Exception):
    """The process ends."""


@dataclass
class Database:
    """Runs the statements on names and types of columns; ``left``: how many until the process ends."""

    columns: dict[str, str]
    left: int = 1000
    done: list[str] = field(default_factory=list)

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Do nothing: each statement commits."""
        yield

    def execute(self, text: str, *_parameters: object) -> None:
        """Run a statement."""
        if self.left == 0:
            raise EndError
        self.left -= 1
        self.done.append(text)
        found = STATEMENT.match(text)
        if found is None:
            return
        if found["dropped"]:
            del self.columns[found["dropped"]]
        elif found["old"]:
            assert found["new"] not in self.columns, "Duplicate column name"
            self.columns = {found["new"] if name == found["old"] else name: kind for name, kind in self.columns.items()}
        elif found["added"]:
            assert found["added"] not in self.columns, "Duplicate column name"
            self.columns[found["added"]] = found["type"]
        else:
            assert found["changed"] in self.columns
            self.columns[found["changed"]] = found["wider"]

    def query(self, _text: str) -> list[tuple[int]]:
        """Return a row."""
        return [(1,)]


class Table(JdbcTable):
    """A table of ``Database``."""

    def read(self, session: Session) -> None:
        """Read the columns; the row of the ledger is what was written last."""
        kinds = {"SMALLINT": tp.ShortType(), "INT": tp.IntegerType(), "BIGINT": tp.LongType()}
        columns = tuple(
            StoredColumn(name, kind, kinds[kind], nullable=name != "id")
            for name, kind in cast("Database", session).columns.items()
        )
        self.stored = StoredTable("t", is_table=True, columns=columns, unique=())

    def lock(self, session: Session) -> None:
        """Do nothing: nobody else writes it."""

    def write_entry(self, session: Session, entry: Stored) -> None:  # noqa: ARG002 - as in the base
        """Write the row of the ledger."""
        self.entry = entry


def form(**columns: str) -> TargetForm:
    """Return the columns of the source with their types."""
    fields = [ConnectField(name, ConnectSchema(kind, optional=name != "id")) for name, kind in columns.items()]
    return TargetForm(TableSchema(TOPIC, "d", "t", tuple(fields), ("id",)), Layout())


def at(pos: int, *changes: ColumnChange) -> Alteration:
    """Return an ALTER TABLE."""
    return Alteration(TOPIC, "d", "t", "ALTER TABLE t …", changes, Sequence(1, 1, pos, 0, 0))


def rename(old: str, new: str) -> ColumnChange:
    """Return RENAME COLUMN."""
    return ColumnChange(AlterationKind.RENAME, new, old=old)


def add(column: str) -> ColumnChange:
    """Return ADD COLUMN."""
    return ColumnChange(AlterationKind.ADD, column, schema=ConnectSchema("int32"), value=None)


def table_of(*columns: str, shard: Shard | None = None) -> Table:
    """Return a table that has caught up."""
    names = SourceNames(columns).to_json()
    entry = Stored(TargetState(TOPIC, names=names), Ledger(TOPIC))
    return Table(load_dialect("jdbc:mysql://h/d"), "d", "t", form(), shard, entry=entry)


def run(table: Table, database: Database, wanted: TargetForm, changes: list[Alteration], *, left: int = 1000) -> None:
    """Bring the table up to date, as a new process does."""
    database.left = left
    session = cast("Session", database)
    table.read(session)
    table.form = wanted
    policy = EvolutionPolicy("evolve" if table.shard is None else "lenient")
    evolve(JdbcOperations(table, session), wanted.schema, changes, policy, wanted.layout)


@pytest.mark.parametrize("made", range(3))
def test_a_column_whose_type_was_to_change_can_be_renamed_meanwhile(made: int) -> None:
    database, table = Database({"id": "BIGINT", "n": "INT", "k": "INT"}), table_of("id", "n", "k")
    first, wanted = at(1, rename("n", "m"), add("n")), {"id": "int64", "m": "int32", "n": "int32"}

    with pytest.raises(EndError):
        run(table, database, form(**wanted, k="int64"), [first], left=made)
    run(table, database, form(**wanted, z="int64"), [first, at(2, rename("k", "z"))])

    assert database.columns == {"id": "BIGINT", "m": "INT", "n": "INT", "z": "BIGINT"}
    assert table.entry is not None
    assert (table.entry.state.altering, table.entry.state.last_alteration) == ("", "1.1.2.0.0")


@pytest.mark.parametrize("made", range(3))
def test_another_shard_can_add_the_columns_that_are_left(made: int) -> None:
    database = Database({"shard": "INT", "id": "BIGINT", "n": "INT"})
    tables = [
        table_of("shard", "id", "n", shard=Shard(topic, (("shard", number),)))
        for number, topic in (("1", TOPIC), ("2", "p.d2.t"))
    ]
    wanted = form(shard="int32", id="int64", m="int32", n="int32", k="int32")
    changes = [at(1, rename("n", "m"), add("n"), add("k"))]

    with pytest.raises(EndError):
        run(tables[0], database, wanted, changes, left=made)
    run(tables[1], database, wanted, changes)
    done = len(database.done)
    run(tables[0], database, wanted, changes)

    assert database.columns == {"shard": "INT", "id": "BIGINT", "n": "INT", "m": "INT", "k": "INT"}
    assert [text.split(" WHERE")[0] for text in database.done[done:]] == [
        "UPDATE `d`.`t` SET `m` = `n`",
        "UPDATE `d`.`t` SET `n` = NULL",
    ]


@pytest.mark.parametrize("made", range(3))
def test_a_type_that_another_shard_has_widened_further_stays(made: int) -> None:
    database = Database({"shard": "INT", "id": "BIGINT", "n": "INT", "k": "SMALLINT"})
    tables = [
        table_of("shard", "id", "n", "k", shard=Shard(topic, (("shard", number),)))
        for number, topic in (("1", TOPIC), ("2", "p.d2.t"))
    ]
    columns = {"shard": "int32", "id": "int64", "m": "int32", "n": "int32"}
    changes = [at(1, rename("n", "m"), add("n"))]

    with pytest.raises(EndError):
        run(tables[0], database, form(**columns, k="int32"), changes, left=made)
    run(tables[1], database, form(**columns, k="int64"), changes)
    done = len(database.done)
    run(tables[0], database, form(**columns, k="int32"), changes)

    assert database.columns["k"] == "BIGINT"
    assert not [text for text in database.done[done:] if text.startswith("ALTER")]


def test_columns_exchange_their_names_through_a_third_one() -> None:
    """The values are those of before all statements; the third column keeps a copy of one of the two."""
    database, table = Database({"id": "BIGINT", "a": "INT", "b": "INT"}), table_of("id", "a", "b")
    changes = [at(1, rename("a", "c")), at(2, rename("b", "a")), at(3, rename("c", "b"))]
    session = cast("Session", database)
    table.read(session)

    wanted = form(id="int64", a="int32", b="int32")
    table.form = wanted
    evolve(JdbcOperations(table, session), wanted.schema, changes, EvolutionPolicy("lenient"))

    updates = [text.split(" SET ")[1] for text in database.done if text.startswith("UPDATE")]
    assert updates == ["`c` = `a`", "`a` = `b`", "`b` = `c`"]


def statements_of(table: Table, database: Database, wanted: TargetForm, changes: list[Alteration]) -> list[str]:
    """Return what a person has to run."""
    session = cast("Session", database)
    table.read(session)
    table.form = wanted
    with pytest.raises(SinkError, match="exception allows no change") as caught:
        evolve(JdbcOperations(table, session), wanted.schema, changes, EvolutionPolicy("exception"))
    assert caught.value.hint.startswith("run what was not run yet of the statement, and start again")
    text = caught.value.context["statement"]
    assert isinstance(text, str)
    return text.split("; ")


def with_state(table: Table, **fields: str) -> None:
    """Store fields of the state."""
    assert table.entry is not None
    table.entry = replace(table.entry, state=replace(table.entry.state, **fields))


@pytest.mark.parametrize("made", ["1.1.1.0.0", '[[[1, 1, 1, 0, 0], ["id", "n"], ["id", "m", "n"]]]'])
def test_what_a_person_runs_ends_in_the_mark(made: str) -> None:
    """An earlier release has stored the second one. More statements come before the table goes on."""
    database, table = Database({"id": "BIGINT", "n": "INT"}), table_of("id", "n")
    changes = [at(1, rename("n", "m"), add("n"))]

    *steps, mark = statements_of(table, database, form(id="int64", m="int32", n="int32"), changes)
    assert [text.split(".`t` ")[1] for text in steps] == ["RENAME COLUMN `n` TO `m`", "ADD COLUMN `n` INT NULL"]
    assert " SET `made` = '1.1.1.0.0' WHERE " in mark
    for text in steps:
        database.execute(text)
    assert statements_of(table, database, form(id="int64", m="int32", n="int32"), changes) == [mark]
    with_state(table, made=made)
    later = statements_of(table, database, form(id="int64", k="int32", n="int32"), [*changes, at(2, rename("m", "k"))])

    assert [text.split(" SET ")[1] for text in database.done if text.startswith("UPDATE")] == ["`n` = NULL"]
    assert table.entry is not None
    assert table.entry.state.last_alteration == "1.1.1.0.0"
    assert ["RENAME COLUMN `m` TO `k`" in later[0], " SET `made` = '1.1.2.0.0' WHERE " in later[1]] == [True, True]


def test_what_an_earlier_release_has_begun_goes_on_with_the_mark() -> None:
    database, table = Database({"id": "BIGINT", "m": "INT", "n": "INT"}), table_of("id", "n")
    changes, wanted = [at(1, rename("n", "m"), add("n"))], form(id="int64", m="int32", n="int32")
    kinds = {"id": tp.LongType(), "m": tp.IntegerType(), "n": tp.IntegerType()}
    with_state(table, altering=Attempt("1.1.1.0.0", kinds, kinds, EvolutionPolicy("exception")).to_json(0))

    [mark] = statements_of(table, database, wanted, changes)
    assert " SET `made` = '1.1.1.0.0' WHERE " in mark
    with_state(table, made="1.1.1.0.0")
    run(table, database, wanted, changes)

    assert table.entry is not None
    assert (table.entry.state.altering, table.entry.state.last_alteration) == ("", "1.1.1.0.0")
    assert [text for text in database.done if text.startswith("ALTER")] == []


LOADED: Final = "drop or rename the target table: the next attempt loads it again from its topic, and no other table"


def refused(table: Table, database: Database, wanted: TargetForm, changes: list[Alteration], problem: str) -> SinkError:
    """Return the error of a table that cannot follow; nothing is changed."""
    before = dict(database.columns)
    with pytest.raises(SinkError, match=problem) as caught:
        run(table, database, wanted, changes)
    assert database.columns == before
    return caught.value


def test_a_target_that_cannot_follow_is_to_be_loaded() -> None:
    database, table = Database({"id": "BIGINT", "a": "INT", "b": "INT"}), table_of("id", "a", "b")
    both, operations = form(id="int64", a="int32", b="int32"), JdbcOperations(table, cast("Session", database))
    exchanged = at(1, rename("a", "b"), rename("b", "a"))
    problem = r"d\.t was altered in a way that its target table cannot follow: columns exchanged "
    assert refused(table, database, both, [exchanged], problem).hint == LOADED
    for fills, fault in (
        ({"a": Fill("a", "b"), "b": Fill("b", "a")}, problem),
        ({"a": Fill("a", "id")}, r"values of d\.t, column id, do not fit the type of a"),
    ):
        with pytest.raises(SinkError, match=fault) as caught:
            operations.change([FillColumns(fills, both.schema, None)])
        assert caught.value.hint == LOADED

    table.read(cast("Session", database))
    with pytest.raises(SinkError, match=r"the table `d`\.`t` has lost its column _seq") as caught:
        check_owned(table)
    assert caught.value.hint == LOADED.replace("drop or rename the target table", "drop the table")
    with pytest.raises(SinkError, match=r"the table `d`\.`t` was dropped while its records were processed") as caught:
        assert table_of("id").present
    assert caught.value.hint == "start again, or wait for the next attempt: it creates and loads it"


def test_a_target_without_the_columns_of_its_layout_names_what_to_change() -> None:
    database, table = Database({"id": "BIGINT", "__pos": "INT"}), table_of("id")
    wanted = replace(form(id="int64"), layout=Layout(fields=(MetadataField("__pos", "source", "pos"),)))
    problem = "has a column __pos of another type than the metadata column of that name"
    error = refused(table, database, wanted, [], problem)
    assert error.hint == "give the field another column in add.fields, as in field:name, or drop the column"
    del database.columns["__pos"]
    run(table, database, wanted, [])
    assert database.columns == {"id": "BIGINT", "__pos": "BIGINT"}

    with_state(table, shape="history")
    problem = r"the table `d`\.`t` has rows, and not the columns of the shape history"
    error = refused(table, database, replace(form(id="int64"), layout=Layout("history")), [], problem)
    assert error.hint == "set another target, or drop or rename the target table"
    error = refused(table, database, wanted, [], "has the shape history, and the configuration asks for scd1")
    assert error.hint == f"set the shape history for the table in sink.shape.overrides; or {LOADED}"


def test_rows_whose_values_only_the_producer_can_read_stop_the_table_until_its_statement_was_run() -> None:
    database, table = Database({"id": "BIGINT"}), table_of("id")
    added = ColumnChange(AlterationKind.ADD, "k", schema=ConnectSchema("int32"))
    wanted, changes = form(id="int64", k="int32"), [at(1, added)]
    error = refused(table, database, wanted, changes, r"rows of d\.t can have other values than the source")
    assert error.hint.startswith(
        "send the signal to the producer, then run the statement to go on; or set tailrace.snap"
    )
    assert "['d.t']".replace("'", '"') in str(error.context["signal"])
    assert "`last_alteration` = '1.1.1.0.0' WHERE " in str(error.context["statement"])
    names = SourceNames(("id", "k")).to_json()
    with_state(table, last_alteration="1.1.1.0.0", names=names)
    run(table, database, wanted, changes)
    assert database.columns == {"id": "BIGINT", "k": "INT"}
