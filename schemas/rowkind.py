"""Operations of change events (Debezium), and row kinds of changelog rows (Flink)."""

from __future__ import annotations

from enum import StrEnum


class RowKind(StrEnum):
    """The ``op`` field of a changelog record: what a changelog row does to its table."""

    INSERT = "+I"
    UPDATE_BEFORE = "-U"
    UPDATE_AFTER = "+U"
    DELETE = "-D"


class Op(StrEnum):
    """The ``op`` field of a change event: insert, update, delete, snapshot row, truncate."""

    CREATE = "c"
    UPDATE = "u"
    DELETE = "d"
    READ = "r"
    TRUNCATE = "t"
