"""The process: its start and end, HTTP port and log."""

from __future__ import annotations

from datetime import datetime

from tailrace.producer.config.value_types import POSITION, START
from tailrace.runtime.config.section import Section, supported
from tailrace.runtime.config.value_types import TEXT, integer, one_of
from tailrace.runtime.logging import LogFormat, LogLevel


class OpsConfig(Section):
    """Where the stream begins and ends, and how it can be observed."""

    start_at: str | None = supported(
        "tailrace.start.at",
        START,
        doc="Where the first start of a prefix begins, for tables that no snapshot reads (`snapshot.mode=no_data`): "
        "`earliest`, the oldest binlog that the source has; a GTID set, behind it; of a MySQL server without GTIDs a "
        "file and position. Otherwise at the end of the binlog. Later starts resume.",
    )
    stop_at: str | datetime | None = supported(
        "tailrace.stop.at",
        POSITION,
        doc="Where the producer ends: a file and position (`bin.000003:4711`), a GTID set, a time "
        "(`2026-01-31T06:00:00Z`, not ahead of the source), or `latest`, the end of the binlog at the start. "
        "Not written is what begins at the position or later, follows the set, or was committed at the time "
        "or later. An initial snapshot is completed first.",
    )
    http_port: int = supported(
        "tailrace.http.port",
        integer(0, 65535),
        default="0",
        doc="Port of /status, /metrics, /livez, /readyz; 0: none.",
    )
    http_address: str = supported(
        "tailrace.http.address", TEXT, default="127.0.0.1", doc="Address on which that port listens."
    )
    log_format: LogFormat = supported(
        "tailrace.log.format",
        one_of(LogFormat),
        default="auto",
        doc="Log on stderr as json or text; auto: text on a terminal, otherwise JSON.",
    )
    log_level: LogLevel = supported(
        "tailrace.log.level",
        one_of(LogLevel),
        default="info",
        doc="Least level that is logged: debug, info, warning or error.",
    )
