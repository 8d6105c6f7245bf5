"""What Spark's progress report of a streaming query says about its topics."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def offsets_behind(report: Mapping[str, Any]) -> dict[str, int]:
    """Return, per topic, the offsets between the end of the last batch and the end of the topic.

    ``report`` is Spark's ``StreamingQueryProgress``, read from its JSON. The attributes of Python's object cannot be
    used: there the offsets are the text of a dict, which is not JSON. Empty if Spark has not reported the end.
    """
    [source] = report["sources"]
    ends: Mapping[str, Mapping[str, Any]] = source.get("endOffset") or {}
    latests: Mapping[str, Mapping[str, Any]] = source.get("latestOffset") or {}
    return {
        topic: sum(max(0, int(offset) - int(ends.get(topic, {}).get(name, 0))) for name, offset in partitions.items())
        for topic, partitions in latests.items()
    }
