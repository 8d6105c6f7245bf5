"""Schema change records as in Debezium: a DDL statement with the tables after it.

The table definition comes from the catalog when the record is written, which is later than the statement in the binlog:
if another statement followed at once, the record shows its effect too.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final, NamedTuple

from tailrace.producer.model.table import CatalogTable, Column, TableId, quote
from tailrace.producer.mysql.types.base import JDBC_OTHER
from tailrace.producer.mysql.types.registry import family_of
from tailrace.producer.serialization.envelope.json import Struct
from tailrace.producer.serialization.envelope.schemas import SOURCE_SCHEMA, of_connector
from tailrace.schemas.connect import ConnectField, ConnectSchema


def _list(name: str, items: ConnectSchema, *, optional: bool = False) -> ConnectField:
    return ConnectField(name, ConnectSchema("array", optional=optional, items=items))


_CHANGE_KEY: Final = ConnectSchema(
    "struct",
    name="io.debezium.connector.mysql.SchemaChangeKey",
    version=1,
    fields=(ConnectField.of("databaseName", "string"),),
)
_COLUMN: Final = ConnectSchema(
    "struct",
    name="io.debezium.connector.schema.Column",
    version=1,
    fields=(
        ConnectField.of("name", "string"),
        ConnectField.of("jdbcType", "int32"),
        ConnectField.of("nativeType", "int32", optional=True),
        ConnectField.of("typeName", "string"),
        ConnectField.of("typeExpression", "string", optional=True),
        ConnectField.of("charsetName", "string", optional=True),
        ConnectField.of("length", "int32", optional=True),
        ConnectField.of("scale", "int32", optional=True),
        ConnectField.of("position", "int32"),
        ConnectField.of("optional", "boolean", optional=True),
        ConnectField.of("autoIncremented", "boolean", optional=True),
        ConnectField.of("generated", "boolean", optional=True),
        ConnectField.of("comment", "string", optional=True),
        ConnectField.of("defaultValueExpression", "string", optional=True),
        _list("enumValues", ConnectSchema("string"), optional=True),
    ),
)
_TABLE: Final = ConnectSchema(
    "struct",
    optional=True,
    name="io.debezium.connector.schema.Table",
    version=1,
    fields=(
        ConnectField.of("defaultCharsetName", "string", optional=True),
        _list("primaryKeyColumnNames", ConnectSchema("string"), optional=True),
        _list("columns", _COLUMN),
        ConnectField.of("comment", "string", optional=True),
    ),
)
_CHANGE: Final = ConnectSchema(
    "struct",
    name="io.debezium.connector.schema.Change",
    version=1,
    fields=(ConnectField.of("type", "string"), ConnectField.of("id", "string"), ConnectField("table", _TABLE)),
)
_CHANGE_VALUE: Final = ConnectSchema(
    "struct",
    name="io.debezium.connector.mysql.SchemaChangeValue",
    version=1,
    fields=(
        ConnectField("source", SOURCE_SCHEMA),
        ConnectField.of("ts_ms", "int64"),
        ConnectField.of("databaseName", "string", optional=True),
        ConnectField.of("schemaName", "string", optional=True),
        ConnectField.of("ddl", "string", optional=True),
        _list("tableChanges", _CHANGE),
    ),
)


def change_schemas(connector: str) -> tuple[ConnectSchema, ConnectSchema]:
    """Return the schemas of keys and values, which have the name of the connector."""
    source, *others = _CHANGE_VALUE.fields
    value = replace(_CHANGE_VALUE, fields=(replace(source, schema=of_connector(source.schema, connector)), *others))
    return of_connector(_CHANGE_KEY, connector), of_connector(value, connector)


_EPOCH: Final = "1970-01-01 00:00:00"
"""The default of a column whose default is the current time."""


class TableDefinition(NamedTuple):
    """A table from the catalog and from SHOW CREATE TABLE."""

    catalog: CatalogTable
    create_statement: str
    """The result of SHOW CREATE TABLE."""

    @property
    def agrees(self) -> bool:
        """Whether both have the same columns with the same types."""
        columns = self.catalog.table.columns
        return self.create_statement.count("\n  `") == len(columns) and all(
            f"\n  {quote(column.name)} {column.catalog.column_type}" in self.create_statement
            for column in columns
            if column.catalog is not None
        )


def without_counter(statement: str) -> str:
    """Return a result of SHOW CREATE TABLE without what an INSERT changes."""
    return re.sub(r" AUTO_INCREMENT=\d+", "", statement)


def change_key(database: str) -> Struct:
    return {"databaseName": database}


def change_value(source: Struct, *, ts_ms: int, database: str, ddl: str, changes: Sequence[Struct]) -> Struct:
    return {
        "source": source,
        "ts_ms": ts_ms,
        "databaseName": database,
        "schemaName": None,
        "ddl": ddl,
        "tableChanges": list(changes),
    }


def table_change(kind: str, table: TableId, definition: TableDefinition | None, *, comments: bool = False) -> Struct:
    """Return one of ``tableChanges``; ``kind`` is CREATE, ALTER or DROP, ``definition`` is None if the table is gone.

    ``comments`` includes the comments of the table and its columns, escaped as in the definition.
    """
    return {
        "type": kind,
        "id": f"{_double_quoted(table.database)}.{_double_quoted(table.table)}",
        "table": None if definition is None else _table(definition, comments=comments),
    }


def _double_quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _table(definition: TableDefinition, *, comments: bool) -> Struct:
    catalog, statement = definition
    options = statement[statement.rfind("\n)") :]
    charset = re.search(r"\) ENGINE=.*? DEFAULT CHARSET=(\w+)", options)
    comment = re.search(r" COMMENT='((?:[^'\\]|''|\\.)*)'", options, re.DOTALL) if comments else None
    return {
        "defaultCharsetName": charset[1] if charset else None,
        "primaryKeyColumnNames": list(catalog.index_key),
        "columns": [_column(c, i, statement, comments=comments) for i, c in enumerate(catalog.table.columns, 1)],
        "comment": comment[1] if comment else None,
    }


def _column(column: Column, position: int, statement: str, *, comments: bool) -> Struct:
    catalog = column.catalog
    assert catalog is not None, "a column of the catalog"
    defined = _ColumnDefinition(column.name, statement)
    name = " ".join(w for w in (defined.type, *(w for w in ("UNSIGNED", "ZEROFILL") if w in defined.attributes)))
    family = family_of(column.data_type)
    length, scale = family.declared_sizes(defined.arguments)
    # As in Debezium, ON UPDATE CURRENT_TIMESTAMP counts as both, a generated column as neither.
    automatic = catalog.auto_increment or "on update" in catalog.extra.lower()
    is_text = family.is_text and catalog.collation is not None
    return {
        "name": column.name,
        "jdbcType": family.jdbc_types.get(column.data_type, JDBC_OTHER),
        "nativeType": None,
        "typeName": name,
        "typeExpression": name,
        "charsetName": str(catalog.collation).split("_", 1)[0] if is_text else None,
        "length": length,
        "scale": scale,
        "position": position,
        "optional": column.nullable,
        "autoIncremented": automatic,
        "generated": automatic,
        "comment": defined.comment if comments else None,
        "defaultValueExpression": _default(column, defined.default),
        "enumValues": list(defined.arguments) if family.has_labels else None,
    }


def _default(column: Column, text: str | None) -> str | None:
    """Return a default as in the definition: the text between the quotes, escaped as there."""
    if text is None or text.startswith("("):
        return None
    if family_of(column.data_type).allows_current_timestamp and text.upper().startswith("CURRENT_TIMESTAMP"):
        return _EPOCH
    quoted = re.fullmatch(r"(?:b|_\w+)?'(.*)'", text, re.DOTALL)
    return quoted[1] if quoted else None if text.upper() == "NULL" else text


_PART: Final = re.compile(r"\w*'(?:[^'\\]|''|\\.)*'|[(),\n]|[^\s'(),]+|[ \t]+", re.DOTALL)


class _ColumnDefinition:
    """The line of a column in SHOW CREATE TABLE, which the server always formats the same way."""

    def __init__(self, name: str, statement: str) -> None:
        start = statement.index(f"\n  {quote(name)} ") + len(f"\n  {quote(name)} ")
        words = self._words(statement, start)
        self.type, _, inside = words[0].partition("(")
        self.type = self.type.upper()
        self.arguments = tuple(_arguments(inside[:-1])) if inside else ()
        """The list in parentheses after the type: sizes, or quoted labels."""
        self.attributes = frozenset(word.upper() for word in words[1:4])
        at = next((i for i, word in enumerate(words) if word.upper() == "DEFAULT"), None)
        self.default = words[at + 1] if at is not None and at + 1 < len(words) else None
        at = next((i for i, word in enumerate(words) if i > 0 and word == "COMMENT"), None)
        self.comment = words[at + 1][1:-1] if at is not None else None

    @staticmethod
    def _words(text: str, at: int) -> list[str]:
        """Split at blanks outside quotes and parentheses, up to the end of the definition."""
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
