"""Schema change records: a DDL statement with the tables as they are after it, in Debezium's form.

The definition of a table is what the catalog says at the moment of reading, which for a statement met in the log is
later than the statement: where another one followed at once, the record shows its effect as well.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from tailrace.producer.model.table import Column, TableId, quote
from tailrace.producer.mysql.catalog import CatalogTable
from tailrace.producer.serialization.envelope.json import Struct
from tailrace.producer.serialization.envelope.schemas import SOURCE_SCHEMA
from tailrace.producer.serialization.envelope.source_info import CONNECTOR, VERSION
from tailrace.schemas.connect import ConnectField, ConnectSchema


def _field(name: str, kind: str, *, optional: bool = False) -> ConnectField:
    return ConnectField(name, ConnectSchema(kind, optional=optional))


def _list(name: str, items: ConnectSchema, *, optional: bool = False) -> ConnectField:
    return ConnectField(name, ConnectSchema("array", optional=optional, items=items))


CHANGE_KEY: Final = ConnectSchema(
    "struct",
    name="io.debezium.connector.mysql.SchemaChangeKey",
    version=1,
    fields=(_field("databaseName", "string"),),
)
_COLUMN: Final = ConnectSchema(
    "struct",
    name="io.debezium.connector.schema.Column",
    version=1,
    fields=(
        _field("name", "string"),
        _field("jdbcType", "int32"),
        _field("nativeType", "int32", optional=True),
        _field("typeName", "string"),
        _field("typeExpression", "string", optional=True),
        _field("charsetName", "string", optional=True),
        _field("length", "int32", optional=True),
        _field("scale", "int32", optional=True),
        _field("position", "int32"),
        _field("optional", "boolean", optional=True),
        _field("autoIncremented", "boolean", optional=True),
        _field("generated", "boolean", optional=True),
        _field("comment", "string", optional=True),
        _field("defaultValueExpression", "string", optional=True),
        _list("enumValues", ConnectSchema("string"), optional=True),
    ),
)
_TABLE: Final = ConnectSchema(
    "struct",
    optional=True,
    name="io.debezium.connector.schema.Table",
    version=1,
    fields=(
        _field("defaultCharsetName", "string", optional=True),
        _list("primaryKeyColumnNames", ConnectSchema("string"), optional=True),
        _list("columns", _COLUMN),
        _field("comment", "string", optional=True),
    ),
)
_CHANGE: Final = ConnectSchema(
    "struct",
    name="io.debezium.connector.schema.Change",
    version=1,
    fields=(_field("type", "string"), _field("id", "string"), ConnectField("table", _TABLE)),
)
CHANGE_VALUE: Final = ConnectSchema(
    "struct",
    name="io.debezium.connector.mysql.SchemaChangeValue",
    version=1,
    fields=(
        ConnectField("source", SOURCE_SCHEMA),
        _field("ts_ms", "int64"),
        _field("databaseName", "string", optional=True),
        _field("schemaName", "string", optional=True),
        _field("ddl", "string", optional=True),
        _list("tableChanges", _CHANGE),
    ),
)

_JDBC: Final = {
    "tinyint": 5,
    "smallint": 5,
    "mediumint": 4,
    "int": 4,
    "bigint": -5,
    "decimal": 3,
    "float": 6,
    "double": 8,
    "bit": -7,
    "char": 1,
    "enum": 1,
    "set": 1,
    "varchar": 12,
    "text": 12,
    "binary": -2,
    "varbinary": -3,
    "blob": 2004,
    "date": 91,
    "time": 92,
    "datetime": 93,
    "timestamp": 2014,
    "year": 4,
}
"""Codes of java.sql.Types (timestamp: with time zone); all others are OTHER."""
_OTHER: Final = 1111
_TEMPORAL: Final = frozenset({"datetime", "timestamp"})
_EPOCH: Final = "1970-01-01 00:00:00"
"""Stands for the current time as a default."""


class Described(NamedTuple):
    """A table as the catalog and SHOW CREATE TABLE have it."""

    catalog: CatalogTable
    created: str
    """The text of SHOW CREATE TABLE."""


def change_key(database: str) -> Struct:
    """Return a key of CHANGE_KEY."""
    return {"databaseName": database}


def change_value(source: Struct, *, ts_ms: int, database: str, ddl: str, changes: Sequence[Struct]) -> Struct:
    """Return a value of CHANGE_VALUE."""
    return {
        "source": source,
        "ts_ms": ts_ms,
        "databaseName": database,
        "schemaName": None,
        "ddl": ddl,
        "tableChanges": list(changes),
    }


def source_block(
    prefix: str,
    *,
    database: str,
    table: str | None,
    ts_us: int,
    file: str,
    pos: int,
    snapshot: bool = False,
    server_id: int = 0,
    gtid: str | None = None,
) -> Struct:
    """Return the ``source`` of a record that is not a row's."""
    return {
        "version": VERSION,
        "connector": CONNECTOR,
        "name": prefix,
        "ts_ms": ts_us // 1000,
        "snapshot": "true" if snapshot else "false",
        "db": database,
        "sequence": None,
        "ts_us": ts_us,
        "ts_ns": ts_us * 1000,
        "table": table,
        "server_id": server_id,
        "gtid": gtid,
        "file": file,
        "pos": pos,
        "row": 0,
        "thread": None,
        "query": None,
    }


def table_change(kind: str, table: TableId, described: Described | None, *, comments: bool = False) -> Struct:
    """Return one of ``tableChanges``; ``kind`` is CREATE, ALTER or DROP, None stands for a table that is gone.

    ``comments`` are those of the table and its columns, as they are escaped in the definition.
    """
    return {
        "type": kind,
        "id": f"{_double_quoted(table.database)}.{_double_quoted(table.table)}",
        "table": None if described is None else _table(described, comments=comments),
    }


def _double_quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _table(described: Described, *, comments: bool) -> Struct:
    catalog, created = described
    options = created[created.rfind("\n)") :]
    charset = re.search(r"\) ENGINE=.*? DEFAULT CHARSET=(\w+)", options)
    comment = re.search(r" COMMENT='((?:[^'\\]|''|\\.)*)'", options, re.DOTALL) if comments else None
    return {
        "defaultCharsetName": charset[1] if charset else None,
        "primaryKeyColumnNames": list(catalog.index_key),
        "columns": [_column(c, i, created, comments=comments) for i, c in enumerate(catalog.table.columns, 1)],
        "comment": comment[1] if comment else None,
    }


def _column(column: Column, position: int, created: str, *, comments: bool) -> Struct:
    more = column.catalog
    assert more is not None, "a column of the catalog"
    defined = _Definition(column.name, created)
    name = " ".join(w for w in (defined.type, *(w for w in ("UNSIGNED", "ZEROFILL") if w in defined.attributes)))
    length, scale = _sizes(column, defined.arguments)
    # ON UPDATE CURRENT_TIMESTAMP counts as both, a computed column as neither.
    automatic = more.auto_increment or "on update" in more.extra.lower()
    is_text = column.data_type in {"char", "varchar", "text", "enum", "set"} and more.collation is not None
    return {
        "name": column.name,
        "jdbcType": _JDBC.get(column.data_type, _OTHER),
        "nativeType": None,
        "typeName": name,
        "typeExpression": name,
        "charsetName": str(more.collation).split("_", 1)[0] if is_text else None,
        "length": length,
        "scale": scale,
        "position": position,
        "optional": column.nullable,
        "autoIncremented": automatic,
        "generated": automatic,
        "comment": defined.comment if comments else None,
        "defaultValueExpression": _default(column, defined.default),
        "enumValues": list(defined.arguments) if column.data_type in {"enum", "set"} else None,
    }


def _sizes(column: Column, arguments: Sequence[str]) -> tuple[int | None, int | None]:
    if column.data_type == "enum":
        return 1, None
    if column.data_type == "set":
        return 2 * len(arguments) - 1, None
    numbers = [int(argument) for argument in arguments if argument.isdigit()]
    return (numbers[0] if numbers else None), (numbers[1] if len(numbers) > 1 else None)


def _default(column: Column, text: str | None) -> str | None:
    """Return a default as it stands in the definition: the text between the quotes, as it is escaped there."""
    if text is None or text.startswith("("):
        return None
    if column.data_type in _TEMPORAL and text.upper().startswith("CURRENT_TIMESTAMP"):
        return _EPOCH
    quoted = re.fullmatch(r"(?:b|_\w+)?'(.*)'", text, re.DOTALL)
    return quoted[1] if quoted else None if text.upper() == "NULL" else text


_PART: Final = re.compile(r"\w*'(?:[^'\\]|''|\\.)*'|[(),\n]|[^\s'(),]+|[ \t]+", re.DOTALL)


class _Definition:
    """A column's line in SHOW CREATE TABLE, which the server always writes in one form."""

    def __init__(self, name: str, created: str) -> None:
        start = created.index(f"\n  {quote(name)} ") + len(f"\n  {quote(name)} ")
        words = self._words(created, start)
        self.type, _, inside = words[0].partition("(")
        self.type = self.type.upper()
        self.arguments = tuple(_arguments(inside[:-1])) if inside else ()
        """What stands in the parentheses after the type: sizes, or labels in their quotes."""
        self.attributes = frozenset(word.upper() for word in words[1:4])
        at = next((i for i, word in enumerate(words) if word.upper() == "DEFAULT"), None)
        self.default = words[at + 1] if at is not None and at + 1 < len(words) else None
        told = next((i for i, word in enumerate(words) if i > 0 and word == "COMMENT"), None)
        self.comment = words[told + 1][1:-1] if told is not None else None

    @staticmethod
    def _words(text: str, at: int) -> list[str]:
        """Cut at blanks outside of quotes and parentheses, up to the end of the definition."""
        words = [""]
        depth = 0
        while (found := _PART.match(text, at)) is not None:
            part, at = found[0], found.end()
            depth += (part == "(") - (part == ")")
            if depth < 0 or (depth == 0 and part in {",", "\n"}):
                break
            if depth == 0 and part.isspace():
                words.append("")
            else:
                words[-1] += part
        return [word for word in words if word]


def _arguments(inside: str) -> list[Any]:
    return re.findall(r"'(?:[^'\\]|''|\\.)*'|[^,\s]+", inside, re.DOTALL)
