"""What ``tailrace status`` shows of a producer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tailrace.producer.model.table_mode import TableMode
from tailrace.producer.ops.status import FAULT_REMEDY, Phase
from tailrace.runtime.status_report import ProgramReport, TableReport, duration, in_seconds, last_error


def report(status: Mapping[str, Any]) -> ProgramReport:
    """Return the report on a /status of ``Status.snapshot``."""
    stream = status["stream"]
    facts = {
        "position": f"{stream['file']}:{stream['pos']}" + (f", GTIDs {stream['gtids']}" if stream["gtids"] else ""),
        "lag": f"{duration(in_seconds(stream['lag_ms']))}; {_behind(stream)} of binlog behind",
        "last event": f"{duration(in_seconds(stream['idle_ms']))} ago, heartbeats included",
        "until purge": duration(stream["purge_left_s"]),
        "held by": f"{stream['held_by']}, for {duration(in_seconds(stream['held_ms']))}" if stream["held_by"] else "",
        "snapshots": _snapshots(status["signals"]),
        "last error": last_error(status["last_error"]),
    }
    words = [
        status["phase"],
        *([] if status["connected"] else ["not connected"]),
        *([] if status["live"] else ["hangs"]),
    ]
    return ProgramReport(
        state=f"{', '.join(words)}, for {duration(in_seconds(status['uptime_ms']))}",
        is_ready=status["connected"] and status["live"] and status["phase"] in {Phase.SNAPSHOT, Phase.STREAMING},
        facts={name: text for name, text in facts.items() if text},
        headings=("TABLE", "STATE", "SPLITS", "ROWS READ", "RECORDS"),
        tables=[_table(name, table) for name, table in status["tables"].items()],
    )


def _snapshots(signals: Mapping[str, Any]) -> str:
    pending = signals.get("pending", 0)
    return f"{pending:,} incremental pending{', paused' if signals['paused'] else ''}" if pending else ""


def _behind(stream: Mapping[str, Any]) -> str:
    return "?" if stream["log_bytes_behind"] is None else f"{stream['log_bytes_behind'] / 1_000_000:,.1f} MB"


def _table(name: str, table: Mapping[str, Any]) -> TableReport:
    faulty = table["mode"] == TableMode.ERROR
    read = table["mode"] not in {TableMode.STREAMING, TableMode.ERROR}
    at = ", ".join(f"{key} {value}" for key, value in table["failed_at"].items())
    return TableReport(
        cells=(
            name,
            table["mode"],
            f"{table['splits_done']:,}/{table['splits_planned']:,}" if table["splits_planned"] else "",
            f"{table['rows_read']:,}" + (f" of about {table['rows_estimated']:,}" if read else ""),
            f"{table['records']:,}",
        ),
        faulty=faulty,
        reason=(table["error"] + (f" (first change: {at})" if at else "")) if faulty else table["put_off"],
        remedy=FAULT_REMEDY if faulty else "",
    )
