"""Sink ``jdbc``: one table of a relational database per captured table, with the last change per key of each batch.

The executors write the last changes into a staging table. Then one transaction removes truncated and deleted rows,
upserts rows whose sequence is greater than the stored one, and notes in the ledger (jdbc_table.py) which offsets are
applied. So a batch is applied once, wherever it is cut off: what the ledger has is skipped, and a staging table without
its transaction is dropped by the next attempt.

The transaction reads the ledger again under a lock. If another process has written to the table since, it is given up.

Tables of a changelog (history, versions) get all changes in the same way. No two rows of a history are of one record,
and versions are the same however often their records are read: rows that are there already change nothing.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass, replace
from operator import attrgetter
from typing import TYPE_CHECKING

import structlog
from pyspark.sql import functions as fn

from tailrace.schemas.sequence import SEQUENCE_COLUMN, Sequence
from tailrace.schemas.table import TableSchema
from tailrace.spark_consumer.errors import SinkError
from tailrace.spark_consumer.images import Images
from tailrace.spark_consumer.normalize.latest import last_per_key, later, without_truncated
from tailrace.spark_consumer.normalize.rowkind import DELETED_COLUMN, upsert_columns
from tailrace.spark_consumer.sink.base import SinkContext, TableBatch, TargetRows
from tailrace.spark_consumer.sink.evolve import caught_up, evolve
from tailrace.spark_consumer.sink.jdbc_columns import (
    StoredVersions,
    TargetForm,
    read_texts,
    read_value,
    staged,
    stored_kinds,
)
from tailrace.spark_consumer.sink.jdbc_dialect import Merge, Rule, load_dialect
from tailrace.spark_consumer.sink.jdbc_operations import JdbcOperations, truncate, wording
from tailrace.spark_consumer.sink.jdbc_session import (
    PLACEHOLDER,
    Connections,
    JdbcOptions,
    Session,
    check_url,
    connection_properties,
)
from tailrace.spark_consumer.sink.jdbc_table import LEDGER_TABLE, JdbcTable
from tailrace.spark_consumer.sink.jdbc_takeover import check_owned, take_over
from tailrace.spark_consumer.sink.ledger import Ledger, comparable, is_applied, missing_target, not_applied
from tailrace.spark_consumer.sink.plugin import SinkPlugin
from tailrace.spark_consumer.sink.shape import PROPERTIES, check_fields, shape_images
from tailrace.spark_consumer.sink.state import REMOVE_SHARD, SEVERAL, Stored, TargetState, key_text
from tailrace.spark_consumer.sink.table_names import quote
from tailrace.spark_consumer.sink.target import TargetSink, require_key, require_same_key
from tailrace.spark_consumer.sink.versions import VersionColumns, entry_columns, versions
from tailrace.spark_consumer.small_data import SMALL_OFFSETS, by_operator

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

    from tailrace.schemas.alteration import Alteration

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class _Step:
    """One transaction; ``after`` is the row of the ledger behind it."""

    after: Stored
    truncated: Sequence | None = None
    """Set if the table has to be truncated."""
    truncated_ms: int | None = None
    merge: Merge | None = None


class JdbcSink(TargetSink[JdbcTable]):
    """Writes the tables of ``sink.table`` in the database of ``sink.url``."""

    def __init__(self, spark: SparkSession, options: JdbcOptions, context: SinkContext) -> None:
        super().__init__(context)
        self._options = options
        self._dialect = dialect = load_dialect(options.url)
        self._properties = connection_properties(options, dialect)
        self._connections = Connections(spark, options.url, dialect.driver, self._properties, dialect.session)
        self._ledgers = threading.Lock()
        """Held while schemas and ledgers are created: tables are processed by several threads."""
        with self._connections.session() as session:
            self._dialect.start(session)

    def _applied(self, opened: JdbcTable, schema: TableSchema) -> Mapping[int, int] | None:
        entry, topic_id = opened.entry, self._context.topic_id(schema.topic)
        if entry is None:
            return {}
        if entry.state.topic != schema.topic:
            return None
        if not entry.ledger.is_of_another_topic(topic_id):
            return entry.ledger.applied
        hint, remedy = "drop or rename the target table: the next attempt loads it from the new topic", {}
        if opened.shard is not None:
            with self._connections.session() as session:
                if not opened.has_rows_of_shard(session):
                    opened.forget_shard(session)
                    opened.prepared_for = None
                    return {}
            hint, remedy = REMOVE_SHARD, {"statement": opened.delete_statement(opened.shard)}
        entry.ledger.require_same_topic(topic_id, "the table", hint=hint, table=opened.name, **remedy)
        return {}

    def close(self) -> None:
        """Close the connections."""
        self._connections.close()

    def _prepare(self, opened: JdbcTable, schema: TableSchema) -> None:
        alterations = tuple(self._context.alterations(schema.topic))
        if opened.prepared_for == (schema, alterations):
            return
        require_key(schema)
        opened.form = self._form(schema)
        with self._connections.session() as session:
            if opened.owner is not None:
                self._check_owner(opened, opened.owner.state, schema)
            if opened.entry is None:
                self._begin(opened, session, alterations)
            assert opened.entry is not None
            self._check_owner(opened, (opened.owner or opened.entry).state, schema)
            opened.claim_shard(session)
            operations = JdbcOperations(opened, session)
            opened.evolved = evolve(operations, schema, alterations, self._options.policy, opened.layout)
            check_owned(opened)
        opened.prepared_for = schema, alterations

    def _refresh(self, opened: JdbcTable) -> None:
        known = opened.entry
        with self._connections.session() as session:
            opened.read(session)
        opened.entry = known or opened.entry  # a transaction follows what this process knows

    def _form(self, schema: TableSchema) -> TargetForm:
        return TargetForm(schema, self._options.layout_of(schema.topic, self._context.prefix))

    def _begin(self, table: JdbcTable, session: Session, alterations: tuple[Alteration, ...]) -> None:
        """Create the table, or take it over; write its row of the ledger."""
        form, schema = table.form, table.form.schema
        with self._ledgers:
            table.create_ledger(session)
        state = caught_up(TargetState(schema.topic, key=key_text(schema)), schema, alterations)
        if table.stored is None:
            state = state.with_layout(form.layout.shape, form.added_names)
            table.create(session, Stored(state, Ledger(schema.topic)))
            log.info("table created", table=table.name)
            return
        if table.owner is None:
            take_over(table, session)
        with session.transaction():
            table.begin(session, Stored(state.with_layout(form.layout.shape, ()), Ledger(schema.topic)))
        table.read(session)

    def read_target(self, spark: SparkSession, schema: TableSchema) -> TargetRows:
        """Return the table, with the ledger before and behind the query of its rows."""
        with self._connections.session() as session:
            table = self._table(session, schema)
        if table.stored is None:
            raise missing_target(table.name, schema.topic)
        ledger = comparable(
            None if table.entry is None else table.entry.ledger, self._context, schema.topic, table.name
        )
        kinds = stored_kinds(table, (*table.form.source, *table.form.own))
        texts = read_texts(spark, self._client_options, table, kinds)
        rows = texts.select(*(read_value(fn.col(quote(name)), kind).alias(name) for name, kind in kinds.items()))

        def reached() -> Mapping[int, int]:
            with self._connections.session() as later_session:
                table.read(later_session)
            return {} if table.entry is None else table.entry.ledger.reached

        return TargetRows(table.layout.rows_of_source(rows, table.name), ledger.applied, reached)

    def _target(self, schema: TableSchema) -> JdbcTable:
        with self._connections.session() as session:
            table = self._table(session, schema)
            if table.stored is not None:
                table.drop_stages(session)
        return table

    def _table(self, session: Session, schema: TableSchema) -> JdbcTable:
        """Read the table of a captured table, which need not exist."""
        *schemas, name = (
            PLACEHOLDER.sub(lambda found: getattr(schema, found[1]), part) for part in self._options.table.split(".")
        )
        found = schemas[0] if schemas else session.query(self._dialect.current)[0][0]
        if not found:
            raise SinkError(
                "the connection to the target database has no current schema",
                hint="name one in sink.table, such as shop.{table}, or the database in sink.url",
            )
        for part in (found, name):
            self._dialect.check_name(part, f"the target of {schema.database}.{schema.table}")
        if name.lower() == LEDGER_TABLE:
            raise SinkError(
                f"the target of {schema.database}.{schema.table} cannot have the name {name}: it is that of the sink's "
                "own table",
                hint="set another sink.table, or routes.<name>.sink-table for the table",
            )
        table = JdbcTable(self._dialect, found, name, self._form(schema), self._context.shard(schema.topic))
        with self._ledgers:
            table.read(session)
        return table

    def _check_owner(self, table: JdbcTable, owner: TargetState, schema: TableSchema) -> None:
        if owner.topic != (schema.topic if table.shard is None else SEVERAL):
            raise SinkError(
                f"the table {table.name} belongs to another topic",
                hint="set a sink.table for each topic.prefix; names that differ only in case can become one name, and "
                "so can tables of several databases without {database}",
                table_topic=owner.topic,
                batch_topic=schema.topic,
            )
        require_same_key(owner.key, schema, wording(table))

    def _write(self, target: JdbcTable, batch: TableBatch, batch_id: int) -> None:  # noqa: ARG002 - offsets tell it
        entry = target.entry
        assert entry is not None
        stored = entry.state.last_truncation
        truncated = later(stored, batch.truncated)
        state = replace(entry.state, truncated="" if truncated is None else truncated.text)
        step = _Step(replace(entry, state=state), None if truncated == stored else truncated)
        topic_id = self._context.topic_id(batch.schema.topic)
        ledger = replace(entry.ledger, id=topic_id or entry.ledger.id)
        found = None if batch.range is None or is_applied(ledger.merge, batch.range) else batch.range
        if found is None and step.truncated is None:
            return
        with self._connections.session() as session:
            if found is not None:
                step = replace(step, after=replace(step.after, ledger=ledger.appended(found).merged(found)))
            if found is not None and batch.stats:
                records = without_truncated(batch.records, truncated)
                last = last_per_key(records, incremental=any(stat.incremental for stat in batch.stats))
                last = not_applied(last, ledger.merge, found)
                layout = target.layout
                values = target.converted(upsert_columns(batch.schema, keeps_deleted=layout.keeps_deleted))
                rows = last.select(*layout.upsert_row(values), layout.removed)
                merge = self._stage(session, target, rows, Rule.LATER, small=found.offsets <= SMALL_OFFSETS)
                step = replace(step, merge=merge)
            self._apply(session, target, step)
            if step.merge is not None:
                self._unstage(session, step.merge.stage)

    def _write_changelog(self, batch: TableBatch) -> None:
        """Write the rows of a changelog in one transaction with the ledger."""
        assert batch.write is not None
        schema, target = batch.schema, self._reached(batch)
        entry, layout = target.entry, target.layout
        assert entry is not None
        ledger = replace(entry.ledger, id=self._context.topic_id(schema.topic) or entry.ledger.id)
        ledger = ledger.written(self._context.query_id, batch.write)
        state = replace(entry.state, truncated="" if ledger.truncated is None else ledger.truncated.text)
        step = _Step(Stored(state, ledger))
        row = layout.changelog_row(target.converted(fn.col("row").getField(each.name) for each in schema.columns))
        small, stages = batch.write.offsets <= SMALL_OFFSETS, []
        with self._connections.session() as session:
            if layout.shape == "history":
                step = replace(step, truncated=batch.truncated, truncated_ms=batch.write.truncated_ms)
                rows = batch.records.select(*row, *entry_columns(), fn.lit(False).alias(DELETED_COLUMN))
                rule = Rule.NEW
            else:
                rows, keys = self._versions(session, target, batch, row, small=small)
                rule = Rule.ALWAYS
                stages.append(keys)
            merge = self._stage(session, target, rows, rule, small=small)
            self._apply(session, target, replace(step, merge=merge))
            for stage in (*stages, merge.stage):
                self._unstage(session, stage)

    def _versions(
        self, session: Session, target: JdbcTable, batch: TableBatch, row: list[Column], *, small: bool
    ) -> tuple[DataFrame, str]:
        """Return the versions that a batch changes, and the staging table with its keys, which they are read with."""
        columns = VersionColumns.of(batch.schema, target.evolved, target.layout)
        spark = batch.records.sparkSession
        stored = StoredVersions(spark, self._client_options, target, columns.source)
        events = columns.events(batch, row)
        if batch.truncated is not None:
            events = events.unionByName(columns.truncations(batch, stored.valid_at(batch.truncated)))
        key, first = target.key_columns(), events.groupBy("key").agg(fn.min("seq").alias("seq"))
        stage = target.create_stage(session, [each.declared for each in key])
        self._fill(staged(first, key, fn.col("seq"), fn.lit(False)), stage, small=small)
        return columns.rows(versions(columns.stored(stored.ending_behind(stage)), events)), stage

    def _stage(self, session: Session, target: JdbcTable, rows: DataFrame, rule: Rule, *, small: bool) -> Merge:
        """Write rows with the columns of the table into a new staging table."""
        columns = target.columns()
        stage = target.create_stage(session, [each.declared for each in columns])
        self._fill(staged(rows, columns, fn.col(SEQUENCE_COLUMN), fn.col(DELETED_COLUMN)), stage, small=small)
        return target.merge(stage, columns, rule)

    @property
    def _client_options(self) -> dict[str, str]:
        """The options of Spark's reader and writer."""
        return {**self._properties, "url": self._options.url, "driver": self._dialect.driver}

    def _fill(self, rows: DataFrame, stage: str, *, small: bool) -> None:
        """Let the executors insert rows. A task that runs again can insert its rows twice: the merge allows that."""
        options = {
            **self._client_options,
            "dbtable": stage,
            "batchsize": str(self._options.batch_size),
            "numPartitions": str(self._options.partitions),
            "isolationLevel": "READ_COMMITTED",
        }
        with by_operator(rows.sparkSession, when=small):
            given = rows.coalesce(1) if small else rows
            given.write.format("jdbc").options(**options).mode("append").save()

    def _apply(self, session: Session, target: JdbcTable, step: _Step) -> None:
        known = target.entry

        def transaction() -> None:
            target.entry = known  # also after an attempt that was rolled back
            for statement in self._dialect.transaction:
                session.execute(statement)
            target.lock(session)
            self._change_rows(session, target, step)
            self._note(session, target, step.after)

        session.retried(transaction)

    def _change_rows(self, session: Session, target: JdbcTable, step: _Step) -> None:
        if step.truncated is not None:
            truncate(target, session, step.truncated, step.truncated_ms)
        if step.merge is not None:
            for statement in self._dialect.merge(step.merge):
                session.execute(statement)

    def _note(self, session: Session, table: JdbcTable, entry: Stored) -> None:
        table.write_entry(session, entry)

    def _unstage(self, session: Session, stage: str) -> None:
        session.execute(f"DROP TABLE {stage}")


SINK = SinkPlugin(
    name="jdbc",
    doc="Keeps one table of a relational database per captured table, equal to the source table.",
    options=JdbcOptions,
    images=Images.UPSERT,
    guarantee="exactly once: each batch changes a table once, whatever fails",
    open=JdbcSink,
    merges_tables=True,
    checks=(check_url, check_fields),
    rejected_elsewhere=PROPERTIES,
    fields=attrgetter("fields"),
    table_images=shape_images,
    option_jars=lambda options: tuple(load_dialect(options.url).jars),
    jars={"4.1": ()},
)
