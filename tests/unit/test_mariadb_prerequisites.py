"""Checks of a MariaDB server with an account that may not see all."""

from __future__ import annotations

from typing import Any, cast

import pytest

from tailrace.producer.mariadb import prerequisites
from tailrace.producer.model.table import TableId
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


@pytest.mark.parametrize(("sees", "engine", "problems"), [(True, "", 0), (False, "", 1), (True, "ROCKSDB", 1)])
def test_commits_that_are_not_in_the_list(
    monkeypatch: pytest.MonkeyPatch, *, sees: bool, engine: str, problems: int
) -> None:
    """The list is of InnoDB, and needs a grant; a table that is not captured may have any engine."""
    monkeypatch.setattr(prerequisites, "sees_commits", lambda _: sees)
    monkeypatch.setattr(prerequisites, "account", lambda _: "'cdc'@'%'")
    rows = [("d", "t", engine), ("d", "other", engine)] if engine else []
    monkeypatch.setattr(prerequisites, "query", lambda *_: rows)
    source = CheckedSource(cast("Any", None), (TableId("d", "t"),), 5, {})
    assert len(list(prerequisites.commits_are_seen(source))) == problems
