"""Names of topics and record headers that both halves use."""

from __future__ import annotations

from typing import Final

SPLIT_HEADER: Final = "tailrace.split"
"""On snapshot rows and backfill events: the id of the split they belong to (UTF-8, opaque)."""

INCREMENTAL_HEADER: Final = "tailrace.incremental"
"""In its place where a table is read again beside its log: no reader needs to wait for the split's end there, since
every change is in the topic too."""

EVENT_HEADER: Final = "tailrace.event"
"""On every row record: ``<source epoch>.<event number>`` (ASCII), the parts of the sequence that ``source`` lacks."""


def watermarks_topic(prefix: str) -> str:
    """Return the topic of LOW, HIGH and END records (one partition)."""
    return f"{prefix}.tailrace.watermarks"


def schemas_topic(prefix: str) -> str:
    """Return the compacted topic of table schemas, keyed by ``<topic>/<fingerprint>`` (one partition)."""
    return f"{prefix}.tailrace.schemas"


def state_topic(prefix: str) -> str:
    """Return the compacted topic of the producer's own state (one partition)."""
    return f"{prefix}.tailrace.state"
