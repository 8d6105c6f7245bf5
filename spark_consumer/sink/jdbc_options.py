"""The settings of the JDBC sink, named as the options of Spark's JDBC writer where it has them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

import structlog
from pydantic import SecretStr

from tailrace.runtime.config.section import prefixed, supported
from tailrace.runtime.config.value_types import SECRET, TEXT, ValueType, integer
from tailrace.runtime.errors import ConfigError
from tailrace.spark_consumer.sink.jdbc_dialect import load_dialect
from tailrace.spark_consumer.sink.shape import SchemaChangeOptions, ShapeOptions

if TYPE_CHECKING:
    from tailrace.runtime.config.draft import Draft
    from tailrace.spark_consumer.sink.jdbc_dialect import Dialect

log = structlog.get_logger(__name__)

_SECRET_IN_URL: Final = re.compile(
    r"password|[?&;][^=?&;]*(?:passw|pwd|secret|token|credential|access_?key|api_?key)[^=?&;]*="
    r"|://[^/?]*:[^/@?]*@|:[^/:@?]+/[^@?]*@",
    re.IGNORECASE,
)
"""Also of databases without a dialect here: ``oracle:thin:user/password@``."""
_HOSTS: Final = re.compile(r"jdbc:[\w:+]*//([^/?;]*)")
_LOCAL: Final = re.compile(r"(?:[^@]*@)?(?:localhost|127\.[0-9.]+|\[::1\])?(?::\d+)?", re.IGNORECASE)
_TLS: Final = r"ssl|sslmode|usessl|requiressl"
_TLS_IN_URL: Final = re.compile(rf"[?&;(,](?:{_TLS})=([^&;,)]*)", re.IGNORECASE)
_VERIFIED: Final = re.compile(r"verify.*|true", re.IGNORECASE)
PLACEHOLDER: Final = re.compile(r"\{(database|table)\}")
"""What stands for a name in ``sink.table``. All are replaced at once: a name may have braces."""
_PART: Final = re.compile(r"(?:[^.{}]|\{database\}|\{table\})+")


def _read_template(text: str) -> str:
    template = text.strip()
    parts = template.split(".")
    if "{table}" not in parts[-1] or len(parts) > 2 or not all(_PART.fullmatch(part) for part in parts):
        raise ValueError
    return template


TEMPLATE: Final = ValueType("a name such as shop.{table}, with {table} after the dot", _read_template)
"""The template of ``sink.table``."""


class JdbcOptions(SchemaChangeOptions, ShapeOptions):
    """Settings of the JDBC sink."""

    url: str = supported(
        "sink.url", TEXT, required=True, doc="JDBC URL of the database, such as jdbc:postgresql://host/db."
    )
    user: str | None = supported("sink.user", TEXT, doc="User of the database.")
    password: SecretStr | None = supported("sink.password", SECRET, doc="Password of the user.")
    table: str = supported(
        "sink.table",
        TEMPLATE,
        default="{database}.{table}",
        doc="Names of the tables; without a dot, in the schema of the connection.",
    )
    batch_size: int = supported(
        "sink.batchsize", integer(1), default="1000", doc="Rows that an executor sends at a time."
    )
    partitions: int = supported(
        "sink.numPartitions",
        integer(1),
        default="8",
        doc="Most connections of the executors for one table.",
    )
    properties: Mapping[str, SecretStr] = prefixed(
        "sink.properties.*", SECRET, doc="Connection properties of the JDBC driver, such as sslmode."
    )


def check_url(draft: Draft) -> None:
    """Report a URL without a dialect, or with a password, which logs and Spark's pages would show."""
    if not draft.is_set("sink.url"):
        return
    url = draft.settings["sink.url"].value.strip()
    if _SECRET_IN_URL.search(url):
        draft.problems.append("sink.url has a password; use sink.password, and sink.properties.* for other secrets")
        return
    try:
        load_dialect(url)
    except ConfigError as error:
        draft.problems += error.problems


def connection_properties(options: JdbcOptions, dialect: Dialect) -> dict[str, str]:
    """Return the connection properties, and warn of a server that is not verified.

    A driver gives the password to any server that answers, in clear if asked. So one on another host has to prove that
    it is the one of the URL, unless the configuration says otherwise.
    """
    found = dict(dialect.properties)
    if options.user is not None:
        found["user"] = options.user
    if options.password is not None:
        found["password"] = options.password.get_secret_value()
    given = {name: value.get_secret_value() for name, value in options.properties.items()}
    modes = [value for name, value in given.items() if re.fullmatch(_TLS, name, re.IGNORECASE)]
    modes += _TLS_IN_URL.findall(options.url)
    hosts = _HOSTS.match(options.url)
    is_local = hosts is None or all(_LOCAL.fullmatch(host) for host in hosts[1].split(","))
    if not is_local and not modes:
        found |= dialect.verified
    elif not is_local and not any(map(_VERIFIED.fullmatch, modes)):
        log.warning(
            "the server of the target is not verified: another one could take the password and the rows",
            given=modes,
            hint=", ".join(f"set sink.properties.{name}={value}" for name, value in dialect.verified.items()),
        )
    return found | given
