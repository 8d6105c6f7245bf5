"""The rest of a rows event of which the first rows are written already."""

from __future__ import annotations

from tailrace.producer.model.codec import EventRows


def rows_from(rows: EventRows, first: int) -> EventRows:
    """Return the event's records without those of its first ``first`` rows; ``rows`` was encoded with keys."""
    if not first:
        return rows
    kept = [
        (record, owner - first) for record, owner in zip(rows.records, rows.row_index, strict=True) if owner >= first
    ]
    return EventRows([record for record, _ in kept], [owner for _, owner in kept], rows.keys[first:])
