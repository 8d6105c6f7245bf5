"""Settings that the sinks of table formats share."""

from __future__ import annotations

from collections.abc import Mapping

from tailrace.runtime.config.section import Section, prefixed, supported
from tailrace.runtime.config.value_types import ANY_TEXT, integer, one_of, set_of
from tailrace.spark_consumer.evolution.policy import CHANGE_NAMES, Behavior
from tailrace.spark_consumer.sink.shape import ShapeOptions


class SchemaChangeOptions(Section):
    """What tables do when the source is altered."""

    schema_change_behavior: Behavior = supported(
        "schema.change.behavior",
        one_of(Behavior),
        default="lenient",
        doc="What a table does with ALTER TABLE: stop (exception); change as the source did, or stop (evolve); as "
        "evolve, but convert values where the target cannot change a type (try_evolve); gain columns and wider types, "
        "and keep all columns (lenient); keep its columns and write those that the source still has (ignore).",
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


class TableOptions(SchemaChangeOptions, ShapeOptions):
    """Settings of a sink with tables of one format."""

    table_properties: Mapping[str, str] = prefixed(
        "sink.properties.*",
        ANY_TEXT,
        doc="Table properties of new tables, such as delta.logRetentionDuration or format-version.",
    )
    optimize_batches: int = supported(
        "sink.optimize.batches",
        integer(0),
        default="100",
        doc="After how many commits of a table the query compacts its files, counted over all runs. 0: never.",
    )
