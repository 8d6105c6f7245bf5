"""The configurations under comparison: each is a set of Debezium properties, most carrying several modes at once.

Modes of different type families do not touch each other, so one connector shows one mode of each family.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

JSON_CONVERTER: Final = "org.apache.kafka.connect.json.JsonConverter"


@dataclass(frozen=True, slots=True)
class Variant:
    """One configuration; ``name`` is part of its topic prefix."""

    name: str
    modes: Mapping[str, str] = field(default_factory=dict)
    """Properties that both are given."""
    ahead: Mapping[str, str] = field(default_factory=dict)
    """Properties that only Debezium is given: what they show is recorded, and not offered by Tailrace so far."""
    key_schemas: bool = False
    value_schemas: bool = True
    offered: bool = True
    """Whether Tailrace can be given these at all."""

    @property
    def debezium(self) -> dict[str, str]:
        """Return the properties of Debezium's connector that make this variant."""
        return {
            "key.converter": JSON_CONVERTER,
            "key.converter.schemas.enable": str(self.key_schemas).lower(),
            "value.converter": JSON_CONVERTER,
            "value.converter.schemas.enable": str(self.value_schemas).lower(),
            **self.modes,
            **self.ahead,
        }


VARIANTS: Final = (
    Variant("plain", value_schemas=False),
    Variant(
        "schemas",
        {
            f"{side}.converter{setting}": value
            for side in ("key", "value")
            for setting, value in (("", JSON_CONVERTER), (".schemas.enable", "true"))
        },
        key_schemas=True,
    ),
    Variant(
        "connect",
        {
            "time.precision.mode": "connect",
            "decimal.handling.mode": "double",
            "bigint.unsigned.handling.mode": "precise",
            "binary.handling.mode": "base64",
        },
    ),
    Variant(
        "isostring",
        {
            "time.precision.mode": "isostring",
            "decimal.handling.mode": "string",
            "binary.handling.mode": "base64-url-safe",
        },
    ),
    Variant(
        "microseconds",
        {"time.precision.mode": "microseconds", "binary.handling.mode": "hex", "tombstones.on.delete": "false"},
    ),
    Variant(
        "nanoseconds",
        {"time.precision.mode": "nanoseconds", "enable.time.adjuster": "false", "include.query": "true"},
        {
            "value.converter.replace.null.with.default": "false",
            "key.converter.replace.null.with.default": "false",
        },
    ),
    Variant(
        "ahead",
        {},
        {
            "column.propagate.source.type": ".*",
            "include.schema.comments": "true",
            "provide.transaction.metadata": "true",
            "skipped.operations": "none",
            "schema.name.adjustment.mode": "avro",
            "field.name.adjustment.mode": "avro",
            "heartbeat.interval.ms": "1000",
        },
        key_schemas=True,
        offered=False,
    ),
)
