"""The settings of the Hudi sink."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, get_args

from tailrace.runtime.config.section import prefixed, supported
from tailrace.runtime.config.value_types import ANY_TEXT, DIRECTORY, integer, one_of
from tailrace.spark_consumer.sink.shape import OVERRIDES_DOC, Shape, overrides
from tailrace.spark_consumer.sink.table_options import TableOptions

HudiShape = Literal["scd1", "soft-delete"]
"""Shapes with one row per key: Hudi identifies a row by its key."""


class HudiOptions(TableOptions):
    """Settings of the Hudi sink."""

    shape: Shape = supported(
        "sink.shape",
        one_of(HudiShape),
        default="scd1",
        doc="Shape of the tables. scd1: a row per key, equal to that of the source. soft-delete: as scd1, but a row "
        "that the source deletes stays with its last values, and its column __deleted becomes true.",
    )
    shape_overrides: tuple[tuple[str, Shape], ...] = supported(
        "sink.shape.overrides", overrides(get_args(HudiShape)), default="", doc=OVERRIDES_DOC
    )
    path: str = supported(
        "sink.path",
        DIRECTORY,
        required=True,
        doc="Directory of the tables; a table is at <path>/<database>/<table>, with special characters as %XX.",
    )
    table_properties: Mapping[str, str] = prefixed(
        "sink.properties.*",
        ANY_TEXT,
        doc="Options of Hudi for all writes, such as hoodie.metadata.enable or hoodie.parquet.max.file.size.",
    )
    optimize_batches: int = supported(
        "sink.optimize.batches",
        integer(0),
        default="100",
        doc="After how many batches with changes of a table the query joins small files and sorts them (clustering); "
        "a start begins to count at a random number. 0: never.",
    )
