"""A session of a snapshot that the server ends is an error after which the snapshot is tried again."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING

import pytest

from tailrace.producer.errors import SourceUnavailableError
from tailrace.producer.mysql.connection import query
from tailrace.producer.mysql.snapshot_session import MySqlSnapshotSession

if TYPE_CHECKING:
    from tests.support.database import Database


def test_session_that_ends_after_the_rows_of_a_split(database: Database) -> None:
    with closing(database.connect()) as connection:
        session = MySqlSnapshotSession(connection)
        [(own,)] = query(connection, "SELECT CONNECTION_ID()")

        with pytest.raises(SourceUnavailableError), session.stable_definition():
            database.execute(f"KILL {own}")
