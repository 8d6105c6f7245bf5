"""The protocol of a record format: finds the schemas of a table's records, and reads envelopes as structs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from tailrace.spark_consumer.source.json_decoder import Read, read_json
from tailrace.spark_consumer.source.version_decoder import schemas_in

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from tailrace.schemas.table import TableSchema
    from tailrace.spark_consumer.source.schema_tracker import SchemaTracker


@dataclass(frozen=True, slots=True)
class Resolved:
    """The records of one table topic, ready for ``decode_versions``."""

    records: DataFrame
    """RAW_COLUMNS and more: ``schema`` is the fingerprint of one of ``schemas``, ``key`` is the same for equal keys."""
    schemas: list[TableSchema]
    """The schemas of the records, the latest last; at least one."""
    read: Read = read_json


class RecordFormat(Protocol):
    """How the records of all topics of a prefix are written; one object per query."""

    @property
    def finds_schemas(self) -> bool:
        """Whether ``resolve`` always reads the records, to find their schemas."""

    def known_schema(self, topic: str, tracker: SchemaTracker) -> TableSchema | None:
        """Return the newest schema of a topic that is known without its records, or None."""

    def resolve(self, raw: DataFrame, topic: str, tracker: SchemaTracker) -> Resolved:
        """Return the records of one topic with their schemas. ``raw`` has RAW_COLUMNS; it may run several jobs.

        Raises SchemaError for a record whose schema is not known.
        """


class TailraceFormat:
    """Plain JSON whose schemas Tailrace has published; each record names its schema in a header."""

    finds_schemas = False

    def known_schema(self, topic: str, tracker: SchemaTracker) -> TableSchema | None:
        """Return the latest published schema. Raises SchemaError if there is none."""
        return tracker.versions(topic)[-1]

    def resolve(self, raw: DataFrame, topic: str, tracker: SchemaTracker) -> Resolved:
        """Return the records unchanged."""
        return Resolved(raw, schemas_in(raw, topic, tracker))
