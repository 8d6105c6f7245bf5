"""The preparation of servers before the first test."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.embedded import artifacts, prepare
from tests.embedded.java import EmbeddedServerError


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> artifacts._Prepared:
    """An empty cache that no test of this process has used."""
    monkeypatch.setenv("TAILRACE_CACHE", str(tmp_path))
    fresh = artifacts._Prepared()
    monkeypatch.setattr(artifacts, "_prepared", fresh)
    return fresh


def test_entry_is_unpacked_once(cache: artifacts._Prepared, tmp_path: Path) -> None:
    calls: list[Path] = []

    for _ in range(2):
        folder = artifacts.unpack_once("server-1", calls.append)

    assert folder == tmp_path / "server-1"
    assert len(calls) == 1


def test_entry_that_was_not_prepared_is_refused(cache: artifacts._Prepared) -> None:
    """Otherwise a test would download within its own deadline."""
    artifacts.unpack_once("server-1", lambda _: None)
    cache.seal()

    artifacts.unpack_once("server-1", lambda _: None)
    with pytest.raises(EmbeddedServerError, match="server-2 was not prepared before the first test"):
        artifacts.unpack_once("server-2", lambda _: None)


def test_interrupted_unpacking_leaves_no_entry(cache: artifacts._Prepared, tmp_path: Path) -> None:
    def fail(folder: Path) -> None:
        (folder / "half").touch()
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        artifacts.unpack_once("server-1", fail)

    assert [path.name for path in tmp_path.iterdir()] == ["locks"]


def test_unknown_server_is_refused() -> None:
    with pytest.raises(EmbeddedServerError, match=r"cannot prepare \['oracle-db'\]"):
        prepare.prepare(("oracle-db",))
