"""The errors of the producer.

::

    TailraceError                     runtime/errors.py
    ├── MultipleProblemsError
    │   └── PrerequisiteError         the database server is not set up for capture
    ├── SourceError                   the database server rejected a connection or a statement
    │   ├── SourceUnavailableError    the database server did not respond (Retryable)
    │   └── TableMissingError         a statement names a table that does not exist
    ├── BinlogError                   the binlog cannot be read: purged, corrupt, or not supported
    │   └── SourceBehindError         the server has not executed all that was read: a replica that still applies
    └── TakeoverError                 the offset of a connector cannot be taken over
"""

from __future__ import annotations

from tailrace.runtime.errors import MultipleProblemsError, Retryable, TailraceError


class PrerequisiteError(MultipleProblemsError):
    """The database server is not set up for capture. Each problem has the statement that solves it."""

    one, many = "prerequisite is not met", "prerequisites are not met"


class SourceError(TailraceError):
    """The database server rejected a connection or a statement."""


class SourceUnavailableError(SourceError, Retryable):
    """The database server did not respond, or the connection broke."""


class TableMissingError(SourceError):
    """A statement names a table or a database that does not exist."""


class BinlogError(TailraceError):
    """The binlog cannot be read from the stored offset."""


class SourceBehindError(BinlogError):
    """The database server has not executed transactions that were read before; it may still execute them."""


class TakeoverError(TailraceError):
    """The offset of a connector cannot be taken over."""
