"""Takes over a table that somebody else has created: it must be fit for every row that the source can write.

Nothing is changed before all checks have passed. What does not fit is reported with the statements that fix it. Rows
from elsewhere have no sequence, and the source does not tell which of them it has: only rows with one may be there.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import structlog
from pyspark.sql import functions as fn
from pyspark.sql import types as tp

from tailrace.schemas.alteration import Alteration
from tailrace.schemas.sequence import SEQUENCE_COLUMN
from tailrace.schemas.table import TableSchema
from tailrace.spark_consumer.changelog.flatten import check_names
from tailrace.spark_consumer.errors import SinkError
from tailrace.spark_consumer.sink.evolve import add_columns, caught_up
from tailrace.spark_consumer.sink.shape import PLAIN, Layout
from tailrace.spark_consumer.sink.state import TargetState
from tailrace.spark_consumer.sink.target import Add, AllowNull, Drop, Operation, RemoveRows, SetProperties, Widen
from tailrace.spark_consumer.sink.target_table import TargetTable
from tailrace.spark_consumer.source.common_type import common_type
from tailrace.spark_consumer.source.json_decoder import row_type
from tailrace.spark_consumer.source.sequence import SEQUENCE_TYPE

_DECLARED: Final = "__CHAR_VARCHAR_TYPE_STRING"
"""Metadata of a column: the type as it was declared, if it is CHAR or VARCHAR."""
_DEFAULT: Final = "CURRENT_DEFAULT"
"""Metadata of a column: its default."""

log = structlog.get_logger(__name__)


def take_over(
    table: TargetTable,
    schema: TableSchema,
    alterations: Sequence[Alteration],
    state: TargetState,
    layout: Layout = PLAIN,
) -> None:
    """Make an existing table the target of a captured table; ``state`` is that of the table then.

    The order of its columns does not matter, types may be wider, and further columns are left alone. Raises SinkError
    for a table that does not fit.
    """
    check_names(schema, layout.names)
    table.check_schema(schema)
    problems, changes = _differences(table, schema, layout)
    has_sequence = SEQUENCE_COLUMN in table.columns.names
    foreign = not table.has_no_files and _has_foreign_rows(table, has_sequence=has_sequence)
    if foreign:
        problems.append("it has rows that Tailrace did not write")
    if problems:
        raise SinkError(
            f"the {table.format} table {table.name} exists and cannot take the rows of "
            f"{schema.database}.{schema.table}: {'; '.join(problems)}",
            hint="run the statement, or set another target; the table is then taken over",
            statement=table.explain([*([RemoveRows()] if foreign else []), *changes]),
        )
    if not has_sequence:
        table.change([Add.one(SEQUENCE_COLUMN, SEQUENCE_TYPE)])
    add_columns(table, layout)
    table.set(caught_up(state, schema, alterations).properties)
    log.info("existing table taken over", table=table.name, columns_of_others=_others(table, schema, layout))


def _has_foreign_rows(table: TargetTable, *, has_sequence: bool) -> bool:
    rows = table.rows()
    if has_sequence:
        rows = rows.where(fn.col(SEQUENCE_COLUMN).isNull())
    return not rows.limit(1).isEmpty()


def _others(table: TargetTable, schema: TableSchema, layout: Layout) -> list[str]:
    own = {SEQUENCE_COLUMN, *(name.lower() for name in (*layout.names, *(each.name for each in schema.columns)))}
    return [name for name in table.columns.names if name.lower() not in own]


def _differences(table: TargetTable, schema: TableSchema, layout: Layout) -> tuple[list[str], list[Operation]]:
    """Return what does not fit, and the changes of the table that fix it."""
    problems: list[str] = []
    changes: list[Operation] = []
    stored = {field.name.lower(): field for field in table.columns}
    optional = {column.name: column.schema.optional for column in schema.columns} | dict.fromkeys(layout.names, True)
    # Tailrace adds these itself.
    added_later = {SEQUENCE_COLUMN, *layout.names}
    wanted = [*row_type(schema).fields, tp.StructField(SEQUENCE_COLUMN, SEQUENCE_TYPE), *layout.columns]
    for field in wanted:
        found = stored.pop(field.name.lower(), None)
        if found is None:
            if field.name not in added_later:
                problems.append(f"it lacks the column {field.name}")
                changes.append(Add.one(field.name, field.dataType))
            continue
        declared = found.metadata.get(_DECLARED, "")
        if common_type(field.dataType, found.dataType) != found.dataType or declared.startswith("char"):
            shown, now = declared or found.dataType.simpleString(), field.dataType.simpleString()
            problems.append(f"its column {found.name} is {shown}, which does not represent all values of {now}")
            wider = common_type(field.dataType, found.dataType)
            if wider is not None and wider != found.dataType and table.can_widen(found.dataType, wider):
                changes.append(Widen(found.name, wider))
            else:
                changes += [Drop(found.name), Add.one(field.name, field.dataType)]
        elif not found.nullable and optional.get(field.name, False):
            problems.append(f"its column {found.name} is NOT NULL")
            changes.append(AllowNull(found.name))
    for other in stored.values():
        if not other.nullable and _DEFAULT not in other.metadata:
            problems.append(f"its column {other.name}, which the source does not have, is NOT NULL without a default")
            changes.append(AllowNull(other.name))
    blocking = table.blocking_properties
    if blocking:
        problems.append("rows cannot be changed")
        changes.append(SetProperties(blocking))
    return problems, changes
