"""Options for tests: the defaults of the configuration, with changes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

from pydantic import SecretStr

from tailrace.producer.config import ConverterConfig, ConvertersConfig, ValuesConfig
from tailrace.producer.config.sections.converters import RegistrySettings
from tailrace.producer.model.value_options import ValueOptions
from tailrace.producer.serialization.table_codec import CodecOptions


def value_options(**changes: Any) -> ValueOptions:
    """Return the default options with some of them changed."""
    return replace(ValuesConfig().options, **changes)


def registry_settings(url: str, **changes: Any) -> RegistrySettings:
    """Return the default settings of a schema registry with some of them changed."""
    converter = ConverterConfig(registry=SecretStr(url))
    return replace(ConvertersConfig(key=converter).registry("key"), **changes)


DEFAULT_CODEC: Final = CodecOptions(value_options())
"""All columns unchanged, with tombstones, as JSON without schemas."""
