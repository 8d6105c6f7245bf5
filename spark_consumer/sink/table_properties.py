"""Names of table properties that several modules use."""

from __future__ import annotations

from typing import Final

TOPIC: Final = "tailrace.topic"
"""The topic whose rows the table has."""
KEY: Final = "tailrace.key"
"""The key columns as a JSON array."""
QUERY: Final = "tailrace.query"
"""The id of the query that created the table."""
TRUNCATED: Final = "tailrace.truncated"
"""The sequence of the last truncate event; records with a smaller sequence stay out."""
LAST_ALTERATION: Final = "tailrace.altered"
"""The position of the last ALTER TABLE that the table is done with."""
NAMES: Final = "tailrace.columns"
"""The columns of the source and what became of them (SourceNames)."""
