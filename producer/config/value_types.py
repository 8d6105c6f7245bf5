"""Value types that only the producer's properties have."""

from __future__ import annotations

import re
import shlex
from datetime import datetime
from typing import Final

from tailrace.producer.config.filters import MessageKeys, compile_list
from tailrace.runtime.config.value_types import TEXT, ValueType, matching, secret

TABLE_NAME = matching(r"[^.,]+\.[^,]+", "one table as db.table")


def _expressions(text: str) -> str:
    compile_list(text)
    return text.strip()


EXPRESSIONS = ValueType(
    "a list of regular expressions, separated by commas; each must match the whole name", _expressions
)


def _message_keys(text: str) -> str:
    MessageKeys.parse(text)
    return text.strip()


MESSAGE_KEYS = ValueType("a list as db.table:column,column;db.other:column", _message_keys)


def _statements(text: str) -> tuple[str, ...]:
    # As in Debezium: ';' separates statements, ';;' is a semicolon within one.
    return tuple(part.strip().replace("\0", ";") for part in text.replace(";;", "\0").split(";") if part.strip())


STATEMENTS = ValueType(
    "SQL statements, separated by ';' (';;' is a semicolon within a statement)",
    _statements,
    lambda statements: "; ".join(statement.replace(";", ";;") for statement in statements),
)


def _position(text: str) -> str | datetime:
    if not re.match(r"\d{4}-\d\d-\d\d", text.strip()):
        return TEXT.read(text)
    time = datetime.fromisoformat(text.strip())
    if time.tzinfo is None:
        raise ValueError
    return time


POSITION: Final[ValueType[str | datetime]] = ValueType(
    "latest, a time with its zone as 2026-01-31T06:00:00Z, a file and position as binlog.000003:4711, or a GTID set",
    _position,
    lambda value: value if isinstance(value, str) else value.isoformat(),
)


def _start(text: str) -> str:
    if re.match(r"\d{4}-\d\d-\d\d", text.strip()):
        raise ValueError
    return TEXT.read(text)


START: Final = ValueType(
    "earliest, a GTID set, or, of a server without GTIDs, a file and position as binlog.000003:4711", _start
)


def _operations(text: str) -> frozenset[str]:
    found = frozenset(part.strip().lower() for part in text.split(","))
    if found == {"none"}:
        return frozenset()
    if not found <= {"c", "u", "d", "t"}:
        raise ValueError
    return found


OPERATIONS = ValueType(
    "none, or a list of c, u, d, t, separated by commas",
    _operations,
    lambda found: ",".join(sorted(found)) or "none",
)


def _command(text: str) -> str:
    shlex.split(text)
    return text.strip()


COMMAND = secret(ValueType("a program with its arguments, quoted as for a shell", _command))
