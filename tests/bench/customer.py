"""The measured table: like TPC-DS customer, 18 columns, about 180 bytes per row. The server fills and changes it.

Every value is computed from the row number ``n``, so that all runs measure rows of the same size.
"""

from __future__ import annotations

from typing import Any, Final

from tests.embedded.mysql import MySqlServer

DATABASE: Final = "bench"
TABLE: Final = "customer"
KINDS: Final = ("mixed", "insert", "update")
"""Kinds of changes. Mixed: two inserts, two updates and one delete in five changes."""

_FIRST_NAMES: Final = "Javier Amy Latisha Michael Robert Brunilda Fonda Sherman Margaret William"
_LAST_NAMES: Final = "Lewis Moses Hamilton White Sharp Wiles Dominguez Jones Gomez Rutherford"
_COUNTRIES: Final = "CHILE,TOGO,UNITED KINGDOM,MEXICO,FIJI,NIUE,SURINAME,GREECE,KYRGYZSTAN,BAHAMAS"


def _number(salt: int, count: int, least: int) -> str:
    return f"{least} + CRC32(CONCAT(n, 'x{salt}')) % {count}"


def _pick(salt: int, words: list[str]) -> str:
    chosen = ", ".join(f"'{word}'" for word in words)
    return f"ELT(1 + CRC32(CONCAT(n, 'x{salt}')) % {len(words)}, {chosen})"


def _or_null(salt: int, expression: str) -> str:
    """3.5 % of the nullable values are NULL, as in TPC-DS."""
    return f"IF(CRC32(CONCAT(n, 'n{salt}')) % 1000 < 35, NULL, {expression})"


_EMAIL: Final = (
    f"CONCAT({_pick(8, _FIRST_NAMES.split())}, '.', {_pick(9, _LAST_NAMES.split())}, '@', MD5(n % 9999), '.com')"
)

COLUMNS: Final[tuple[tuple[str, str, str], ...]] = (
    ("c_customer_sk", "INT NOT NULL PRIMARY KEY", "n"),
    ("c_customer_id", "CHAR(16) NOT NULL", "CONCAT('AAAAAAAA', LPAD(HEX(n), 8, 'B'))"),
    ("c_current_cdemo_sk", "INT", _or_null(2, _number(2, 1_900_000, 1))),
    ("c_current_hdemo_sk", "INT", _or_null(3, _number(3, 7_200, 1))),
    ("c_current_addr_sk", "INT", _or_null(4, _number(4, 50_000, 1))),
    ("c_first_shipto_date_sk", "INT", _or_null(5, _number(5, 9_000, 2_450_000))),
    ("c_first_sales_date_sk", "INT", _or_null(6, _number(6, 9_000, 2_450_000))),
    ("c_salutation", "CHAR(10)", _or_null(7, _pick(7, ["Mr.", "Mrs.", "Dr.", "Miss", "Sir"]))),
    ("c_first_name", "CHAR(20)", _or_null(8, _pick(8, _FIRST_NAMES.split()))),
    ("c_last_name", "CHAR(30)", _or_null(9, _pick(9, _LAST_NAMES.split()))),
    ("c_preferred_cust_flag", "CHAR(1)", _or_null(10, _pick(10, ["Y", "N"]))),
    ("c_birth_day", "INT", _or_null(11, _number(11, 28, 1))),
    ("c_birth_month", "INT", _or_null(12, _number(12, 12, 1))),
    ("c_birth_year", "INT", _or_null(13, _number(13, 69, 1924))),
    ("c_birth_country", "VARCHAR(20)", _or_null(14, _pick(14, _COUNTRIES.split(",")))),
    ("c_login", "CHAR(13)", "NULL"),
    ("c_email_address", "CHAR(50)", _or_null(16, f"LEFT({_EMAIL}, 40)")),
    ("c_last_review_date", "CHAR(10)", _or_null(17, _number(17, 366, 2_452_283))),
)
"""Name, type and value of each column. One is always NULL, as in TPC-DS."""

_VALUES: Final = ", ".join(value for _, _, value in COLUMNS)
_FILL_STEP: Final = 250_000

_CHANGE: Final = f"""
CREATE PROCEDURE {DATABASE}.change_rows(kind TEXT, changes INT, per_transaction INT, span INT, above INT, below INT)
BEGIN
  DECLARE i, n INT DEFAULT 0;
  DECLARE step INT;
  DECLARE run TEXT DEFAULT NOW(6);  -- an update to the same values is not in the binlog
  WHILE i < changes DO
    IF i % per_transaction = 0 THEN START TRANSACTION; END IF;
    SET step = CASE kind WHEN 'insert' THEN 0 WHEN 'update' THEN 2 ELSE i % 5 END;
    IF step < 2 THEN
      SET above = above + 1, n = above;
      INSERT INTO {TABLE} SELECT {_VALUES};
    ELSEIF step < 4 THEN
      SET n = 1 + (i * 7919) % span;
      UPDATE {TABLE} SET c_login = LEFT(MD5(CONCAT(i, run)), 13), c_last_review_date = 2452283 + i % 366,
        c_current_addr_sk = 1 + i % 50000 WHERE c_customer_sk = n;
    ELSE
      DELETE FROM {TABLE} WHERE c_customer_sk = below;
      SET below = below - 1;
    END IF;
    SET i = i + 1;
    IF i % per_transaction = 0 THEN COMMIT; END IF;
  END WHILE;
  COMMIT;
END
"""


def fill(server: MySqlServer, rows: int) -> None:
    """Create the table with ``rows`` rows, keys 1 to ``rows``. The binlog does not contain them."""
    with server.connect() as session, session.cursor() as cursor:
        cursor.execute("SET sql_log_bin = 0, cte_max_recursion_depth = 1000000")
        cursor.execute(f"CREATE DATABASE {DATABASE}")
        cursor.execute(f"USE {DATABASE}")
        columns = ", ".join(f"{name} {kind}" for name, kind, _ in COLUMNS)
        cursor.execute(f"CREATE TABLE {TABLE} ({columns}) CHARACTER SET utf8mb4")
        for first in range(1, rows + 1, _FILL_STEP):
            last = min(first + _FILL_STEP - 1, rows)
            cursor.execute(
                f"INSERT INTO {TABLE} WITH RECURSIVE numbers (n) AS "
                f"(SELECT {first} UNION ALL SELECT n + 1 FROM numbers WHERE n < {last}) SELECT {_VALUES} FROM numbers"
            )
        cursor.execute(f"ANALYZE TABLE {TABLE}")
        cursor.execute(_CHANGE)


def copy(server: MySqlServer, tables: int) -> None:
    """Create copies of the table until there are ``tables`` of them. The binlog does not contain them."""
    with server.connect(database=DATABASE) as session, session.cursor() as cursor:
        cursor.execute("SET sql_log_bin = 0")
        for number in range(2, tables + 1):
            cursor.execute(f"CREATE TABLE {TABLE}_{number} LIKE {TABLE}")
            cursor.execute(f"INSERT INTO {TABLE}_{number} SELECT * FROM {TABLE}")


def change(server: MySqlServer, kind: str, changes: int, *, per_transaction: int) -> None:
    """Run ``changes`` statements of one row. Updates hit the lower half of the keys, deletes the upper end."""
    with server.connect(database=DATABASE) as session, session.cursor() as cursor:
        cursor.execute(f"SELECT MAX(c_customer_sk), COUNT(*) FROM {TABLE}")
        greatest, count = cursor.fetchone()
        if changes // 5 > count // 2:
            raise ValueError(f"{changes} changes need a table of at least {changes * 2 // 5} rows; it has {count}")
        arguments: tuple[Any, ...] = (kind, changes, per_transaction, count // 2, greatest, greatest)
        cursor.callproc("change_rows", arguments)


def mixed(changes: int) -> tuple[int, int, int]:
    """Return the inserts, updates and deletes among mixed changes."""
    fives, rest = divmod(changes, 5)
    return 2 * fives + min(rest, 2), 2 * fives + max(0, rest - 2), fives


def count_rows(server: MySqlServer) -> int:
    """Return the number of rows."""
    with server.connect(database=DATABASE) as session, session.cursor() as cursor:
        cursor.execute(f"SELECT COUNT(*) FROM {TABLE}")
        return int(cursor.fetchone()[0])


def executed_gtids(server: MySqlServer) -> str:
    """Return the GTIDs of all committed transactions."""
    with server.connect() as session, session.cursor() as cursor:
        cursor.execute("SELECT @@global.gtid_executed")
        return str(cursor.fetchone()[0])
