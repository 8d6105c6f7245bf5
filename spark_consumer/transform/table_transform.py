"""What happens to the records and to the alterations of one table between decoding and its sink.

The sink sees the transformed table only: its schema, its rows, its alterations. A record keeps its place (partition,
offset, sequence, split), so that order, snapshots and what a target has applied are those of the source.

A row that does not match the filter is not in the target:

- Upsert: a record with such a row becomes a delete of its key. No record is left out: what the target has under the
  key is removed, whatever was read before.
- Changelog: an update across the filter becomes an insert or a delete; a record whose rows are all outside is left out.
  A row of an incremental snapshot, which says what the row of a key is, becomes a delete.

In the alterations, a column that ``*`` stands for follows the source. A column that a projection names keeps its name:
a rename of its source means nothing for the target, because the projection was changed with it.

If an expression fails for a record, Spark's error has the values, but not the record. So the records are transformed
again, half by half, until one is left; not if tasks run out of memory or lose their executors.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException
from pyspark.sql import functions as fn
from pyspark.sql import types as tp

from tailrace.runtime.errors import TailraceError
from tailrace.schemas.alteration import Alteration, AlterationKind, ColumnChange
from tailrace.schemas.rowkind import Op
from tailrace.schemas.table import TableSchema
from tailrace.spark_consumer.errors import BadRecord, TransformError, concerns_all_tables
from tailrace.spark_consumer.images import Images
from tailrace.spark_consumer.java_errors import ends_executors, summary
from tailrace.spark_consumer.normalize.rowkind import JSON_OPTIONS
from tailrace.spark_consumer.source.json_decoder import row_type
from tailrace.spark_consumer.spark_line import silence_contexts
from tailrace.spark_consumer.transform.columns import Columns, ProjectedColumn, metadata

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame


def target_alterations(
    alterations: Sequence[Alteration], columns: Columns, source: TableSchema
) -> tuple[Alteration, ...]:
    """Return the alterations of the target, in order; those that do not concern it are left out."""
    now: dict[str, str] = {column.name.lower(): column.name for column in source.columns}
    found: list[Alteration] = []
    # Backwards: a column that a projection names has the name that it has at the end.
    for alteration in reversed(alterations):
        changes = tuple(_Changes(columns, now).of(alteration))
        if changes:
            found.append(replace(alteration, changes=changes))
        now = _before(now, alteration)
    return tuple(reversed(found))


def _before(now: Mapping[str, str], alteration: Alteration) -> dict[str, str]:
    """Return the columns before an alteration, by their names then, to their names at the end."""
    result = dict(now)
    for change in alteration.changes:
        if change.kind in {AlterationKind.ADD, AlterationKind.RENAME}:
            result.pop(change.column.lower(), None)
    for change in alteration.changes:
        if change.kind is AlterationKind.RENAME and change.column.lower() in now:
            result[change.old.lower()] = now[change.column.lower()]
    return result


class _Changes:
    """The changes of one alteration; ``now`` has the names after it, to the names at the end."""

    def __init__(self, columns: Columns, now: Mapping[str, str]) -> None:
        self._columns = columns
        self._now = now
        explicit = {column.field.name.lower() for column in columns.columns if not column.by_star}
        self._hidden = explicit | columns.left_out

    def of(self, alteration: Alteration) -> Iterator[ColumnChange]:
        for change in alteration.changes:
            if change.kind is AlterationKind.ADD:
                yield from self._add(change)
            elif change.kind is AlterationKind.DROP:
                if self._follows(change.column):
                    yield change
            elif change.kind is AlterationKind.RENAME:
                yield from self._rename(change)
            else:
                yield from self._convert(change)

    def _follows(self, name: str) -> bool:
        return self._columns.has_star and name.lower() not in self._hidden

    def _named(self, name: str) -> Iterator[str]:
        """Yield the columns that a projection makes by name of the source column with this name after the statement."""
        at_end = self._now.get(name.lower())
        yield from (
            (column.field.name for column in self._columns.columns if not column.by_star and column.source == at_end)
            if at_end is not None
            else ()
        )

    def _add(self, change: ColumnChange) -> Iterator[ColumnChange]:
        if self._follows(change.column):
            yield change
        for name in self._named(change.column):
            yield replace(change, column=name)

    def _rename(self, change: ColumnChange) -> Iterator[ColumnChange]:
        before, after = self._follows(change.old), self._follows(change.column)
        if before and after:
            yield change
        elif before:
            yield ColumnChange(AlterationKind.DROP, change.old)
        elif after:
            yield ColumnChange(AlterationKind.ADD, change.column)

    def _convert(self, change: ColumnChange) -> Iterator[ColumnChange]:
        if not change.column:
            yield change
            return
        at_end = self._now.get(change.column.lower())
        if at_end in self._columns.condition_references:
            # Rows can have crossed the filter: every column can have another value.
            yield replace(change, column="")
            return
        if self._follows(change.column):
            yield change
        for column in self._columns.columns:
            if not column.by_star and at_end in column.references:
                yield replace(change, column=column.field.name)


_RESERVED: Final = "__tailrace"
_ROWS: Final = (Op.CREATE.value, Op.READ.value, Op.UPDATE.value)


@dataclass(frozen=True, slots=True)
class TableTransform:
    """The step for the records of one schema of a table."""

    source: TableSchema
    schema: TableSchema
    """The schema of the target; its topic is that of the source."""
    columns: Columns | None = None
    """None: rows stay as they are."""
    shard: Mapping[str, str] = field(default_factory=dict)
    """Key columns of the target that have one value in all rows of the table, as text."""

    @classmethod
    def of(
        cls,
        source: TableSchema,
        target: tuple[str, str],
        columns: Columns | None,
        shard: Mapping[str, str] | None = None,
    ) -> TableTransform:
        """Return the step that gives a table a name and columns."""
        schema = replace(source, database=target[0], table=target[1])
        if columns is not None:
            schema = replace(schema, columns=tuple(column.field for column in columns.columns), key=columns.key)
        return cls(source, schema, columns, shard or {})

    @property
    def computes(self) -> bool:
        """Whether an expression is evaluated for each record."""
        columns = self.columns
        return columns is not None and (bool(columns.condition) or any(each.source is None for each in columns.columns))

    def alterations(self, found: Sequence[Alteration]) -> Sequence[Alteration]:
        """Return what alterations of the source mean for the target."""
        return found if self.columns is None else target_alterations(found, self.columns, self.source)

    def apply(self, decoded: DataFrame, images: Images) -> DataFrame:
        """Return decoded records (source/json_decoder.py) with the rows of the target, and with the same columns."""
        if self.columns is None:
            return decoded
        if self.columns.condition and images is Images.UPSERT_WITH_BEFORE:
            raise TransformError(
                f"{self.source.database}.{self.source.table} has a filter, and its target keeps deleted rows: rows "
                "that the filter leaves out would be there as deleted ones",
                hint="remove the filter, or set another shape for the table in sink.shape.overrides",
            )
        return _Step(self.source, self.schema, self.columns, images).apply(decoded)


class _Step:
    """The transform of the records of one table; the texts of the expressions see its columns by their names."""

    def __init__(self, source: TableSchema, schema: TableSchema, columns: Columns, images: Images) -> None:
        self._source = source
        self._columns = columns
        self._upsert = images is not Images.CHANGELOG
        self._whole_before = images is not Images.UPSERT
        self._types = {each.name: each.dataType for each in row_type(schema)}
        self._key = [column for name in schema.key for column in columns.columns if column.field.name == name]
        self._own_key = schema.key != source.key or any(column.source is None for column in self._key)
        reserved = _RESERVED
        while any(column.name.lower().startswith(reserved) for column in source.columns):
            reserved += "_"
        self._record, self._after, self._before = (f"{reserved}_{word}" for word in ("record", "after", "before"))

    def apply(self, decoded: DataFrame) -> DataFrame:
        rows = decoded.select(fn.struct(*map(_quoted, decoded.columns)).alias(self._record))
        names = [column.name for column in self._source.columns]
        rows = self._with_image(rows, "after", self._after, names, self._columns.columns)
        if self._whole_before:
            rows = self._with_image(rows, "before", self._before, names, self._columns.columns)
        else:
            rows = self._with_image(rows, "before", self._before, self._source.key, self._key, filtered=False)
        result = self._upserts() if self._upsert else self._changes()
        if not self._upsert and self._columns.condition:
            rows = rows.where(self._is_left())
        record = fn.col(self._record)
        return rows.select(*(result.get(name, record[name]).alias(name) for name in decoded.columns))

    def _with_image(
        self,
        rows: DataFrame,
        image: str,
        name: str,
        fields: Iterable[str],
        columns: Sequence[ProjectedColumn],
        *,
        filtered: bool = True,
    ) -> DataFrame:
        """Add a struct: ``row``, the image with the columns of the target, and ``in``, whether the filter takes it."""
        kept = list(rows.columns)
        found = fn.col(self._record)[image]
        values = [found.getField(field).alias(field) for field in fields]
        constants = [fn.lit(text).alias(name) for name, text in metadata(self._source).items()]
        rows = rows.select(*kept, *values, *constants)
        members = [self._value(column).alias(column.field.name) for column in columns]
        present = found.isNotNull()
        row = fn.when(present, fn.struct(*members)) if members else fn.lit(None).cast(tp.StructType([]))
        condition = self._columns.condition if filtered else ""
        inside = fn.when(present, fn.coalesce(fn.expr(condition), fn.lit(False))) if condition else present
        result = fn.struct(row.alias("row"), fn.coalesce(inside, fn.lit(False)).alias("in"))
        return rows.select(*kept, result.alias(name))

    def _value(self, column: ProjectedColumn) -> Column:
        if column.source is not None:
            return _quoted(column.source)
        return fn.expr(column.text).cast(self._types[column.field.name])

    def _upserts(self) -> dict[str, Column]:
        """Return the columns of an upsert record: one with a row outside of the filter deletes its key."""
        op, after = fn.col(self._record)["op"], fn.col(self._after)
        out = op.isin(*_ROWS) & ~after["in"]
        if not self._columns.condition:
            return {"after": after["row"], "before": fn.col(self._before)["row"]}
        members = [after["row"].getField(column.field.name).alias(column.field.name) for column in self._key]
        key = fn.struct(*members) if members else fn.lit(None).cast(tp.StructType([]))
        return {
            "op": fn.when(out, Op.DELETE.value).otherwise(op),
            "after": fn.when(~out, after["row"]),
            "before": fn.when(out, key).otherwise(fn.col(self._before)["row"]),
        }

    def _is_left(self) -> Column:
        """Return whether a record of a changelog is not left out."""
        record = fn.col(self._record)
        either = fn.col(self._after)["in"] | fn.col(self._before)["in"]
        return either | record["incremental"] | (record["op"] == Op.TRUNCATE.value)

    def _changes(self) -> dict[str, Column]:
        record, after, before = (fn.col(name) for name in (self._record, self._after, self._before))
        op = record["op"]
        result: dict[str, Column] = {}
        first, second = before["row"], after["row"]
        if self._columns.condition:
            row_out = op.isin(*_ROWS) & ~after["in"]
            enters = (op == Op.UPDATE.value) & after["in"] & ~before["in"] & ~record["incremental"]
            kind = fn.when(row_out, Op.DELETE.value).when(enters, Op.CREATE.value).otherwise(op)
            # What leaves has a row before it, or is a row of an incremental snapshot, which has only one.
            first = fn.when(row_out, fn.coalesce(before["row"], after["row"])).when(~enters, before["row"])
            second = fn.when(~row_out, after["row"])
            result["op"] = kind
        if self._own_key:
            row = fn.coalesce(after["row"], before["row"])
            members = [row.getField(column.field.name).alias(column.field.name) for column in self._key]
            if members:
                text = fn.to_json(fn.struct(*members), JSON_OPTIONS).cast("binary")
                result["key"] = fn.when(record["key"].isNotNull(), text)
        return {**result, "before": first, "after": second}


def _quoted(name: str) -> Column:
    return fn.col("`" + name.replace("`", "``") + "`")


@contextmanager
def failures_named(records: DataFrame, transform: TableTransform, images: Images) -> Iterator[None]:
    """Replace an error of the block by one that names a record, if the transform of ``records`` fails.

    ``records`` are decoded, and cached where there are many.
    """
    try:
        yield
    except TailraceError:
        raise
    except (PySparkException, Py4JJavaError) as error:
        # The search would end the executors of its tasks too, at each of its steps.
        searched = not (concerns_all_tables(error) or ends_executors(error))
        found = failing_record(records, transform, images) if searched else None
        if found is None:
            raise
        raise found from error


def failing_record(records: DataFrame, transform: TableTransform, images: Images) -> TransformError | None:
    """Return an error that names the first record of the lowest partition that fails; None if none does."""
    silence_contexts()  # an error that names the record is reported here
    if not transform.computes or _failure(records, transform, images) is None:
        return None
    offset = fn.col("offset")
    bounds = records.groupBy("partition").agg(fn.min(offset).alias("first"), fn.max(offset).alias("last"))
    for partition, first, last in sorted(tuple(row) for row in bounds.collect()):
        own = records.where(fn.col("partition") == partition)
        error = _failure(own, transform, images)
        if error is None:
            continue
        start, end = first, last + 1
        while end - start > 1:
            middle = (start + end) // 2
            earlier = _failure(own.where(offset.between(start, middle - 1)), transform, images)
            start, end = (middle, end) if earlier is None else (start, middle)
            error = earlier or error
        source, reason = transform.source, summary(error)
        found = TransformError(
            f"the transform of {source.database}.{source.table} fails for a record: topic {source.topic}, "
            f"partition {partition}, offset {start}: {reason}",
            hint="use a function that returns NULL, such as try_cast or try_divide, and start again; to go on without "
            "such records, set errors.tolerance=all and errors.deadletterqueue.topic.name",
        )
        found.record = BadRecord(source.topic, partition, start, reason)
        return found
    return None


def _failure(records: DataFrame, transform: TableTransform, images: Images) -> Exception | None:
    """Return the error of a job that computes everything the sink gets of some records."""
    try:
        transform.apply(records, images).write.format("noop").mode("overwrite").save()
    except (PySparkException, Py4JJavaError) as error:
        if concerns_all_tables(error) or ends_executors(error):
            raise
        return error
    return None
