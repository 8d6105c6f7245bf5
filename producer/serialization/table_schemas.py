"""How a table version's records are written: adjusted names, schemas with defaults, and their ids from the registry.

A schema is registered before the first row of its version is written, so that what the registry refuses stops the
producer with nothing written after it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import structlog

from tailrace.producer.config import ConvertersConfig
from tailrace.producer.config.column_transforms import ColumnProjection, ColumnTransforms, Truncate
from tailrace.producer.model.source_type import source_parameters, source_type
from tailrace.producer.model.table import Column, TableId
from tailrace.producer.model.value_options import ValueOptions
from tailrace.producer.mysql.catalog import CatalogTable
from tailrace.producer.serialization.column_default import field_with_default
from tailrace.producer.serialization.converter_codec import RecordFormat
from tailrace.producer.serialization.envelope.name_adjustment import field_names, schema_name
from tailrace.producer.serialization.envelope.schemas import envelope_schema, key_schema
from tailrace.producer.serialization.schema_ids import SchemaIdSource
from tailrace.runtime.errors import SchemaError
from tailrace.schemas.connect import ConnectField

log = structlog.get_logger(__name__)


class TableSchemaBuilder:
    """Makes the wire forms of table versions under one configuration."""

    def __init__(
        self,
        config: ConvertersConfig,
        values: ValueOptions,
        read_catalog: Callable[[TableId], CatalogTable],
        *,
        comments: bool = False,
        rules: ColumnTransforms | None = None,
    ) -> None:
        """``comments``: columns carry theirs in their schemas."""
        self._rules = rules
        self._config = config
        self._comments = comments
        self._values = values
        self._read_catalog = read_catalog
        self._forms = config.forms
        self._ids = SchemaIdSource(config)
        self._last: dict[TableId, RecordFormat] = {}

    def wire(
        self,
        table: TableId,
        topic: str,
        columns: Sequence[Column],
        key: Sequence[str],
        shape: ColumnProjection | None = None,
    ) -> RecordFormat:
        """Return how records of a table version are written; ``columns`` are those that rows have.

        Raises SchemaError for names that cannot be, and what ``Registry.schema_id`` raises.
        """
        names = field_names([column.name for column in columns], self._config.field_names)
        described = self._described(table, columns)
        plain = [
            self._commented(field_with_default(column, name, self._values), column)
            for column, name in zip(described, names, strict=True)
        ]
        at = {column.name: field for column, field in zip(columns, plain, strict=True)}
        fields = tuple(self._told(table, field, column, shape) for field, column in zip(plain, described, strict=True))
        base = schema_name(topic, self._config.schema_names)
        keys = key_schema(base, [at[name] for name in key])
        values = envelope_schema(base, fields)
        key_form, value_form = self._forms
        ids = self._ids.schema_id
        wire = self._last[table] = RecordFormat(
            key=key_form,
            value=value_form,
            columns=fields,
            key_schema=keys,
            value_schema=values,
            key_id=ids("key", topic, keys) if key_form == "avro" else 0,
            value_id=ids("value", topic, values) if value_form == "avro" else 0,
            exact_nulls=self._config.nulls == "debezium-exact",
        )
        return wire

    def last(self, table: TableId) -> RecordFormat | None:
        """Return how a table was written when ``wire`` was last asked, None if it never was."""
        return self._last.get(table)

    def _commented(self, field: ConnectField, column: Column) -> ConnectField:
        if not self._comments or column.catalog is None or not column.catalog.comment:
            return field
        return ConnectField(field.name, replace(field.schema, doc=column.catalog.comment))

    def _told(
        self, table: TableId, field: ConnectField, column: Column, shape: ColumnProjection | None
    ) -> ConnectField:
        """Add what rows tell of a column beyond what keys tell: the rule that changes it, or its source type."""
        change = shape.transforms.get(column.name) if shape is not None else None
        more: tuple[tuple[str, str], ...] = ()
        if isinstance(change, Truncate):
            length = source_type(column).length
            if length is None or length > change.length:
                more = (("truncateLength", str(change.length)),)
        elif change is not None:
            more = (("masked", "true"),)
        elif self._rules is not None and self._rules.carries_source_type(table, column):
            more = source_parameters(column, comments=self._comments)
        if not more:
            return field
        return ConnectField(field.name, replace(field.schema, parameters=(*field.schema.parameters, *more)))

    def _described(self, table: TableId, columns: Sequence[Column]) -> Sequence[Column]:
        """Return the columns with what only the catalog knows, if the catalog still has the same ones.

        The log tells neither defaults nor comments.
        """
        if all(column.catalog is not None for column in columns):
            return columns
        try:
            found = self._read_catalog(table).table.columns
        except SchemaError as error:
            log.warning("schemas are published without defaults and comments", table=str(table), reason=error.message)
            return columns
        known = {column.name: column for column in found}
        if any(known.get(column.name) != column for column in columns):
            log.warning(
                "schemas are published without defaults and comments",
                table=str(table),
                reason="the table has been altered since this part of the log was written",
            )
            return columns
        return [known[column.name] for column in columns]
