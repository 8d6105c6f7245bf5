"""The record header that completes a row's place in the log."""

from __future__ import annotations

from tailrace.schemas.names import EVENT_HEADER


def event_header(epoch: int, event: int) -> tuple[str, bytes]:
    """Return the header with the parts of a row's sequence that ``source`` lacks; runs once for each rows event."""
    return EVENT_HEADER, b"%d.%d" % (epoch, event)
