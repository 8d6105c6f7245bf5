"""The configurations under comparison: each is a set of Debezium properties, most carrying several modes at once.

Modes of different type families do not touch each other, so one connector shows one mode of each family.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

JSON_CONVERTER: Final = "org.apache.kafka.connect.json.JsonConverter"


class Variant(NamedTuple):
    """One configuration; ``name`` is part of its topic prefix."""

    name: str
    properties: Mapping[str, str]
    schemas: bool = False
    """JSON with schemas.enable=true."""

    def converters(self) -> dict[str, str]:
        """Return the converter properties."""
        own = {}
        for side in ("key", "value"):
            own[f"{side}.converter"] = JSON_CONVERTER
            own[f"{side}.converter.schemas.enable"] = "true" if self.schemas else "false"
        return own


VARIANTS: Final = (
    Variant("plain", {}),
    Variant("schemas", {}, schemas=True),
    Variant(
        "connect",
        {
            "time.precision.mode": "connect",
            "decimal.handling.mode": "double",
            "bigint.unsigned.handling.mode": "precise",
            "binary.handling.mode": "base64",
        },
        schemas=True,
    ),
    Variant(
        "isostring",
        {
            "time.precision.mode": "isostring",
            "decimal.handling.mode": "string",
            "binary.handling.mode": "base64-url-safe",
            "provide.transaction.metadata": "true",
        },
        schemas=True,
    ),
    Variant(
        "microseconds",
        {
            "time.precision.mode": "microseconds",
            "binary.handling.mode": "hex",
            "column.propagate.source.type": ".*",
            "include.schema.comments": "true",
            "tombstones.on.delete": "false",
            "skipped.operations": "none",
        },
        schemas=True,
    ),
    Variant(
        "nanoseconds",
        {
            "time.precision.mode": "nanoseconds",
            "value.converter.replace.null.with.default": "false",
            "key.converter.replace.null.with.default": "false",
            "enable.time.adjuster": "false",
            "schema.name.adjustment.mode": "avro",
            "field.name.adjustment.mode": "avro",
            "include.query": "true",
        },
        schemas=True,
    ),
)
