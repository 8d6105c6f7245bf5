"""The rows of tables that take a changelog: histories, and tables with versions (SCD type 2).

A row of a history names the record that it comes from (``__partition``, ``__offset``) and its place among the rows of
the record (``__part``): no two rows of a history have the same three. Each write is one commit with its ledger. A query
that goes on adds its rows without a look at the table. If a write can have been made before, because its commit was
followed by a failure, or an older checkpoint was restored, or another query reads the topic again, the rows that the
table has are left out.

A table with versions has a row for each version of a key, with the time for which it was valid.

A version begins with the record whose sequence is ``_seq`` at ``__valid_from``, and ends with the record whose
sequence is ``_until`` at ``__valid_to``: the next version of the key, or its delete. Both are NULL and ``__current`` is
true, for a version that is valid now. ``_seen`` is the last record that had the same values; it is no version of its
own.

Two statements hold for each key after every write: versions do not overlap in the order of their sequences, and at most
one is current. They follow from the way in which a write is made. It takes the stored versions that end behind the
first new record of their key, or have no end. All others end before everything that is new. The records that these
versions stand for, and the new ones, are put in the order of their sequences, and the versions are made from them.
So it does not matter in which order records arrive, in which batches, or how often: the record of a version that is
stored already gives the same version. Of several records with the same values the first and the last one are known: if
a change between them is read later, the values come back with the last one.

A delete without a version before it is kept as a version that ends where it begins, so that an older record that is
read later does not seem to be current. A row that is read again (op r) says nothing of the time before it was read: it
is left out if the table has something later of its key.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as fn
from pyspark.sql import types as tp
from pyspark.storagelevel import StorageLevel

from tailrace.schemas.rowkind import Op, RowKind
from tailrace.schemas.sequence import SEQUENCE_COLUMN
from tailrace.spark_consumer.normalize.key_ranges import key_ranges, predicate
from tailrace.spark_consumer.normalize.rowkind import DELETED_COLUMN
from tailrace.spark_consumer.sink.base import TableBatch
from tailrace.spark_consumer.sink.initial_load import BROADCAST_KEYS
from tailrace.spark_consumer.sink.shape import (
    CURRENT,
    KIND,
    OFFSET,
    PART,
    PARTITION,
    RECORD,
    SEEN,
    TIME,
    UNTIL,
    VALID_FROM,
    VALID_TO,
    Layout,
)
from tailrace.spark_consumer.sink.table_names import quote
from tailrace.spark_consumer.source.types import SEQUENCE_TYPE, sequence_literal

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from tailrace.schemas.sequence import Sequence
    from tailrace.schemas.table import TableSchema
    from tailrace.spark_consumer.evolution.attempt import Evolved
    from tailrace.spark_consumer.sink.open_table import OpenTable


def history_rows(opened: OpenTable[Any], batch: TableBatch, *, repeated: bool) -> DataFrame:
    """Return the rows that a write adds; ``repeated``: the table can have some of them."""
    rows = batch.records.select(*opened.changelog_columns(batch.schema), *entry_columns())
    if repeated:
        rows = _not_written(opened, rows)
    if batch.truncated is None:
        return rows
    milliseconds = None if batch.write is None else batch.write.truncated_ms
    deletes = _deletes(opened.table.rows(), batch.schema, batch.truncated, milliseconds)
    return rows.unionByName(deletes, allowMissingColumns=True)


def entry_columns() -> list[Column]:
    """Return the columns of changelog rows that every history has."""
    return [
        fn.col("kind").alias(KIND),
        fn.timestamp_millis("ts_ms").alias(TIME),
        fn.col("partition").alias(PARTITION),
        fn.col("offset").alias(OFFSET),
        fn.col("part").alias(PART),
    ]


def _not_written(opened: OpenTable[Any], rows: DataFrame) -> DataFrame:
    """Return the rows that the table does not have."""
    least, greatest = rows.agg(fn.min(OFFSET), fn.max(OFFSET)).collect()[0]
    if least is None:
        return rows
    written = opened.table.rows().where(fn.col(OFFSET).between(least, greatest)).select(*RECORD)
    return rows.join(written, list(RECORD), "left_anti").select(*rows.columns)


def _deletes(stored: DataFrame, schema: TableSchema, truncated: Sequence, milliseconds: int | None) -> DataFrame:
    """Return a ``-D`` for each key whose last row is before a truncate event and no ``-D``.

    It has the place of the row that it removes, one part later. Without a known time it has that of the row.
    """
    newest_first = Window.partitionBy(*map(quote, schema.key)).orderBy(
        *(fn.col(name).desc() for name in (SEQUENCE_COLUMN, *RECORD))
    )
    last = stored.withColumn("_rank", fn.row_number().over(newest_first)).where(fn.col("_rank") == 1).drop("_rank")
    left = last.where((fn.col(KIND) != RowKind.DELETE.value) & (fn.col(SEQUENCE_COLUMN) < sequence_literal(truncated)))
    return left.withColumns(
        {
            KIND: fn.lit(RowKind.DELETE.value),
            SEQUENCE_COLUMN: sequence_literal(truncated),
            TIME: fn.col(TIME) if milliseconds is None else fn.timestamp_millis(fn.lit(milliseconds)),
            PART: fn.col(PART) + fn.lit(1),
        }
    )


_STORED, _SEEN_POINT, _NEW, _END = range(4)
"""Where a point comes from. Of points with one sequence the least counts: what is stored stays."""
_VALUES: Final = "values"
_ADDED: Final = "added"


def keys_of_changelog(opened: OpenTable[Any], batch: TableBatch) -> str:
    """Return a condition on a table ``t`` that all keys of a batch meet; '' if there is none, or the table is small."""
    if batch.truncated is not None or opened.table.is_small:
        return ""
    images = [fn.col("row").alias(image) for image in ("before", "after")]
    op = fn.lit(Op.CREATE.value).alias("op")
    return predicate(key_ranges(batch.records.select(op, *images), batch.schema), "t", quote)


def changed_versions(opened: OpenTable[Any], batch: TableBatch, within: str = "") -> DataFrame:
    """Return the rows of a table that a write changes: those with ``_deleted`` are removed, the others are as given.

    ``within``: a condition on the table ``t`` that all keys of the batch meet.
    """
    table, columns = opened.table, VersionColumns.of(batch.schema, opened.evolved, opened.layout)
    events = columns.events(batch, opened.changelog_columns(batch.schema))
    if batch.truncated is not None:
        events = events.unionByName(columns.truncations(batch, table.rows().where(table.before(batch.truncated))))
    stored = table.rows().alias("t")
    stored = columns.stored(stored.where(within) if within else stored)
    # Where a struct of all columns meets the use of each of them, a plan grows with the square of their number.
    events, stored = _without_plan(events), _without_plan(stored)
    write = batch.write
    few = write is not None and not write.releases and batch.truncated is None and write.offsets <= BROADCAST_KEYS
    return columns.rows(versions(affected_versions(stored, events, few=few), events))


@contextmanager
def kept_rows(rows: DataFrame) -> Iterator[DataFrame]:
    """Return rows without the plan that they come from: they are cached, and computed again where a cache is lost."""
    cached = rows.persist(StorageLevel.MEMORY_AND_DISK_DESER)
    try:
        yield _without_plan(cached)
    finally:
        cached.unpersist()


def _without_plan(rows: DataFrame) -> DataFrame:
    """Return the same rows, computed when they are used; Spark does not look into the plan that they come from."""
    spark = rows.sparkSession
    session: Any = spark._jsparkSession  # noqa: SLF001
    computed = rows._jdf.queryExecution().toRdd()  # noqa: SLF001
    return DataFrame(session.internalCreateDataFrame(computed, rows._jdf.schema(), False), spark)  # noqa: SLF001


@dataclass(frozen=True, slots=True)
class VersionColumns:
    """The columns of a table with versions, and its rows as ``versions`` takes and returns them."""

    key: tuple[str, ...]
    source: tuple[str, ...]
    """The columns of the source."""
    metadata: tuple[str, ...]

    @classmethod
    def of(cls, schema: TableSchema, evolved: Evolved, layout: Layout) -> VersionColumns:
        """Return the columns of a captured table."""
        metadata = tuple(field.column for field in layout.fields)
        return cls(tuple(schema.key), tuple(evolved.source_columns(schema)), metadata)

    def events(self, batch: TableBatch, row: Iterable[Column]) -> DataFrame:
        """Return the changes of a batch: the row after each of them, or the last row of a deleted key.

        ``row`` are the columns of a changelog row as the table stores them.
        """
        changes = batch.records.where(fn.col("kind") != RowKind.UPDATE_BEFORE.value)
        rows = changes.select(
            *row,
            fn.timestamp_millis("ts_ms").alias("_at"),
            (fn.col("kind") == RowKind.DELETE.value).alias("_is_delete"),
            (fn.col("op") == Op.READ.value).alias("_is_read"),
            fn.struct("partition", "offset", "part").alias("_record"),
        )
        # Only the key of a deleted row is used: if there is no version before it, nothing of the row is known.
        given = rows.withColumns(
            {name: fn.when(~fn.col("_is_delete"), fn.col(quote(name))) for name in self.source if name not in self.key}
        )
        return given.select(
            _struct(self.key).alias("key"),
            fn.col(SEQUENCE_COLUMN).alias("seq"),
            fn.col("_at").alias("at"),
            fn.col("_is_delete").alias("deleted"),
            fn.col("_is_read").alias("reread"),
            _struct(self.source).alias(_VALUES),
            _struct(self.metadata).alias(_ADDED),
            fn.col("_record").alias("record"),
        )

    def truncations(self, batch: TableBatch, older: DataFrame) -> DataFrame:
        """Return a delete of each key that has a version at the truncate event of a batch.

        ``older`` are the rows of the table that begin before it. Without a known time of the event it is now.
        """
        assert batch.truncated is not None
        milliseconds = None if batch.write is None else batch.write.truncated_ms
        at = fn.current_timestamp() if milliseconds is None else fn.timestamp_millis(fn.lit(milliseconds))
        sequence = sequence_literal(batch.truncated)
        still = fn.col(UNTIL).isNull() | (fn.col(UNTIL) > sequence)
        record = fn.struct(*(fn.lit(0).cast(kind).alias(name) for name, kind in _RECORD.items()))
        return (
            self.stored(older)
            .where(still)
            .select(
                "key",
                sequence.alias("seq"),
                at.alias("at"),
                fn.lit(True).alias("deleted"),
                fn.lit(False).alias("reread"),
                _VALUES,
                _ADDED,
                record.alias("record"),
            )
        )

    def stored(self, rows: DataFrame) -> DataFrame:
        """Return rows of the table as ``versions`` takes them."""
        return rows.select(
            _struct(self.key).alias("key"),
            _struct(self.source).alias(_VALUES),
            _struct(self.metadata).alias(_ADDED),
            *(fn.col(name) for name in (SEQUENCE_COLUMN, VALID_FROM, VALID_TO, UNTIL, SEEN)),
        )

    def rows(self, found: DataFrame) -> DataFrame:
        """Return what ``versions`` has returned as rows of the table."""
        return found.select(
            *(fn.col(f"{_VALUES}.{quote(name)}").alias(name) for name in self.source),
            *(fn.col(f"{_ADDED}.{quote(name)}").alias(name) for name in self.metadata),
            *(fn.col(name) for name in (SEQUENCE_COLUMN, VALID_FROM, VALID_TO, CURRENT, UNTIL, SEEN, DELETED_COLUMN)),
        )


def versions(stored: DataFrame, events: DataFrame) -> DataFrame:
    """Return the versions that change, from all stored versions that they concern and from new events.

    ``stored`` has key, values, added (structs), and the columns of the shape; ``events`` has key, seq, at, deleted,
    reread, values, added, record. The result has key, values, added, the columns of the shape, and ``_deleted``.
    """
    # In this order: the result belongs to the session of the events.
    points = _new_points(events).unionByName(_stored_points(stored))
    of_key = Window.partitionBy("key")
    newest = fn.max(fn.when(fn.col("origin") != _NEW, fn.col("seq"))).over(of_key)
    late = (fn.col("origin") == _NEW) & fn.col("reread") & fn.coalesce(fn.col("seq") < fn.col("newest"), fn.lit(False))
    points = points.withColumn("newest", newest).where(~late)
    first = Window.partitionBy("key", "seq").orderBy("origin", fn.col("record").desc())
    points = points.withColumn("rank", fn.row_number().over(first)).where(fn.col("rank") == 1)
    in_order = of_key.orderBy("seq")
    was_open = fn.coalesce(~fn.lag("deleted").over(in_order), fn.lit(False))
    values = _comparable(points)
    same = fn.lag(values).over(in_order).eqNullSafe(values)
    begins = fn.when(fn.col("deleted"), ~was_open).otherwise(~(was_open & same))
    points = points.withColumn("begins", begins)
    points = points.withColumn("number", fn.sum(fn.col("begins").cast("int")).over(in_order))
    is_row = ~fn.col("deleted") | fn.col("begins")
    point = fn.struct("seq", "at")
    made = points.groupBy("key", "number").agg(
        *(fn.min_by(name, "seq").alias(name) for name in (_VALUES, _ADDED, "stored", "deleted")),
        fn.min(point).alias("start"),
        fn.max(fn.when(is_row, point)).alias(SEEN),
        fn.max(fn.when(~is_row, point)).alias("end"),
    )
    following = fn.lead("start").over(of_key.orderBy("number"))
    made = made.withColumn("end", fn.coalesce(fn.when(fn.col("deleted"), fn.col("start")), "end", following))
    made = made.select(
        "key",
        _VALUES,
        _ADDED,
        fn.col("start.seq").alias(SEQUENCE_COLUMN),
        fn.col("start.at").alias(VALID_FROM),
        fn.col("end.at").alias(VALID_TO),
        fn.col("end").isNull().alias(CURRENT),
        fn.col("end.seq").alias(UNTIL),
        SEEN,
        fn.lit(False).alias(DELETED_COLUMN),
        "stored",
    )
    now = fn.struct(fn.col(UNTIL).alias("until"), fn.col(f"{SEEN}.seq").alias("seen"))
    changed = made.where(~fn.coalesce(fn.col("stored").eqNullSafe(now), fn.lit(False)))
    gone = points.where(fn.col("stored").isNotNull() & ~fn.col("begins"))
    return changed.drop("stored").unionByName(
        gone.select("key", _VALUES, fn.col("seq").alias(SEQUENCE_COLUMN), fn.lit(True).alias(DELETED_COLUMN)),
        allowMissingColumns=True,
    )


_RECORD: Final = {"partition": "int", "offset": "bigint", "part": "int"}


def affected_versions(stored: DataFrame, events: DataFrame, *, few: bool = False) -> DataFrame:
    """Return the stored versions that end behind the first event of their key, or have no end.

    ``few``: the events fit into memory. Spark knows no size of rows without a plan: it would shuffle ``stored``.
    """
    first = events.groupBy(fn.col("key").alias("_key")).agg(fn.min("seq").alias("_first"))
    concerned = fn.col("key").eqNullSafe(fn.col("_key")) & (
        fn.col(UNTIL).isNull() | (fn.col(UNTIL) >= fn.col("_first"))
    )
    return stored.join(fn.broadcast(first) if few else first, concerned, "left_semi")


def _stored_points(stored: DataFrame) -> DataFrame:
    """Return what versions stand for: their first record, the last one with the same values, and their end."""
    until, start = fn.col(UNTIL), fn.col(SEQUENCE_COLUMN)
    was = fn.struct(until.alias("until"), fn.col(f"{SEEN}.seq").alias("seen"))

    def point(origin: int, seq: Column, at: Column, deleted: Column, stored_as: Column) -> Column:
        return fn.struct(
            fn.lit(origin).alias("origin"),
            seq.alias("seq"),
            at.alias("at"),
            deleted.alias("deleted"),
            stored_as.alias("stored"),
        )

    no, none = fn.lit(False), fn.when(fn.lit(False), was)
    begin = point(_STORED, start, fn.col(VALID_FROM), fn.coalesce(until == start, no), was)
    seen = point(_SEEN_POINT, fn.col(f"{SEEN}.seq"), fn.col(f"{SEEN}.at"), no, none)
    end = point(_END, until, fn.col(VALID_TO), fn.lit(True), none)
    exploded = stored.select("key", _VALUES, _ADDED, fn.explode(fn.array(begin, seen, end)).alias("point"))
    return (
        exploded.select("key", _VALUES, _ADDED, "point.*")
        .where(fn.col("seq").isNotNull())
        .select("*", fn.lit(False).alias("reread"), fn.lit(None).cast(_record_type()).alias("record"))
    )


def _new_points(events: DataFrame) -> DataFrame:
    sequence = SEQUENCE_TYPE.simpleString()
    none = fn.lit(None).cast(f"struct<until: {sequence}, seen: {sequence}>")
    return events.select("*", fn.lit(_NEW).alias("origin"), none.alias("stored"))


def _record_type() -> str:
    return "struct<{}>".format(", ".join(f"{name}: {kind}" for name, kind in _RECORD.items()))


def _comparable(points: DataFrame) -> Column:
    """Return the values of points in types that Spark compares: maps and variants as text."""
    kinds = points.schema[_VALUES].dataType
    assert isinstance(kinds, tp.StructType)
    if not any(map(_has_no_order, kinds.fields)):
        return fn.col(_VALUES)
    members = []
    for field in kinds.fields:
        value = fn.col(_VALUES).getField(field.name)
        members.append(fn.to_json(fn.struct(value.alias("v"))) if _has_no_order(field) else value)
    return fn.struct(*(member.alias(f"v{number}") for number, member in enumerate(members)))


def _has_no_order(field: tp.StructField) -> bool:
    named = field.dataType.simpleString()
    return "map<" in named or "variant" in named


def _struct(names: Iterable[str]) -> Column:
    columns = [fn.col(quote(name)).alias(name) for name in names]
    # Spark has no aggregates of a struct without fields.
    return fn.struct(*columns) if columns else fn.struct(fn.lit(0).alias("none"))
