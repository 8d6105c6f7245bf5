"""Feeds the status from the progress reports of Spark's streaming queries."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from pyspark.sql.streaming.listener import StreamingQueryListener

from tailrace.spark_consumer.monitor.status import Status, reported_offsets

if TYPE_CHECKING:
    from pyspark.sql.streaming.listener import (
        QueryIdleEvent,
        QueryProgressEvent,
        QueryStartedEvent,
        QueryTerminatedEvent,
    )


class ProgressListener(StreamingQueryListener):
    """Passes the reports of one query on; a session can have others. Spark calls it on a thread of its own."""

    def __init__(self, status: Status, control_topics: frozenset[str]) -> None:
        """``control_topics`` are in the stream and are no tables."""
        self._status = status
        self._control = control_topics
        self._query_id: str | None = None
        self._last = ""

    def follow(self, query_id: str) -> None:
        """Pass on the reports of this query."""
        self._query_id = query_id

    def report(self, text: str) -> None:
        """Pass on a report, the JSON of a ``StreamingQueryProgress``, unless it was passed on before."""
        found = json.loads(text)
        if found["id"] != self._query_id or found["timestamp"] <= self._last:
            return
        self._last = found["timestamp"]
        applied, ends = reported_offsets(found)
        ends = {topic: each for topic, each in ends.items() if topic not in self._control}
        self._status.progress(found["batchId"], applied, ends, found["durationMs"])

    def onQueryStarted(self, event: QueryStartedEvent) -> None:  # noqa: N802 - Spark's name
        """Do nothing."""

    def onQueryProgress(self, event: QueryProgressEvent) -> None:  # noqa: N802
        """Pass on the report of a batch."""
        self.report(event.progress.json)

    def onQueryIdle(self, event: QueryIdleEvent) -> None:  # noqa: N802
        """Pass on that Kafka has answered, and has nothing more."""
        if str(event.id) == self._query_id:
            self._status.confirmed()

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:  # noqa: N802
        """Do nothing."""
