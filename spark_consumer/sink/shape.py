"""The shape of a table: which rows it has of the changes of its source, and which columns besides those of the source.

A shape is chosen by regular expressions of ``db.table``. It decides which images the sink reads of a change event.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property, partial
from typing import TYPE_CHECKING, Final, Literal, get_args

from pyspark.sql import functions as fn
from pyspark.sql import types as tp

from tailrace.runtime.config.section import Section, prefixed, supported
from tailrace.runtime.config.value_types import ANY_TEXT, InvalidValueError, ValueType, integer, one_of, set_of
from tailrace.schemas.rowkind import Op
from tailrace.schemas.sequence import SEQUENCE_COLUMN
from tailrace.spark_consumer.errors import SinkError
from tailrace.spark_consumer.evolution.policy import CHANGE_NAMES, Behavior, EvolutionPolicy
from tailrace.spark_consumer.images import FIELDS, Images, MetadataField, read_fields
from tailrace.spark_consumer.normalize.rowkind import DELETED_COLUMN
from tailrace.spark_consumer.source.json_decoder import METADATA
from tailrace.spark_consumer.source.types import SEQUENCE_TYPE

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from tailrace.runtime.config.draft import Draft


Shape = Literal["scd1", "soft-delete", "history", "scd2"]
IS_DELETED: Final = "__deleted"
"""Column of a table with soft deletes: whether the source has deleted the row. The name is Debezium's."""

KIND: Final = "__kind"
TIME: Final = "__ts"
PARTITION: Final = "__partition"
OFFSET: Final = "__offset"
PART: Final = "__part"
"""Columns of a history: the RowKind, the time at the source, and the record that the row comes from."""
RECORD: Final = (PARTITION, OFFSET, PART)
"""The columns that no two rows of a history have alike."""
VALID_FROM: Final = "__valid_from"
VALID_TO: Final = "__valid_to"
CURRENT: Final = "__current"
UNTIL: Final = "_until"
SEEN: Final = "_seen"
SEEN_AT: Final = "_seen_at"
"""Columns of a table with versions (versions.py); ``SEEN_AT`` is the time in ``SEEN`` where columns are no structs."""

_COLUMNS: Final[Mapping[Shape, tuple[tp.StructField, ...]]] = {
    "scd1": (),
    "soft-delete": (tp.StructField(IS_DELETED, tp.BooleanType()),),
    "history": (
        tp.StructField(KIND, tp.StringType()),
        tp.StructField(TIME, tp.TimestampType()),
        tp.StructField(PARTITION, tp.IntegerType()),
        tp.StructField(OFFSET, tp.LongType()),
        tp.StructField(PART, tp.IntegerType()),
    ),
    "scd2": (
        tp.StructField(VALID_FROM, tp.TimestampType()),
        tp.StructField(VALID_TO, tp.TimestampType()),
        tp.StructField(CURRENT, tp.BooleanType()),
        tp.StructField(UNTIL, SEQUENCE_TYPE),
        tp.StructField(
            SEEN, tp.StructType([tp.StructField("seq", SEQUENCE_TYPE), tp.StructField("at", tp.TimestampType())])
        ),
    ),
}
_IMAGES: Final[Mapping[Shape, Images]] = {
    "scd1": Images.UPSERT,
    "soft-delete": Images.UPSERT_WITH_BEFORE,
    "history": Images.CHANGELOG,
    "scd2": Images.CHANGELOG,
}
_RESERVED: Final = frozenset(
    {SEQUENCE_COLUMN, DELETED_COLUMN, SEEN_AT, *(column.name for columns in _COLUMNS.values() for column in columns)}
)


@dataclass(frozen=True)
class Layout:
    """The shape of one table and its metadata columns."""

    shape: Shape = "scd1"
    fields: tuple[MetadataField, ...] = ()

    @cached_property
    def columns(self) -> tuple[tp.StructField, ...]:
        """The columns that the table has besides those of the source and the sequence."""
        return (*_COLUMNS[self.shape], *(tp.StructField(field.column, field.type) for field in self.fields))

    @property
    def names(self) -> list[str]:
        """The names of these columns."""
        return [column.name for column in self.columns]

    @property
    def own_columns(self) -> tuple[tp.StructField, ...]:
        """The columns that the shape needs, without metadata columns."""
        return _COLUMNS[self.shape]

    def upsert_row(self, values: Iterable[Column]) -> list[Column]:
        """Return the columns of an upsert batch, with the values of the columns of the source."""
        columns = [*values, fn.col("seq").alias(SEQUENCE_COLUMN)]
        if self.keeps_deleted:
            columns.append((fn.col("op") == Op.DELETE.value).alias(IS_DELETED))
        return [*columns, *self._metadata]

    def changelog_row(self, values: Iterable[Column]) -> list[Column]:
        """Return the columns of changelog rows, with the values of the columns of the source."""
        return [*values, fn.col("seq").alias(SEQUENCE_COLUMN), *self._metadata]

    @property
    def removed(self) -> Column:
        """The column of an upsert batch that says whether the row of the key is removed."""
        removed = fn.lit(False) if self.keeps_deleted else fn.col("op") == Op.DELETE.value
        return removed.alias(DELETED_COLUMN)

    @property
    def _metadata(self) -> list[Column]:
        """The metadata columns of decoded records or changelog rows."""
        return [fn.col(METADATA).getField(field.column).alias(field.column) for field in self.fields]

    @property
    def takes_changelog(self) -> bool:
        """Whether every change counts, and a key can have several rows."""
        return _IMAGES[self.shape] is Images.CHANGELOG

    def rows_of_source(self, rows: DataFrame, target: str) -> DataFrame:
        """Return the rows of a target that the source has. Raises SinkError if its rows are changes or versions."""
        if self.takes_changelog:
            raise SinkError(
                f"{target} has the shape {self.shape}, whose rows are not those of the source",
                hint="leave the table out with --tables",
            )
        return rows.where(~fn.coalesce(fn.col(IS_DELETED), fn.lit(False))) if self.keeps_deleted else rows

    @property
    def keeps_deleted(self) -> bool:
        """Whether a deleted row stays, marked as deleted."""
        return self.shape == "soft-delete"


PLAIN: Final = Layout()
"""A table with the columns of its source alone."""


@dataclass(frozen=True, slots=True)
class TableShapes:
    """The shapes of tables."""

    default: Shape = "scd1"
    overrides: tuple[tuple[str, Shape], ...] = ()
    """Regular expressions that match a whole ``db.table`` without regard to case, with the shapes of these tables."""

    def of(self, database: str, table: str) -> Shape:
        """Return the shape of a table. Raises SinkError if several expressions match it."""
        found = self.matching(database, table)
        if len(found) > 1:
            raise SinkError(
                f"several expressions of sink.shape.overrides match {database}.{table}",
                hint="change the expressions, so that one of them matches the table",
                expressions=[f"{expression}:{shape}" for expression, shape in found],
            )
        return found[0][1] if found else self.default

    def images(self, database: str, table: str) -> Images:
        """Return the images that the shape of a table needs; of several the first, ``of`` reports them."""
        found = self.matching(database, table)
        return _IMAGES[found[0][1] if found else self.default]

    def matching(self, database: str, table: str) -> list[tuple[str, Shape]]:
        """Return the expressions that match a table, with the shapes."""
        name = f"{database}.{table}"
        return [entry for entry in self.overrides if re.fullmatch(entry[0], name, re.IGNORECASE)]


def _read_overrides(shapes: Collection[Shape], text: str) -> tuple[tuple[str, Shape], ...]:
    found: list[tuple[str, Shape]] = []
    problems = []
    for entry in filter(None, map(str.strip, text.split(";"))):
        expression, _, name = map(str.strip, entry.rpartition(":"))
        shape = next((each for each in shapes if each == name.lower()), None)
        if not expression:
            problems.append(f"{entry!r} is not of the form db.table:shape")
        elif shape is None:
            problems.append(f"{name!r} is not a shape of the sink: {', '.join(shapes)}")
        else:
            try:
                re.compile(expression)
            except re.error as error:
                problems.append(f"{expression!r} is not a regular expression: {error}")
            else:
                found.append((expression, shape))
    if problems:
        raise InvalidValueError("; ".join(problems))
    return tuple(found)


def overrides(shapes: Collection[Shape]) -> ValueType[tuple[tuple[str, Shape], ...]]:
    """Return the type of ``sink.shape.overrides`` for a sink with some shapes."""
    return ValueType(
        "a list such as shop\\.customers:soft-delete;crm\\..*:scd1",
        partial(_read_overrides, shapes),
        lambda found: ";".join(f"{expression}:{shape}" for expression, shape in found),
    )


OVERRIDES_DOC: Final = "[Shapes](shapes.md) of some tables, such as `shop\\.customers:soft-delete;crm\\..*:scd1`."

FIELD_PROPERTIES: Final = frozenset({"add.fields", "add.fields.prefix"})
PROPERTIES: Final = frozenset({"sink.shape", "sink.shape.overrides"}) | FIELD_PROPERTIES
"""Tables of another shape than the one that was asked for would be wrong: a sink without shapes rejects these."""


class MetadataOptions(Section):
    """The metadata columns of tables."""

    added_fields: tuple[MetadataField, ...] = supported(
        "add.fields",
        FIELDS,
        default="",
        doc="[Metadata columns](shapes.md#metadata-columns) of the tables: fields of the envelope, such as "
        "`op,source.ts_ms,source.pos:position`.",
    )
    added_prefix: str = supported(
        "add.fields.prefix",
        ANY_TEXT,
        default="__",
        doc="What the names of metadata columns begin with.",
    )

    @property
    def fields(self) -> tuple[MetadataField, ...]:
        """The metadata columns, with their prefix."""
        return tuple(field.with_prefix(self.added_prefix) for field in self.added_fields)


class ShapeOptions(MetadataOptions):
    """The shapes of tables, and their metadata columns."""

    shape: Shape = supported(
        "sink.shape",
        one_of(Shape),
        default="scd1",
        doc="[Shape](shapes.md) of the tables: scd1, soft-delete, history or scd2.",
    )
    shape_overrides: tuple[tuple[str, Shape], ...] = supported(
        "sink.shape.overrides",
        overrides(get_args(Shape)),
        default="",
        doc=OVERRIDES_DOC,
    )

    @property
    def shapes(self) -> TableShapes:
        """The shapes of tables."""
        return TableShapes(self.shape, self.shape_overrides)

    def layout(self, database: str, table: str) -> Layout:
        """Return the layout of a table."""
        return Layout(self.shapes.of(database, table), self.fields)

    def layout_of(self, topic: str, prefix: str) -> Layout:
        """Return the layout of the table of a topic: the consumer knows a table by it when it chooses the images."""
        database, _, table = topic.removeprefix(f"{prefix}.").partition(".")
        return self.layout(database, table)


class SchemaChangeOptions(Section):
    """What tables do when the source is altered."""

    schema_change_behavior: Behavior = supported(
        "schema.change.behavior",
        one_of(Behavior),
        default="lenient",
        doc="What a table does with [ALTER TABLE](consumer.md#schema-changes): exception, evolve, try_evolve, "
        "lenient or ignore.",
    )
    included_changes: frozenset[str] = supported(
        "include.schema.changes",
        set_of(*CHANGE_NAMES),
        default="",
        doc="Kinds of changes, or parts of their names, that schema.change.behavior applies to; others are "
        "ignored. Empty: all.",
    )
    excluded_changes: frozenset[str] = supported(
        "exclude.schema.changes",
        set_of(*CHANGE_NAMES),
        default="",
        doc="Kinds of changes, or parts of their names, that are ignored.",
    )

    @property
    def policy(self) -> EvolutionPolicy:
        """The same as a value."""
        return EvolutionPolicy(self.schema_change_behavior, self.included_changes, self.excluded_changes)


class TableOptions(SchemaChangeOptions, ShapeOptions):
    """Settings of a sink with tables of one format."""

    table_properties: Mapping[str, str] = prefixed(
        "sink.properties.*",
        ANY_TEXT,
        doc="Table properties of new tables, such as delta.logRetentionDuration or format-version.",
    )
    optimize_batches: int = supported(
        "sink.optimize.batches",
        integer(0),
        default="100",
        doc="Commits of a table, over all runs, after which its files are compacted; 0: never.",
    )


def fields_check(reserved: Collection[str]) -> Callable[[Draft], None]:
    """Return the check that reports metadata columns with reserved names, given in lower case."""

    def check(draft: Draft) -> None:
        if not draft.is_set("add.fields"):
            return
        prefix = draft.settings["add.fields.prefix"].value if "add.fields.prefix" in draft.settings else "__"
        try:
            fields = read_fields(draft.settings["add.fields"].value)
        except InvalidValueError:
            return  # the value was reported
        used = sorted(name for field in fields if (name := f"{prefix}{field.column}").lower() in reserved)
        if used:
            draft.problems.append(
                f"add.fields: the sinks use {', '.join(used)} themselves; give the field another name, as in field:name"
            )

    return check


check_fields: Final = fields_check(_RESERVED)
"""Reports metadata columns with names that the sinks of tables use themselves."""


def shape_images(options: ShapeOptions, database: str, table: str) -> Images:
    """Return the images that a sink with shapes reads of a table."""
    return options.shapes.images(database, table)
