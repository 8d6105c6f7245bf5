"""A target that has applied less than the query has read: it was restored, or the position of the query is not its own.

The invariant: the ledger of a target reaches the start of each range that is written to it, and in partitions without
new records the offset up to which they are read. Otherwise nobody would read the records in between, and the commit of
the range would say that they are applied. A table whose target is behind goes back: its position (parking.py) is set to
the ledger, and its records are read again from there. If Kafka has removed them, reading them parks the table.

A target that does not tell what it has applied, such as a copy of the rows alone, has applied nothing: a query that has
read the topic reads all of it again. To rows that are there, that changes nothing.

A step of a changelog can have no record of its own: a certificate releases what was held, a table begins again. So the
ledger of a changelog reaches the step before too, and the state of the query (table_state.py) goes back with it.

A target gets no record from before the offset at which its table begins (table_state.py): that of the first batch of a
query that does not need all records of a topic, or of a reload (reload.py). Only of a state that an earlier release of
such a query has written this is not known. Then a partition that the ledger lacks is not compared.
"""

from __future__ import annotations

from collections.abc import Mapping

from tailrace.spark_consumer.errors import SinkError
from tailrace.spark_consumer.source.ranges import EARLIEST


class TargetBehindError(SinkError):
    """A target has not applied all records before a range."""

    def __init__(
        self, topic: str, applied: Mapping[int, int], begins: Mapping[int, int], step: int | None = None
    ) -> None:
        """``applied``: partition to the offset at which the records begin that are to be read again.

        ``step``: the last step of the query that a changelog has; None if it does not tell.
        """
        # Whether Kafka has removed records before the earliest offset is decided as for a new table (snapshot.py).
        self.starts = {str(number): offset or EARLIEST for number, offset in applied.items()}
        self.step = step
        super().__init__(
            f"the target has not applied all records of topic {topic} that are before those of the batch",
            hint="they are read again from Kafka",
            applied_up_to=dict(applied),
            batch_starts_at={number: begins[number] for number in applied},
        )


def require_reached(
    topic: str,
    begins: Mapping[int, int],
    reached: Mapping[int, int],
    applied: Mapping[int, int],
    *,
    whole_from: Mapping[int, int] | None,
    moved: bool = False,
    step: int | None = None,
    follows: int = -1,
) -> None:
    """Raise TargetBehindError if a target does not have all records before those of a batch.

    ``begins``: partition to the offset before which the query has read all records. ``reached``: the same for those
    that were written or held when the target was written last. Before ``applied`` none was held.
    ``whole_from``: partition to the offset from which earlier batches have read it, 0 if it is missing; None: it is
    not known. ``moved``: whether several partitions can have records of one key (moved_keys.py). Then a delete in one
    must be known when an older record in another is read again, so all of them are. ``step``: the last step that a
    changelog has, None if it does not tell; ``follows``: the one that it must have (Write).
    """
    nothing = {number: (whole_from or {}).get(number, 0) for number in begins}
    if whole_from is not None:
        reached, applied = {**nothing, **reached}, {**nothing, **applied}
    known = begins.keys() & reached.keys() & applied.keys()
    lacks_step = step is not None and step < follows
    if lacks_step or any(reached[number] < begins[number] for number in known):
        back = {number: applied[number] for number in sorted(known) if applied[number] < begins[number]}
        raise TargetBehindError(topic, nothing if moved else back, begins, step)
