"""What ALTER TABLE does to columns and to the values of existing rows, read from the statement."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace.producer.model.ddl import ColumnAction, ColumnDefinition
from tailrace.producer.model.table import Column
from tailrace.producer.model.value_conversion import is_strict, keeps_values
from tailrace.producer.mysql.text.column_actions import column_actions, keeps_rows
from tailrace.producer.mysql.text.sql_tokens import SqlDialect

Found = list[tuple[str, str, str]]

NAMES: dict[str, Found] = {
    "ALTER TABLE t ADD c INT": [("add", "c", "")],
    "ALTER TABLE a.b ADD COLUMN c INT FIRST, ADD INDEX (c)": [("add", "c", "")],
    "alter table `a`.`b` add (`x y` int, key (z), y decimal(10,2))": [("add", "x y", ""), ("add", "y", "")],
    "ALTER TABLE t DROP c, DROP COLUMN d, DROP PRIMARY KEY, DROP INDEX i, DROP FOREIGN KEY k, DROP PARTITION p": [
        ("drop", "c", ""),
        ("drop", "d", ""),
    ],
    "ALTER TABLE t RENAME COLUMN a TO b, RENAME INDEX c TO d, RENAME TO e": [("rename", "b", "a")],
    "ALTER TABLE t CHANGE a b INT, CHANGE COLUMN c c INT": [
        ("rename", "b", "a"),
        ("modify", "b", "a"),
        ("modify", "c", "c"),
    ],
    "ALTER TABLE t MODIFY COLUMN a ENUM('x,y', 'ADD z INT') AFTER b": [("modify", "a", "a")],
    "ALTER TABLE t CONVERT TO CHARACTER SET utf8mb4": [("convert", "", "")],
    "ALTER TABLE t CONVERT PARTITION p TO TABLE u": [],
    "ALTER TABLE t CONVERT TABLE u TO PARTITION p VALUES IN (5)": [],
    "ALTER TABLE t ALTER COLUMN a SET DEFAULT 5, ADD CONSTRAINT c CHECK (d > 0), COMMENT 'ADD x INT'": [],
    "ALTER TABLE `add` ADD COLUMN `drop` INT": [("add", "drop", "")],
    "ALTER TABLE a.t WAIT 5 ADD COLUMN c INT, DROP d": [("add", "c", ""), ("drop", "d", "")],
    "ALTER TABLE IF EXISTS t NOWAIT DROP c": [("drop", "c", "")],
    "ALTER TABLE wait ADD nowait INT": [("add", "nowait", "")],
    "ALTER TABLE t ADD COLUMN IF NOT EXISTS c INT DEFAULT 5, ADD IF NOT EXISTS (d INT, KEY (d), `if` INT)": [
        ("modify", "c", "c"),
        ("modify", "d", "d"),
        ("modify", "if", "if"),
    ],
    "ALTER TABLE t DROP COLUMN IF EXISTS c, DROP IF EXISTS d, DROP INDEX IF EXISTS i, DROP `if`": [
        ("drop", "c", ""),
        ("drop", "d", ""),
        ("drop", "if", ""),
    ],
    "ALTER TABLE t CHANGE IF EXISTS a b INT, CHANGE COLUMN IF EXISTS c c INT, MODIFY COLUMN IF EXISTS d INT": [
        ("rename", "b", "a"),
        ("modify", "b", "a"),
        ("modify", "c", "c"),
        ("modify", "d", "d"),
    ],
    "ALTER TABLE t RENAME COLUMN IF EXISTS a TO b, RENAME INDEX IF EXISTS c TO d": [("rename", "b", "a")],
    "ALTER TABLE t ADD SYSTEM VERSIONING, DROP SYSTEM VERSIONING, ADD PERIOD FOR SYSTEM_TIME (a, b)": [],
    "ALTER TABLE t ADD PERIOD IF NOT EXISTS FOR p (a, b), DROP PERIOD IF EXISTS FOR p, DROP PERIOD FOR q": [],
    "ALTER TABLE t ADD (a DATE, PERIOD FOR p (a, b))": [("add", "a", "")],
    "ALTER TABLE t ADD VECTOR (a), ADD VECTOR v (a), ADD VECTOR INDEX v (a), ADD VECTOR IF NOT EXISTS v (`a`)": [],
    "ALTER TABLE t ADD vector VARCHAR(9), ADD COLUMN VECTOR ENUM('a'), ADD vector DECIMAL(9, 2) DEFAULT (1)": [
        ("add", "vector", ""),
        ("add", "VECTOR", ""),
        ("add", "vector", ""),
    ],
    "ALTER TABLE t ADD system INT, ADD period INT, ADD vector VECTOR, DROP system, DROP period, DROP vector": [
        ("add", "system", ""),
        ("add", "period", ""),
        ("add", "vector", ""),
        ("drop", "system", ""),
        ("drop", "period", ""),
        ("drop", "vector", ""),
    ],
    "ALTER TABLE t ADD c INT /* \ufffd */": [("add", "c", "")],
    "ALTER /* DROP c */ TABLE t ENGINE=InnoDB -- , DROP d": [],
}
DEFINITIONS = {
    "INT": ColumnDefinition("int"),
    "INTEGER(11) UNSIGNED NOT NULL DEFAULT -5": ColumnDefinition("int", ("11",), True, False, "-5"),
    "decimal(10, 2) default 1.50": ColumnDefinition("decimal", ("10", "2"), default="1.50"),
    r"VARCHAR(9) DEFAULT 'it''s \'a\n'": ColumnDefinition("varchar", ("9",), default="it's 'a\n"),
    'VARCHAR(9) DEFAULT "a"': ColumnDefinition("varchar", ("9",), default="a"),
    "BOOL DEFAULT TRUE": ColumnDefinition("tinyint", default="1"),
    "BIT(3) DEFAULT b'011'": ColumnDefinition("bit", ("3",), default="b'11'"),
    "ENUM('a','b') DEFAULT NULL": ColumnDefinition("enum", labels=("a", "b")),
    r"""SET('a ', "b,c", 'it''s', '\'(') CHARACTER SET latin1""": ColumnDefinition(
        "set", labels=("a", "b,c", "it's", "'(")
    ),
    "SET('a', x'62')": ColumnDefinition("set", labels=None),
    "TIMESTAMP DEFAULT CURRENT_TIMESTAMP": ColumnDefinition("timestamp", computed=True),
    "VARCHAR(36) DEFAULT (UUID())": ColumnDefinition("varchar", ("36",), computed=True),
    "VARCHAR(36) DEFAULT _latin1'x'": ColumnDefinition("varchar", ("36",), computed=True),
    "INT AS (a + 1)": ColumnDefinition("int", computed=True),
    "INT NOT NULL AUTO_INCREMENT PRIMARY KEY": ColumnDefinition("int", nullable=False, computed=True),
    "POINT": ColumnDefinition(""),
    "INT(4) ZEROFILL": ColumnDefinition("int", ("4",), unsigned=True),
    "MEDIUMTEXT": ColumnDefinition("text", ("16777215",)),
    "VARCHAR(9) CHARACTER SET binary": ColumnDefinition("", ("9",)),
}
INT, DEC = Column("c", "int"), Column("c", "decimal", precision=10, scale=2)
AT, TEXT = Column("c", "datetime", fsp=3), Column("c", "varchar", length=40, charset="utf8mb4")
ENUM, SET = Column("c", "enum", enum_values=("a", "b")), Column("c", "set", enum_values=("a", "b"))
KEPT: list[tuple[Column, str, bool, bool]] = [
    (INT, "BIGINT", True, True),
    (INT, "INT UNSIGNED", True, False),
    (INT, "SMALLINT", True, False),
    (INT, "INT NOT NULL", True, False),
    (INT, "DOUBLE", False, False),
    (Column("c", "int", unsigned=True), "BIGINT", True, True),
    (DEC, "DECIMAL(12,4)", True, True),
    (DEC, "DECIMAL(12,1)", False, False),
    (DEC, "DECIMAL(10,3)", True, False),
    (DEC, "DECIMAL", False, False),
    (AT, "DATETIME(6)", True, True),
    (AT, "DATETIME(2)", False, False),
    (AT, "DATETIME", False, False),
    (AT, "DATE", False, False),
    (Column("c", "date"), "DATETIME", True, True),
    (Column("c", "date", nullable=False), "DATE DEFAULT NULL", True, True),
    (Column("c", "int", nullable=False), "INT DEFAULT 0", True, True),
    (Column("c", "float"), "DOUBLE", True, True),
    (Column("c", "float"), "FLOAT(5,1)", False, False),
    (Column("c", "double"), "DOUBLE UNSIGNED", True, False),
    (Column("c", "double"), "REAL ZEROFILL", True, False),
    (Column("c", "double", unsigned=True), "DOUBLE UNSIGNED", True, True),
    (Column("c", "timestamp"), "TIMESTAMP(3)", True, True),
    (Column("c", "timestamp"), "TIMESTAMP(3) NOT NULL", False, False),
    (Column("c", "char", length=9, charset="latin1"), "CHAR(9) BYTE", False, False),
    (TEXT, "VARCHAR(10)", True, False),
    (TEXT, "VARCHAR(9)", False, False),
    (TEXT, "TINYTEXT", True, False),
    (replace(TEXT, length=400), "TINYTEXT", False, False),
    (replace(TEXT, charset="latin1"), "VARCHAR(20)", False, False),
    (Column("c", "text", length=65535, charset="utf8mb4"), "TEXT NOT NULL", True, False),
    (Column("c", "text", length=65535, charset="utf8mb4"), "VARCHAR(255)", False, False),
    (Column("c", "text", length=255, charset="latin1"), "TINYTEXT", False, False),
    (Column("c", "text", length=255, charset="latin1"), "VARCHAR(255)", True, False),
    (Column("c", "char", length=40, charset="utf8mb4"), "VARCHAR(5)", True, False),
    (Column("c", "char", length=40, charset="utf8mb4"), "CHAR(5)", True, False),
    (Column("c", "varbinary", length=40, charset="binary"), "VARBINARY(5)", True, False),
    (INT, "VARCHAR(20)", True, False),
    (Column("c", "int", unsigned=True), "VARCHAR(20)", False, False),
    (Column("c", "int", unsigned=True), "DECIMAL(20)", True, False),
    (TEXT, "CHAR(20)", False, False),
    (TEXT, "INT", False, False),
    (Column("c", "enum", enum_values=("a",)), "ENUM('b','a')", True, False),
    (ENUM, "ENUM('A','b')", False, False),
    (ENUM, "ENUM('b')", True, False),
    (ENUM, "ENUM('b','\u00e4')", False, False),
    (ENUM, "VARCHAR(9)", True, False),
    (SET, "SET('a','c','b')", True, False),
    (SET, "SET('a','d')", True, False),
    (SET, "SET('b','a')", False, False),
    (SET, "SET('a',x'62')", False, False),
    (Column("c", "binary", length=3), "BINARY(5)", False, False),
    (TEXT, "SOMETHING NEW", False, False),
]
"""A column, its new definition, and whether values are kept in strict mode and in any, as the server was seen to do."""


@pytest.mark.parametrize(
    "action", ["ADD c\ufffd INT", "DROP \ufffd", "CHANGE a\ufffd b INT", "ADD c INT DEFAULT '\ufffd'"]
)
def test_names_and_defaults_that_are_no_text_count_as_a_change_of_all_values(action: str) -> None:
    """Only where bytes were replaced: U+FFFD is a character like others."""
    sql = f"ALTER TABLE t {action}"
    assert column_actions(sql, SqlDialect(has_replaced=True)) == (ColumnAction("modify", ""),)
    assert column_actions(sql, SqlDialect()) != (ColumnAction("modify", ""),)
    unharmed = "ALTER TABLE t ADD c INT DEFAULT 1 /* \ufffd */"
    assert column_actions(unharmed, SqlDialect(has_replaced=True)) == column_actions(unharmed, SqlDialect())


@pytest.mark.parametrize("sql", NAMES)
def test_columns_of_a_statement(sql: str) -> None:
    found = column_actions(sql, SqlDialect())

    assert [(action.kind, action.column, action.old) for action in found] == NAMES[sql]


def test_column_that_may_have_existed_has_unknown_values() -> None:
    """MariaDB: the statement has not changed it then."""
    found = column_actions("ALTER TABLE t ADD COLUMN IF NOT EXISTS c INT DEFAULT 5", SqlDialect())
    assert found == (ColumnAction("modify", "c", "c"),)


@pytest.mark.parametrize("text", DEFINITIONS)
def test_definition_of_a_column(text: str) -> None:
    assert column_actions(f"ALTER TABLE t ADD c {text} AFTER d", SqlDialect()) == (
        ColumnAction("add", "c", definition=DEFINITIONS[text]),
    )


@pytest.mark.parametrize(("before", "after", "strict", "loose"), KEPT)
def test_statements_that_keep_values(before: Column, after: str, strict: bool, loose: bool) -> None:
    (action,) = column_actions(f"ALTER TABLE t MODIFY c {after}", SqlDialect())
    assert action.definition is not None

    kept = [keeps_values(before, action.definition, strict=mode) for mode in (True, False)]

    assert kept == [strict, loose]


@pytest.mark.parametrize(
    ("actions", "kept"),
    [
        ("ADD COLUMN c INT NOT NULL DEFAULT 5 COMMENT 'UNIQUE' AFTER b, ADD d DECIMAL(10,2)", True),
        ("ADD (c INT, d INT), ADD INDEX i (c, d(9)), ADD KEY (c), ADD FULLTEXT INDEX (c)", True),
        ("DROP INDEX i, DROP KEY k, DROP FOREIGN KEY f, DROP CHECK c, DROP CONSTRAINT d, RENAME INDEX a TO b", True),
        ("MODIFY c BIGINT, CHANGE c d INT, ALTER COLUMN c SET DEFAULT 5, ALTER INDEX i INVISIBLE", True),
        ("engine=innodb, ENGINE InnoDB ROW_FORMAT=DYNAMIC, COMMENT 'x', DEFAULT CHARSET=utf8mb4, ALGORITHM=COPY", True),
        ("ADD `unique` INT", True),
        ("WAIT 5 ADD c INT", True),
        ("NOWAIT DROP PRIMARY KEY", False),
        ("ADD INDEX IF NOT EXISTS (period), ADD period INT", True),
        ("ADD PERIOD FOR p (c, d)", False),
        ("ADD PERIOD IF NOT EXISTS FOR p (c, d)", False),
        ("DROP c", False),
        ("DROP COLUMN c", False),
        ("DROP PRIMARY KEY", False),
        ("ADD UNIQUE (c)", False),
        ("ADD PRIMARY KEY (c)", False),
        ("ADD INDEX (c), ADD c INT KEY", False),
        ("ADD c SERIAL", False),
        ("MODIFY c INT UNIQUE", False),
        ("ADD c INT CHECK (c > 0)", False),
        ("ADD CHECK (c > 0)", False),
        ("ALTER CHECK k ENFORCED", False),
        ("ADD CONSTRAINT k CHECK (c > 0)", False),
        ("ADD FOREIGN KEY (c) REFERENCES d (e)", False),
        ("ADD INDEX (c, (d + 1))", False),
        ("ADD INDEX ((d + 1))", False),
        ("PARTITION BY HASH (c)", False),
        ("ADD INDEX (c) PARTITION BY HASH (c)", False),
        ("COMMENT 'x' /*!50100 PARTITION BY RANGE (id) (PARTITION p VALUES LESS THAN (9)) */", False),
        ("DROP PARTITION p", False),
        ("CONVERT TO CHARACTER SET utf8mb4", False),
        ("ENGINE=BLACKHOLE", False),
        ("COMMENT 'x' ENGINE=BLACKHOLE", False),
        ("SOMETHING NEW", False),
        ("COMMENT '" + "x" * (1 << 18) + "'", False),
    ],
)
def test_actions_that_keep_all_rows_of_a_copy(actions: str, kept: bool) -> None:
    assert keeps_rows(f"alter /* gh-ost */ table `a`.`_b_gho` {actions}", SqlDialect()) == kept


def test_padded_char_is_not_kept() -> None:
    """PAD_CHAR_TO_FULL_LENGTH: a CHAR that becomes VARCHAR gets blanks, in strict mode too."""
    assert is_strict(1 << 21)
    assert not is_strict(1 << 21 | 1 << 31)


@given(st.text(alphabet="ALTERtableADDdropRENAMEcolumnTO `'\"(),.-;x1\\/*", max_size=80))
def test_no_text_makes_the_reader_fail(text: str) -> None:
    for sql in (f"ALTER TABLE t {text}", text):
        column_actions(sql, SqlDialect())
        keeps_rows(sql, SqlDialect())
