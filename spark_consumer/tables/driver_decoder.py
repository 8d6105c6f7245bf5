"""Decodes the records of a small table in the driver, counts them, and finds the last change of each key.

Each query would cost more than the few records. The expressions are those of the queries (json_decoder.py): they are
planned once for a schema. The driver looks at numbers and keys of the records only. What is not plain is left to
queries (upsert.py), as is everything that fails before the commit: they have the same results and the same errors.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql import functions as fn

from tailrace.schemas import sequence as seq
from tailrace.schemas.rowkind import Op
from tailrace.spark_consumer.images import Images, MetadataField
from tailrace.spark_consumer.in_driver import DriverPath, RowFunction, rows_of_type, set_active
from tailrace.spark_consumer.normalize.split_progress import SplitStats
from tailrace.spark_consumer.small_data import ColumnCache
from tailrace.spark_consumer.source.json_decoder import image_fields
from tailrace.spark_consumer.source.types import field_type
from tailrace.spark_consumer.source.version_decoder import decode_versions

if TYPE_CHECKING:
    from pyspark.sql import Column, SparkSession
    from pyspark.sql import types as tp

    from tailrace.schemas.table import TableSchema
    from tailrace.spark_consumer.source.group_reader import RawRows

MOST_KB: Final = 400 << 10
"""Of memory that decoders take."""
_OPS: Final = (Op.CREATE.value, Op.UPDATE.value, Op.DELETE.value)
_DESCRIPTION: Final = ColumnCache["Column"]()


@dataclass(frozen=True, slots=True)
class LastChanges:
    """The last change of each key among some records."""

    rows: Any
    """A buffer of Scala with decoded records."""
    stats: SplitStats
    """The counts of all records."""


class DriverDecoder:
    """Decodes records of one schema; for one thread at a time."""

    def __init__(
        self,
        spark: SparkSession,
        raw: tp.StructType,
        schema: TableSchema,
        images: Images,
        fields: Sequence[MetadataField],
    ) -> None:
        """``raw`` is the type of the records."""
        self._raw = raw
        self.schema, decoded = decode_versions(rows_of_type(spark, raw), [schema], images, fields=fields)
        self.type = decoded.schema
        """That of decoded records."""
        self._decode = RowFunction(decoded)
        # A record without the header is decoded with the latest schema, which reports it (json_decoder.py).
        names_it = fn.coalesce(fn.col("schema") == schema.fingerprint, fn.lit(True))
        self._is_of_schema = RowFunction(rows_of_type(spark, raw).select(names_it))
        description = _DESCRIPTION.get("", _description)
        self._describe = RowFunction(rows_of_type(spark, self.type).select(description))

    def takes(self, raw: tp.StructType) -> bool:
        """Return whether it decodes records of a type."""
        return raw == self._raw

    def last_changes(
        self, spark: SparkSession, raw: RawRows, alteration: seq.Sequence | None = None
    ) -> LastChanges | None:
        """Decode records; return None if one of them is not a plain change behind ``alteration``, the last one.

        Rows of snapshots, truncate events, and records that were written with another schema are left to queries.
        """
        set_active(spark)
        if not all(self._is_of_schema.json(raw.rows)):
            return None
        decoded = self._decode.of(raw.rows)
        described = self._describe.json(decoded)
        if not described or any(each["op"] not in _OPS or each["split"] or each["incremental"] for each in described):
            return None
        if alteration is not None and any(tuple(each["order"][: len(alteration)]) <= alteration for each in described):
            return None
        last: dict[str, int] = {}
        for index, each in enumerate(described):
            known = last.setdefault(each["key"], index)
            if each["order"] > described[known]["order"]:
                last[each["key"]] = index
        for index in sorted(set(range(len(described))) - set(last.values()), reverse=True):
            decoded.remove(index, 1)
        return LastChanges(decoded, _stats(described))


def decoder_kb(schema: TableSchema, images: Images) -> int:
    """Return about how much memory a decoder takes, and what the sink plans for its rows, as measured."""
    columns = [column for image in ("before", "after") for column in image_fields(schema, image, images)]
    types = [field_type(column.schema, column=column.name, topic=schema.topic) for column in columns]
    return 300 + 50 * sum(each.decode is not None for each in types)


class DriverTables:
    """The decoders of a query, and whether they work; several threads use it, each for its own topics."""

    def __init__(self) -> None:
        self.path = DriverPath("small tables are read by queries for a while")
        self._lock = threading.Lock()
        self._decoders: dict[object, DriverDecoder] = {}
        self._size = 0

    def decoder(
        self,
        spark: SparkSession,
        raw: tp.StructType,
        schema: TableSchema,
        images: Images,
        fields: tuple[MetadataField, ...],
    ) -> DriverDecoder | None:
        """Return a decoder of records of one schema; None if those of other tables leave no memory for it.

        To replace one of them would not pay: its table has a batch before this one has the next.
        """
        key = schema.topic, schema.fingerprint, images, fields
        with self._lock:
            found = self._decoders.get(key)
        if found is not None and found.takes(raw):
            return found
        added = 0 if found is not None else decoder_kb(schema, images)
        with self._lock:
            if self._size + added > MOST_KB:
                return None
            self._size += added
        try:
            found = self._decoders[key] = DriverDecoder(spark, raw, schema, images, fields)
        except BaseException:
            with self._lock:
                self._size -= added
            raise
        return found


def _description() -> Column:
    """Return what the driver needs to know of a decoded record, as JSON."""
    order = [*(fn.col("seq")[name] for name in seq.Sequence._fields), fn.col("partition"), fn.col("offset")]
    return fn.to_json(
        fn.struct(
            fn.hex("key").alias("key"),
            "op",
            fn.col("split").isNotNull().alias("split"),
            "incremental",
            "ts_ms",
            # The order of changes of a key (normalize/latest.py).
            fn.array(*(number.cast("bigint") for number in order)).alias("order"),
        )
    )


def _stats(described: Sequence[dict[str, Any]]) -> SplitStats:
    ops = [each["op"] for each in described]
    orders = [each["order"] for each in described]
    file, pos = min((order[1], order[2]) for order in orders)
    return SplitStats(
        split=None,
        rows=0,
        changes=len(ops),
        newest_ms=max((time for each in described if (time := each.get("ts_ms")) is not None), default=None),
        earliest=seq.Sequence(min(order[0] for order in orders), file, pos, 0, 0),
        updates=ops.count(Op.UPDATE.value),
        deletes=ops.count(Op.DELETE.value),
    )
