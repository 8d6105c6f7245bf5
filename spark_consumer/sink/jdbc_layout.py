"""The columns that a table of the target database has besides those of its source, and its truncation by shape."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final

import structlog
from pyspark.sql import types as tp

from tailrace.schemas.rowkind import RowKind
from tailrace.schemas.sequence import SEQUENCE_COLUMN, Sequence
from tailrace.spark_consumer.changelog.flatten import check_names
from tailrace.spark_consumer.errors import SinkError
from tailrace.spark_consumer.sink.jdbc_columns import TargetColumn, TargetForm, sequence_bytes
from tailrace.spark_consumer.sink.jdbc_dialect import Role, StoredColumn
from tailrace.spark_consumer.sink.jdbc_table import JdbcTable, require_table
from tailrace.spark_consumer.sink.shape import IS_DELETED, KIND, PART, RECORD, TIME
from tailrace.spark_consumer.source.common_type import common_type
from tailrace.spark_consumer.source.kafka import load_remedy

if TYPE_CHECKING:
    from tailrace.spark_consumer.sink.jdbc_session import Session

_RANK: Final = "tailrace_rank"
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)

log = structlog.get_logger(__name__)


def add_columns(table: JdbcTable, session: Session, form: TargetForm) -> None:
    """Add the columns of the layout that the table lacks, and note them in the ledger.

    Raises SinkError for a table of another shape, and for a column of another type.
    """
    assert table.entry is not None
    check_names(form.schema, form.added_names)
    entry, stored = table.entry, require_table(table)
    _require_same_shape(table, form)
    for column in form.added:
        found = stored.column(column.name)
        if found is not None and not _fits(table, column, found):
            raise SinkError(
                f"the table {table.sql_name} has a column {column.name} of another type than the metadata column of "
                "that name",
                hint="give the field another column in add.fields, as in field:name, or drop the column",
                stored=found.declared,
                wanted=table.dialect.column_type(column.kind, column.role, form.keys),
            )
    state = entry.state.with_layout(form.layout.shape, form.added_names)
    if state == entry.state:
        return
    quote = table.dialect.quote
    missing = [column for column in form.added if stored.column(column.name) is None]
    with session.transaction():
        table.lock(session)
        for column in missing:
            definition = table.definition(column, form.keys)
            session.execute(f"ALTER TABLE {table.sql_name} ADD COLUMN {quote(column.name)} {definition}")
        if IS_DELETED in form.added_names and IS_DELETED not in entry.state.added:
            deleted = quote(IS_DELETED)
            session.execute(f"UPDATE {table.sql_name} SET {deleted} = FALSE WHERE {deleted} IS NULL")
        table.write_entry(session, replace(entry, state=state))
    table.read(session)


def truncate(
    table: JdbcTable, session: Session, form: TargetForm, truncated: Sequence, milliseconds: int | None = None
) -> None:
    """Remove the rows before a truncate event, mark them as deleted, or add a ``-D`` for each of their keys.

    ``milliseconds``: the time of the event.
    """
    bound = table.dialect.binary(sequence_bytes(truncated))
    own, parameters = table.rows_of_shard()
    before = " AND ".join(filter(None, (f"{table.dialect.quote(SEQUENCE_COLUMN)} < {bound}", own)))
    if form.layout.shape == "history":
        _add_deletes(table, session, form, bound, milliseconds)
    elif form.layout.keeps_deleted:
        deleted = table.dialect.quote(IS_DELETED)
        session.execute(f"UPDATE {table.sql_name} SET {deleted} = TRUE WHERE NOT {deleted} AND {before}", *parameters)
    else:
        session.execute(f"DELETE FROM {table.sql_name} WHERE {before}", *parameters)
    log.info("table truncated", table=table.sql_name, sequence=truncated)


def _add_deletes(table: JdbcTable, session: Session, form: TargetForm, bound: str, milliseconds: int | None) -> None:
    """Add a ``-D`` for each key whose last row is before the event and no ``-D``, as in other histories (history.py).

    It has the place of the row that it removes, one part later. Without a known time it has that of the row.
    """
    dialect, stored = table.dialect, require_table(table)
    quote = dialect.quote
    kind, part, sequence = quote(KIND), quote(PART), quote(SEQUENCE_COLUMN)
    changed, parameters = {SEQUENCE_COLUMN: bound, KIND: f"'{RowKind.DELETE.value}'", PART: f"{part} + 1"}, []
    if milliseconds is not None:
        time = _EPOCH + timedelta(milliseconds=milliseconds)
        changed[TIME] = dialect.text_value(tp.TimestampType())
        parameters.append(f"{time:%Y-%m-%d %H:%M:%S.%f}{dialect.zone}")
    names = [column.name for column in stored.columns if not column.generated]
    key = ", ".join(quote(name if (found := stored.column(name)) is None else found.name) for name in form.schema.key)
    newest_first = ", ".join(f"{quote(name)} DESC" for name in (SEQUENCE_COLUMN, *RECORD))
    session.execute(
        f"INSERT INTO {table.sql_name} ({', '.join(map(quote, names))}) "
        f"SELECT {', '.join(changed.get(name, quote(name)) for name in names)} FROM (SELECT t.*, ROW_NUMBER() OVER "
        f"(PARTITION BY {key} ORDER BY {newest_first}) AS {_RANK} FROM {table.sql_name} AS t) AS ranked "
        f"WHERE {_RANK} = 1 AND {kind} <> '{RowKind.DELETE.value}' AND {sequence} < {bound}",
        *parameters,
    )


def _require_same_shape(table: JdbcTable, form: TargetForm) -> None:
    assert table.entry is not None
    stored = table.entry.state.shape or "scd1"
    if stored != form.layout.shape:
        raise SinkError(
            f"the table {table.sql_name} has the shape {stored}, and the configuration asks for {form.layout.shape}",
            hint=f"set the shape {stored} for the table in sink.shape.overrides; or "
            + load_remedy("drop or rename the target table"),
        )


def _fits(table: JdbcTable, column: TargetColumn, stored: StoredColumn) -> bool:
    if column.role is Role.SEQUENCE:
        return stored.declared.lower() == table.dialect.sequence_type.lower()
    kind = stored.kind_for(column.kind)
    return kind is not None and common_type(column.kind, kind) == kind
