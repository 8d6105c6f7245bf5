"""What the stream publishes for an ALTER TABLE: real versions and codecs, no servers."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tailrace.producer.config import load
from tailrace.producer.model.binlog_events import QueryEvent, TableVersion
from tailrace.producer.model.table import CatalogTable, Column, ColumnCatalog, Table, TableId
from tailrace.producer.mysql.text.ddl import ddl_effects
from tailrace.producer.serialization.captured_tables import CapturedTables
from tailrace.producer.streaming.alterations import Alterations
from tailrace.schemas.alteration import UNKNOWN, Alteration
from tailrace.schemas.sequence import Sequence
from tests.support.stream import FILE, SERVER
from tests.unit.test_config_load import BASE
from tests.unit.test_table_versions import SCHEMAS, TABLE, Versions

STRICT = 1 << 21
LOGGED = (
    Column("id", "int", nullable=False),
    Column("at", "datetime", fsp=3),
    Column("d", "decimal", precision=10, scale=4),
)


def known(column: Column, default: str | None = None, *, expression: bool = False) -> Column:
    """Return a column as the catalog describes it."""
    return replace(column, catalog=ColumnCatalog(column.data_type, None, default, expression, False, False, ""))


class Stream(Versions):
    """A stream whose table is in use; the catalog has ``added`` too."""

    def __init__(self, *added: Column, reads: bool = False) -> None:
        super().__init__()
        self.columns = (*(known(column) for column in LOGGED), *added)
        self.version = TableVersion(TABLE, LOGGED, ("id",), b"1")
        self.schema_at(self.version, 200)
        context = self.versions._context
        context = replace(context, settings=replace(context.settings, reads_after_alter=reads))
        self._alterations = Alterations(context, self.versions, self.versions.new_tables)
        self._pos = 300

    def _describe(self, _table: TableId) -> CatalogTable:
        return CatalogTable(Table(TABLE, self.columns, ("id",)), ("id",), (), frozenset(), {})

    def exclude(self, column: str) -> None:
        """Exclude a column from the records."""
        config = load(None, {}, {**BASE, "column.exclude.list": f"shop.t.{column}"})
        context = replace(self._alterations._context, tables=CapturedTables(config, self._describe))
        self._alterations = Alterations(context, self.versions, self.versions.new_tables)

    def run(self, sql: str, sql_mode: int = STRICT) -> Alteration | None:
        """Let the stream read a statement; return what it published."""
        self._pos += 100
        event = QueryEvent(f"{SERVER}:9", "shop", sql, FILE, 1, 2, 3, 1, None, query_pos=self._pos, sql_mode=sql_mode)
        sent = len(self.producer.open)
        for effect in ddl_effects(sql, "shop"):
            self._alterations.on_statement(event, effect)
        records = [value for topic, _, value in self.producer.open[sent:] if topic == SCHEMAS]
        assert len(records) < 2
        return Alteration.from_json(records[0] or b"") if records else None


def changes(found: Alteration | None) -> list[tuple[str, str, object]]:
    """Return the kind, the column and the value of each change."""
    return [] if found is None else [(each.kind.value, each.column, each.value) for each in found.changes]


@pytest.mark.parametrize(
    ("column", "text", "value"),
    [
        (known(Column("n", "int"), "5"), "INT DEFAULT 5", 5),
        (known(Column("n", "int")), "INT", None),
        (known(Column("n", "int", nullable=False)), "INT NOT NULL", 0),
        (known(Column("n", "varchar", length=40, charset="utf8mb4", nullable=False)), "VARCHAR(10) NOT NULL", ""),
        (known(Column("n", "varchar", length=40, charset="utf8mb4"), "it's"), "VARCHAR(10) DEFAULT 'it''s'", "it's"),
        (known(Column("n", "datetime"), "2020-01-01 00:00:00"), "DATETIME DEFAULT '2020-01-01'", 1_577_836_800_000),
        (known(Column("n", "double"), "1.5"), "DOUBLE DEFAULT 1.50", 1.5),
        (known(Column("n", "int"), "6"), "INT DEFAULT 5", UNKNOWN),
        (known(Column("n", "int")), "INT DEFAULT 5", UNKNOWN),
        (known(Column("n", "int"), "(1 + 2)", expression=True), "INT DEFAULT (1 + 2)", UNKNOWN),
        (known(Column("m", "int"), "5"), "INT DEFAULT 5", UNKNOWN),
        (known(Column("n", "int", nullable=False)), "INT", UNKNOWN),
    ],
)
def test_value_of_an_added_column(column: Column, text: str, value: object) -> None:
    """The value is known only if the statement and the catalog, which may be of a later definition, agree."""
    assert changes(Stream(column).run(f"ALTER TABLE t ADD n {text}")) == [("add", "n", value)]


def test_statement_is_published_at_its_position() -> None:
    stream = Stream()
    sql = "ALTER TABLE t RENAME COLUMN d TO e, DROP at, ADD INDEX (e)"

    found = stream.run(sql)

    assert found is not None
    assert (found.topic, found.sequence, found.statement) == ("shop.shop.t", Sequence(1, 1, 400, 0, 0), sql)
    assert [(each.kind.value, each.column, each.old) for each in found.changes] == [
        ("rename", "e", "d"),
        ("drop", "at", ""),
    ]
    assert Alteration.from_json(found.to_json()) == found


def test_values_that_are_converted() -> None:
    """Only where the server changes values, and not where it refuses the statement."""
    assert changes(Stream().run("ALTER TABLE t MODIFY at DATETIME(6), MODIFY id BIGINT NOT NULL COMMENT 'x'")) == []
    assert changes(Stream().run("ALTER TABLE t CONVERT TO CHARACTER SET latin1")) == []
    assert changes(Stream().run("ALTER TABLE t CONVERT TO CHARACTER SET latin1", 0)) == [("convert", "", UNKNOWN)]
    assert changes(Stream().run("ALTER TABLE t MODIFY at DATETIME(2), MODIFY d DECIMAL(12,4)")) == [
        ("convert", "at", UNKNOWN)
    ]


def test_definition_moves_with_the_name() -> None:
    stream = Stream()
    stream.run("ALTER TABLE t RENAME COLUMN at TO b")

    assert changes(stream.run("ALTER TABLE t CHANGE b c DATETIME(6)")) == [("rename", "c", UNKNOWN)]
    assert stream.run("ALTER TABLE t MODIFY c DATETIME(6) NOT NULL") is None


def test_statement_that_is_too_long_counts_as_one_that_changes_all_values() -> None:
    assert changes(Stream().run("ALTER TABLE t ADD n INT COMMENT '" + "x" * (1 << 18) + "'")) == [
        ("convert", "", UNKNOWN)
    ]


def test_second_statement_on_a_column_finds_the_definition_of_the_first_one() -> None:
    stream = Stream()

    assert stream.run("ALTER TABLE t MODIFY at DATETIME(6) NOT NULL") is None
    assert stream.run("ALTER TABLE t MODIFY at DATETIME(6) NULL") is None
    assert changes(stream.run("ALTER TABLE t MODIFY at DATETIME(5)")) == [("convert", "at", UNKNOWN)]


@pytest.mark.parametrize(
    ("sql", "leaves"),
    [
        ("CREATE INDEX i ON t (id)", True),
        ("TRUNCATE TABLE t", True),
        ("CREATE DATABASE other", True),
        ("DROP DATABASE other", True),
        ("CREATE TABLE IF NOT EXISTS t (id INT)", True),
        ("ALTER TABLE p EXCHANGE PARTITION p0 WITH TABLE t", True),
        ("DROP DATABASE shop", False),
        ("DROP TABLE t", False),
        ("CREATE TABLE t (id INT)", False),
        ("RENAME TABLE u TO t", False),
        ("RENAME TABLE t TO u", False),
    ],
)
def test_statement_on_no_column_leaves_the_definitions(sql: str, leaves: bool) -> None:
    """After any other statement they are unknown: those of the version in use are older than earlier statements."""
    stream = Stream()
    stream.run("ALTER TABLE t DROP d, ADD d DECIMAL(12,6) DEFAULT 1.123456")
    stream.run(sql)
    assert (stream.run("ALTER TABLE t MODIFY d DECIMAL(12,7) NULL") is None) == leaves
    stream.run("ALTER TABLE t DROP d, ADD d DECIMAL(12,6) DEFAULT 1.123456")
    stream.run(sql)
    assert changes(stream.run("ALTER TABLE t MODIFY d DECIMAL(10,4)")) == [("convert", "d", UNKNOWN)]


def test_columns_are_known_with_the_next_change() -> None:
    stream = Stream()
    stream.run("DROP TABLE t")
    stream.run("CREATE TABLE t (id INT)")
    stream.schema_at(stream.version, 900)
    assert stream.run("ALTER TABLE t MODIFY d DECIMAL(12,6)") is None
    assert stream.run("ALTER TABLE t MODIFY d DECIMAL(14,6)") is None


def test_definition_is_known_from_a_statement_alone_until_another_table_has_the_name() -> None:
    """Of a table without a change since the start, only what a statement has defined since then is known."""
    stream = Stream()
    stream.versions.forget(TABLE)

    assert changes(stream.run("ALTER TABLE t MODIFY at DATETIME(6) NOT NULL")) == [("convert", "at", UNKNOWN)]
    assert stream.run("ALTER TABLE t MODIFY at DATETIME(6) NULL") is None
    stream.run("DROP TABLE t")
    assert changes(stream.run("ALTER TABLE t MODIFY at DATETIME(6)")) == [("convert", "at", UNKNOWN)]


def test_unchanged_definition_is_republished() -> None:
    """A column was replaced by one of the same definition: readers must see that the schema is behind the statement."""
    stream = Stream(known(Column("d", "decimal", precision=10, scale=4)))
    stream.run("ALTER TABLE t DROP d, ADD d DECIMAL(10,4)")
    sent = len(stream.producer.open)

    stream.schema_at(stream.version, 900)

    assert [topic for topic, _, _ in stream.producer.open[sent:]] == [SCHEMAS]


@pytest.mark.parametrize(("sql", "reread"), [("MODIFY d DECIMAL(10,1)", True), ("DROP d", False)])
def test_snapshot_reads_a_table_whose_rows_are_not_known(sql: str, reread: bool) -> None:
    found = Stream(reads=True).run(f"ALTER TABLE t {sql}")

    assert found is not None
    assert found.reread == reread


def test_columns_that_records_lack_are_left_out() -> None:
    stream = Stream()
    stream.exclude("d")

    assert changes(stream.run("ALTER TABLE t DROP d, DROP at")) == [("drop", "at", UNKNOWN)]
    assert changes(stream.run("ALTER TABLE t RENAME COLUMN at TO d")) == [("drop", "at", UNKNOWN)]
    assert changes(stream.run("ALTER TABLE t RENAME COLUMN d TO e")) == [("add", "e", UNKNOWN)]
    assert stream.run("ALTER TABLE t MODIFY d INT") is None
