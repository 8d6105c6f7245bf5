"""Properties of the connection to the source database and of following its log."""

from __future__ import annotations

from typing import Final

from tailrace.producer.config.property import (
    ANY,
    STATEMENTS,
    TEXT,
    Property,
    ignored,
    integer,
    one_of,
    rejected,
    supported,
)

_ONE_LOG = "the log reader follows one server's log and stops with a clear error where it cannot"
_JVM = "it configures a part of the Java connector"
_KEYSTORE = "Java key stores cannot be read; give PEM files with database.ssl.ca, database.ssl.cert, database.ssl.key"

PROPERTIES: Final[tuple[Property, ...]] = (
    supported(
        "database.hostname", "database.hostname", TEXT, None, "Host name or address of the server.", required=True
    ),
    supported("database.port", "database.port", integer(1, 65535), "3306", "TCP port of the server."),
    supported("database.user", "database.user", TEXT, None, "User to log in as.", required=True),
    supported("database.password", "database.password", ANY, "", "Password of the user.", secret=True),
    supported(
        "database.server.id",
        "database.server_id",
        integer(1, 2**32 - 1),
        None,
        "Number by which the producer registers as a replica; unique among the servers and replicas of the cluster.",
        required=True,
    ),
    supported(
        "database.ssl.mode",
        "database.ssl_mode",
        one_of("disabled", "preferred", "required", "verify_ca", "verify_identity"),
        "preferred",
        "Encryption of the connection, and how much of the server's certificate is checked.",
    ),
    supported("database.ssl.ca", "database.ssl_ca", TEXT, None, "PEM file of trusted certificate authorities."),
    supported("database.ssl.cert", "database.ssl_cert", TEXT, None, "PEM file of the client's certificate."),
    supported("database.ssl.key", "database.ssl_key", TEXT, None, "PEM file of the client's private key."),
    rejected("database.ssl.keystore", "Java key store of the client.", _KEYSTORE),
    rejected("database.ssl.keystore.password", "Password of the key store.", _KEYSTORE, secret=True),
    rejected("database.ssl.truststore", "Java key store of trusted certificates.", _KEYSTORE),
    rejected("database.ssl.truststore.password", "Password of the trust store.", _KEYSTORE, secret=True),
    supported(
        "connect.timeout.ms", "database.connect_timeout_ms", integer(1), "30000", "Wait for a connection, in ms."
    ),
    supported(
        "database.query.timeout.ms",
        "database.query_timeout_ms",
        integer(0),
        "600000",
        "Wait for the answer to one query, in ms; 0 waits for ever.",
    ),
    supported(
        "database.initial.statements",
        "database.initial_statements",
        STATEMENTS,
        "",
        "SQL run in every session that is opened, but not in the log reader's.",
    ),
    ignored(
        "connect.keep.alive", "A thread that re-connects.", "a silent connection is found by the server's heartbeat"
    ),
    ignored(
        "connect.keep.alive.interval.ms", "Its interval.", "a silent connection is found by the server's heartbeat"
    ),
    ignored("binlog.net.read.timeout", "Session variable net_read_timeout.", "the server's own setting holds"),
    ignored("binlog.net.write.timeout", "Session variable net_write_timeout.", "the server's own setting holds"),
    ignored("use.nongraceful.disconnect", "Close without goodbye.", "connections are always closed with a deadline"),
    ignored("connection.validation.timeout.ms", "Wait for a connection check.", "connect.timeout.ms holds for it"),
    ignored("database.jdbc.driver", "Java driver class.", _JVM),
    ignored("database.protocol", "Java driver's protocol.", _JVM),
    ignored("database.server.id.offset", "Distance of a second server id.", "one log reader needs one id"),
    ignored("driver.*", "Settings of the Java driver.", _JVM),
    rejected(
        "database.connectionTimeZone",
        "Zone in which the server's TIMESTAMP values are read.",
        "every session runs in UTC, so that TIMESTAMP values need no zone",
        "utc",
        "server",
        "+00:00",
    ),
    ignored("read.only", "Write nothing to the source.", "nothing is ever written to the source", harmless=("true",)),
    rejected(
        "binlog.buffer.size",
        "Look-ahead for transactions that are rolled back.",
        "a rolled-back transaction in the log stops the producer",
        "0",
    ),
    rejected("gtid.source.includes", "Servers whose GTIDs count, by UUID.", _ONE_LOG, ""),
    rejected("gtid.source.excludes", "Servers whose GTIDs do not count, by UUID.", _ONE_LOG, ""),
    rejected("gtid.source.filter.dml.events", "Drop changes of servers left out.", _ONE_LOG, "true"),
    rejected("gtid.ignore.on.recovery", "Resume by file and offset although GTIDs are there.", _ONE_LOG, "false"),
    rejected(
        "event.deserialization.failure.handling.mode",
        "What to do with an event that cannot be decoded.",
        "such an event stops the producer; none is ever skipped",
        "fail",
    ),
    rejected(
        "event.processing.failure.handling.mode",
        "What to do with an event that fails.",
        "such an event stops the producer; none is ever skipped",
        "fail",
    ),
    rejected(
        "inconsistent.schema.handling.mode",
        "What to do with a row that does not fit its table's definition.",
        "such a row stops the producer; none is ever skipped",
        "fail",
    ),
    ignored(
        "errors.max.retries", "Restarts after an error that may pass.", "the process ends; its supervisor restarts it"
    ),
    ignored(
        "errors.retry.delay.initial.ms", "First wait before a restart.", "the process ends; its supervisor restarts it"
    ),
    ignored(
        "errors.retry.delay.max.ms", "Longest wait before a restart.", "the process ends; its supervisor restarts it"
    ),
    ignored(
        "retriable.restart.connector.wait.ms", "Wait before a restart.", "the process ends; its supervisor restarts it"
    ),
    ignored("ddl.parser.type", "Which grammar reads DDL.", "tables are described by the log itself, not by parsed DDL"),
    ignored("query.fetch.size", "Rows fetched at once.", "rows are taken as they arrive"),
    ignored(
        "streaming.delay.ms",
        "Wait between snapshot and log.",
        "the log is followed from the first second",
        harmless=("0",),
    ),
    ignored("database.dbname", "Name of the one database.", "MySQL connections see every database"),
    rejected(
        "database.*", "A setting handed to the Java driver.", "there is no Java driver; look whether it is misspelt"
    ),
)
