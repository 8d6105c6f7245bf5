"""The protocol of a record format: finds the schemas of a table's records, and reads envelopes as structs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from tailrace.runtime.errors import SchemaError
from tailrace.schemas.connect import ConnectField, ConnectSchema
from tailrace.spark_consumer.source.json_decoder import Read, read_json
from tailrace.spark_consumer.source.version_decoder import schemas_in

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from tailrace.schemas.table import TableSchema
    from tailrace.spark_consumer.source.json_decoder import Read
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


VALUE_ID: Final = "_value_id"
KEY_ID: Final = "_key_id"
"""Columns with the identities of the schemas of a record."""


class Sample(NamedTuple):
    """One record of an identity."""

    text: str | None
    """What ``ValueSide.sample`` returns."""
    key: str | None
    """The normalized key as text."""


class KeySide(Protocol):
    """The converter of keys."""

    def identity(self) -> Column:
        """Return the identity of a record's key schema; NULL if the record has no key."""

    def columns(self, key_id: str) -> tuple[str, ...]:
        """Return the names of the key columns."""

    def normalized(self, key_ids: Sequence[str]) -> Column:
        """Return the key as JSON without schema (bytes), for keys of these identities."""


class ValueSide(Protocol):
    """The converter of values."""

    def identity(self) -> Column:
        """Return the identity of a record's value schema; NULL if the record shows none."""

    def sample(self) -> Column:
        """Return what ``columns`` needs to see of a record, as text."""

    def reader(self, records: DataFrame, value_ids: Sequence[str]) -> tuple[DataFrame, Read]:
        """Return the records, prepared for the reader of their envelopes, and that reader."""

    def named(self, topic: str, value_id: str, published: Sequence[TableSchema]) -> TableSchema | None:
        """Return the schema if the identity names a published one, else None. Raises SchemaError if it is missing."""

    def columns(
        self, table: TableSchema, value_id: str, sample: Sample, published: Sequence[TableSchema]
    ) -> tuple[ConnectField, ...]:
        """Return the columns of the rows of an identity. ``table`` has topic, names and key, and no columns yet."""


def row_fields(envelope: ConnectSchema, topic: str) -> tuple[ConnectField, ...]:
    """Return the columns of the rows in an envelope. Raises SchemaError for another schema."""
    for image in ("after", "before"):
        for field in envelope.fields:
            if field.name == image and field.schema.type == "struct":
                return field.schema.fields
    raise SchemaError(
        f"a record of topic {topic} has a schema that is not a change event",
        hint="remove transforms such as ExtractNewRecordState from the connector, or exclude the topic",
        schema=envelope.name,
        fields=", ".join(field.name for field in envelope.fields),
    )
