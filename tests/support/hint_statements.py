"""Whether a server knows what the hints of the producer name on it: variables, statements, privileges, tables."""

from __future__ import annotations

import re
from typing import Final

from pymysql.constants import ER
from pymysql.err import OperationalError

from tests.docs.hints import UNKNOWN, hints
from tests.embedded.mysql import MySqlServer
from tests.support.replication import run

_UNKNOWN_TO: Final = {
    "binlog_alter_two_phase": {"MySQL"},
    "binlog_expire_logs_seconds": {"5.7"},
    "binlog_row_metadata": {"5.7"},
    "binlog_row_value_options": {"5.7", "MariaDB"},
    "binlog_transaction_compression": {"5.7", "8.0.15", "MariaDB"},
    "enforce_gtid_consistency": {"MariaDB"},
    "expire_logs_days": {"9.7"},
    "gtid_domain_id": {"MySQL"},
    "gtid_mode": {"MariaDB"},
    "gtid_strict_mode": {"MySQL"},
}
"""Servers that lack a variable: its hints say so, or no such server gives a reason for them."""
_NO_VARIABLE: Final = r"(?:when_needed|verify_identity|avro_unicode|information_schema|adaptive_|cdc_)"


def check_hints(server: MySqlServer) -> None:
    """Run what the hints for servers like this one say."""
    version = str(run(server, "SELECT @@version")[0][0])
    kind = "MariaDB" if "MariaDB" in version else "MySQL"
    texts = {hint.text for hint in hints("producer") if kind == "MariaDB" or "/mariadb/" not in hint.at}

    def named(pattern: str) -> list[str]:
        return sorted({found for text in texts for found in re.findall(pattern, text)})

    variables = named(rf"\b(?!{_NO_VARIABLE})[a-z]+(?:_[a-z]+)+\b")
    lacking = {name for name in variables if not _has(server, name)}
    expected = {
        name
        for name in variables
        for each in _UNKNOWN_TO.get(name, ())
        if f"{kind} {version}".startswith((each, f"{kind} {each}"))
    }
    assert lacking == expected, f"{kind} {version}: {lacking ^ expected}"
    for setting in named(r"SET GLOBAL (\w+ ?= ?(?:'[^']*'|\w+))"):
        name = setting.partition("=")[0].strip()
        if name not in lacking:
            [(before,)] = run(server, f"SELECT @@GLOBAL.{name}")
            run(server, f"SET GLOBAL {setting}", f"SET GLOBAL {name} = {before!r}")
    run(server, *named(r"SHOW [A-Z]+|SET NAMES \w+"))
    run(server, *(f"SELECT 1 FROM {table} LIMIT 0" for table in named(r"information_schema\.\w+")))
    run(server, "CREATE USER hint", *(f"GRANT {each} ON *.* TO hint" for each in named(r"GRANT ([A-Z][A-Z ,]+) ON ")))
    run(server, "DROP USER hint", "CREATE DATABASE hint")
    for action in named(rf"ALTER TABLE {UNKNOWN} ((?:[A-Z]+|=\w+|utf8mb4|\({UNKNOWN}\)| (?=[A-Zu(]))+)"):
        definition = "(v VARCHAR(9))" + (" WITH SYSTEM VERSIONING" if "VERSIONING" in action else "")
        run(
            server,
            f"CREATE TABLE hint.t {definition}",
            f"ALTER TABLE hint.t {action.replace(UNKNOWN, 'v')}",
            "DROP TABLE hint.t",
        )
    run(server, "DROP DATABASE hint")


def _has(server: MySqlServer, variable: str) -> bool:
    try:
        run(server, f"SELECT @@{variable}")
    except OperationalError as error:
        if error.args[0] == ER.UNKNOWN_SYSTEM_VARIABLE:
            return False
        raise
    return True
