"""Record formats: that of Tailrace, and topics that a Debezium connector wrote, or began before a takeover.

Of a connector, the schemas of a record's key and value are found in the record or in a registry. Each has an identity,
a short text; the driver reads the schema of an identity once, from one record. Of a table with several schemas, the
later one is the one whose records have the greater source position.

Such a record has no event header: its place is that of its source block with epoch 0, which comes before everything
that Tailrace writes after a takeover.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

import structlog
from pyspark.sql import functions as fn
from pyspark.sql import types as tp

from tailrace.runtime.errors import SchemaError
from tailrace.schemas.table import TableSchema
from tailrace.spark_consumer.source.formats.avro_sides import AvroKeys, AvroValues
from tailrace.spark_consumer.source.formats.json_sides import KEY_ID, VALUE_ID, JsonKeys, JsonValues, Sample
from tailrace.spark_consumer.source.formats.registry import FormatSettings, SchemaRegistry
from tailrace.spark_consumer.source.json_decoder import Read, read_json
from tailrace.spark_consumer.source.version_decoder import schemas_in
from tailrace.spark_consumer.spark_line import try_cast

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from tailrace.spark_consumer.source.schema_tracker import SchemaTracker

log = structlog.get_logger(__name__)

Identity = tuple[str | None, str | None]
"""The identities of the schemas of value and key; None where a record shows none."""

_NO_EVENT: Final = "0.0"


def _source_type(**fields: tp.DataType) -> tp.StructType:
    source = tp.StructType([tp.StructField(name, kind) for name, kind in fields.items()])
    return tp.StructType([tp.StructField("source", source)])


_TABLE: Final = _source_type(db=tp.StringType(), table=tp.StringType())
_POSITION: Final = _source_type(file=tp.StringType(), pos=tp.LongType())


@dataclass(frozen=True, slots=True)
class Resolved:
    """The records of one table topic, ready for ``decode_versions``."""

    records: DataFrame
    """RAW_COLUMNS and more: ``schema`` is the fingerprint of one of ``schemas``, ``key`` is the same for equal keys."""
    schemas: list[TableSchema]
    """The schemas of the records, the latest last; at least one."""
    read: Read = read_json


class TailraceFormat:
    """Plain JSON whose schemas Tailrace has published; each record names its schema in a header."""

    finds_schemas = False
    """Whether ``resolve`` always reads the records, to find their schemas."""

    def known_schema(self, topic: str, tracker: SchemaTracker) -> TableSchema | None:
        """Return the newest schema that is known without records. Raises SchemaError if there is none."""
        return tracker.versions(topic)[-1]

    def resolve(self, raw: DataFrame, topic: str, tracker: SchemaTracker) -> Resolved:
        """Return the records of one topic, RAW_COLUMNS, with their schemas.

        Raises SchemaError for a record whose schema is not known.
        """
        return Resolved(raw, schemas_in(raw, topic, tracker))


class ConnectorFormat:
    """Keys and values as converters of Kafka Connect write them."""

    finds_schemas = True

    def __init__(self, key: JsonKeys | AvroKeys, value: JsonValues | AvroValues) -> None:
        self._key = key
        self._value = value
        self._known: dict[str, dict[Identity, TableSchema]] = {}

    def known_schema(self, topic: str, tracker: SchemaTracker) -> TableSchema | None:
        """Return the schema that was found last, else the latest published one."""
        found = [*tracker.published(topic), *self._known.get(topic, {}).values()]
        return found[-1] if found else None

    def resolve(self, raw: DataFrame, topic: str, tracker: SchemaTracker) -> Resolved:
        """Return the records with the fingerprints of their schemas; one job, and more for schemas not seen before."""
        records = raw.withColumns({VALUE_ID: self._value.identity(), KEY_ID: self._key.identity()})
        present = records.where(fn.col("value").isNotNull())
        has_value = fn.col("value").isNotNull()
        rows = [tuple(row) for row in records.select(has_value, VALUE_ID, KEY_ID).distinct().collect()]
        found: list[Identity] = [(value_id, key_id) for is_event, value_id, key_id in rows if is_event]
        known = self._known.setdefault(topic, {})
        for identity in found:
            if identity not in known and None not in identity:
                known[identity] = self._read_schema(present, topic, identity, tracker.published(topic))
        schemas = {identity: known[identity] for identity in found if identity in known}
        ordered = self._in_order(present, schemas)
        if not ordered:
            ordered = [next(reversed(known.values()), None) or self._without_key(present, topic, found, tracker)]
        # A truncate event has neither rows nor a key; the decoder reports other records without a key.
        schemas |= {identity: ordered[-1] for identity in found if identity not in schemas}
        prepared, read = self._value.reader(records, _texts(value_id for value_id, _ in found))
        complete = {
            "schema": _fingerprints(schemas),
            "event": fn.coalesce(fn.col("event"), fn.lit(_NO_EVENT)),
            "key": self._key.normalized(_texts(key_id for *_, key_id in rows)),
        }
        return Resolved(prepared.withColumns(complete), ordered, read)

    def _read_schema(
        self, records: DataFrame, topic: str, identity: Identity, published: Sequence[TableSchema]
    ) -> TableSchema:
        """Read the schema of an identity from one of its records and from what the converters know."""
        value_id, key_id = identity
        named = None if value_id is None else self._value.named(topic, value_id, published)
        if named is not None:
            return named
        one = records.where(_has(identity)).limit(1)
        key_text = self._key.normalized(_texts([key_id])).cast("string")
        sampled, read = self._value.reader(
            one.withColumns({"_sample": self._value.sample(), "_key_text": key_text}), _texts([value_id])
        )
        row = read(sampled, _TABLE).select("_sample", "_key_text", "partition", "offset", "e.source.*").first()
        if row is None or row["db"] is None or row["table"] is None:
            raise SchemaError(
                f"a record of topic {topic} is not a change event of a database connector",
                hint="leave the topic out with table.exclude.list, or set key.converter and value.converter as "
                "the writer has them",
                partition=None if row is None else row["partition"],
                offset=None if row is None else row["offset"],
            )
        key = () if key_id is None else self._key.columns(key_id)
        table = TableSchema(topic, row["db"], row["table"], (), key)
        if value_id is None:
            return table
        columns = self._value.columns(table, value_id, Sample(row["_sample"], row["_key_text"]), published)
        log.info("table schema read from records", topic=topic, columns=len(columns), key=list(key))
        return replace(table, columns=columns)

    def _in_order(self, records: DataFrame, schemas: Mapping[Identity, TableSchema]) -> list[TableSchema]:
        """Return the schemas, the latest last; a job reads the positions if there are several."""
        distinct = {schema.fingerprint: schema for schema in schemas.values()}
        if len(distinct) <= 1:
            return list(distinct.values())
        prepared, read = self._value.reader(records, _texts(value_id for value_id, _ in schemas))
        file = try_cast(fn.substring_index(fn.col("e.source.file"), ".", -1), "bigint")
        rows = (
            read(prepared, _POSITION)
            .groupBy(VALUE_ID, KEY_ID)
            .agg(
                fn.max(fn.coalesce(try_cast(fn.split_part("event", fn.lit("."), fn.lit(1)), "bigint"), fn.lit(0))),
                fn.max(file * fn.lit(1 << 36) + fn.col("e.source.pos")),
                fn.max("offset"),
            )
            .collect()
        )
        positions: dict[str, tuple[int, ...]] = {}
        for value_id, key_id, *position in rows:
            if (value_id, key_id) in schemas:
                fingerprint = schemas[value_id, key_id].fingerprint
                seen = tuple(-1 if number is None else number for number in position)
                positions[fingerprint] = max(positions.get(fingerprint, seen), seen)
        return [distinct[fingerprint] for fingerprint in sorted(distinct, key=lambda each: positions[each])]

    def _without_key(
        self, records: DataFrame, topic: str, found: Sequence[Identity], tracker: SchemaTracker
    ) -> TableSchema:
        """Return a schema for records of which none has both a value schema and a key."""
        published = tracker.published(topic)
        if published:
            return published[-1]
        if not found:  # only tombstones
            database, table = topic.rsplit(".", 2)[-2:]
            return TableSchema(topic, database, table, (), ())
        best = max(found, key=lambda identity: identity[0] is not None)
        return self._read_schema(records, topic, best, published)


def _texts(identities: object) -> list[str]:
    """Return the identities that are not None, each once."""
    return [each for each in dict.fromkeys(identities) if each is not None]  # type: ignore[call-overload]


def _fingerprints(schemas: Mapping[Identity, TableSchema]) -> Column:
    if len({schema.fingerprint for schema in schemas.values()}) == 1:
        return fn.lit(next(iter(schemas.values())).fingerprint)
    result = fn.lit(None).cast("string")
    for identity, schema in schemas.items():
        result = fn.when(_has(identity), fn.lit(schema.fingerprint)).otherwise(result)
    return result


def _has(identity: Identity) -> Column:
    value_id, key_id = (fn.lit(each).cast("string") for each in identity)
    return fn.col(VALUE_ID).eqNullSafe(value_id) & fn.col(KEY_ID).eqNullSafe(key_id)


RecordFormat = TailraceFormat | ConnectorFormat
"""How the records of all topics of a prefix are written; one object per query."""


def record_format(settings: FormatSettings | None) -> RecordFormat:
    """Return the format; None: what Tailrace writes by default."""
    if settings is None:
        return TailraceFormat()
    keys = JsonKeys() if settings.key is None else AvroKeys(SchemaRegistry(settings.key))
    values = JsonValues(settings.columns) if settings.value is None else AvroValues(SchemaRegistry(settings.value))
    return ConnectorFormat(keys, values)
