"""A pytest plugin: prepares the servers that the chosen tests need before the first test starts.

Without it the first test of an empty cache downloads MySQL, Kafka or Spark's jars within its own deadline.
A test is marked with what its code and the code of its fixtures start. A test that starts servers through other
functions or in a process needs the marker itself.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from types import CodeType
from typing import Any

import pytest

_STARTS = {
    "MySqlServer": "mysql",
    "PostgresServer": "postgresql",
    "MariaDbServer": "mariadb",
    "KafkaBroker": "kafka",
    "SchemaRegistry": "registry",
    "IcebergRestCatalog": "iceberg_rest",
    "ConnectWorker": "debezium",
    "DistributedWorker": "debezium",
    "spark_settings": "spark",
    "start_session": "spark",
}
"""Class or function -> marker of a test whose code names it."""
_VERSIONED = ("mysql", "mariadb")
"""Markers whose arguments are versions."""


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark every test with the servers that it starts, so that ``-m 'not spark'`` is complete.

    A test is skipped if its version of MySQL or MariaDB cannot be had on this system.
    """
    for item in items:
        for code in _codes(item):
            for name in _STARTS.keys() & set(code.co_names):
                versions = _versions(code) if name == "MySqlServer" else ()
                item.add_marker(getattr(pytest.mark, _STARTS[name])(*versions))
        if lacking := _lacking(item):
            item.add_marker(
                pytest.mark.skip(f"this version of the server is a package of Debian; the system lacks {lacking}")
            )


def pytest_collection_finish(session: pytest.Session) -> None:
    """Prepare what the chosen tests are marked with; progress goes to the terminal."""
    if session.config.option.collectonly:
        return
    needs, versions = _needs(session.items)
    if not needs and not any(versions.values()):
        return
    from tests.embedded import artifacts, prepare  # noqa: PLC0415 - unit tests do not pay for them

    capture = session.config.pluginmanager.getplugin("capturemanager")
    with capture.global_and_fixture_disabled():
        prepare.prepare(needs, mysql_versions=versions["mysql"], mariadb_versions=versions["mariadb"])
    artifacts.seal()


def _lacking(item: pytest.Item) -> str:
    versions = {name: {each for marker in item.iter_markers(name) for each in marker.args} for name in _VERSIONED}
    if not any(versions.values()):
        return ""
    from tests.embedded import mariadb, mysql  # noqa: PLC0415 - unit tests do not pay for it

    servers = {"mysql": mysql.missing, "mariadb": mariadb.missing}
    lacking = (servers[name](version) for name in _VERSIONED for version in sorted(versions[name]))
    return next(filter(None, lacking), "")


def _needs(items: list[pytest.Item]) -> tuple[set[str], dict[str, set[str]]]:
    """Return the servers that the markers name, and versions other than the default by server."""
    needs: set[str] = set()
    versions: dict[str, set[str]] = {name: set() for name in _VERSIONED}
    for item in items:
        for name in set() if _lacking(item) else set(_STARTS.values()):
            for marker in item.iter_markers(name):
                if marker.args:
                    versions[name].update(marker.args)
                if not marker.args:
                    needs.add(name)
    return needs, versions


def _codes(item: pytest.Item) -> Iterator[CodeType]:
    """Yield the code of a test and of its fixtures, functions inside them included."""
    functions: list[Any] = [getattr(item, "function", None)]
    for name in getattr(item, "fixturenames", ()):
        functions += [fixture.func for fixture in item._fixtureinfo.name2fixturedefs.get(name, ())]  # type: ignore[attr-defined]
    for function in functions:
        code = getattr(inspect.unwrap(function), "__code__", None) if function is not None else None
        if code is not None:
            yield from _nested(code)


def _nested(code: CodeType) -> Iterator[CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _nested(constant)


def _versions(code: CodeType) -> list[str]:
    return [text for text in code.co_consts if isinstance(text, str) and re.fullmatch(r"\d+(\.\d+){1,2}", text)]
