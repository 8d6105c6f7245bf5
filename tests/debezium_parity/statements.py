"""The statements that both connectors capture: tables and rows before the snapshot, and the streaming phase.

One session runs them in DATABASE, with an SQL mode that allows zero dates and empty labels.
"""

# ruff: noqa: E501 - a statement stays on its line

from __future__ import annotations

from typing import Final

from tests.debezium_parity.type_tables import TYPE_TABLES

DATABASE: Final = "odd"
SENTINEL: Final = "zz_sentinel"
"""The table that receives the last row."""

SESSION: Final = ("SET SESSION sql_mode = 'NO_ENGINE_SUBSTITUTION'", "SET SESSION time_zone = '+00:00'")

XA_COMMITTED: Final = "xa_committed"
XA_ROLLED_BACK: Final = "xa_rolled_back"
XA_ONE_PHASE: Final = "xa_one_phase"
XA_TABLES: Final = (XA_COMMITTED, XA_ROLLED_BACK, XA_ONE_PHASE)
"""Changed by XA transactions only: committed in two phases, rolled back after the first one, committed in one."""

_DEFAULTS: Final = """CREATE TABLE `{name}` (
  id INT NOT NULL PRIMARY KEY,
  ti TINYINT DEFAULT 5, tin TINYINT NOT NULL DEFAULT -5, b BOOLEAN DEFAULT TRUE, bn TINYINT(1) NOT NULL DEFAULT 0,
  i INT DEFAULT 10, iq INT DEFAULT '11', inn INT NOT NULL DEFAULT 0, iu INT UNSIGNED DEFAULT 4294967295,
  bi BIGINT DEFAULT -9223372036854775808, biu BIGINT UNSIGNED DEFAULT 18446744073709551615,
  iz INT(4) ZEROFILL DEFAULT 7,
  f FLOAT DEFAULT 5.6, fs FLOAT(7,3) DEFAULT 5.6, d DOUBLE DEFAULT 1e10, dn DOUBLE NOT NULL DEFAULT 0,
  de DECIMAL(10,4) DEFAULT 3.1, den DECIMAL(5,0) NOT NULL DEFAULT 12, bt BIT DEFAULT b'1',
  b9 BIT(9) DEFAULT b'100000001',
  v VARCHAR(20) DEFAULT 'it''s "x" \\\\ é', ve VARCHAR(20) NOT NULL DEFAULT '', vnull VARCHAR(20) DEFAULT NULL,
  vnum VARCHAR(20) DEFAULT '123', c CHAR(5) DEFAULT ' a', bin BINARY(4) DEFAULT 'ab', vb VARBINARY(4) DEFAULT 'ab',
  y YEAR DEFAULT 2020, yn YEAR NOT NULL DEFAULT 1, da DATE DEFAULT '2011-02-03',
  dan DATE NOT NULL DEFAULT '0000-00-00',
  daz DATE DEFAULT '0000-00-00', t TIME DEFAULT '12:34:56', t3 TIME(3) DEFAULT '-01:02:03.456',
  t6 TIME(6) NOT NULL DEFAULT '23:59:59',
  dt DATETIME DEFAULT '2011-02-03 04:05:06', dt6 DATETIME(6) DEFAULT '2011-02-03 04:05:06.123456',
  dtc DATETIME DEFAULT CURRENT_TIMESTAMP,
  dtcn DATETIME(3) NOT NULL DEFAULT CURRENT_TIMESTAMP(3) ON UPDATE CURRENT_TIMESTAMP(3),
  dtz DATETIME NOT NULL DEFAULT '0000-00-00 00:00:00',
  ts TIMESTAMP NULL DEFAULT '2011-02-03 04:05:06', tsn TIMESTAMP NOT NULL DEFAULT '2011-02-03 04:05:06',
  ts6 TIMESTAMP(6) NOT NULL DEFAULT '2011-02-03 04:05:06.100000', tsc TIMESTAMP NOT NULL DEFAULT CURRENT_TIMESTAMP,
  tscn TIMESTAMP NULL DEFAULT CURRENT_TIMESTAMP, tsz TIMESTAMP NOT NULL DEFAULT '0000-00-00 00:00:00',
  e ENUM('a','b') DEFAULT 'b', en ENUM('a','b') NOT NULL, s SET('a','b') DEFAULT 'a,b',
  x VARCHAR(36) DEFAULT (UPPER('abc')), xi INT DEFAULT (1 + 2), j JSON, jx JSON DEFAULT (JSON_OBJECT())
) COMMENT 'all kinds of "defaults"'"""

_DEFAULT_ROWS: Final = (
    "INSERT INTO `{name}` (id, dtc, dtcn, tsc, tscn) VALUES ({a}, '2020-01-01', '2020-01-01', '2020-01-01', '2020-01-01')",
    (
        "INSERT INTO `{name}` SET id = {b}, ti = NULL, b = NULL, i = NULL, biu = NULL, f = NULL, d = NULL, de = NULL, "
        "bt = NULL, b9 = NULL, v = NULL, bin = NULL, y = NULL, da = NULL, daz = NULL, t = NULL, t3 = NULL, dt = NULL, "
        "dt6 = NULL, dtc = NULL, dtcn = '2020-01-01', ts = NULL, tsc = '2020-01-01', tscn = NULL, e = NULL, s = NULL, "
        "x = NULL, xi = NULL, jx = NULL"
    ),
)

_MORE_DEFAULTS: Final = """CREATE TABLE `{name}` (
  id INT NOT NULL PRIMARY KEY,
  b64 BIT(64) DEFAULT b'1000000000000000000000000000000000000000000000000000000000000001',
  bn BIT NOT NULL DEFAULT b'0', b8 BIT(8) DEFAULT 5, b16 BIT(16) NOT NULL DEFAULT x'1F2E',
  bf BOOLEAN DEFAULT FALSE, ip INT DEFAULT +5, iz INT DEFAULT -0, tq TINYINT(1) NOT NULL DEFAULT '1',
  dc DECIMAL(5,2) DEFAULT '1.005', dn DECIMAL(6,3) NOT NULL DEFAULT -.5, db DOUBLE DEFAULT 1.5e-7, dm DOUBLE(6,2) DEFAULT 3.14159,
  th TIME DEFAULT '838:59:59', tn TIME DEFAULT '-00:00:01', yq YEAR DEFAULT '99', dt DATETIME DEFAULT '2011-02-03',
  vl VARCHAR(9) CHARACTER SET latin1 DEFAULT 'é€', vu VARCHAR(9) CHARACTER SET utf16 DEFAULT 'é中',
  vk VARCHAR(9) CHARACTER SET gbk DEFAULT '中', el ENUM('ä','ö') CHARACTER SET latin1 DEFAULT 'ö',
  st SET('a','b') NOT NULL DEFAULT '', ce CHAR(3) DEFAULT '', vb VARBINARY(4) NOT NULL DEFAULT 'ab',
  xt TEXT DEFAULT ('abc'), xb BLOB DEFAULT ('ab'), xp POINT DEFAULT (POINT(1, 2)), xj JSON NOT NULL DEFAULT (JSON_ARRAY(1)),
  xd DECIMAL(10,2) DEFAULT (1.5 + 1), xi INT NOT NULL DEFAULT (3 * 4), xa DATE DEFAULT (DATE '2020-01-01'),
  xv VARCHAR(9) DEFAULT (id + 1), xs SET('a','b') DEFAULT ('a'), xc BIT(3) DEFAULT (b'101'),
  gs DECIMAL(8,2) AS (id / 3) STORED NOT NULL, gv JSON AS (JSON_OBJECT('i', id)) VIRTUAL, gp POINT AS (POINT(id, 0)) STORED,
  gb BIT(8) AS (id) VIRTUAL, gd DATE AS (DATE '2020-01-01' + INTERVAL id DAY) VIRTUAL,
  gt VARCHAR(20) CHARACTER SET latin1 AS (CONCAT('é', id)) STORED, ge BLOB AS (CHAR(id)) VIRTUAL
)"""

_HIDDEN: Final = (
    (
        "CREATE TABLE {name} (id INT PRIMARY KEY, a INT, b VARCHAR(9) DEFAULT 'x' /*!80023 INVISIBLE */, "
        "c DECIMAL(4,1) /*!80023 INVISIBLE */, g INT AS (a + 1) VIRTUAL /*!80023 INVISIBLE */, z INT)"
    ),
    "INSERT INTO {name} (id, a, b, c, z) VALUES (1, 1, 'é', 1.5, 1), (2, NULL, NULL, NULL, NULL)",
    "INSERT INTO {name} (id) VALUES (3)",
)

_BEFORE: Final = (
    *(table.create() for table in TYPE_TABLES),
    *(statement for table in TYPE_TABLES for statement in table.inserts()),
    _DEFAULTS.format(name="defaults"),
    *(row.format(name="defaults", a=1, b=2) for row in _DEFAULT_ROWS),
    _MORE_DEFAULTS.format(name="more_defaults"),
    "INSERT INTO more_defaults (id) VALUES (1)",
    *(statement.format(name="hidden") for statement in _HIDDEN),
    "CREATE TABLE computed_key (a INT, k INT AS (a + 100) STORED PRIMARY KEY, u BIGINT UNSIGNED AS (a * 2) VIRTUAL NOT NULL)",
    "INSERT INTO computed_key (a) VALUES (1), (2)",
    (
        "CREATE TABLE computed (id INT PRIMARY KEY, a INT, b INT GENERATED ALWAYS AS (a * 2) STORED, "
        "c VARCHAR(20) GENERATED ALWAYS AS (CONCAT('v', a)) VIRTUAL, d INT AS (a + 1) STORED NOT NULL) COMMENT='gen'"
    ),
    "INSERT INTO computed (id, a) VALUES (1, 10), (2, 20)",
    # Keys: composite and in another order than the columns, of many types, from a unique index, none.
    "CREATE TABLE k_composite (a INT, b VARCHAR(10) NOT NULL, c DECIMAL(6,2), d INT, PRIMARY KEY (c, a))",
    "INSERT INTO k_composite VALUES (1, 'x', 1.50, 1), (2, 'y', -2.25, 2)",
    (
        "CREATE TABLE k_types (d DATE, t TIME(3), dt DATETIME(6), ts TIMESTAMP, b BINARY(3), e ENUM('p','q'), y YEAR, "
        "bu BIGINT UNSIGNED, f DOUBLE, bt BIT(5), v VARCHAR(10) DEFAULT 'dflt', x INT, PRIMARY KEY (d, t, dt, ts, b, e, y, bu, f, bt, v))"
    ),
    (
        "INSERT INTO k_types VALUES ('2020-02-29', '01:02:03.004', '2020-02-29 01:02:03.000004', '2020-02-29 01:02:03', x'010200', "
        "'q', 1999, 18446744073709551615, 0.1, b'10001', 'é\"', 1)"
    ),
    "CREATE TABLE k_zero_dates (d DATE, dt DATETIME(3), v INT, PRIMARY KEY (d, dt))",
    "INSERT INTO k_zero_dates VALUES ('0000-00-00', '2024-00-10 01:02:03.004', 1), ('2024-00-10', '0000-00-00', 2)",
    "CREATE TABLE k_unique (a INT NOT NULL, b INT, c VARCHAR(9) NOT NULL, UNIQUE KEY (c, a))",
    "INSERT INTO k_unique VALUES (1, 1, 'u'), (2, NULL, 'v')",
    "CREATE TABLE k_unique_null (a INT, b INT, UNIQUE KEY (a))",
    "INSERT INTO k_unique_null VALUES (1, 1), (NULL, 2)",
    "CREATE TABLE k_unique_inline (a INT UNIQUE, b INT)",
    "INSERT INTO k_unique_inline VALUES (1, 1), (NULL, 2)",
    "CREATE TABLE k_two_unique (a INT NULL, b INT NOT NULL, c INT NOT NULL, UNIQUE KEY ua (a), UNIQUE KEY ub (b), UNIQUE KEY uc (c))",
    "INSERT INTO k_two_unique VALUES (1, 2, 3)",
    "CREATE TABLE k_none (a INT, b VARCHAR(10))",
    "INSERT INTO k_none VALUES (1, 'one'), (1, 'one'), (NULL, NULL)",
    "CREATE TABLE k_serial (s SERIAL, v INT)",
    "INSERT INTO k_serial (v) VALUES (1)",
    # Names that need sanitizing or quoting.
    'CREATE TABLE `we$ird näme-1` (`i d` INT PRIMARY KEY, `c-d` INT, `1x` INT, `é` INT, `sel"ect` INT COMMENT \'a "b"\')',
    "INSERT INTO `we$ird näme-1` VALUES (1, 2, 3, 4, 5)",
    "CREATE TABLE `Mixed_Case` (`Id` INT PRIMARY KEY, `ColA` INT)",
    "INSERT INTO `Mixed_Case` VALUES (1, 2)",
    "CREATE TABLE empty_one (id INT PRIMARY KEY)",
    # The tables of the streaming phase.
    "CREATE TABLE ops (id INT PRIMARY KEY AUTO_INCREMENT, k INT UNIQUE, v VARCHAR(20) DEFAULT 'd') COMMENT 'op''s'",
    "INSERT INTO ops (k, v) VALUES (1, 'one'), (2, 'two'), (3, 'three'), (4, 'four'), (5, 'five')",
    "CREATE TABLE child (id INT PRIMARY KEY, ops_id INT, FOREIGN KEY (ops_id) REFERENCES ops (id) ON DELETE CASCADE)",
    "INSERT INTO child VALUES (1, 1), (2, 1), (3, 2)",
    # One table for each way in which an XA transaction ends.
    *(f"CREATE TABLE {table} (id INT PRIMARY KEY, v VARCHAR(20))" for table in XA_TABLES),
    *(f"INSERT INTO {table} VALUES (1, 'one'), (2, 'two'), (3, 'three')" for table in XA_TABLES),
    f"CREATE TABLE {SENTINEL} (id INT PRIMARY KEY)",
    f"INSERT INTO {SENTINEL} VALUES (0)",
)

_OPERATIONS: Final = (
    "INSERT INTO ops (k, v) VALUES (6, 'six'), (7, 'seven'), (8, 'eight')",
    "UPDATE ops SET v = 'TWO' WHERE id = 2",
    "UPDATE ops SET v = v WHERE id = 2",
    "UPDATE ops SET v = CONCAT(v, '+') WHERE id IN (3, 4)",
    "DELETE FROM ops WHERE id = 5",
    "DELETE FROM ops WHERE id IN (6, 7)",
    "UPDATE ops SET id = 80 WHERE id = 8",
    "UPDATE ops SET id = id + 1000 WHERE id IN (3, 4) ORDER BY id DESC",
    "REPLACE INTO ops (id, k, v) VALUES (80, 8, 'replaced'), (81, 9, 'fresh')",
    "REPLACE INTO ops (id, k, v) VALUES (82, 9, 'by unique key')",
    "INSERT INTO ops (id, k, v) VALUES (80, 8, 'x'), (83, 10, 'new') ON DUPLICATE KEY UPDATE v = 'on duplicate'",
    "INSERT IGNORE INTO ops (id, k) VALUES (80, 1), (84, 11)",
    "BEGIN",
    "INSERT INTO ops (id, k, v) VALUES (200, 200, 'in transaction')",
    "UPDATE ops SET v = 'changed in it' WHERE id = 200",
    "INSERT INTO k_none VALUES (9, 'nine')",
    "UPDATE k_none SET b = 'NINE' WHERE a = 9",
    "DELETE FROM ops WHERE id = 200",
    "COMMIT",
    "BEGIN",
    "INSERT INTO ops (id, k) VALUES (201, 201)",
    "ROLLBACK",
    "BEGIN",
    "INSERT INTO ops (id, k) VALUES (202, 202)",
    "SAVEPOINT s1",
    "INSERT INTO ops (id, k) VALUES (203, 203)",
    "ROLLBACK TO SAVEPOINT s1",
    "INSERT INTO ops (id, k) VALUES (204, 204)",
    "COMMIT",
    "DELETE FROM ops WHERE id = 1",
    "UPDATE k_composite SET a = 11, c = 11.10 WHERE a = 1",
    "UPDATE k_composite SET b = 'z' WHERE a = 11",
    "DELETE FROM k_composite WHERE a = 2",
    "UPDATE k_types SET x = 2",
    "UPDATE k_types SET v = 'new', d = '2021-01-01', b = x'FF', ts = '2021-01-01 00:00:01', f = 1e21, e = 'p'",
    "DELETE FROM k_types",
    "UPDATE k_unique SET b = 2 WHERE a = 1",
    "UPDATE k_unique SET a = 3 WHERE a = 2",
    "DELETE FROM k_unique WHERE a = 1",
    "UPDATE k_unique_null SET b = 3",
    "UPDATE k_unique_inline SET b = 3",
    "DELETE FROM k_unique_inline WHERE a = 1",
    "UPDATE k_two_unique SET a = NULL",
    "INSERT INTO k_none VALUES (2, 'two')",
    "DELETE FROM k_none WHERE a = 1",
    "INSERT INTO k_serial (v) VALUES (2)",
    "INSERT INTO more_defaults (id) VALUES (2)",
    "UPDATE more_defaults SET b64 = NULL, vl = NULL, xp = NULL WHERE id = 1",
    "UPDATE hidden SET c = 2.5, a = 7 WHERE id = 1",
    "INSERT INTO hidden (id, z) VALUES (4, 4)",
    "DELETE FROM hidden WHERE id = 2",
    "UPDATE computed_key SET a = 5 WHERE a = 1",
    "DELETE FROM computed_key WHERE a = 2",
    "UPDATE computed SET a = 11 WHERE id = 1",
    "INSERT INTO computed (id, a) VALUES (3, 30)",
    "UPDATE k_zero_dates SET v = v + 10",
    "UPDATE k_zero_dates SET d = '2024-05-00' WHERE v = 11",
    "DELETE FROM k_zero_dates WHERE v = 12",
    "INSERT INTO k_zero_dates VALUES ('0000-00-00', '0000-00-00', 3)",
    "UPDATE `we$ird näme-1` SET `c-d` = 22, `i d` = 7",
    "INSERT INTO `we$ird näme-1` VALUES (2, NULL, NULL, NULL, NULL)",
    "UPDATE `Mixed_Case` SET `ColA` = 3",
    "INSERT INTO empty_one VALUES (1)",
    *(row.format(name="defaults", a=3, b=4) for row in _DEFAULT_ROWS),
    "UPDATE defaults SET i = NULL, v = NULL WHERE id = 3",
    "INSERT INTO child VALUES (4, 80)",
    "SET FOREIGN_KEY_CHECKS = 0",
    "TRUNCATE TABLE ops",
    "SET FOREIGN_KEY_CHECKS = 1",
    "INSERT INTO ops (k, v) VALUES (1, 'after truncate')",
    "UPDATE json SET j = JSON_SET(j, '$.b', 'partial') WHERE id = 133",
)

_SHAPES: Final = (
    # Characters outside the basic plane, quotes and control characters in keys.
    "CREATE TABLE k_text (k VARCHAR(20) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin PRIMARY KEY, v INT)",
    "INSERT INTO k_text VALUES ('😀', 1), ('q\"\\\\', 2), ('\\n\\t', 3), ('é', 4)",
    "UPDATE k_text SET k = CONCAT(k, '😀')",
    "DELETE FROM k_text WHERE v = 1",
    # One statement in several rows events.
    "CREATE TABLE many (id INT PRIMARY KEY, v VARCHAR(300))",
    "INSERT INTO many VALUES " + ", ".join(f"({n}, REPEAT('x', 250))" for n in range(50)),
    "UPDATE many SET v = id WHERE id >= 45",
    "DELETE FROM many WHERE id >= 48",
    # A key that is added later, a name that is reused, tables that swap names.
    "CREATE TABLE late_key (a INT NOT NULL, b INT, UNIQUE KEY (a))",
    "INSERT INTO late_key VALUES (1, 10)",
    "ALTER TABLE late_key ADD PRIMARY KEY (b, a)",
    "INSERT INTO late_key VALUES (2, 20)",
    "UPDATE late_key SET b = 21 WHERE a = 2",
    "CREATE TABLE again (id INT PRIMARY KEY, v VARCHAR(5))",
    "INSERT INTO again VALUES (1, 'old')",
    "DROP TABLE again",
    "CREATE TABLE again (v DECIMAL(4,1), id BIGINT PRIMARY KEY)",
    "INSERT INTO again VALUES (1.5, 1)",
    "CREATE TABLE ghost LIKE again",
    "ALTER TABLE ghost ADD COLUMN extra DATE",
    "INSERT INTO ghost VALUES (2.5, 2, '2020-01-01')",
    "RENAME TABLE again TO again_old, ghost TO again",
    "INSERT INTO again VALUES (3.5, 3, NULL)",
    "CREATE TEMPORARY TABLE passing (id INT PRIMARY KEY)",
    "INSERT INTO passing VALUES (1)",
    "DROP TEMPORARY TABLE passing",
    "CREATE VIEW seen AS SELECT id FROM again",
    "DROP VIEW seen",
)


def _xa(table: str, *end: str) -> tuple[str, ...]:
    return (
        f"XA START '{table}'",
        f"INSERT INTO {table} VALUES (10, 'new'), (11, 'new')",
        f"UPDATE {table} SET v = 'changed' WHERE id IN (1, 10)",
        f"UPDATE {table} SET id = 20 WHERE id = 2",
        f"DELETE FROM {table} WHERE id = 3",
        f"XA END '{table}'",
        *(f"XA {word} '{table}'" for word in end),
    )


_XA: Final = (
    *_xa(XA_COMMITTED, "PREPARE", "COMMIT"),
    *_xa(XA_ROLLED_BACK, "PREPARE", "ROLLBACK"),
    *_xa(XA_ONE_PHASE),
    f"XA COMMIT '{XA_ONE_PHASE}' ONE PHASE",
)

_ALTERS: Final = (
    "CREATE TABLE alters (id INT PRIMARY KEY, a INT, b VARCHAR(10) DEFAULT 'b')",
    "INSERT INTO alters VALUES (1, 1, 'one')",
    "ALTER TABLE alters ADD COLUMN c DATETIME(3) NULL, ADD COLUMN d DECIMAL(5,2) NOT NULL DEFAULT 1.5 AFTER a",
    "INSERT INTO alters VALUES (2, 2, 2.25, 'two', '2020-01-01 00:00:00.123')",
    "ALTER TABLE alters ADD COLUMN first_one TINYINT FIRST",
    "UPDATE alters SET a = 20 WHERE id = 2",
    "ALTER TABLE alters DROP COLUMN b",
    "INSERT INTO alters (id, a) VALUES (3, 3)",
    "ALTER TABLE alters CHANGE COLUMN a a2 BIGINT UNSIGNED NOT NULL DEFAULT 9",
    "INSERT INTO alters (id, a2) VALUES (4, 18446744073709551615)",
    "ALTER TABLE alters MODIFY COLUMN c TIMESTAMP(6) NULL DEFAULT NULL, RENAME COLUMN d TO dd",
    "INSERT INTO alters (id, c) VALUES (5, '2020-01-01 00:00:00.5')",
    "ALTER TABLE alters ADD COLUMN e ENUM('x','y') DEFAULT 'y', ADD COLUMN t TEXT CHARACTER SET latin1, ALTER COLUMN a2 SET DEFAULT 5",
    "INSERT INTO alters (id, t) VALUES (6, 'é€')",
    "ALTER TABLE alters MODIFY COLUMN e ENUM('w','x','y','z') NOT NULL DEFAULT 'z' COMMENT 'labels'",
    "INSERT INTO alters (id) VALUES (7)",
    "ALTER TABLE alters DROP PRIMARY KEY, ADD PRIMARY KEY (id, a2)",
    "UPDATE alters SET e = 'w' WHERE id = 7",
    "ALTER TABLE alters CONVERT TO CHARACTER SET utf8mb4",
    "INSERT INTO alters (id, t) VALUES (8, 'é€')",
    "ALTER TABLE alters RENAME TO altered",
    "INSERT INTO altered (id, t) VALUES (9, 'renamed')",
    "RENAME TABLE altered TO alters2",
    "DELETE FROM alters2 WHERE id = 9",
    "CREATE TABLE alike LIKE alters2",
    "INSERT INTO alike (id, t) VALUES (1, 'alike')",
    "CREATE INDEX ix ON alike (dd)",
    "DROP TABLE alike, alters2",
    (
        "CREATE TABLE inline_key (id INT AUTO_INCREMENT, b BOOLEAN, r REAL, iu INTEGER UNSIGNED, n NATIONAL VARCHAR(5), "
        "lv LONG VARCHAR, dc DEC(4,1), i4 INT4, i8 INT8, mi MIDDLEINT, cv CHARACTER VARYING(7), cb CHAR(3) BYTE, PRIMARY KEY (id)) "
        "DEFAULT CHARSET=latin1"
    ),
    "INSERT INTO inline_key VALUES (1, TRUE, 1.5, 4294967295, 'é', 'é€', 1.5, 1, 2, 3, 'é€', 'abc')",
)

BEFORE_SNAPSHOT: Final = _BEFORE

AFTER_SNAPSHOT: Final = (
    *(statement for table in TYPE_TABLES for statement in table.inserts(first_id=101)),
    *(
        f"UPDATE `{table.name}` SET id = id + 100 WHERE id BETWEEN 101 AND 102 ORDER BY id DESC"
        for table in TYPE_TABLES
    ),
    *(f"DELETE FROM `{table.name}` WHERE id = 103" for table in TYPE_TABLES),
    *_OPERATIONS,
    *(table.create(name=f"{table.name}_new") for table in TYPE_TABLES),
    *(statement for table in TYPE_TABLES for statement in table.inserts(name=f"{table.name}_new")),
    _DEFAULTS.format(name="defaults_new"),
    *(row.format(name="defaults_new", a=1, b=2) for row in _DEFAULT_ROWS),
    _MORE_DEFAULTS.format(name="more_defaults_new"),
    "INSERT INTO more_defaults_new (id) VALUES (1)",
    *(statement.format(name="hidden_new") for statement in _HIDDEN),
    *_ALTERS,
    *_SHAPES,
    *_XA,
    f"INSERT INTO {SENTINEL} VALUES (1)",
)
