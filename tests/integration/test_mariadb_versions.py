"""The core of a MariaDB source on the other long-term versions."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from tests.integration import test_mariadb as core
from tests.integration import test_mariadb_types as types
from tests.support.database import Database
from tests.support.mariadb import family

if TYPE_CHECKING:
    from tests.embedded.kafka import KafkaBroker
    from tests.embedded.mariadb import MariaDbServer

pytestmark = [pytest.mark.mariadb("10.11", "11.8"), pytest.mark.kafka, pytest.mark.long]


@pytest.fixture(scope="module", params=["10.11", "11.8"])
def server(request: pytest.FixtureRequest) -> Iterator[MariaDbServer]:
    """A source of another version."""
    from tests.embedded.mariadb import SOURCE, MariaDbServer  # noqa: PLC0415

    with MariaDbServer(version=request.param, settings=SOURCE) as running:
        yield running


@pytest.fixture
def maria(server: MariaDbServer, prefix: str) -> Iterator[Database]:
    """A fresh database."""
    database = Database(family(server), f"d_{prefix}")
    yield database
    database.drop()


def test_rows_changes_and_a_restart(
    server: MariaDbServer, kafka_broker: KafkaBroker, prefix: str, maria: Database
) -> None:
    core.test_rows_changes_and_a_restart(server, kafka_broker, prefix, maria)


def test_changes_during_a_snapshot(
    server: MariaDbServer, kafka_broker: KafkaBroker, prefix: str, maria: Database
) -> None:
    core.test_changes_during_a_snapshot(server, kafka_broker, prefix, maria)


def test_low_watermark_waits_for_what_is_not_visible(server: MariaDbServer, maria: Database) -> None:
    core.test_low_watermark_waits_for_what_is_not_visible(server, maria)


def test_values_of_declared_types(
    server: MariaDbServer, kafka_broker: KafkaBroker, prefix: str, maria: Database
) -> None:
    types.test_values(server, kafka_broker, prefix, maria)
