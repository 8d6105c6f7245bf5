"""What ``tailrace status`` shows of a query."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from tailrace.runtime.status_report import ProgramReport, TableReport, duration, in_seconds, last_error


def report(status: Mapping[str, Any]) -> ProgramReport:
    """Return the report on a /status of ``Status.as_dict``."""
    ended_at, running_s = status["last_batch_at"], status["running_batch_seconds"]
    facts = {
        "sink": status["sink"],
        "lag": duration(in_seconds(status["lag_ms"])),
        "last batch": ""
        if ended_at is None
        else f"{status['batch']}, {duration(max(0.0, time.time() - ended_at))} ago, "
        f"took {duration(status['last_batch_seconds'])}",
        "this batch": f"runs for {duration(running_s)}" if running_s else "",
        "last error": last_error(status["last_error"]),
    }
    return ProgramReport(
        state=status["state"],
        is_ready=status["state"] == "running",
        facts={name: text for name, text in facts.items() if text},
        headings=("TOPIC", "STATE", "SPLITS", "RECORDS", "OFFSETS BEHIND", "LAG"),
        tables=[_table(topic, table) for topic, table in status["tables"].items()],
    )


def _table(topic: str, table: Mapping[str, Any]) -> TableReport:
    parked, splits = table.get("parked"), table["splits"]
    behind = table["offsets_behind"]
    return TableReport(
        cells=(
            topic,
            table["state"],
            f"{splits['done']:,}/{splits['expected']:,}" if splits["expected"] else "",
            f"{table['records_applied']:,}",
            "?" if behind is None else f"{behind:,}",
            duration(in_seconds(table["lag_ms"])),
        ),
        faulty=parked is not None,
        reason="" if parked is None else _reason(parked),
        remedy="" if parked is None else parked["hint"],
    )


def _reason(parked: Mapping[str, Any]) -> str:
    details = "".join(f"; {name}: {value}" for name, value in parked["details"].items())
    starts = parked["starts"].items()
    at = ", ".join(f"partition {number}: {'beginning' if offset < 0 else offset}" for number, offset in starts)
    return f"{parked['reason']}{details}; it goes on at {at or 'the beginning of its topic'}"
