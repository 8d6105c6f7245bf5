"""A database that the real producer has captured, once for all tests of this folder."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.embedded.kafka import KafkaBroker
    from tests.embedded.mysql import MySqlServer
    from tests.support.captured_source import CapturedSource


@pytest.fixture(scope="session")
def source(mysql_server: MySqlServer, kafka_broker: KafkaBroker) -> Iterator[CapturedSource]:
    """The tables and their topics; tests only read them."""
    from tests.support.captured_source import captured  # noqa: PLC0415 - tests that do not use it load no drivers
    from tests.support.database import Database  # noqa: PLC0415

    database = Database(mysql_server, "captured")
    try:
        yield captured(database, kafka_broker, "captured")
    finally:
        database.drop()
