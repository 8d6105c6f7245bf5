"""The settings of the JDBC sink, named as the options of Spark's JDBC writer where it has them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from pydantic import SecretStr

from tailrace.runtime.config.section import prefixed, supported
from tailrace.runtime.config.value_types import SECRET, TEXT, ValueType, integer
from tailrace.runtime.errors import ConfigError
from tailrace.spark_consumer.sink.jdbc_dialect import load_dialect
from tailrace.spark_consumer.sink.shape import ShapeOptions
from tailrace.spark_consumer.sink.table_options import SchemaChangeOptions

if TYPE_CHECKING:
    from tailrace.runtime.config.draft import Draft

_SECRET_IN_URL: Final = re.compile(r"password|://[^/?]*:[^/@?]*@", re.IGNORECASE)
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
        doc="Name of the tables, with {database} and {table}; without a dot, tables of the schema of the connection. A "
        "missing schema is created.",
    )
    batch_size: int = supported(
        "sink.batchsize", integer(1), default="1000", doc="Rows that an executor sends at a time."
    )
    partitions: int = supported(
        "sink.numPartitions",
        integer(1),
        default="8",
        doc="Connections of the executors for one table, at most.",
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
        draft.problems.append("sink.url has a password; use sink.password")
        return
    try:
        load_dialect(url)
    except ConfigError as error:
        draft.problems += error.problems
