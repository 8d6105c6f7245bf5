"""The columns, the key and the filter that a rule gives a table: everything that is wrong with it is found at once."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as fn
from pyspark.sql import types as tp

from tailrace.schemas.connect import ConnectField, ConnectSchema
from tailrace.schemas.table import TableSchema
from tailrace.spark_consumer.source.json_decoder import row_type
from tailrace.spark_consumer.source.types import PLAIN_TYPES, decimal_schema
from tailrace.spark_consumer.transform.expressions import Expressions, FaultError, Item, Output
from tailrace.spark_consumer.transform.rules import Fragment, Source, TransformRule

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DATABASE: Final = "__schema_name__"
TABLE: Final = "__table_name__"
_EXACT: Final = frozenset({"boolean", "int8", "int16", "int32", "int64", "string"})
_OTHER_KEY: Final = "a program can use materialize of the library for a key that an update can change (docs/streams.md)"


@dataclass(frozen=True, slots=True)
class ProjectedColumn:
    """One column of the target."""

    field: ConnectField
    source: str | None
    """The column of the source that it passes through; None if it is computed."""
    by_star: bool
    """Whether ``*`` stands for it: it follows the column when the source is altered."""
    references: frozenset[str]
    """The columns that its value depends on."""
    text: str = ""
    """The expression of a computed column."""


@dataclass(frozen=True, slots=True)
class Columns:
    """What a rule makes of a table."""

    columns: tuple[ProjectedColumn, ...]
    key: tuple[str, ...]
    condition: str = ""
    """The filter; empty: all rows."""
    condition_references: frozenset[str] = frozenset()
    has_star: bool = False
    left_out: frozenset[str] = frozenset()
    """Columns of the source, in lower case, that ``*`` does not stand for."""


def metadata(schema: TableSchema) -> dict[str, str]:
    """Return the metadata columns of the rows of a table; a column of the table with such a name hides it."""
    own = {column.name.lower() for column in schema.columns}
    return {name: text for name, text in ((DATABASE, schema.database), (TABLE, schema.table)) if name not in own}


def find_columns(spark: SparkSession, rule: TransformRule, schema: TableSchema) -> tuple[Columns | None, list[str]]:
    """Return the columns that a rule gives a table, or None and the faults of its texts."""
    return _Finder(spark, rule, schema).find()


def shard_of(spark: SparkSession, columns: Columns, schema: TableSchema) -> dict[str, str]:
    """Return the key columns that depend on the metadata columns alone, with their values for a table as text."""
    constants = metadata(schema)
    found = [
        column
        for column in columns.columns
        if column.field.name in columns.key and column.references and column.references <= constants.keys()
    ]
    if not found:
        return {}
    rows = spark.sql("SELECT 1").select(*(fn.lit(text).alias(name) for name, text in constants.items()))
    row = rows.select(*(fn.expr(column.text).cast("string") for column in found)).collect()[0]
    return {column.field.name: value for column, value in zip(found, row, strict=True) if value is not None}


class _Finder:
    def __init__(self, spark: SparkSession, rule: TransformRule, schema: TableSchema) -> None:
        self._rule = rule
        self._schema = schema
        self._faults: list[str] = []
        optional = {column.name: column.schema.optional for column in schema.columns}
        fields = [tp.StructField(each.name, each.dataType, optional[each.name]) for each in row_type(schema)]
        self._metadata = metadata(schema)
        frame = spark.createDataFrame([], tp.StructType(fields))
        more = spark.createDataFrame(
            [], tp.StructType([*fields, *(tp.StructField(name, tp.StringType(), False) for name in self._metadata)])
        )
        self._expressions = Expressions(frame, more)

    def find(self) -> tuple[Columns | None, list[str]]:
        """Return the columns, or None and the faults."""
        items = list(self._items())
        stars = [item for item in items if item.is_star]
        for item in stars[1:]:
            self._faults.append(item.fragment.fault("* is given twice"))
            items.remove(item)
        columns = self._columns(items)
        condition = self._condition()
        key = self._key(columns)
        if self._faults:
            return None, self._faults
        stand_for = {column.source.lower() for column in columns if column.by_star and column.source}
        left_out = {column.name.lower() for column in self._schema.columns} - stand_for
        found = Columns(
            tuple(columns),
            key,
            "" if self._rule.filter is None else self._rule.filter.text,
            condition,
            bool(stars),
            frozenset(left_out),
        )
        return found, []

    def _items(self) -> Iterator[Item]:
        for fragment in self._rule.items:
            try:
                yield self._expressions.item(fragment)
            except FaultError as error:
                self._faults.append(str(error))

    def _condition(self) -> frozenset[str]:
        if self._rule.filter is None:
            return frozenset()
        try:
            return self._expressions.condition(self._rule.filter)
        except FaultError as error:
            self._faults.append(str(error))
            return frozenset()

    def _columns(self, items: Iterable[Item]) -> list[ProjectedColumn]:
        """Return the columns in their order; ``*`` stands for those that no other item names."""
        items = list(items)
        named = [output.name.lower() for item in items if not item.is_star for output in item.outputs]
        columns: list[ProjectedColumn] = []
        seen: set[str] = set()
        for item in items:
            for output in item.outputs:
                name = output.name.lower()
                if item.is_star and name in named:
                    continue
                if name in seen:
                    message = f"the column {output.name} is given twice; names that differ only in case are the same"
                    self._faults.append(item.fragment.fault(message))
                    continue
                seen.add(name)
                column = self._column(item, output)
                if column is not None:
                    columns.append(column)
        return columns

    def _column(self, item: Item, output: Output) -> ProjectedColumn | None:
        known = {column.name: column.schema for column in self._schema.columns}
        source = output.source if output.source in known else None
        if source is not None:
            field = ConnectField(output.name, known[source])
            return ProjectedColumn(field, source, item.is_star, output.references)
        schema = connect_schema(output.type, optional=output.nullable)
        if schema is None:
            kind = output.type.simpleString()
            message = f"no target has columns of the type {kind}: cast the value, for example to STRING"
            self._faults.append(item.fragment.fault(message, 0, len(item.fragment.text) - 1))
            return None
        field = ConnectField(output.name, schema)
        return ProjectedColumn(field, None, False, output.references, item.fragment.text)

    def _key(self, columns: list[ProjectedColumn]) -> tuple[str, ...]:
        """Return the key of the target; each of its columns is a function of the key of the source."""
        if self._rule.primary_keys:
            return tuple(name for part in self._rule.primary_keys for name in self._named_key(part, columns))
        found = []
        for name in self._schema.key:
            passed = [column.field.name for column in columns if column.source == name]
            same = [each for each in passed if each.lower() == name.lower()]
            if passed:
                found.append((same or passed)[0])
            elif not self._faults:
                source = Source(f"transforms.{self._rule.name}.projection", self._rule.items[0].source.text)
                setting = f"transforms.{self._rule.name}.primary-keys"
                message = (
                    f"the key column {name} is left out: add it, or name columns that are unique in {setting}; "
                    f"{_OTHER_KEY}"
                )
                self._faults.append(Fragment(source, 0, source.text).fault(message))
        return tuple(found)

    def _named_key(self, part: Fragment, columns: list[ProjectedColumn]) -> Iterator[str]:
        name = part.text.strip("`").replace("``", "`")
        found = next((column for column in columns if column.field.name.lower() == name.lower()), None)
        if found is None:
            if not self._faults:
                shown = ", ".join(column.field.name for column in columns)
                self._faults.append(part.fault(f"{name} is not a column of the target, which has {shown}"))
            return
        others = found.references - set(self._schema.key) - set(self._metadata)
        if others or not self._schema.key:
            key = ", ".join(self._schema.key) or "nothing: it has no key"
            message = (
                f"{found.field.name} depends on {', '.join(sorted(others)) or 'no key'}, which an update can change: "
                f"a key of the target is computed from the key of the source, {key}; {_OTHER_KEY}"
            )
            self._faults.append(part.fault(message, 0, len(part.text) - 1))
        elif found.references and found.references <= self._metadata.keys() and not _tells_tables(found):
            message = (
                f"{found.field.name} tells the rows of a table from others, and its type does not tell all values "
                "apart: cast it to a whole number or STRING"
            )
            self._faults.append(part.fault(message, 0, len(part.text) - 1))
        yield found.field.name


def _tells_tables(column: ProjectedColumn) -> bool:
    """Return whether different values of a column have different texts, and equal ones the same in every target."""
    schema = column.field.schema
    return schema.type in _EXACT or ("scale", "0") in schema.parameters


_NAMED: Final[dict[type[tp.DataType], tuple[str, str]]] = {
    tp.DateType: ("int32", "io.debezium.time.Date"),
    tp.TimestampNTZType: ("int64", "io.debezium.time.MicroTimestamp"),
    tp.TimestampType: ("string", "io.debezium.time.ZonedTimestamp"),
}


def connect_schema(kind: tp.DataType, *, optional: bool) -> ConnectSchema | None:
    """Return the schema of a column of a type; None if no column of a target can have it."""
    if type(kind) in _NAMED:
        plain, name = _NAMED[type(kind)]
        return ConnectSchema(plain, optional=optional, name=name, version=1)
    if isinstance(kind, tp.DecimalType):
        return decimal_schema(kind, optional=optional)
    return _inner(kind, optional=optional)


def _inner(kind: tp.DataType, *, optional: bool = True) -> ConnectSchema | None:
    """Return the schema of a type that a struct, an array or a map can have inside."""
    if isinstance(kind, tp.StructType):
        members = [(each.name, _inner(each.dataType)) for each in kind]
        if any(schema is None for _, schema in members):
            return None
        fields = tuple(ConnectField(name, schema) for name, schema in members if schema is not None)
        return ConnectSchema("struct", optional=optional, fields=fields)
    if isinstance(kind, tp.ArrayType):
        items = _inner(kind.elementType)
        return None if items is None else ConnectSchema("array", optional=optional, items=items)
    if isinstance(kind, tp.MapType):
        values = _inner(kind.valueType)
        if values is None or type(kind.keyType) is not tp.StringType:
            return None
        return ConnectSchema("map", optional=optional, keys=ConnectSchema("string"), values=values)
    if isinstance(kind, tp.StringType) and kind != tp.StringType():
        return None  # it has a collation
    return ConnectSchema(PLAIN_TYPES[type(kind)], optional=optional) if type(kind) in PLAIN_TYPES else None
