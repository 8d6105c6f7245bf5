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
