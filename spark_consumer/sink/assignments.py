"""Which sink has the rows of each table: another sink would get only the changes from now on."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from tailrace.spark_consumer.documents import read_document, write_document

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Assignments:
    """The sinks by topic, in ``<checkpoint>/tailrace/sinks.json``."""

    def __init__(self, checkpoint: str) -> None:
        self._file = f"{checkpoint.rstrip('/')}/tailrace/sinks.json"
        self._known: dict[str, str] = {}

    def load(self, spark: SparkSession) -> None:
        """Read what earlier runs of the query have noted."""
        self._known = read_document(spark, self._file, _sinks) or {}

    def note(self, spark: SparkSession, sinks: Mapping[str, str]) -> None:
        """Store the sinks of topics, before their first records are written; '' is no sink."""
        new = {topic: name for topic, name in sinks.items() if name and topic not in self._known}
        if new:
            self._known |= new
            write_document(spark, self._file, {"sinks": self._known})

    def problems(self, sinks: Mapping[str, str]) -> list[str]:
        """Return which topics have another sink now."""
        moved: dict[tuple[str, str], list[str]] = defaultdict(list)
        for topic, name in sorted(sinks.items()):
            before = self._known.get(topic, name)
            if name and before != name:
                moved[before, name].append(topic)
        return [
            f"sinks: {', '.join(topics)} went to the sink {before} until now and would go to {name}, which lacks their "
            "rows; restore the lists, or read the tables with another query. If the sink has the rows, remove the "
            f"topics from {self._file}"
            for (before, name), topics in sorted(moved.items())
        ]


def _sinks(body: dict[str, Any]) -> dict[str, str]:
    """Return the sinks by topic; without a format the document had nothing else."""
    found = body["sinks"] if "format" in body else body
    return {topic: str(name) for topic, name in found.items()}
