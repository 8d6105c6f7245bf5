"""Prints what the producer generates, for people who debug it or add a column type."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

from tailrace.producer.app.connection_settings import mysql_source
from tailrace.producer.config import ProducerConfig
from tailrace.producer.model.table import TableId
from tailrace.producer.serialization.captured_tables import CapturedTables
from tailrace.producer.serialization.table_codec import TableCodec
from tailrace.runtime.errors import ConfigError


def codec_source(config: ProducerConfig, table: str) -> str:
    """Return the generated functions of a table of the source, given as ``db.table``; writes nothing anywhere.

    Raises ConfigError if the name has no database, SchemaError if there is no such table.
    """
    database, dot, name = table.partition(".")
    if not dot or not name:
        raise ConfigError([f"--table: {table!r} is not of the form db.table"])
    with closing(mysql_source(config).open_snapshot_session()) as session:
        # The schemas are not registered: their ids appear as 0.
        tables = CapturedTables(config, session.describe, lambda _side, _topic, _schema: 0)
        return render(tables.version_of(session.describe(TableId(database, name))).codec)


def render(codec: TableCodec) -> str:
    """Return the generated functions of a codec as text."""
    return "\n\n".join(_sections(codec)) + "\n"


def _sections(codec: TableCodec) -> Iterator[str]:
    yield f"# SELECT {codec.select_list}"
    for title, source in codec.generated_source().items():
        yield f"# ---- {title}\n\n{source.rstrip()}"
