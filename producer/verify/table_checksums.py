"""The checksums of one table at its source, between two moments of its topic (schemas/verification.py).

The window of a reading is made so that no key outside of it can differ:

1. ``begins``: the committed ends of the topic. Then the offset of the producer, which is behind them all.
2. The barrier of the snapshot: the server shows every transaction of that offset. So each SELECT that follows shows
   every change whose record is before ``begins``.
3. The SELECTs, one for each key range as the splitter cuts it. Rows above the greatest key at the first one have
   records behind ``begins``.
4. The high watermark, and a wait until the producer has written everything before it. ``ends``: the ends of the topic.
   So each change that a SELECT showed has a record before ``ends``.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import closing
from typing import Final

from tailrace.producer.app.connection_settings import kafka_settings, mysql_source
from tailrace.producer.config import ProducerConfig
from tailrace.producer.model.protocols import NotComparedError, RowTexts, SnapshotSession, SplitQuery, TableSize
from tailrace.producer.model.table import Table, TableId
from tailrace.producer.serialization.captured_tables import CapturedTables
from tailrace.producer.serialization.column_transforms import ColumnTransforms
from tailrace.producer.serialization.envelope.topic_names import TopicNames
from tailrace.producer.snapshot.reader import BARRIER_TIMEOUT_S
from tailrace.producer.snapshot.splitter import ChunkSplitter, SplitterSettings
from tailrace.producer.verify.progress import ProducerProgress
from tailrace.producer.verify.repair import repair
from tailrace.runtime.errors import ConfigError, SchemaError
from tailrace.schemas.verification import (
    BUCKETS,
    CHECKSUM_DIGITS,
    BucketSum,
    ComparedColumn,
    ComparedRow,
    ComparedTable,
    Record,
    RepairRequest,
    Request,
    SumsProgress,
    Window,
)

_RANGE_ROWS: Final = 50_000
"""The least size of a range: each gives up to BUCKETS rows of sums."""
_WRITTEN_S: Final = 120.0


def answers(config: ProducerConfig, topic: str, requests: Iterable[Request | RepairRequest]) -> Iterator[Record]:
    """Yield what can be compared of a table, then for each request the sums or the rows, and their window.

    Raises ConfigError if no captured table has the topic, and SchemaError if the table is altered between two answers
    or in one of them: the texts of both belong to one definition.
    """
    source = mysql_source(config)
    topic_of = TopicNames(config.topics).table
    tables = [table for table in source.list_tables(config.filters.tables.includes) if topic_of(table) == topic]
    if len(tables) != 1:
        raise ConfigError([f"topic {topic} is that of {len(tables)} captured tables, and one is needed"])
    with closing(source.open_snapshot_session()) as session:
        first = _Reading(config, session, tables[0], ())
        yield first.compared
    for request in requests:
        # A session of its own: the server may end one that waits for the next request.
        with (
            closing(source.open_snapshot_session()) as session,
            closing(
                ProducerProgress(kafka_settings(config), config.topics.prefix, tables[0], source.read_offset)
            ) as progress,
        ):
            begins = progress.ends(topic, committed=True)
            if isinstance(request, RepairRequest):
                repair(config, tables[0], progress, request.keys)
                yield Window(begins, progress.ends(topic, committed=False))
                continue
            reading = _Reading(config, session, tables[0], request.columns)
            reading.require(first.definition)
            low = session.low_watermark(progress.barrier(), BARRIER_TIMEOUT_S)
            yield from reading.sums(request.sample) if request.keys is None else reading.rows(request)
            progress.wait_until_written(session.high_watermark(low), _WRITTEN_S)
            yield Window(begins, progress.ends(topic, committed=False))


class _Reading:
    """Reads one table range by range."""

    def __init__(
        self, config: ProducerConfig, session: SnapshotSession, table: TableId, columns: Collection[str]
    ) -> None:
        """``columns``: names in records of those to compare; empty: all that can be compared."""
        # No Avro schema is registered: only what the records contain is asked.
        captured = CapturedTables(config, session.describe, lambda *_: 0)
        self._session, self.definition = session, session.definition_text(table)
        described = session.describe(table)
        version = captured.version_of(described)
        self._table = version.table
        self._columns = session.splitting_columns(described, version.table.key)
        snapshot = config.snapshot
        size = max(_RANGE_ROWS, snapshot.chunk_size)
        settings = SplitterSettings(size, snapshot.max_split_bytes, snapshot.even_upper, snapshot.even_lower)
        self._splitter = ChunkSplitter(session, table, self._columns, settings)
        self.compared, self._texts = _compared(config, version.table, captured, session, columns)

    def sums(self, sample: int) -> Iterator[SumsProgress | BucketSum]:
        """Yield the progress behind each range, then the sum of each of the first buckets that has rows."""
        rows: dict[int, int] = defaultdict(int)
        sums: dict[int, int] = defaultdict(int)
        size = self._session.estimated_size(self._table.id)
        estimated = size.rows * sample // BUCKETS
        for task in self._tasks(size):
            for number, count, xor in self._session.bucket_sums(task, self._texts, sample):
                rows[number] += count
                sums[number] ^= xor
            yield SumsProgress(sum(rows.values()), estimated)
        yield from (BucketSum(number, rows[number], f"{sums[number]:0{CHECKSUM_DIGITS}x}") for number in sorted(rows))

    def rows(self, request: Request) -> Iterator[ComparedRow]:
        """Yield the requested rows."""
        for task in self._tasks(self._session.estimated_size(self._table.id)):
            yield from (ComparedRow(*each) for each in self._session.compared_rows(task, self._texts, request))

    def require(self, definition: str) -> None:
        """Raise SchemaError if the table has another definition."""
        if self._session.definition_text(self._table.id) != definition:
            raise SchemaError(
                "the table was altered while it was compared", hint="run the command again", table=str(self._table.id)
            )

    def _tasks(self, size: TableSize) -> Iterator[SplitQuery]:
        splitter = self._splitter
        for span in splitter.ranges(splitter.unread_ranges(splitter.max_key(size), ()), size):
            yield SplitQuery(self._table.id, self._columns, span)
        self.require(self.definition)


def _compared(
    config: ProducerConfig, table: Table, captured: CapturedTables, session: SnapshotSession, wanted: Collection[str]
) -> tuple[ComparedTable, RowTexts]:
    """Return what is compared of a table. Raises SchemaError if that lacks a key column."""
    projection = ColumnTransforms(config.filters).project(table.id, table.columns, table.key)
    columns: list[ComparedColumn] = []
    texts: dict[str, str] = {}
    excluded: dict[str, str] = {}
    for column in table.columns if projection is None else projection.visible(table.columns):
        name = captured.field_name(column.name)
        if projection is not None and column.name in projection.transforms:
            excluded[name] = "the producer transforms its values"
            continue
        try:
            found = session.canonical_text(column, config.values.options)
        except NotComparedError as reason:
            excluded[name] = str(reason)
            continue
        if not wanted or name in wanted:
            columns.append(ComparedColumn(name, found.form))
            texts[column.name] = found.sql
    missing: Sequence[str] = [name for name in table.key if name not in texts]
    if missing:
        raise SchemaError(
            f"the table cannot be compared: its key column {missing[0]} has no text that both sides make",
            hint="leave the table out with --tables; or, under another topic.prefix, name other columns in "
            "message.key.columns",
            table=str(table.id),
        )
    compared = ComparedTable(
        topic=captured.topic(table.id),
        database=table.id.database,
        table=table.id.table,
        columns=tuple(columns),
        key=tuple(map(captured.field_name, table.key)),
        excluded=excluded,
    )
    return compared, RowTexts([texts[name] for name in table.key], list(texts.values()))
