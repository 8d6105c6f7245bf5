"""Names of the control topics and of the record headers.

Every table record has ``tailrace.event`` and ``tailrace.schema``. A record that belongs to a snapshot split also has
``tailrace.split`` or ``tailrace.incremental``. A tombstone has the headers of its delete.
"""

from __future__ import annotations

from typing import Final

SPLIT_HEADER: Final = "tailrace.split"
"""Split id (UTF-8, opaque) of a snapshot row, or of a backfill event: a change between LOW and HIGH watermark of the
split. A changelog needs all records of a split, and counts them with the END watermark."""

INCREMENTAL_HEADER: Final = "tailrace.incremental"
"""Split id of a snapshot row or a backfill event of an incremental snapshot, instead of ``tailrace.split``. No reader
waits for the END watermark of such a split, because all changes of the table are in the topic too."""

EVENT_HEADER: Final = "tailrace.event"
"""``<epoch>.<event>`` (ASCII): the fields of the sequence that the ``source`` block lacks (sequence.py)."""

SCHEMA_HEADER: Final = "tailrace.schema"
"""Fingerprint of the table schema that the record was written with (table.py); constant for one table version."""


def watermarks_topic(prefix: str) -> str:
    """Return the topic of LOW, HIGH and END watermarks (one partition), keyed by the split id."""
    return f"{prefix}.tailrace.watermarks"


def schemas_topic(prefix: str) -> str:
    """Return the compacted topic of table schemas (one partition); it keeps every fingerprint of a topic."""
    return f"{prefix}.tailrace.schemas"


def state_topic(prefix: str) -> str:
    """Return the compacted topic of the producer's state (one partition); only the producer reads it."""
    return f"{prefix}.tailrace.state"
