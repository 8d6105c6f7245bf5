"""Value options for tests: the defaults of the configuration, with changes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

from tailrace.producer.config import ValuesConfig
from tailrace.producer.model.value_options import ValueOptions
from tailrace.producer.serialization.table_codec import CodecOptions


def value_options(**changes: Any) -> ValueOptions:
    """Return the default options with some of them changed."""
    return replace(ValuesConfig().options, **changes)


DEFAULT_CODEC: Final = CodecOptions(value_options())
"""All columns unchanged, with tombstones, as JSON without schemas."""
