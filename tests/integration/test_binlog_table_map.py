"""Two descriptions of one table: binlog and catalog agree on its columns."""

from __future__ import annotations

from typing import Final

import pytest

from tailrace.producer.model.binlog_events import RowsEvent, TableVersion
from tailrace.producer.model.table import CatalogTable, Column, TableId
from tailrace.producer.mysql.catalog import read_table
from tailrace.producer.mysql.connection import connect
from tailrace.producer.serialization.captured_tables import with_float_digits
from tests.support.binlog import executed, follow, only, settings_of
from tests.support.database import Database

TYPES: Final = (
    *(f"{kind}{sign}" for kind in ("tinyint", "smallint", "mediumint", "int", "bigint") for sign in ("", " unsigned")),
    "tinyint(1)",
    "int zerofill",
    "boolean",
    "serial",
    "decimal(65,30)",
    "decimal(1,0) unsigned",
    "decimal(10)",
    "float",
    "float(7,3) unsigned",
    "float(53)",
    "double",
    "double(20,5) zerofill",
    *(f"bit({bits})" for bits in (1, 7, 8, 9, 13, 64)),
    "char",
    "char(0)",
    "char(63)",
    "char(64)",
    "char(255)",
    "char(255) character set latin1",
    "char(20) character set binary",
    "varchar(0)",
    "varchar(63)",
    "varchar(64)",
    "varchar(300)",
    "varchar(255) character set latin1",
    "varchar(10) collate utf8mb4_bin",
    "nvarchar(10)",
    *(f"{size}text" for size in ("tiny", "", "medium", "long")),
    "text character set gbk",
    "text character set binary",
    *(f"{size}blob" for size in ("tiny", "", "medium", "long")),
    "binary",
    "binary(16)",
    "binary(255)",
    "varbinary(10)",
    "varbinary(300)",
    "date",
    *(f"{kind}({fsp})" for kind in ("datetime", "time") for fsp in (0, 3, 6)),
    *(f"timestamp({fsp}) null" for fsp in (0, 1, 6)),
    "year",
    "enum('a')",
    r"enum('a','it''s','ä,b','c\\d','e\nf\rg','','(x)','''') character set utf8",
    "enum('é','ÿ') character set latin1",
    "enum('中') character set gbk",
    "enum('漢') character set utf16",
    "enum('a') character set binary",
    "set('x')",
    "set('x','é y','z') character set latin1",
    f"set({','.join(repr(str(n)) for n in range(64))})",
    f"enum({','.join(repr(str(n)) for n in range(300))})",
    "json",
    "geometry",
    "point",
    "linestring",
    "polygon",
    "multipoint",
    "multilinestring",
    "multipolygon",
    "geometrycollection",
    "int not null default 0",
    "varchar(10) not null default 'x'",
    "timestamp not null default current_timestamp on update current_timestamp",
    "int as (1 + 2) virtual",
    "varchar(20) as (concat('a', 'b')) stored",
)


def described(database: Database, table: str, changes: str) -> tuple[CatalogTable, TableVersion]:
    """Return both descriptions of a table, after a change of its rows."""
    start = executed(database.server)
    database.execute(changes)
    rows = only(RowsEvent, follow(database.server, start))
    with connect(settings_of(database.server)) as session:
        return read_table(session, TableId(database.name, table)), rows[-1].table


def assert_equal(catalog: CatalogTable, mapped: TableVersion) -> None:
    """Compare column by column, so that a failure names the column."""
    assert mapped.id == catalog.table.id
    columns = with_float_digits(mapped.columns, catalog.table.columns)
    types = [column.catalog.column_type if column.catalog else "" for column in catalog.table.columns]
    different = [
        (type_, ours, theirs)
        for type_, ours, theirs in zip(types, catalog.table.columns, columns, strict=True)
        if ours != theirs
    ]
    assert different == []
    assert mapped.primary_key == catalog.index_key


def test_every_type_has_equal_descriptions(database: Database) -> None:
    """All types of MySQL 8.0, in all their sizes."""
    columns = ", ".join(f"`c {number}` {type_}" for number, type_ in enumerate(TYPES))
    database.execute(f"CREATE TABLE t ({columns})")

    catalog, mapped = described(database, "t", "INSERT INTO t () VALUES ()")

    assert_equal(catalog, mapped)
    assert len(mapped.columns) == len(TYPES)


def test_every_character_set_has_equal_descriptions(database: Database) -> None:
    """CHAR, VARCHAR, TEXT and ENUM in each character set and collation that the server has."""
    collations = database.execute(
        "SELECT COLLATION_NAME, CHARACTER_SET_NAME FROM information_schema.COLLATIONS "
        "WHERE CHARACTER_SET_NAME <> 'binary' ORDER BY ID"
    )
    database.execute("SET sql_mode = ''")
    for first in range(0, len(collations), 60):
        name = f"t{first}"
        definitions = []
        for number, (collation, charset) in enumerate(collations[first : first + 60]):
            of = f"CHARACTER SET {charset} COLLATE {collation}"
            definitions += [
                f"a{number} CHAR(7) {of}",
                f"b{number} VARCHAR(100) {of}",
                f"c{number} TEXT {of}",
                f"d{number} ENUM('a', 'b') {of}",
                f"e{number} INT UNSIGNED",
            ]
        database.execute(f"CREATE TABLE {name} ({', '.join(definitions)}) CHARACTER SET latin1")

        assert_equal(*described(database, name, f"INSERT INTO {name} () VALUES ()"))


@pytest.mark.parametrize(
    "charset",
    [
        *("cp850", "koi8r", "koi8u", "latin1", "latin2", "latin5", "latin7", "swe7", "hebrew", "greek", "hp8"),
        *("cp1250", "cp1251", "cp1256", "cp1257", "cp852", "cp866", "macce", "macroman"),
    ],
)
def test_enum_values_of_every_byte_are_decoded_as_by_the_server(database: Database, charset: str) -> None:
    """The catalog has enum values as the server converts them; the binlog has the bytes of the column."""
    defined = [
        byte
        for byte in range(0x21, 0x100)
        if database.execute(f"SELECT CONVERT(CONVERT(x'{byte:02x}' USING {charset}) USING utf8mb4)")[0][0]
        not in {None, "", "\ufffd", " ", "?", "\u3000", "\xa0"}
    ]
    labels = ", ".join(f"x'{byte:02x}'" for byte in defined)
    database.execute(f"CREATE TABLE t (a ENUM({labels}) CHARACTER SET {charset} COLLATE {charset}_bin, b INT)")

    assert_equal(*described(database, "t", "INSERT INTO t (b) VALUES (1)"))


def test_signs_of_numbers_around_a_year(database: Database) -> None:
    """Servers before 8.0.21 have no signedness bit for YEAR, newer ones have."""
    for number, columns in enumerate(
        (
            "y YEAR, a INT",
            "y YEAR, a INT UNSIGNED",
            "a INT, y YEAR, b INT UNSIGNED, c INT",
            "a INT UNSIGNED, y YEAR, z YEAR, b INT, c INT UNSIGNED, d DECIMAL(3,1), x YEAR, e BIGINT UNSIGNED",
        )
    ):
        database.execute(f"CREATE TABLE t{number} ({columns})")
        assert_equal(*described(database, f"t{number}", f"INSERT INTO t{number} () VALUES ()"))


@pytest.mark.parametrize(
    ("definition", "primary", "unique", "prefixes"),
    [
        ("a INT, b INT, PRIMARY KEY (b, a)", ("b", "a"), (), set()),
        ("a TEXT, b VARCHAR(20), PRIMARY KEY (b(3), a(5))", ("b", "a"), (), {"a", "b"}),
        ("a INT, b VARCHAR(20), PRIMARY KEY (a, b(3))", ("a", "b"), (), {"b"}),
        ("a INT NOT NULL, b INT NOT NULL, UNIQUE z (b, a), UNIQUE y (a, b)", (), ("b", "a"), set()),
        ("a INT NOT NULL, b INT, UNIQUE a1 (a, b), UNIQUE a2 (a)", (), ("a",), set()),
        ("a VARCHAR(20) NOT NULL, b INT, UNIQUE (a(3))", (), (), set()),
        ("a INT NOT NULL, b INT, UNIQUE ((a + 1)), KEY ((b + 1))", (), (), set()),
        ("a INT NOT NULL, b INT, KEY (a)", (), (), set()),
        ("a INT, b INT", (), (), set()),
        ("a INT, b INT NOT NULL, PRIMARY KEY (a), UNIQUE (b)", ("a",), ("b",), set()),
    ],
)
def test_keys_have_equal_descriptions(
    database: Database, definition: str, primary: tuple[str, ...], unique: tuple[str, ...], prefixes: set[str]
) -> None:
    """Key columns in key order; replacements of a primary key; prefixes; functional indexes add nothing."""
    database.execute(f"CREATE TABLE t ({definition})")
    catalog, mapped = described(database, "t", "INSERT INTO t (a, b) VALUES (1, 2)")

    assert (catalog.primary_key, catalog.unique_key, set(catalog.prefix_columns)) == (primary, unique, prefixes)
    assert_equal(catalog, mapped)


def test_enum_values_outside_the_character_set_of_the_catalog(database: Database) -> None:
    """The catalog stores three-byte UTF-8 and shows other characters as '?'; the binlog has them unchanged."""
    database.execute("CREATE TABLE t (a ENUM('🎉', 'b'))")
    catalog, mapped = described(database, "t", "INSERT INTO t VALUES ('b')")

    assert catalog.table.columns[0].enum_values == ("?", "b")
    assert mapped.columns[0].enum_values == ("🎉", "b")


def test_equal_definitions_share_one_object_and_fingerprint(database: Database) -> None:
    """They identify compiled codecs."""
    database.execute("CREATE TABLE t (id INT PRIMARY KEY)")
    start = executed(database.server)
    database.execute("INSERT INTO t VALUES (1)")
    database.execute("FLUSH TABLES")
    database.execute("INSERT INTO t VALUES (2)")

    first, second = only(RowsEvent, follow(database.server, start))
    [incremental, _] = only(RowsEvent, follow(database.server, start))

    assert first.table is second.table
    assert first.table.fingerprint == incremental.table.fingerprint
    assert first.table == incremental.table


def test_data_types_are_those_of_the_table_module(database: Database) -> None:
    """A few by hand, so that both descriptions cannot be wrong in the same way."""
    database.execute(
        "CREATE TABLE t (a INT UNSIGNED NOT NULL, b DECIMAL(10,3), c VARCHAR(10), d TINYTEXT, e DATETIME(3), "
        "f BIT(13), g SET('x','y') CHARACTER SET latin1, h VARBINARY(4), i JSON)"
    )
    _, mapped = described(database, "t", "INSERT INTO t (a) VALUES (1)")

    assert mapped.columns == (
        Column("a", "int", nullable=False, unsigned=True),
        Column("b", "decimal", precision=10, scale=3),
        Column("c", "varchar", length=40, charset="utf8mb4"),
        Column("d", "text", length=255, charset="utf8mb4"),
        Column("e", "datetime", fsp=3),
        Column("f", "bit", length=13),
        Column("g", "set", charset="latin1", enum_values=("x", "y")),
        Column("h", "varbinary", length=4, charset="binary"),
        Column("i", "json"),
    )
