"""The process: HTTP port and log."""

from __future__ import annotations

from tailrace.runtime.config.section import Section, supported
from tailrace.runtime.config.value_types import TEXT, integer, one_of
from tailrace.runtime.logging import LogFormat, LogLevel


class OpsConfig(Section):
    """How the process can be observed."""

    http_port: int = supported(
        "tailrace.http.port",
        integer(0, 65535),
        default="0",
        doc="Port of /status, /metrics, /livez and /readyz; 0: none.",
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
