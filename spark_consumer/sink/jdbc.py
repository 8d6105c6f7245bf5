"""Sink ``jdbc``: one table of a relational database per captured table, with the last change per key of each batch.

The executors write the last changes into a staging table. Then one transaction removes truncated and deleted rows,
upserts rows whose sequence is greater than the stored one, and notes in the ledger (jdbc_table.py) which offsets are
applied. So a batch is applied once, wherever it is cut off: what the ledger has is skipped, and a staging table without
its transaction is dropped by the next attempt.

The transaction reads the ledger again under a lock. If another process has written to the table since, it is given up.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

import structlog
from pyspark.sql import functions as fn
from pyspark.sql import types as tp

from tailrace.schemas.rowkind import Op
from tailrace.schemas.sequence import SEQUENCE_COLUMN, Sequence
from tailrace.schemas.table import TableSchema
from tailrace.spark_consumer.errors import NewTopicError, SinkError
from tailrace.spark_consumer.evolution.outcome import Evolved
from tailrace.spark_consumer.evolution.policy import EvolutionPolicy
from tailrace.spark_consumer.images import Images
from tailrace.spark_consumer.normalize.latest import last_per_key
from tailrace.spark_consumer.normalize.truncation import later, without_truncated
from tailrace.spark_consumer.sink.base import SinkContext, TableBatch
from tailrace.spark_consumer.sink.jdbc_columns import sequence_binary, sequence_bytes, target_columns, written_values
from tailrace.spark_consumer.sink.jdbc_dialect import Merge, Role, StoredColumn, load_dialect
from tailrace.spark_consumer.sink.jdbc_evolution import entry_behind, evolve
from tailrace.spark_consumer.sink.jdbc_options import JdbcOptions, check_url
from tailrace.spark_consumer.sink.jdbc_session import Connections, Session
from tailrace.spark_consumer.sink.jdbc_table import LEDGER_TABLE, Entry, JdbcTable, require_table
from tailrace.spark_consumer.sink.jdbc_takeover import check_owned, take_over
from tailrace.spark_consumer.sink.ledger import is_applied, not_applied
from tailrace.spark_consumer.sink.plugin import SinkPlugin
from tailrace.spark_consumer.sink.target_table import key_text, require_key
from tailrace.spark_consumer.small_data import SMALL_OFFSETS, by_operator

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from tailrace.schemas.alteration import Alteration

_DELETED: Final = "deleted"

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class _Step:
    """One transaction: from one row of the ledger to the next."""

    before: Entry
    after: Entry
    truncated: Sequence | None = None
    """Set if the table has to be truncated."""
    merge: Merge | None = None


@dataclass(slots=True)
class _Target:
    """What the sink knows of a table while it is open."""

    table: JdbcTable
    evolved: Evolved = field(default_factory=Evolved)
    prepared_for: object = None
    """The schema and the alterations that the table was prepared for."""


class JdbcSink:
    """Writes the tables of ``sink.table`` in the database of ``sink.url``."""

    def __init__(self, spark: SparkSession, options: JdbcOptions, context: SinkContext) -> None:
        self._options = options
        self._context = context
        self._dialect = load_dialect(options.url)
        self._properties = _properties(options, self._dialect.properties)
        dialect = self._dialect
        self._connections = Connections(spark, options.url, dialect.driver, self._properties, dialect.session)
        self._policy = EvolutionPolicy(
            options.schema_change_behavior, options.included_changes, options.excluded_changes
        )
        self._targets: dict[str, _Target] = {}
        self._lock = threading.Lock()
        """Held while schemas and ledgers are created: tables are processed by several threads."""
        with self._connections.session() as session:
            self._dialect.start(session)

    def applied(self, schema: TableSchema) -> Mapping[int, int]:
        """Return the offsets that the table has applied."""
        entry = self._open(schema).table.entry
        if entry is None or entry.topic != schema.topic:
            return {}
        try:
            entry.ledger.require_same_topic(
                self._context.topic_id(schema.topic),
                "the table",
                hint="drop or rename the target table to load it from the new topic, and start again",
                table=self._targets[schema.topic].table.sql_name,
            )
        except NewTopicError:
            del self._targets[schema.topic]
            raise
        return entry.ledger.applied

    def prepare_table(self, schema: TableSchema) -> None:
        """Create the table, take it over, or change its columns as the source did."""
        alterations = tuple(self._context.alterations(schema.topic))
        target = self._open(schema)
        if target.prepared_for == (schema, alterations):
            return
        try:
            self._prepare(target, schema, alterations)
        except BaseException:
            self._targets.pop(schema.topic, None)  # somebody may fix the table before the next attempt
            raise
        target.prepared_for = schema, alterations

    def write_batch(self, batch: TableBatch, batch_id: int) -> None:  # noqa: ARG002 - the offsets identify the records
        """Apply the records of one table that it has not applied, in one transaction."""
        try:
            self._write(batch)
        except BaseException:
            # The transaction may have been committed: the next attempt reads from the database what is applied.
            self._targets.pop(batch.schema.topic, None)
            raise

    def close(self) -> None:
        """Close the connections."""
        self._connections.close()

    def _prepare(self, target: _Target, schema: TableSchema, alterations: tuple[Alteration, ...]) -> None:
        require_key(schema)
        table = target.table
        with self._connections.session() as session:
            if table.entry is None:
                self._begin(table, session, schema, alterations)
            self._check_owner(table, schema)
            target.evolved = evolve(table, session, schema, alterations, self._policy)
            check_owned(table, schema)

    def _begin(
        self, table: JdbcTable, session: Session, schema: TableSchema, alterations: tuple[Alteration, ...]
    ) -> None:
        """Create the table, or take it over; write its row of the ledger."""
        with self._lock:
            table.create_ledger(session)
        entry = entry_behind(Entry(schema.topic, key_columns=key_text(schema)), schema, alterations)
        if table.stored is None:
            table.create(session, schema, entry)
            log.info("table created", table=table.sql_name)
            return
        take_over(table, session, schema)
        with session.transaction():
            table.write_entry(session, entry)
        table.read(session)

    def _open(self, schema: TableSchema) -> _Target:
        if schema.topic not in self._targets:
            with self._connections.session() as session:
                *schemas, name = (
                    part.replace("{database}", schema.database).replace("{table}", schema.table)
                    for part in self._options.table.split(".")
                )
                found = schemas[0] if schemas else self._dialect.current_schema(session)
                if not found:
                    raise SinkError(
                        "the connection has no current schema", hint="name one in sink.url or in sink.table"
                    )
                for part in (found, name):
                    self._dialect.check_name(part, f"the target of {schema.database}.{schema.table}")
                if name.lower() == LEDGER_TABLE:
                    raise SinkError(
                        f"a table cannot have the name {LEDGER_TABLE}: it is that of the sink's own table",
                        hint="set another sink.table",
                    )
                table = JdbcTable(self._dialect, found, name)
                table.read(session)
                if table.stored is not None:
                    table.drop_stages(session)
                self._targets[schema.topic] = _Target(table)
        return self._targets[schema.topic]

    def _check_owner(self, table: JdbcTable, schema: TableSchema) -> None:
        assert table.entry is not None
        if table.entry.topic != schema.topic:
            raise SinkError(
                f"the table {table.sql_name} belongs to another topic",
                hint="set a sink.table for each topic.prefix; names that differ only in case can become one name, and "
                "so can tables of several databases without {database}",
                table_topic=table.entry.topic,
                batch_topic=schema.topic,
            )
        if table.entry.key_columns != key_text(schema):
            raise SinkError(
                f"the key of {schema.database}.{schema.table} has changed: its rows cannot be matched with the table",
                hint="drop or rename the target table, start the producer with another topic.prefix and the consumer "
                "with an empty checkpoint",
                stored=table.entry.key_columns,
                now=key_text(schema),
            )

    def _write(self, batch: TableBatch) -> None:
        target = self._targets[batch.schema.topic]
        entry = target.table.entry
        assert entry is not None
        stored = Sequence.from_text(entry.truncated) if entry.truncated else None
        truncated = later(stored, batch.truncated)
        step = _Step(entry, replace(entry, truncated="" if truncated is None else truncated.text))
        if truncated != stored:
            step = replace(step, truncated=truncated)
        topic_id = self._context.topic_id(batch.schema.topic)
        ledger = replace(entry.ledger, id=topic_id or entry.topic_id)
        staged = bool(batch.stats) and batch.range is not None and not is_applied(ledger.merge, batch.range)
        if not staged and step.truncated is None:
            return
        with self._connections.session() as session:
            if not staged:
                self._apply(session, target.table, step)
                return
            assert batch.range is not None
            records = without_truncated(batch.records, truncated)
            last = last_per_key(records, incremental=any(stat.incremental for stat in batch.stats))
            last = not_applied(last, ledger.merge, batch.range)
            after = step.after.after(ledger.appended(batch.range).merged(batch.range))
            with by_operator(last.sparkSession, when=batch.range.offsets <= SMALL_OFFSETS):
                merge = self._stage(session, target, batch, last)
            self._apply(session, target.table, replace(step, after=after, merge=merge))
            self._unstage(session, merge.stage)

    def _stage(self, session: Session, target: _Target, batch: TableBatch, last: DataFrame) -> Merge:
        """Write the last changes into a new staging table."""
        table, schema = target.table, batch.schema
        stored = require_table(table)
        found = {
            column.name.lower(): each
            for column in target_columns(schema)
            if column.name.lower() not in target.evolved.ignored and (each := stored.column(column.name)) is not None
        }
        values = written_values(schema, found, self._dialect.zone)
        names = {name: f"c{number}" for number, name in enumerate(values)}
        stage = table.create_stage(session, [self._stage_type(schema, name, found[name.lower()]) for name in values])
        columns = [value.alias(names[name]) for name, value in values.items()]
        columns.append(sequence_binary(fn.col("seq")).alias(SEQUENCE_COLUMN))
        columns.append((fn.col("op") == Op.DELETE.value).alias(_DELETED))
        rows = last.select(*columns)
        assert batch.range is not None
        if batch.range.offsets <= SMALL_OFFSETS:
            rows = rows.coalesce(1)
        self._fill(rows, stage)
        quote = self._dialect.quote
        return Merge(
            target=table.sql_name,
            stage=stage,
            columns={quote(found[name.lower()].name): quote(own) for name, own in names.items()},
            key=tuple(quote(found[name.lower()].name) for name in schema.key),
            sequence=quote(SEQUENCE_COLUMN),
            deleted=quote(_DELETED),
            cleared=tuple(quote(each.name) for each in stored.columns if each.name.lower() in target.evolved.kept),
        )

    def _stage_type(self, schema: TableSchema, name: str, stored: StoredColumn) -> str:
        column = next(each for each in target_columns(schema) if each.name == name)
        kind = stored.kind_for(column.kind) or column.kind
        role = column.role if column.role is Role.KEY or column.kind == kind else Role.VALUE
        if isinstance(kind, tp.StringType) and role is Role.VALUE and stored.json:
            role = Role.JSON
        return self._dialect.column_type(kind, role, len(schema.key))

    def _fill(self, rows: DataFrame, stage: str) -> None:
        """Let the executors insert rows. A task that runs again can insert its rows twice: the merge allows that."""
        options = {
            **self._properties,
            "url": self._options.url,
            "dbtable": stage,
            "driver": self._dialect.driver,
            "batchsize": str(self._options.batch_size),
            "numPartitions": str(self._options.partitions),
            "isolationLevel": "READ_COMMITTED",
        }
        rows.write.format("jdbc").options(**options).mode("append").save()

    def _apply(self, session: Session, table: JdbcTable, step: _Step) -> None:
        session.retried(lambda: self._transaction(session, table, step))
        table.entry = step.after

    def _transaction(self, session: Session, table: JdbcTable, step: _Step) -> None:
        for statement in self._dialect.begin():
            session.execute(statement)
        found = table.read_entry(session, lock=True)
        if found != step.before:
            raise SinkError(
                f"another process has written to {table.sql_name}",
                hint="run one query for a table; this one tries again with what the table has",
                expected=step.before.offsets,
                found=None if found is None else found.offsets,
            )
        self._change_rows(session, table, step)
        self._note(session, table, step.after)

    def _change_rows(self, session: Session, table: JdbcTable, step: _Step) -> None:
        if step.truncated is not None:
            bound = self._dialect.binary(sequence_bytes(step.truncated))
            session.execute(f"DELETE FROM {table.sql_name} WHERE {self._dialect.quote(SEQUENCE_COLUMN)} < {bound}")
            log.info("table truncated", table=table.sql_name, sequence=step.truncated)
        if step.merge is not None:
            for statement in self._dialect.merge(step.merge):
                session.execute(statement)

    def _note(self, session: Session, table: JdbcTable, entry: Entry) -> None:
        table.write_entry(session, entry)

    def _unstage(self, session: Session, stage: str) -> None:
        session.execute(f"DROP TABLE {stage}")


def _properties(options: JdbcOptions, defaults: Mapping[str, str]) -> dict[str, str]:
    """Return the connection properties."""
    found = dict(defaults)
    if options.user is not None:
        found["user"] = options.user
    if options.password is not None:
        found["password"] = options.password.get_secret_value()
    return found | {name: value.get_secret_value() for name, value in options.properties.items()}


SINK = SinkPlugin(
    name="jdbc",
    doc="Keeps one table of a relational database per captured table, equal to the source table.",
    options=JdbcOptions,
    images=Images.UPSERT,
    guarantee="exactly once: each batch changes a table once, whatever fails",
    open=JdbcSink,
    checks=(check_url,),
    jars={"4.1": ("org.postgresql:postgresql:42.7.8", "com.mysql:mysql-connector-j:9.5.0")},
)
