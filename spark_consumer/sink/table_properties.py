"""Names of table properties that several modules use."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from tailrace.schemas.sequence import Sequence

TOPIC: Final = "tailrace.topic"
"""The topic whose rows the table has."""
SHARD: Final = "tailrace.shard"
"""The values of the columns that tell the rows of the topic from others, in a table of several topics (Shard)."""
KEY: Final = "tailrace.key"
"""The key columns as a JSON array."""
QUERY: Final = "tailrace.query"
"""The id of the query that created the table."""
TRUNCATED: Final = "tailrace.truncated"
"""The sequence of the last truncate event, in tables of earlier releases; the ledger has it now."""
LAST_ALTERATION: Final = "tailrace.altered"
"""The position of the last ALTER TABLE that the table is done with."""
COMMIT_OF_ALTERATION: Final = "tailrace.alteration.snapshot"
"""The commit whose rows have all that LAST_ALTERATION says is done, if a rollback of the format keeps properties."""
MADE: Final = "tailrace.made"
"""That somebody has made the steps for some ALTER TABLE (Mark)."""
ALTERING: Final = "tailrace.altering"
"""What a plan of steps was made from that is not carried out yet (Attempt)."""
NAMES: Final = "tailrace.columns"
"""The columns of the source and what became of them (SourceNames)."""


def truncation(properties: Mapping[str, str]) -> Sequence | None:
    """Return the sequence of the last truncate event that an earlier release has noted."""
    return Sequence.from_text(properties[TRUNCATED]) if TRUNCATED in properties else None
