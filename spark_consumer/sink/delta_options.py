"""The settings of the Delta sink."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from tailrace.runtime.config.section import Section, prefixed, supported
from tailrace.runtime.config.value_types import ANY_TEXT, TEXT, integer, one_of, set_of
from tailrace.spark_consumer.evolution.policy import CHANGE_NAMES, Behavior
from tailrace.spark_consumer.sink.table_names import TABLE_NAME

if TYPE_CHECKING:
    from tailrace.runtime.config.draft import Draft


class DeltaOptions(Section):
    """Settings of the Delta sink."""

    path: str | None = supported(
        "sink.path",
        TEXT,
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
    table_properties: Mapping[str, str] = prefixed(
        "sink.properties.*", ANY_TEXT, doc="Table properties of new tables, such as delta.logRetentionDuration."
    )

    optimize_batches: int = supported(
        "sink.optimize.batches",
        integer(0),
        default="100",
        doc="After how many batches with changes of a table the query runs OPTIMIZE for it. 0: never.",
    )
    purge_percent: int = supported(
        "sink.purge.percent",
        integer(0),
        default="20",
        doc="Updates and deletes since the last purge, as a percentage of the rows of the table, from which OPTIMIZE "
        "is followed by REORG TABLE … APPLY (PURGE): it rewrites the files that have deletion vectors. 0: never.",
    )
    schema_change_behavior: Behavior = supported(
        "schema.change.behavior",
        one_of(Behavior),
        default="lenient",
        doc="What a table does with ALTER TABLE: stop (exception); change as the source did, or stop (evolve); as "
        "evolve, but convert values where Delta cannot change a type (try_evolve); gain columns and wider types, and "
        "keep all columns (lenient); keep its columns and write those that the source still has (ignore).",
    )
    included_changes: frozenset[str] = supported(
        "include.schema.changes",
        set_of(*CHANGE_NAMES),
        default="",
        doc="Kinds of changes, or parts of their names, that schema.change.behavior applies to; others are ignored. "
        "Empty: all.",
    )
    excluded_changes: frozenset[str] = supported(
        "exclude.schema.changes",
        set_of(*CHANGE_NAMES),
        default="",
        doc="Kinds of changes, or parts of their names, that are ignored.",
    )


def check_location(draft: Draft) -> None:
    """Report a missing location of the tables, or two of them."""
    given = [name for name in ("sink.path", "sink.table") if draft.is_set(name)]
    if not given:
        draft.problems.append("sink.path is missing: the directory of the tables; or set sink.table")
    if len(given) > 1:
        draft.problems.append("sink.table: sink.path is set too; use one of them")
