"""Raw records of several topics in the driver."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyspark.sql import types as tp

from tailrace.spark_consumer.driver_plan import RowFunction, rows_of_type

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True, slots=True)
class RawRows:
    """The records of a range in the driver, without tombstones."""

    type: tp.StructType
    """RAW_COLUMNS."""
    rows: Any
    """A sequence of Scala with internal rows."""


class RowsByTopic:
    """Tells the records of several topics apart; for one thread at a time."""

    def __init__(self, spark: SparkSession, raw: tp.StructType) -> None:
        """``raw`` is the type of the records."""
        # The decoder need not look for tombstones then.
        fields = [tp.StructField(f.name, f.dataType, f.nullable and f.name != "value") for f in raw]
        self._type = tp.StructType(fields)
        [self._topic] = RowFunction(rows_of_type(spark, self._type).select("topic")).steps

    def of(self, rows: Any) -> dict[str, RawRows]:
        """Return the records by topic; ``rows`` is a collection of Scala with internal rows without tombstones."""
        groups = rows.groupBy(self._topic)
        if not groups.size():
            return {}
        # The text of a row with one column is the value in brackets; a name of a topic has no bracket.
        names = str(groups.keysIterator().mkString(" ")).split(" ")
        found = groups.values().toSeq()
        return {name[1:-1]: RawRows(self._type, found.apply(index)) for index, name in enumerate(names)}
