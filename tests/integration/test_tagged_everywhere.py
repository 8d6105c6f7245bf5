"""Tests of other modules, on servers whose sessions give every transaction a tag."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

from tests.embedded.mysql import MySqlServer
from tests.integration.test_resume import (  # noqa: F401 - pytest runs what is imported
    test_failover_during_a_snapshot,
    test_transaction_continues_on_a_replica_that_applies_it_later,
)
from tests.integration.test_resume_position import (  # noqa: F401
    test_coordinates_are_kept_while_the_numbering_continues,
    test_coordinates_that_are_not_valid_begin_an_epoch,
    test_missing_transactions_are_named,
    test_reset_of_the_binlog_begins_an_epoch,
)
from tests.integration.test_takeover_position import (  # noqa: F401
    scenario,
    test_last_offset_is_used_and_others_are_ignored,
    test_position_within_a_transaction,
    test_transaction_at_another_position_is_written_once_more,
)
from tests.integration.test_xa import (  # noqa: F401
    test_search_for_a_prepared_transaction_has_an_end,
    test_second_phase_decides_across_reconnects_and_restarts,
    test_xa_during_the_snapshot,
)
from tests.support.replication import Cluster, replicating_servers

if TYPE_CHECKING:
    from pymysql import Connection

pytestmark = [pytest.mark.long, pytest.mark.mysql("9.7")]


class TaggedServer(MySqlServer):
    """Each session of a test begins with a tag."""

    def __init__(self, **options: Any) -> None:
        super().__init__(version="9.7", **options)

    def connect(self, **changes: Any) -> Connection[Any]:
        return super().connect(**{"init_command": "SET gtid_next = 'AUTOMATIC:app'", **changes})


@pytest.fixture(scope="module")
def mysql_server() -> Iterator[MySqlServer]:
    """The server of the tests that share one."""
    with TaggedServer() as server:
        yield server


@pytest.fixture(scope="module")
def own_server() -> Iterator[MySqlServer]:
    """The server of the tests that restart or purge it."""
    with TaggedServer() as server:
        yield server


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    """Two servers of one cluster."""
    with replicating_servers(TaggedServer) as found:
        yield found
