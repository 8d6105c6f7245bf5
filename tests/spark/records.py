"""Writes topics as a producer would write them, without a database."""

from __future__ import annotations

import base64
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any
from zlib import crc32

import orjson
from confluent_kafka import Producer

from tailrace.schemas.alteration import Alteration, ColumnChange
from tailrace.schemas.connect import ConnectField, ConnectSchema
from tailrace.schemas.names import (
    EVENT_HEADER,
    INCREMENTAL_HEADER,
    SCHEMA_HEADER,
    SPLIT_HEADER,
    schemas_topic,
    state_topic,
    watermarks_topic,
)
from tailrace.schemas.sequence import Sequence
from tailrace.schemas.table import TableSchema
from tailrace.schemas.watermark import BinlogPosition, Watermark, WatermarkKind
from tests.embedded.kafka import KafkaBroker

EPOCH = 3
FILE = "binlog.000007"
RUN = "run1"
Row = dict[str, Any]


def unscaled(value: int) -> str:
    """Return an unscaled decimal as Connect prints it in JSON."""
    size = max(1, (value.bit_length() + 8) // 8)
    return base64.b64encode(value.to_bytes(size, "big", signed=True)).decode("ascii")


def connect(kind: str, *, optional: bool = True, name: str | None = None, **parameters: object) -> ConnectSchema:
    """Return a Connect schema."""
    given = tuple((key.replace("_", "."), str(value)) for key, value in parameters.items())
    return ConnectSchema(kind, optional=optional, name=name, version=1 if name else None, parameters=given)


def decimal(precision: int, scale: int) -> ConnectSchema:
    """Return the schema of a DECIMAL."""
    return connect(
        "bytes", name="org.apache.kafka.connect.data.Decimal", scale=scale, connect_decimal_precision=precision
    )


def table_schema(prefix: str, table: str, *extra: ConnectField, key: tuple[str, ...] = ("id",)) -> TableSchema:
    """Return the schema of a table with an int64 key ``id``, a string ``name`` and further columns."""
    columns = (ConnectField("id", connect("int64", optional=False)), ConnectField("name", connect("string")), *extra)
    return TableSchema(f"{prefix}.shop.{table}", "shop", table, columns, key)


@dataclass(frozen=True)
class Message:
    """One record to write."""

    topic: str
    key: bytes | None
    value: bytes | None
    partition: int = 0
    headers: tuple[tuple[str, bytes], ...] = ()


@dataclass
class Table:
    """Makes the records of one table."""

    schema: TableSchema
    partitions: int = 1
    run: str = RUN
    incremental: bool = False
    """The records belong to an incremental snapshot."""
    last_split: int | None = None
    """Number of the split whose upper bound is open. A run without it never ends."""
    keys_per_split: int = 1
    checksums: dict[str, int] = field(default_factory=dict)
    """Checksums of the splits that were written."""

    def key(self, row: Row) -> bytes:
        """Return the key struct of a row as JSON."""
        return orjson.dumps({name: row[name] for name in self.schema.key})

    def partition(self, key: bytes) -> int:
        """Return the partition of a key. Any rule is valid that gives a key always the same partition."""
        return sum(key) % self.partitions

    def split_id(self, number: int) -> str:
        """Return the id of a split."""
        return f"{self.schema.database}.{self.schema.table}:{self.run}:{number}"

    def change(
        self, op: str, before: Row | None, after: Row | None, *, pos: int, row: int = 0, split: str | None = None
    ) -> list[Message]:
        """Return the record of one change or snapshot row, and the tombstone after a delete."""
        image = after if after is not None else before
        assert image is not None
        key = self.key(image)
        source = {"version": "x", "ts_ms": 1_700_000_000_000 + pos, "file": FILE, "pos": pos, "row": row}
        value = orjson.dumps({"before": before, "after": after, "source": source, "op": op, "ts_ms": 1})
        headers = [(EVENT_HEADER, f"{EPOCH}.0".encode()), (SCHEMA_HEADER, self.schema.fingerprint.encode())]
        if split is not None:
            headers.append((INCREMENTAL_HEADER if self.incremental else SPLIT_HEADER, split.encode()))
        made = Message(self.schema.topic, key, value, self.partition(key), tuple(headers))
        if op != "d":
            return [made]
        return [made, Message(self.schema.topic, key, None, made.partition, tuple(headers))]

    def truncate(self, *, pos: int, partition: int = 0) -> list[Message]:
        """Return the record of a TRUNCATE; it is in one partition, whatever the keys of the rows."""
        source = {"version": "x", "ts_ms": 1_700_000_000_000 + pos, "file": FILE, "pos": pos, "row": 0}
        value = orjson.dumps({"before": None, "after": None, "source": source, "op": "t", "ts_ms": 1})
        headers = ((EVENT_HEADER, f"{EPOCH}.0".encode()), (SCHEMA_HEADER, self.schema.fingerprint.encode()))
        return [Message(self.schema.topic, None, value, partition, headers)]

    def watermark(
        self, prefix: str, kind: WatermarkKind, number: int, *, pos: int, rows: int = 0, backfill: int = 0
    ) -> Message:
        """Return a watermark record."""
        mark = Watermark(
            kind=kind,
            split=self.split_id(number),
            snapshot=self.run,
            topic=self.schema.topic,
            database=self.schema.database,
            table=self.schema.table,
            number=number,
            lower=None if number == 0 else [number * self.keys_per_split],
            upper=None if number == self.last_split else [(number + 1) * self.keys_per_split],
            closed=False,
            position=BinlogPosition(EPOCH, FILE, pos, "", "uuid"),
            rows=rows,
            checksum=self.checksums.get(self.split_id(number), 0),
            backfill=backfill,
            schema=self.schema.fingerprint,
            ts_us=1,
            incremental=self.incremental,
            partitions=self.partitions if kind is WatermarkKind.LOW else None,
        )
        return Message(watermarks_topic(prefix), mark.record_key(), mark.to_json())

    def created(self, prefix: str, *, pos: int) -> Message:
        """Return the record of a CREATE TABLE."""
        position = BinlogPosition(EPOCH, FILE, pos, "", "uuid")
        names = self.schema.topic, self.schema.database, self.schema.table
        created = Watermark(WatermarkKind.CREATED, "", "", *names, 0, None, None, False, position, 0, 0, 0, "", 1)
        mark = replace(created, partitions=self.partitions)
        return Message(watermarks_topic(prefix), mark.record_key(), mark.to_json())

    def alteration(self, prefix: str, pos: int, *changes: ColumnChange) -> Message:
        """Return the record of an ALTER TABLE."""
        names = self.schema.topic, self.schema.database, self.schema.table
        found = Alteration(*names, f"ALTER TABLE {self.schema.table} …", changes, Sequence(EPOCH, 7, pos, 0, 0))
        return Message(schemas_topic(prefix), found.record_key(), found.to_json())

    def published(self, prefix: str, version: int = 1) -> Message:
        """Return the record of the schemas topic; a schema with a greater ``version`` is a later one."""
        value = self.schema.to_json(sequence=Sequence.at(EPOCH, FILE, version))
        return Message(schemas_topic(prefix), self.schema.record_key(), value)

    def snapshot(self, prefix: str, number: int, rows: Iterable[Row], *, low: int, high: int) -> list[Message]:
        """Return the transaction of a split: LOW, the rows, HIGH."""
        rows = list(rows)
        self.checksums[self.split_id(number)] = sum(crc32(orjson.dumps(row)) for row in rows)
        made = [m for row in rows for m in self.change("r", None, row, pos=low, split=self.split_id(number))]
        first = self.watermark(prefix, WatermarkKind.LOW, number, pos=low)
        return [first, *made, self.watermark(prefix, WatermarkKind.HIGH, number, pos=high, rows=len(made))]

    def end(self, prefix: str, number: int, *, high: int, rows: int, backfill: int = 0) -> Message:
        """Return the END watermark of a split."""
        return self.watermark(prefix, WatermarkKind.END, number, pos=high, rows=rows, backfill=backfill)


class Feed:
    """Creates the topics of a prefix and writes messages in transactions."""

    def __init__(self, broker: KafkaBroker, prefix: str) -> None:
        self.broker, self.prefix = broker, prefix
        for name in (
            watermarks_topic(prefix),
            schemas_topic(prefix),
            state_topic(prefix),
            prefix,
            f"{prefix}.transaction",
        ):
            broker.create_topic(name)
        self._producer = Producer(
            {
                "bootstrap.servers": broker.bootstrap,
                "transactional.id": f"feed-{prefix}",
                "linger.ms": 20,
                "compression.type": "lz4",
                "batch.size": 1_000_000,
                "queue.buffering.max.messages": 1_000_000,
                "log_level": 0,
            }
        )
        self._producer.init_transactions(60)

    def table(self, schema: TableSchema, *, partitions: int = 1, run: str = RUN) -> Table:
        """Create a table's topic and publish its schema."""
        self.broker.create_topic(schema.topic, partitions=partitions)
        table = Table(schema, partitions, run)
        self.write([table.published(self.prefix)])
        return table

    def write(self, messages: Iterable[Message], *, commit: bool = True) -> None:
        """Write messages in one transaction, which is aborted where ``commit`` is false."""
        self._begin(messages)
        if commit:
            self._producer.commit_transaction(60)
        else:
            self._producer.abort_transaction(60)

    @contextmanager
    def transaction(self, messages: Iterable[Message]) -> Iterator[None]:
        """Write messages in a transaction that is open during the block."""
        self._begin(messages)
        yield
        self._producer.commit_transaction(60)

    def _begin(self, messages: Iterable[Message]) -> None:
        producer = self._producer
        producer.begin_transaction()
        for number, message in enumerate(messages):
            producer.produce(
                message.topic,
                key=message.key,
                value=message.value,
                partition=message.partition,
                headers=list(message.headers),
            )
            if number % 1000 == 0:
                producer.poll(0)
        producer.flush(60)
