"""Every property of the Debezium 3.6 MySQL connector, of Kafka Connect and of Tailrace: one declarative table.

The reference page, the check of unknown names, the environment variables and the sections are all made from it.
"""

from __future__ import annotations

from typing import Final

from tailrace.producer.config.properties import connect, converters, filters, kafka, snapshot, source, tailrace, values
from tailrace.producer.config.property import Property

GROUPS: Final[tuple[tuple[str, tuple[Property, ...]], ...]] = (
    ("The source database", source.PROPERTIES),
    ("What is captured", filters.PROPERTIES),
    ("How values are written", values.PROPERTIES),
    ("Converters and schemas", converters.PROPERTIES),
    ("Snapshot", snapshot.PROPERTIES),
    ("Kafka, topics and batches", kafka.PROPERTIES),
    ("Tailrace's own", tailrace.PROPERTIES),
    ("Kafka Connect's own", connect.PROPERTIES),
)
"""Groups in the order of the reference page."""

PROPERTIES: Final[tuple[Property, ...]] = tuple(entry for _, group in GROUPS for entry in group)
"""All of them. A fixed name wins over one that stands for many; among those the first wins."""
