"""Processes small tables in the driver, without a query: each query costs more than the few records of the table.

What is not plain is left to queries (upsert.py), as is everything that fails before the commit. They have the same
results and the same errors.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Final

from tailrace.spark_consumer.driver_path import DriverPath
from tailrace.spark_consumer.images import Images
from tailrace.spark_consumer.metadata_fields import MetadataField
from tailrace.spark_consumer.tables.driver_decoder import DriverDecoder, decoder_kb

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql import types as tp

    from tailrace.schemas.table import TableSchema

MOST_KB: Final = 400 << 10
"""Of memory that decoders take."""


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
