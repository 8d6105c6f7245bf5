"""Value types that only the producer's properties have."""

from __future__ import annotations

from tailrace.producer.config.filters import MessageKeys, compile_list
from tailrace.runtime.config.value_types import ValueType, matching

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
