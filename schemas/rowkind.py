"""RowKind: what a changelog row does to the table it describes (the words of Flink's changelogs)."""

from __future__ import annotations

from enum import StrEnum


class RowKind(StrEnum):
    """Short strings as written in the ``op`` field of a changelog record."""

    INSERT = "+I"
    UPDATE_BEFORE = "-U"
    UPDATE_AFTER = "+U"
    DELETE = "-D"


class Op(StrEnum):
    """The ``op`` field of a Debezium envelope."""

    CREATE = "c"
    UPDATE = "u"
    DELETE = "d"
    READ = "r"
    TRUNCATE = "t"
