"""Servers of the family that cannot be captured; ``test_prerequisites.py`` has what needs a server."""

from __future__ import annotations

from typing import Any, cast

import pytest

from tailrace.producer.mysql.prerequisites import CheckedSource, server_is_supported


@pytest.mark.parametrize(
    ("version", "complaint"),
    [
        ("8.0.11-TiDB-v8.5.1", "TiDB has no binlog"),
        ("8.0.30-Vitess", "MySQL server of each shard"),
        ("11.8.2-MariaDB", "connector.class=mariadb"),
        ("5.6.51-log", "upgrade to 8.0.14 or newer, or to 5.7.20 or newer"),
        ("5.7.19", "too old"),
        ("8.0.0-dmr", "too old"),
    ],
)
def test_server_that_cannot_be_captured_is_named(version: str, complaint: str) -> None:
    """One complaint, with the version and what to do."""
    [found] = server_is_supported(CheckedSource(cast("Any", None), (), 5, {"version": version}))

    assert version in found
    assert complaint in found


def test_builds_of_other_vendors_are_mysql() -> None:
    """Amazon, Google, Microsoft and Percona add to the version."""
    for version in ("8.0.39", "8.0.36-google", "8.0.39-azure", "8.0.36-28", "9.7.4-log", "5.7.44-log"):
        assert list(server_is_supported(CheckedSource(cast("Any", None), (), 5, {"version": version}))) == []
