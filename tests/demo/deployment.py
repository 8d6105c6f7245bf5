"""What the demo's steps need to know about the running servers and processes."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from pymysql import Connection


class Source(Protocol):
    """The MySQL server."""

    def connect(self, **changes: Any) -> Connection[Any]:
        """Open a session as root with autocommit; ``changes`` are arguments of ``pymysql.connect``."""


class Deployment(Protocol):
    """Addresses and folders of running servers and processes."""

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
        """Raise TailraceError if a process has ended that should run."""
