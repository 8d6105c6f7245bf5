"""Checks of a MariaDB server with an account that may not see all."""

from __future__ import annotations

from typing import Any, cast

import pytest

from tailrace.producer.mariadb import prerequisites
from tailrace.producer.mysql.prerequisites import CheckedSource


@pytest.mark.parametrize(
    ("replicas", "applied", "problems"),
    [(None, "", 0), (None, "0-1-5", 1), ([("db1",)], "0-1-5", 1), ([], "0-1-5", 0)],
)
def test_replica_without_the_changes_that_it_applies(
    monkeypatch: pytest.MonkeyPatch, replicas: list[tuple[str]] | None, applied: str, problems: int
) -> None:
    """An account that may not ask for the replication sees what the server has applied."""
    answers = {"SELECT @@global.gtid_slave_pos": applied}
    monkeypatch.setattr(prerequisites, "if_granted", lambda *_: replicas)
    monkeypatch.setattr(prerequisites, "query", lambda _, sql: [(answers[sql],)])
    monkeypatch.setattr(prerequisites, "account", lambda _: "'cdc'@'%'")
    source = CheckedSource(cast("Any", None), (), 5, {"log_slave_updates": "OFF"})
    assert len(list(prerequisites.replica_logs_applied_changes(source))) == problems
