"""Properties that only Tailrace knows."""

from __future__ import annotations

from typing import Final

from producer.config.property import BOOLEAN, TEXT, Property, honoured, one_of, whole

PROPERTIES: Final[tuple[Property, ...]] = (
    honoured(
        "tailrace.commit.interval.ms",
        "batch.commit_interval_ms",
        whole(1, 60_000),
        "200",
        "Longest time a change of the log waits for its Kafka transaction to end, in ms.",
    ),
    honoured(
        "tailrace.tables.without.key",
        "tables_without_key",
        one_of("refuse", "full-row"),
        "refuse",
        "A table without primary key and without unique key on columns that cannot be NULL: "
        "stop (refuse), or use every column as the key (full-row).",
    ),
    honoured(
        "tailrace.tinyint.as.int8",
        "values.tinyint_as_int8",
        BOOLEAN,
        "false",
        "The type of a signed TINYINT in table schemas: INT8 as from Debezium 3.7, or INT16.",
    ),
    honoured(
        "tailrace.http.port",
        "ops.http_port",
        whole(0, 65535),
        "0",
        "Port of /status, /metrics, /livez, /readyz; 0: none.",
    ),
    honoured("tailrace.http.address", "ops.http_address", TEXT, "127.0.0.1", "Address on which that port is opened."),
    honoured(
        "tailrace.log.format",
        "ops.log_format",
        one_of("auto", "json", "text"),
        "auto",
        "Form of the log on stderr; auto: text on a terminal, else JSON.",
    ),
    honoured(
        "tailrace.log.level",
        "ops.log_level",
        one_of("debug", "info", "warning", "error"),
        "info",
        "Least level logged.",
    ),
)
