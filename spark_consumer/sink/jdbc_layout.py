"""The columns that a table of the target database has besides those of its source, and its truncation by shape."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final

import structlog
from pyspark.sql import types as tp

from tailrace.schemas.rowkind import RowKind
from tailrace.schemas.sequence import SEQUENCE_COLUMN, Sequence
from tailrace.spark_consumer.sink.jdbc_columns import TargetForm, sequence_bytes
from tailrace.spark_consumer.sink.jdbc_table import JdbcTable, require_table
from tailrace.spark_consumer.sink.shape import IS_DELETED, KIND, PART, RECORD, TIME

if TYPE_CHECKING:
    from tailrace.spark_consumer.sink.jdbc_session import Session

_RANK: Final = "tailrace_rank"
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)

log = structlog.get_logger(__name__)


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
