"""The interface of a source database: what the rest of the producer asks of it."""

from __future__ import annotations

from typing import Any, Protocol, Self

from tailrace.producer.model.binlog_events import PositionAdvanced, QueryEvent, TransactionBegin, TransactionCommit


class Offset(Protocol):
    """An immutable position in the log of a source: where it is, and which transactions it includes.

    The split rules ask ``contains`` and ``before``. A low watermark answers ``contains``: its transactions are visible
    to a SELECT. Positions of one server and one epoch are totally ordered by ``before``; others do not compare.
    """

    @property
    def epoch(self) -> int:
        """Return a number that grows whenever later positions no longer compare with earlier ones."""

    def contains(self, transaction: TransactionBegin) -> bool:
        """Return whether the offset includes this transaction."""

    def before(self, other: Self) -> bool:
        """Return whether the offset is strictly before ``other``."""

    def same_server(self, other: Self) -> bool:
        """Return whether both offsets belong to one server, so that ``before`` is defined."""

    def to_json(self) -> dict[str, Any]:
        """Return the form written in watermark and state records; ``kind`` names the kind of source."""

    def at_begin(self, transaction: TransactionBegin) -> Self:
        """Return the offset from which a restart reads this transaction again."""

    def after(self, event: TransactionCommit | QueryEvent) -> Self:
        """Return the offset behind a transaction, which it includes."""

    def advanced_to(self, event: PositionAdvanced) -> Self:
        """Return the offset moved forward outside a transaction."""

    def including(self, transaction_id: str) -> Self:
        """Return the offset at the same position with one more transaction included."""
