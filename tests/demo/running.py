"""What the demo needs to know of the parts that run, wherever they run."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from pymysql import Connection


class Source(Protocol):
    """The MySQL server, for sessions of the shop's owner."""

    def connect(self, **changes: Any) -> Connection[Any]:
        """Open a session with autocommit; ``changes`` are arguments of ``pymysql.connect``."""


class Running(Protocol):
    """Addresses and folders of a stack that is up."""

    @property
    def source(self) -> Source:
        """The MySQL server."""

    @property
    def bootstrap(self) -> str:
        """Kafka's ``host:port``."""

    @property
    def producer_status(self) -> str:
        """The URL of the producer's /status."""

    @property
    def sink(self) -> Path:
        """The folder of the Delta tables: ``<database>/<table>`` below it."""

    @property
    def checkpoint(self) -> Path:
        """The folder of the consumer's checkpoint."""

    def check(self) -> None:
        """Raise where a part has ended that should be running."""
