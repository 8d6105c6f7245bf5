"""Reads what is stored of schema changes with a target, where its users can damage it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from tailrace.spark_consumer.errors import SinkError

_SHOWN: Final = 200
"""Characters of a text in an error."""


@contextmanager
def reading(what: str, text: str) -> Iterator[None]:
    """Name what cannot be read. Raises SinkError for a text that is not JSON, or not of the form that was stored."""
    try:
        yield
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise SinkError(
            f"{what} cannot be read from what is stored with the target",
            hint="restore the stored text from the history of the target, or move the target away: it is created again "
            "from the topic",
            value=text[:_SHOWN],
        ) from error
