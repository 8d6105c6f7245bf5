"""The resources of one capture session, closed together in reverse order."""

from __future__ import annotations

from contextlib import ExitStack
from types import TracebackType
from typing import Protocol, Self, TypeVar

import structlog

log = structlog.get_logger(__name__)


class Closable(Protocol):
    """Anything that is closed at the end of a session."""

    def close(self) -> object:
        """Release the resource."""


T = TypeVar("T", bound=Closable)


class Resources:
    """A resource that fails to close is logged, and the others are closed all the same."""

    def __init__(self) -> None:
        self._stack = ExitStack()

    def add(self, resource: T) -> T:
        """Close ``resource`` at the end; return it."""
        self._stack.callback(_close, resource)
        return resource

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._stack.close()


def _close(resource: Closable) -> None:
    try:
        resource.close()
    except Exception as error:  # noqa: BLE001 - a broken connection may refuse to close; nothing depends on it
        log.debug("close failed", resource=type(resource).__name__, error=str(error))
