"""The connection to the MySQL server."""

from __future__ import annotations

from dataclasses import replace
from typing import Final, Literal

from pydantic import SecretStr

from tailrace.producer.config.value_types import COMMAND, STATEMENTS
from tailrace.runtime.config.property import Property, ignored, rejected
from tailrace.runtime.config.section import Section, supported
from tailrace.runtime.config.value_types import BOOLEAN, SECRET, TEXT, integer, one_of

Connector = Literal["mysql", "mariadb"]
_TLS_FILES: Final = "PEM files: the trusted certificate authorities, the client's certificate, its private key."
_CONNECTOR_CLASSES: Final = {
    "io.debezium.connector.mysql.mysqlconnector": "mysql",
    "io.debezium.connector.mariadb.mariadbconnector": "mariadb",
}
SslMode = Literal["disabled", "preferred", "required", "verify_ca", "verify_identity"]

_ONE_SERVER = "the producer reads the binlog of one server and stops with an error when it cannot continue"
_JAVA_DRIVER = "Tailrace does not use a Java driver"


class DatabaseConfig(Section):
    """The connection to the MySQL server. ``ssl_*`` are paths of PEM files."""

    connector: Connector = supported(
        "connector.class",
        one_of(Connector, renamed=_CONNECTOR_CLASSES),
        default="mysql",
        doc="mysql, mariadb, or the class of Debezium's connector for it.",
    )
    hostname: str = supported("database.hostname", TEXT, required=True, doc="Host name or IP address of the server.")
    port: int = supported("database.port", integer(1, 65535), default="3306", doc="Its port.")
    user: str = supported("database.user", TEXT, required=True, doc="User of the producer.")
    password: SecretStr = supported("database.password", SECRET, default="", doc="Password of that user.")
    password_command: SecretStr = supported(
        "database.password.command",
        COMMAND,
        default="",
        doc="Command whose output is the password, such as a token of a cloud. It is run without a shell, for "
        "each connection, within `connect.timeout.ms`.",
    )
    server_id: int = supported(
        "database.server.id",
        integer(1, 2**32 - 1),
        required=True,
        doc="Server ID of the producer, unique in the MySQL cluster.",
    )
    ssl_mode: SslMode = supported(
        "database.ssl.mode",
        one_of(SslMode),
        default="preferred",
        doc="TLS: never (disabled), if the server supports it (preferred), always (required), with a verified "
        "certificate (verify_ca), and host name (verify_identity).",
    )
    ssl_ca: str | None = supported(
        "database.ssl.ca",
        TEXT,
        doc=_TLS_FILES,
    )
    ssl_cert: str | None = supported(
        "database.ssl.cert",
        TEXT,
        doc=_TLS_FILES,
    )
    ssl_key: str | None = supported(
        "database.ssl.key",
        TEXT,
        doc=_TLS_FILES,
    )
    insecure_authentication: bool = supported(
        "tailrace.database.insecure.authentication",
        BOOLEAN,
        default="false",
        doc="Whether the password may be sent in clear, or under a key of the server, to a server whose "
        "certificate is not verified.",
    )
    connect_timeout_ms: int = supported(
        "connect.timeout.ms", integer(1), default="30000", doc="Longest wait for a connection."
    )
    query_timeout_ms: int = supported(
        "database.query.timeout.ms",
        integer(0),
        default="600000",
        doc="Longest wait for the response to a query; 0: no limit.",
    )
    failover_wait_ms: int = supported(
        "tailrace.failover.wait.ms",
        integer(0),
        default="300000",
        doc="Longest wait at a start for transactions that were read and that the server lacks, as a replica may.",
    )
    xa_search_max_bytes: int = supported(
        "tailrace.xa.search.max.bytes",
        integer(0),
        default=str(10 << 30),
        doc="Bytes of binlog before an XA COMMIT that are searched for an XA PREPARE from before the first start.",
    )
    log_watch_interval_ms: int = supported(
        "tailrace.binlog.watch.interval.ms",
        integer(0),
        default="60000",
        doc="Interval at which the distance of the stored position to the end of the binlog, and to its purge, is "
        "measured; 0: never.",
    )
    initial_statements: tuple[str, ...] = supported(
        "database.initial.statements",
        replace(STATEMENTS, secret=True),  # a statement may hold a password
        default="",
        doc="SQL statements for each new session except that of the binlog, separated by `;`; `;;` is a semicolon. "
        "Time zone, SQL mode, character set and what else values depend on are set after them.",
    )


UNSUPPORTED: Final[tuple[Property, ...]] = (
    *rejected(
        "Java key stores are not supported; set PEM files in database.ssl.ca, database.ssl.cert, database.ssl.key",
        "database.ssl.keystore",
        "database.ssl.keystore.password",
        "database.ssl.truststore",
        "database.ssl.truststore.password",
    ),
    *ignored(
        "the heartbeat events of the server reveal a lost connection",
        "connect.keep.alive",
        "connect.keep.alive.interval.ms",
    ),
    *ignored("the value of the server applies", "binlog.net.read.timeout", "binlog.net.write.timeout"),
    *ignored("connections are closed with a timeout", "use.nongraceful.disconnect"),
    *ignored("connect.timeout.ms applies", "connection.validation.timeout.ms"),
    *ignored(_JAVA_DRIVER, "database.jdbc.driver", "database.protocol", "driver.*"),
    *ignored("the producer needs one server ID", "database.server.id.offset"),
    *rejected(
        "every session uses UTC, so that TIMESTAMP values need no time zone",
        "database.connectionTimeZone",
        no_op_values=("utc", "server", "+00:00"),
    ),
    *ignored(
        "Tailrace never writes to the database, except with heartbeat.action.query", "read.only", no_op_values=("true",)
    ),
    *rejected(
        "the producer stops at a transaction that is rolled back in the binlog",
        "binlog.buffer.size",
        no_op_values=("0",),
    ),
    *rejected(_ONE_SERVER, "gtid.source.includes", "gtid.source.excludes", no_op_values=("",)),
    *rejected(_ONE_SERVER, "gtid.source.filter.dml.events", no_op_values=("true",)),
    *rejected(_ONE_SERVER, "gtid.ignore.on.recovery", no_op_values=("false",)),
    *rejected(
        "the producer stops at such an event; it never skips one",
        "event.deserialization.failure.handling.mode",
        "inconsistent.schema.handling.mode",
        no_op_values=("fail",),
    ),
    *ignored(
        "the process ends on an error; restart it with a supervisor such as systemd or Kubernetes",
        "errors.max.retries",
        "errors.retry.delay.initial.ms",
        "errors.retry.delay.max.ms",
        "retriable.restart.connector.wait.ms",
    ),
    *ignored("the binlog describes each version of a table", "ddl.parser.type"),
    *ignored("rows are streamed", "query.fetch.size"),
    *ignored("the binlog is read from the beginning of the snapshot", "streaming.delay.ms", no_op_values=("0",)),
    *ignored("a MySQL connection can read all databases", "database.dbname"),
    *rejected(_JAVA_DRIVER, "database.*"),
)
