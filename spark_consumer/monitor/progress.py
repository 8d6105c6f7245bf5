"""What Spark's progress report of a streaming query says about its topics."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

Offsets = Mapping[str, Mapping[str, Any]]
"""Topic to partition to offset, as Spark reports them."""


def reported_offsets(report: Mapping[str, Any]) -> tuple[Offsets, Offsets]:
    """Return the offsets at which the last batch ended, and those at which the topics ended when it was planned.

    ``report`` is Spark's ``StreamingQueryProgress``, read from its JSON. The attributes of Python's object cannot be
    used: there the offsets are the text of a dict, which is not JSON. Empty if Spark has not reported them.
    """
    [source] = report["sources"]
    return source.get("endOffset") or {}, source.get("latestOffset") or {}


def offsets_between(starts: Mapping[str, Any], ends: Mapping[str, Any]) -> int:
    """Return the number of offsets from ``starts`` to ``ends`` of a topic; a partition without a start begins at 0."""
    return sum(max(0, int(end) - max(0, int(starts.get(name, 0)))) for name, end in ends.items())
