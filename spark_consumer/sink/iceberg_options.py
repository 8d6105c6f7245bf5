"""The settings of the Iceberg sink."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tailrace.runtime.config.section import supported
from tailrace.runtime.config.value_types import BOOLEAN, integer
from tailrace.spark_consumer.sink.table_names import TABLE_NAME
from tailrace.spark_consumer.sink.table_options import TableOptions

if TYPE_CHECKING:
    from tailrace.runtime.config.draft import Draft


class IcebergOptions(TableOptions):
    """Settings of the Iceberg sink."""

    table: str = supported(
        "sink.table",
        TABLE_NAME,
        required=True,
        doc="Name of the tables, as catalog.schema.{table} or catalog.{database}.{table}; other characters than "
        "letters, digits and _ in a name are written as _xXX. A missing schema is created.",
    )
    rewrite_percent: int = supported(
        "sink.purge.percent",
        integer(0),
        default="20",
        doc="Deleted rows of a file, as a percentage of its rows, from which a compaction rewrites it. 0: never.",
    )
    expire_snapshots: bool = supported(
        "sink.expire.snapshots",
        BOOLEAN,
        default="true",
        doc="Whether a compaction also removes snapshots that are older than the table property "
        "history.expire.max-snapshot-age-ms (5 days).",
    )


def check_table(draft: Draft) -> None:
    """Report a name of the tables without a catalog."""
    if draft.is_set("sink.table") and draft.settings["sink.table"].value.count(".") < 2:
        draft.problems.append("sink.table: a name such as catalog.schema.{table} is needed, with the catalog of Spark")
