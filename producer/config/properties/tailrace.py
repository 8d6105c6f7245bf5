"""Properties that only Tailrace knows."""

from __future__ import annotations

from typing import Final

from tailrace.producer.config.property import BOOLEAN, TEXT, Property, integer, one_of, supported

PROPERTIES: Final[tuple[Property, ...]] = (
    supported(
        "tailrace.commit.interval.ms",
        "batch.commit_interval_ms",
        integer(1, 60_000),
        "200",
        "Longest time a change of the log waits for its Kafka transaction to end, in ms.",
    ),
    supported(
        "tailrace.tables.without.key",
        "tables_without_key",
        one_of("refuse", "full-row"),
        "refuse",
        "A table without primary key and without unique key on columns that cannot be NULL: "
        "stop (refuse), or use every column as the key (full-row).",
    ),
    supported(
        "tailrace.tinyint.as.int8",
        "values.tinyint_as_int8",
        BOOLEAN,
        "false",
        "The type of a signed TINYINT in table schemas: INT8 as from Debezium 3.7, or INT16.",
    ),
    supported(
        "tailrace.http.port",
        "ops.http_port",
        integer(0, 65535),
        "0",
        "Port of /status, /metrics, /livez, /readyz; 0: none.",
    ),
    supported("tailrace.http.address", "ops.http_address", TEXT, "127.0.0.1", "Address on which that port is opened."),
    supported(
        "tailrace.log.format",
        "ops.log_format",
        one_of("auto", "json", "text"),
        "auto",
        "Form of the log on stderr; auto: text on a terminal, else JSON.",
    ),
    supported(
        "tailrace.log.level",
        "ops.log_level",
        one_of("debug", "info", "warning", "error"),
        "info",
        "Least level logged.",
    ),
)
