"""Which topics the stream subscribes to."""

from __future__ import annotations

import re
from dataclasses import dataclass

from tailrace.schemas.names import schemas_topic, state_topic, watermarks_topic


@dataclass(frozen=True, slots=True)
class TableFilter:
    """Regular expressions of Java that match a whole ``db.table``, without regard to case, as Debezium's lists do."""

    included: tuple[str, ...] = ()
    """Empty: all tables."""
    excluded: tuple[str, ...] = ()


def subscribe_pattern(prefix: str, tables: TableFilter | None = None) -> str:
    """Return the Java regular expression of the topics of a prefix that contain rows or watermarks.

    A data topic has at least two parts after the prefix, so ``<prefix>`` and ``<prefix>.transaction`` do not match.
    Heartbeat topics start with another word. Table schemas are not part of the stream: a batch needs all of them
    before it starts, independent of its offsets (schema_tracker.py).
    """
    control = "|".join(re.escape(topic) for topic in (schemas_topic(prefix), state_topic(prefix)))
    start = re.escape(prefix) + "\\."
    # Spark searches for the pattern anywhere in a topic name.
    if tables is None or not (tables.included or tables.excluded):
        return f"^(?!(?:{control})$){start}[^.]+\\..+$"
    included = f"(?={_any_of(tables.included)}$)" if tables.included else ""
    excluded = f"(?!{_any_of(tables.excluded)}$)" if tables.excluded else ""
    watermarks = re.escape(watermarks_topic(prefix))
    return f"^(?:{watermarks}|(?!(?:{control})$){start}{included}{excluded}[^.]+\\..+)$"


def _any_of(expressions: tuple[str, ...]) -> str:
    return "(?i:" + "|".join(f"(?:{expression})" for expression in expressions) + ")"
