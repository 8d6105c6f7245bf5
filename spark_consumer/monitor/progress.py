"""What Spark's progress report of a streaming query says about its topics."""

from __future__ import annotations

import json
from typing import Any


def offsets_behind(end: str | None, latest: str | None) -> dict[str, int]:
    """Return, per topic, the offsets between the end of the last batch and the end of the topic.

    Both are offsets in Spark's JSON. ``latest`` is None if Spark has not reported it.
    """
    ends: dict[str, dict[str, Any]] = json.loads(end or "{}") or {}
    latests: dict[str, dict[str, Any]] = json.loads(latest or "{}") or {}
    return {
        topic: sum(max(0, int(offset) - int(ends.get(topic, {}).get(name, 0))) for name, offset in partitions.items())
        for topic, partitions in latests.items()
    }
