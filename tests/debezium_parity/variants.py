"""The configurations that are compared.

Modes of different types are independent, so a variant sets one mode of each type.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

JSON_CONVERTER: Final = "org.apache.kafka.connect.json.JsonConverter"
REGISTRY: Final = "{registry}"
"""The placeholder of the schema registry's root URL."""


@dataclass(frozen=True, slots=True)
class Variant:
    """One configuration; ``name`` is part of its topic prefix."""

    name: str
    shared: Mapping[str, str] = field(default_factory=dict)
    """The properties of both connectors."""
    only_debezium: Mapping[str, str] = field(default_factory=dict)
    """Additional properties of Debezium."""
    only_tailrace: Mapping[str, str] = field(default_factory=dict)
    """Additional properties of Tailrace."""

    def __hash__(self) -> int:
        return hash(self.name)

    @property
    def options(self) -> dict[str, str]:
        """Return the properties of both connectors without those of the converters."""
        return {name: value for name, value in self.shared.items() if ".converter" not in name}

    @property
    def avro(self) -> bool:
        """Whether keys and values are in Avro with a schema registry."""
        return "key.converter" in self.only_tailrace

    @property
    def converters(self) -> str:
        """Return the forms of keys and values."""
        if self.avro:
            return "avro"
        forms = [
            "json+schema" if self.shared[f"{side}.converter.schemas.enable"] == "true" else "json"
            for side in ("key", "value")
        ]
        return forms[0] if forms[0] == forms[1] else "/".join(forms)

    @property
    def debezium(self) -> dict[str, str]:
        """Return the properties of Debezium."""
        return {**self.shared, **self.only_debezium}

    @property
    def tailrace(self) -> dict[str, str]:
        """Return the properties of Tailrace."""
        return {**self.shared, **self.only_tailrace}


def _json(*, key: bool, value: bool) -> dict[str, str]:
    """Return the properties of JSON converters; true means with schemas."""
    return {
        "key.converter": JSON_CONVERTER,
        "key.converter.schemas.enable": str(key).lower(),
        "value.converter": JSON_CONVERTER,
        "value.converter.schemas.enable": str(value).lower(),
    }


def _avro(side: str) -> tuple[dict[str, str], dict[str, str]]:
    """Return the properties of the Avro converters of Debezium and of Tailrace.

    Debezium uses Apicurio's converter in Confluent's wire format, because Confluent's is not on Maven Central.
    """
    name = f"{side}.converter"
    apicurio = {
        "": "io.apicurio.registry.utils.converter.AvroConverter",
        ".apicurio.registry.url": f"{REGISTRY}/apis/registry/v2",
        ".apicurio.registry.auto-register": "true",
        ".apicurio.registry.as-confluent": "true",
        ".apicurio.registry.headers.enabled": "false",
        ".apicurio.registry.use-id": "contentId",
    }
    confluent = {
        "": "io.confluent.connect.avro.AvroConverter",
        ".schema.registry.url": f"{REGISTRY}/apis/ccompat/v7",
    }
    return tuple({name + key: value for key, value in each.items()} for each in (apicurio, confluent))  # type: ignore[return-value]


_AVRO: Final = [{**key, **value} for key, value in zip(_avro("key"), _avro("value"), strict=True)]
_PLAIN: Final = _json(key=False, value=False)
_SCHEMAS: Final = _json(key=True, value=True)
_VALUE_SCHEMAS: Final = _json(key=False, value=True)

VARIANTS: Final = (
    Variant("plain", _PLAIN),
    Variant("schemas", _SCHEMAS),
    Variant(
        "connect",
        {
            **_VALUE_SCHEMAS,
            "time.precision.mode": "connect",
            "decimal.handling.mode": "double",
            "bigint.unsigned.handling.mode": "precise",
            "binary.handling.mode": "base64",
        },
    ),
    Variant(
        "isostring",
        {
            **_VALUE_SCHEMAS,
            "time.precision.mode": "isostring",
            "decimal.handling.mode": "string",
            "binary.handling.mode": "base64-url-safe",
        },
    ),
    Variant(
        "microseconds",
        {
            **_VALUE_SCHEMAS,
            "time.precision.mode": "microseconds",
            "binary.handling.mode": "hex",
            "tombstones.on.delete": "false",
        },
    ),
    Variant(
        "nanoseconds",
        {
            **_VALUE_SCHEMAS,
            "time.precision.mode": "nanoseconds",
            "enable.time.adjuster": "false",
            "include.query": "true",
        },
        {
            "value.converter.replace.null.with.default": "false",
            "key.converter.replace.null.with.default": "false",
        },
    ),
    Variant(
        "ahead",
        {
            **_SCHEMAS,
            "include.schema.comments": "true",
            "provide.transaction.metadata": "true",
            "skipped.operations": "none",
            "schema.name.adjustment.mode": "avro",
            "field.name.adjustment.mode": "avro",
            "heartbeat.interval.ms": "1000",
        },
    ),
    Variant(
        "masked",
        {
            **_SCHEMAS,
            "include.schema.comments": "true",
            "column.exclude.list": r"ODD\..*\.(tiu|vb300|dd), odd.ops.k",
            "column.mask.with.5.chars": (
                r"odd\.strings(_new)?\.(c|tt|mt), odd\.enums(_new)?\.(e|s), odd.k_text.k, "
                r"odd\.charsets.*\.c_(sjis|latin1)"
            ),
            "column.mask.hash.SHA-256.with.salt.CzQMA0cB5K": (
                r"odd\.strings(_new)?\.(v|t|nv), odd\.charsets.*\.t_(utf16|gbk|ucs2), "
                r"odd\.enums(_new)?\.(en|sn)"
            ),
            "column.mask.hash.v2.MD5.with.salt.a b.c": (
                r"odd\.strings(_new)?\.(lt|vb), odd.ops.v, odd\.charsets.*\.c_utf8mb4"
            ),
            "column.truncate.to.3.chars": (
                r"odd\.strings(_new)?\.(vl|nc), odd\.binaries(_new)?\..*, odd\.charsets.*\.t_utf8(mb4)?, "
                r"odd\.temporals(_new)?\.(ts.|d), odd\.bits(_new)?\.b9, odd.k_serial.*"
            ),
            "column.propagate.source.type": (
                r"odd\.(integers|synonyms|floats|floats_scaled|decimals|bits|temporals|zero_dates|spatial|defaults"
                r"|more_defaults|computed|alters|strings)(_new)?\.(?!v$|t$|nv$|lt$|vb$).*, odd.strings.c"
            ),
        },
    ),
    Variant(
        "narrow",
        {
            **_VALUE_SCHEMAS,
            "time.precision.mode": "isostring",
            "decimal.handling.mode": "string",
            "binary.handling.mode": "hex",
            "field.name.adjustment.mode": "avro",
            "skip.messages.without.change": "true",
            "column.include.list": (
                r".*\.(id|a2|[a-f]|i d|y|s|sn|en|k|t|v|v[a-z]|bl|bu|bt|t[st]\d?|dt\d?|[cm]t|d6530|[dn]u|j)"
            ),
            "column.truncate.to.2.chars": r"odd\.(strings|temporals|decimals|binaries|enums)(_new)?\..*",
            "datatype.propagate.source.type": r"odd\..*\.(varchar|INT( unsigned)?|enum|Date)",
            "message.key.columns": "odd.ops:k,id; odd.k_types:y,bu,d ;odd.strings:id",
        },
    ),
    Variant(
        "avro",
        {
            "provide.transaction.metadata": "true",
            "include.schema.comments": "true",
            "skipped.operations": "none",
            "schema.name.adjustment.mode": "avro",
            "field.name.adjustment.mode": "avro",
            "heartbeat.interval.ms": "1000",
        },
        *_AVRO,
    ),
)
