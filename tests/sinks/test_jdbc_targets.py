"""The JDBC sink and its targets: tables that exist, names, types, schema changes, and other writers."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

from tailrace.runtime.stored_format import NewerFormatError
from tailrace.runtime.versions import program_version
from tailrace.schemas.alteration import Alteration, AlterationKind, ColumnChange
from tailrace.schemas.connect import ConnectField
from tailrace.schemas.names import schemas_topic
from tailrace.schemas.sequence import Sequence
from tailrace.schemas.table import TableSchema
from tailrace.spark_consumer.errors import SinkError, TargetUnavailableError, concerns_all_tables
from tailrace.spark_consumer.sink.jdbc import JdbcSink
from tailrace.spark_consumer.tables.reasons import known_reason
from tests.embedded.kafka import KafkaBroker
from tests.sinks.conformance import INTEGER, row
from tests.sinks.harness import BatchRunner
from tests.sinks.jdbc_backend import JdbcBackend, Open, backend_of, postgres_database
from tests.sinks.test_restored_targets import saved
from tests.spark.records import EPOCH, Feed, Message, connect, decimal, table_schema, unscaled

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.timeout(1800)

_ONE_DATABASE: Final = pytest.mark.parametrize("jdbc_server", ["postgresql"], indirect=True)
"""For what does not depend on the dialect."""
_D: Final = ConnectField("d", decimal(9, 2))


def alteration_records(run: BatchRunner, pos: int, *changes: ColumnChange) -> list[Message]:
    """Return the records of an ALTER TABLE to the schema that the table has now."""
    schema = run.table.schema
    statement = Alteration(schema.topic, "shop", schema.table, "ALTER", changes, Sequence(EPOCH, 7, pos, 0, 0))
    published = Message(schemas_topic(run.feed.prefix), statement.record_key(), statement.to_json())
    return [run.table.published(run.feed.prefix, version=pos), published]


def with_columns(schema: TableSchema, prefix: str, *extra: ConnectField) -> TableSchema:
    """Return the schema with other columns behind id and name."""
    return replace(table_schema(prefix, schema.table, *extra), topic=schema.topic)


_NARROW: Final = (
    "CREATE TABLE {s}.narrow (id INT NOT NULL, name VARCHAR(50) NOT NULL, n SMALLINT, x INT NOT NULL, "
    "other INT, UNIQUE (other))"
)
_EXISTING: Final[Mapping[str, tuple[tuple[str, ...], tuple[str, ...]]]] = {
    "narrow": (
        (_NARROW,),
        (
            "it lacks the column d",
            "which does not represent all values of bigint",
            "its column n is smallint",
            "its column name is NOT NULL",
            "its column x, which the source does not have, is NOT NULL without a default",
            "it has no unique index on the key",
            "is checked for each row",
        ),
    ),
    "kinds": (
        ("CREATE TABLE {s}.kinds (id BIGINT PRIMARY KEY, name CHAR(9), n DATE, d DOUBLE PRECISION)",),
        ("its column name is char", "its column n is date", "its column d is double"),
    ),
    "rows": (
        (
            "CREATE TABLE {s}.{q}rows{q} (id BIGINT PRIMARY KEY, name VARCHAR(99), n INT, d DECIMAL(9,2))",
            "INSERT INTO {s}.{q}rows{q} VALUES (5, 'x', 1, 1.5)",
        ),
        ("it has rows that Tailrace did not write",),
    ),
}


def test_table_that_does_not_fit_is_refused_with_the_statement_that_fixes_it(opened: Open) -> None:
    """Nothing is changed before; after the statement the same batch is written."""
    for case, (statements, problems) in _EXISTING.items():
        run = opened(case, INTEGER, _D)
        backend = backend_of(run)
        backend.create_schema()
        backend.sql(*(each.replace("{q}", backend.dialect.quote("")[0]) for each in statements))
        before = backend.described(case)

        with pytest.raises(SinkError, match="exists and cannot take the rows of shop") as caught:
            run.batch(run.table.change("c", None, row(1, d=unscaled(150)), pos=100))

        assert [problem for problem in problems if problem not in str(caught.value)] == []
        assert backend.described(case) == before
        backend.sql(*str(caught.value.context["statement"]).split("; "))
        run.repeat()
        [found] = backend.rows(run.table.schema).values()
        assert [str(found[name]) for name in ("id", "name", "n", "d")] == ["1", "name 1", "0", "1.50"], case


def test_existing_table_is_taken_over(opened: Open) -> None:
    """Another order, wider types, and a column of somebody else, which stays as it is."""
    run = opened("orders")
    backend = backend_of(run)
    backend.create_schema()
    backend.sql("CREATE TABLE {s}.orders (note VARCHAR(9), N BIGINT, name VARCHAR(50), id DECIMAL(20,0) PRIMARY KEY)")
    records = run.table.snapshot(run.feed.prefix, 0, [row(1), row(2)], low=10, high=20)
    run.batch(records, [run.table.end(run.feed.prefix, 0, high=20, rows=2)])
    backend.sql("UPDATE {s}.orders SET note = 'mine' WHERE id = 1")
    run.batch(run.table.change("u", row(1), row(1, 1), pos=100), run.table.change("d", row(2), None, pos=110))

    found = [{name.lower(): value for name, value in each.items()} for each in backend.rows(run.table.schema).values()]
    assert found == [{**row(1, 1), "note": "mine"}]


def test_names_can_have_any_character(opened: Open) -> None:
    """Quotes, backslashes, blanks, statements; names with two meanings in one schema."""
    names = ['quo"te', "back`tick", "it's; DROP TABLE x --", "naïve 表", "ord%s?"]
    run = opened("we\"ird`  t'able?", *(ConnectField(name, connect("string")) for name in names))
    values = {name: f"{name}'\\" for name in names}
    run.batch(run.table.change("c", None, {"id": 1, "name": "a", **values}, pos=100))
    run.batch(run.table.change("u", {"id": 1}, {"id": 1, "name": None, **values}, pos=110))

    backend = backend_of(run)
    listed = ", ".join(map(backend.dialect.quote, ("id", "name", *names)))
    table = backend.dialect.quote(run.table.schema.table)
    assert backend.texts(f"SELECT {listed} FROM {{s}}.{table}") == [("1", None, *values.values())]


@_ONE_DATABASE
def test_name_that_is_too_long_is_refused(opened: Open) -> None:
    """PostgreSQL would cut it off; MySQL tables can have 64 characters of any kind."""
    run = opened("ä" * 65)

    with pytest.raises(SinkError, match="is too long for the target database"):
        run.batch(run.table.change("c", None, row(1), pos=100))


def test_columns_follow_the_source(opened: Open) -> None:
    """A filled column, a rename, a drop, a wider type, a number that becomes text; existing rows keep their values."""
    added, renamed = ConnectField("added", connect("string")), ConnectField("label", connect("string"))
    run = opened("t", INTEGER, ConnectField("gone", connect("int32")), **{"schema.change.behavior": "evolve"})
    prefix, first = run.feed.prefix, run.table.schema
    run.batch(run.table.change("c", None, row(1, gone=7), pos=100))
    run.table.schema = with_columns(first, prefix, ConnectField("n", connect("int64")), added)
    change = ColumnChange(AlterationKind.ADD, "added", schema=added.schema, value="it's \\ new")
    run.write(alteration_records(run, 200, change, ColumnChange(AlterationKind.DROP, "gone")))
    run.batch(run.table.change("c", None, row(2, 2**40, added="b"), pos=210))
    run.repeat()
    run.table.schema = with_columns(first, prefix, ConnectField("n", connect("string")), renamed)
    run.write(alteration_records(run, 300, ColumnChange(AlterationKind.RENAME, "label", old="added")))
    run.batch(run.table.change("u", {"id": 2}, row(2, "text", label="c"), pos=310))

    assert backend_of(run).rows(run.table.schema) == {
        1: {"id": 1, "name": "name 1", "n": "0", "label": "it's \\ new"},
        2: {"id": 2, "name": "name 2", "n": "text", "label": "c"},
    }


def test_change_that_the_target_cannot_take_names_the_statement(opened: Open) -> None:
    """BIGINT that becomes DOUBLE: nothing is changed, and the batch goes on after the statement."""
    run = opened("t", ConnectField("n", connect("int64")))
    run.batch(run.table.change("c", None, row(1, 7), pos=100))
    before = backend_of(run).described("t")
    run.table.schema = with_columns(run.table.schema, run.feed.prefix, ConnectField("n", connect("double")))
    run.write([run.table.published(run.feed.prefix, version=200)])

    with pytest.raises(SinkError, match=r"the type of column n of shop\.t has changed") as caught:
        run.batch(run.table.change("c", None, {**row(2), "n": 0.5}, pos=210))

    assert backend_of(run).described("t") == before
    backend_of(run).sql(str(caught.value.context["statement"]))
    run.repeat()
    assert backend_of(run).rows(run.table.schema) == {1: row(1, 7), 2: {**row(2), "n": 0.5}}


def test_value_that_does_not_fit_leaves_nothing(opened: Open) -> None:
    """A text that is longer than the VARCHAR of a table that was taken over: no row of the batch, no staging table."""
    run = opened("t")
    backend = backend_of(run)
    backend.create_schema()
    backend.sql("CREATE TABLE {s}.t (id BIGINT PRIMARY KEY, name VARCHAR(6), n INT)")
    run.batch(run.table.change("c", None, row(1), pos=100))

    with pytest.raises(SinkError, match=r"SQLSTATE 22001"):
        run.batch(run.table.change("c", None, row(2), pos=110), run.table.change("c", None, row(1000), pos=120))

    assert backend.rows(run.table.schema) == {1: row(1)}
    backend.sql(backend.dialect.change_type(backend.table("t"), "name", "VARCHAR(90)", nullable=True))
    run.repeat()
    assert backend.rows(run.table.schema) == {each: row(each) for each in (1, 2, 1000)}
    assert backend.stages() == []


@_ONE_DATABASE
def test_new_checkpoint_and_other_writers(opened: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    """A query with an empty checkpoint applies nothing twice; a task that ran twice, and a ledger that was changed."""
    fill = JdbcSink._fill

    def twice(sink: JdbcSink, *arguments: Any, small: bool) -> None:
        fill(sink, *arguments, small=small)
        fill(sink, *arguments, small=small)

    monkeypatch.setattr(JdbcSink, "_fill", twice)
    run = opened("t")
    run.batch(run.table.change("c", None, row(1), pos=100), run.table.change("c", None, row(2), pos=110))
    run.batch(run.table.change("u", row(1), row(1, 1), pos=120), run.table.change("d", row(2), None, pos=130))
    backend = backend_of(run)
    [before] = backend.texts("SELECT offsets, topic, topic_id FROM {s}.tailrace_ledger")
    repeated = BatchRunner(run.feed, run.table, backend, backend.work / "again")
    repeated._start = {topic: dict.fromkeys(offsets, 0) for topic, offsets in repeated._start.items()}
    repeated._number += 1
    repeated._run()

    assert backend.rows(run.table.schema) == {1: row(1, 1)}
    assert backend.texts("SELECT offsets, topic, topic_id FROM {s}.tailrace_ledger") == [before]
    assert before[1] == run.table.schema.topic
    backend.sql("UPDATE {s}.tailrace_ledger SET offsets = '{\"0\": 0}'")
    with pytest.raises(SinkError, match="another process has written"):
        run.batch(run.table.change("c", None, row(3), pos=140))
    assert backend.rows(run.table.schema) == {1: row(1, 1)}
    run.repeat()
    run.retry()
    assert backend.rows(run.table.schema) == {1: row(1, 1), 3: row(3)}


@_ONE_DATABASE
def test_ledger_of_a_later_version_is_refused_with_both_names(opened: Open) -> None:
    """It is left as it is; so is one of this version, and the program that wrote it does not matter then."""
    run = opened("t")
    run.batch(run.table.change("c", None, row(1), pos=100))
    backend, both = backend_of(run), rf"format 2, written by Tailrace 9\.8; this is Tailrace {program_version()}"
    backend.sql("UPDATE {s}.tailrace_ledger SET format = '2 9.8'")
    run.restart()
    with pytest.raises(NewerFormatError, match=both):
        run.batch(run.table.change("c", None, row(2), pos=110))
    assert backend.rows(run.table.schema) == {1: row(1)}

    backend.sql("UPDATE {s}.tailrace_ledger SET format = '1 0.9'")
    run.repeat()
    run.retry()
    assert backend.rows(run.table.schema) == {1: row(1), 2: row(2)}


@pytest.mark.parametrize("jdbc_server", ["postgresql", pytest.param("mysql", marks=pytest.mark.long)], indirect=True)
def test_alter_table_follows_the_ledger_that_is_known(opened: Open) -> None:
    """A backup is put back while the query runs, and another query writes: an ALTER TABLE moves no offsets."""
    run = opened("t")
    run.batch(run.table.change("c", None, row(1), pos=100))
    put_back = saved(run)
    run.batch(run.table.change("c", None, row(2), pos=110), run.table.change("d", row(1), None, pos=120))
    put_back()
    backend = backend_of(run)
    before = backend.described("t"), backend.texts("SELECT * FROM {s}.tailrace_ledger")

    extra = ConnectField("extra", connect("int32"))
    run.table.schema = with_columns(run.table.schema, run.feed.prefix, INTEGER, extra)
    run.write(alteration_records(run, 200, ColumnChange(AlterationKind.ADD, "extra", schema=extra.schema, value=7)))
    with pytest.raises(SinkError, match="another process has written"):
        run.batch(run.table.change("c", None, row(3, extra=9), pos=210))

    assert (backend.described("t"), backend.texts("SELECT * FROM {s}.tailrace_ledger")) == before
    run.repeat()
    run.retry()
    assert {key: each["extra"] for key, each in backend.rows(run.table.schema).items()} == {2: 7, 3: 9}


@_ONE_DATABASE
def test_names_that_become_one_do_not_share_a_table(opened: Open, tmp_path: Path) -> None:
    """Two databases and a sink.table without {database}: the second table is refused."""
    first = opened("t")
    first.batch(first.table.change("c", None, row(1), pos=100))
    schema = replace(first.table.schema, database="other", topic=f"{first.feed.prefix}.other.t")
    second = BatchRunner(first.feed, first.feed.table(schema), first.backend, tmp_path / "second")

    with pytest.raises(SinkError, match="belongs to another topic"):
        second.batch(second.table.change("c", None, row(2), pos=110))

    assert first.backend.rows(schema) == {1: row(1)}


@_ONE_DATABASE
def test_wrong_password_is_an_error_without_the_password(opened: Open) -> None:
    run = opened("t", **{"sink.password": "not-the-password"})

    with pytest.raises(TargetUnavailableError, match="no connection to the target database") as caught:
        run.batch(run.table.change("c", None, row(1), pos=100))

    assert "not-the-password" not in str(caught.value)


def test_server_that_is_down_ends_the_query(
    spark: SparkSession, kafka_broker: KafkaBroker, prefix: str, tmp_path: Path
) -> None:
    """The error says so, and after a restart of the server the batch is applied once."""
    from tests.embedded.postgresql import PostgresServer  # noqa: PLC0415

    with PostgresServer() as server:

        class Backend(JdbcBackend):
            pass

        Backend.server = postgres_database(server)
        feed = Feed(kafka_broker, prefix)
        table = feed.table(table_schema(feed.prefix, "t", INTEGER))
        run = BatchRunner(feed, table, Backend(spark, kafka_broker, tmp_path), tmp_path)
        run.batch(run.table.change("c", None, row(1), pos=100))
        server.stop()
        with pytest.raises(TargetUnavailableError, match="the target database"):
            run.batch(run.table.change("c", None, row(2), pos=110))
        server.start()
        run.repeat()

        assert run.backend.rows(table.schema) == {1: row(1), 2: row(2)}


@_ONE_DATABASE
@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("OutOfMemoryError\0", "column name of shop.refused has the character U.0000"),
        ("OutOfMemoryError java.net.ConnectException", "23514"),
    ],
    ids=["NUL", "CHECK"],
)
def test_the_reason_of_a_refused_row_names_the_column_and_no_value(
    text: str, expected: str, spark: SparkSession, opened: Open
) -> None:
    """The words of a value decide nothing, also where the database quotes the row."""
    run = opened("refused")
    backend_of(run).create_schema()
    backend_of(run).sql("CREATE TABLE {s}.refused (id BIGINT PRIMARY KEY, name TEXT CHECK (length(name) < 30), n INT)")

    with pytest.raises(Exception, match=expected) as caught:
        run.batch(run.table.change("c", None, {"id": 1, "name": text, "n": 1}, pos=100))

    assert not concerns_all_tables(caught.value)
    reason = known_reason(spark, {}, run.table.schema.topic, None, caught.value, same=True) or caught.value
    assert isinstance(reason, SinkError)
    assert re.search(expected, str(reason))
    assert "OutOfMemoryError" not in str(reason)
