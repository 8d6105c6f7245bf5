"""Which topics the stream subscribes to."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from tailrace.schemas.names import schemas_topic, state_topic, watermarks_topic

_COMMA: Final = re.compile(r"(?<!\\),")


@dataclass(frozen=True, slots=True)
class TableFilter:
    """Regular expressions that match a whole ``db.table``, without regard to case, as Debezium's lists do.

    Those of a query choose topics (``subscribe_pattern``) and are Java's, those of one of several sinks are Python's.
    """

    included: tuple[str, ...] = ()
    """Empty: all tables."""
    excluded: tuple[str, ...] = ()

    def contains(self, table: str) -> bool:
        """Return whether ``db.table`` passes by Python's rules: expressions that only Java reads match nothing."""
        included = not self.included or _matches(self.included, table)
        return included and not _matches(self.excluded, table)


def split_expressions(text: str) -> tuple[str, ...]:
    """Return the expressions of a list; a comma within one is written with a backslash, as in Debezium's lists."""
    return tuple(part.strip().replace("\\,", ",") for part in _COMMA.split(text) if part.strip())


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


def _matches(expressions: tuple[str, ...], table: str) -> bool:
    try:
        return any(re.fullmatch(expression, table, re.IGNORECASE) for expression in expressions)
    except re.error:
        return False


def _any_of(expressions: tuple[str, ...]) -> str:
    return "(?i:" + "|".join(f"(?:{expression})" for expression in expressions) + ")"
