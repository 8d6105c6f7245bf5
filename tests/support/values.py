"""Value options for tests: the defaults of the configuration, with changes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tailrace.producer.config import ValuesConfig
from tailrace.producer.model.value_options import ValueOptions


def value_options(**changes: Any) -> ValueOptions:
    """Return the default options with some of them changed."""
    return replace(ValuesConfig().options, **changes)
