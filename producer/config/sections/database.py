"""The connection to the MySQL server."""

from __future__ import annotations

from dataclasses import replace
from typing import Final, Literal

from pydantic import SecretStr

from tailrace.producer.config.value_types import STATEMENTS
from tailrace.runtime.config.property import Property, ignored, rejected
from tailrace.runtime.config.section import Section, supported
from tailrace.runtime.config.value_types import BOOLEAN, SECRET, TEXT, integer, one_of

SslMode = Literal["disabled", "preferred", "required", "verify_ca", "verify_identity"]

_ONE_SERVER = "the producer reads the binlog of one server and stops with an error when it cannot continue"
_JAVA_DRIVER = "Tailrace does not use a Java driver"
_KEY_STORE = "Java key stores are not supported; set PEM files in database.ssl.ca, database.ssl.cert, database.ssl.key"
_HEARTBEAT = "the heartbeat events of the server reveal a lost connection"
_SERVER_VARIABLE = "the value of the server applies"
_NO_RETRY = "the process ends on an error; restart it with a supervisor such as systemd or Kubernetes"
_NO_SKIP = "the producer stops at such an event; it never skips one"


class DatabaseConfig(Section):
    """The connection to the MySQL server. ``ssl_*`` are paths of PEM files."""

    hostname: str = supported(
        "database.hostname", TEXT, required=True, doc="Host name or IP address of the MySQL server."
    )
    port: int = supported("database.port", integer(1, 65535), default="3306", doc="TCP port of the MySQL server.")
    user: str = supported("database.user", TEXT, required=True, doc="User for the connection to the MySQL server.")
    password: SecretStr = supported("database.password", SECRET, default="", doc="Password of that user.")
    server_id: int = supported(
        "database.server.id",
        integer(1, 2**32 - 1),
        required=True,
        doc="Server ID with which the producer registers as a replica. It must be unique in the MySQL cluster.",
    )
    ssl_mode: SslMode = supported(
        "database.ssl.mode",
        one_of(SslMode),
        default="preferred",
        doc="Encryption of the connection: none (disabled), if the server supports it (preferred), always (required), "
        "with a verified certificate of the server (verify_ca), with its host name verified too (verify_identity).",
    )
    ssl_ca: str | None = supported(
        "database.ssl.ca", TEXT, doc="PEM file with the certificates of trusted certificate authorities."
    )
    ssl_cert: str | None = supported("database.ssl.cert", TEXT, doc="PEM file with the certificate of the client.")
    ssl_key: str | None = supported("database.ssl.key", TEXT, doc="PEM file with the private key of the client.")
    insecure_authentication: bool = supported(
        "tailrace.database.insecure.authentication",
        BOOLEAN,
        default="false",
        doc="Whether the server may ask for the password in clear, or encrypted with a key that it sends itself, "
        "although its certificate is not verified.",
    )
    connect_timeout_ms: int = supported(
        "connect.timeout.ms", integer(1), default="30000", doc="Maximum time to wait for a connection, in ms."
    )
    query_timeout_ms: int = supported(
        "database.query.timeout.ms",
        integer(0),
        default="600000",
        doc="Maximum time to wait for the response to a query, in ms. 0 disables the timeout.",
    )
    failover_wait_ms: int = supported(
        "tailrace.failover.wait.ms",
        integer(0),
        default="300000",
        doc="Maximum time to wait at a start for transactions that were read before and that the server has not "
        "executed, such as a replica that still applies its relay log, in ms. The producer then ends with an error.",
    )
    xa_search_max_bytes: int = supported(
        "tailrace.xa.search.max.bytes",
        integer(0),
        default=str(10 << 30),
        doc="How many bytes of binlog before an XA COMMIT are searched for its XA PREPARE, if that precedes the first "
        "start of the producer. No change is written meanwhile. The producer then ends with an error.",
    )
    initial_statements: tuple[str, ...] = supported(
        "database.initial.statements",
        replace(STATEMENTS, secret=True),  # a statement may hold a password
        default="",
        doc="SQL statements to run when a session is opened. They are not run in the session that reads the binlog.",
    )


UNSUPPORTED: Final[tuple[Property, ...]] = (
    rejected("database.ssl.keystore", "Java key store of the client.", _KEY_STORE),
    rejected("database.ssl.keystore.password", "Password of the key store.", _KEY_STORE),
    rejected("database.ssl.truststore", "Java key store of trusted certificates.", _KEY_STORE),
    rejected("database.ssl.truststore.password", "Password of the trust store.", _KEY_STORE),
    ignored("connect.keep.alive", "Thread that restores a lost connection.", _HEARTBEAT),
    ignored("connect.keep.alive.interval.ms", "Interval of that thread.", _HEARTBEAT),
    ignored("binlog.net.read.timeout", "Session variable net_read_timeout.", _SERVER_VARIABLE),
    ignored("binlog.net.write.timeout", "Session variable net_write_timeout.", _SERVER_VARIABLE),
    ignored(
        "use.nongraceful.disconnect", "Close connections without waiting.", "connections are closed with a timeout"
    ),
    ignored("connection.validation.timeout.ms", "Timeout of connection checks.", "connect.timeout.ms applies"),
    ignored("database.jdbc.driver", "Class of the Java driver.", _JAVA_DRIVER),
    ignored("database.protocol", "Protocol of the Java driver.", _JAVA_DRIVER),
    ignored("database.server.id.offset", "Offset of a second server ID.", "the producer needs one server ID"),
    ignored("driver.*", "Options of the Java driver.", _JAVA_DRIVER),
    rejected(
        "database.connectionTimeZone",
        "Time zone in which TIMESTAMP values are read.",
        "every session uses UTC, so that TIMESTAMP values need no time zone",
        "utc",
        "server",
        "+00:00",
    ),
    ignored(
        "read.only",
        "Do not write to the database.",
        "Tailrace never writes to the database, except with heartbeat.action.query",
        no_op_values=("true",),
    ),
    rejected(
        "binlog.buffer.size",
        "Size of the look-ahead buffer for transactions that are rolled back.",
        "the producer stops at a transaction that is rolled back in the binlog",
        "0",
    ),
    rejected("gtid.source.includes", "UUIDs of the servers whose GTIDs are used.", _ONE_SERVER, ""),
    rejected("gtid.source.excludes", "UUIDs of the servers whose GTIDs are not used.", _ONE_SERVER, ""),
    rejected("gtid.source.filter.dml.events", "Drop the changes of other servers.", _ONE_SERVER, "true"),
    rejected("gtid.ignore.on.recovery", "Resume by file and position, without GTIDs.", _ONE_SERVER, "false"),
    rejected(
        "event.deserialization.failure.handling.mode",
        "How to handle a binlog event that cannot be decoded.",
        _NO_SKIP,
        "fail",
    ),
    rejected(
        "inconsistent.schema.handling.mode",
        "How to handle a row that does not match the definition of its table.",
        _NO_SKIP,
        "fail",
    ),
    ignored("errors.max.retries", "Number of restarts after an error.", _NO_RETRY),
    ignored("errors.retry.delay.initial.ms", "Delay before the first restart.", _NO_RETRY),
    ignored("errors.retry.delay.max.ms", "Maximum delay before a restart.", _NO_RETRY),
    ignored("retriable.restart.connector.wait.ms", "Delay before a restart.", _NO_RETRY),
    ignored("ddl.parser.type", "Parser of DDL statements.", "the binlog describes each version of a table"),
    ignored("query.fetch.size", "Number of rows fetched at once.", "rows are streamed"),
    ignored(
        "streaming.delay.ms",
        "Delay between snapshot and streaming.",
        "the binlog is read from the beginning of the snapshot",
        no_op_values=("0",),
    ),
    ignored("database.dbname", "Name of the database.", "a MySQL connection can read all databases"),
    rejected("database.*", "Other options of the Java driver.", _JAVA_DRIVER),
)
