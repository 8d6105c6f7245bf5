"""The settings of the Delta sink."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tailrace.runtime.config.section import supported
from tailrace.runtime.config.value_types import BOOLEAN, DIRECTORY, integer
from tailrace.spark_consumer.sink.table_names import TABLE_NAME
from tailrace.spark_consumer.sink.table_options import TableOptions

if TYPE_CHECKING:
    from tailrace.runtime.config.draft import Draft


class DeltaOptions(TableOptions):
    """Settings of the Delta sink."""

    path: str | None = supported(
        "sink.path",
        DIRECTORY,
        default_note="required without sink.table",
        doc="Directory of the tables; a table is at <path>/<database>/<table>, with special characters as %XX.",
    )
    table: str | None = supported(
        "sink.table",
        TABLE_NAME,
        doc="Name of the tables in a catalog, instead of sink.path, such as main.shop.{table} or "
        "main.{database}.{table}; other characters than letters, digits and _ in a name are written as _xXX. A missing "
        "schema is created.",
    )
    purge_percent: int = supported(
        "sink.purge.percent",
        integer(0),
        default="20",
        doc="Rows that deletion vectors mark as deleted, as a percentage of the rows of the table, from which OPTIMIZE "
        "is followed by REORG TABLE … APPLY (PURGE): it rewrites the files that have deletion vectors. 0: never.",
    )
    vacuum: bool = supported(
        "sink.vacuum",
        BOOLEAN,
        default="true",
        doc="Whether the query runs VACUUM when a table is due for OPTIMIZE, at most once a day in a run. It removes "
        "files that no version younger than the table property delta.deletedFileRetentionDuration (7 days) needs.",
    )


def check_location(draft: Draft) -> None:
    """Report a missing location of the tables, or two of them."""
    given = [name for name in ("sink.path", "sink.table") if draft.is_set(name)]
    if not given:
        draft.problems.append("sink.path is missing: the directory of the tables; or set sink.table")
    if len(given) > 1:
        draft.problems.append("sink.table: sink.path is set too; use one of them")
