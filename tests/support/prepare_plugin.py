"""A pytest plugin: prepares the servers that the chosen tests need before the first test starts.

Without it the first test of an empty cache downloads MySQL, Kafka or Spark's jars within its own deadline.
"""

from __future__ import annotations

import pytest

_FIXTURES = {
    "mysql_server": "mysql",
    "own_server": "mysql",
    "database": "mysql",
    "kafka_broker": "kafka",
    "spark": "spark",
}
"""Fixture -> marker of a test that uses it."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark every test with the servers that its fixtures start, so that ``-m 'not spark'`` is complete."""
    for item in items:
        for fixture, marker in _FIXTURES.items():
            if fixture in getattr(item, "fixturenames", ()):
                item.add_marker(getattr(pytest.mark, marker))


def pytest_collection_finish(session: pytest.Session) -> None:
    """Prepare what the chosen tests are marked with; progress goes to the terminal."""
    if session.config.option.collectonly:
        return
    needs, versions = _needs(session.items)
    if not needs and not versions:
        return
    from tests.embedded import artifacts, prepare  # noqa: PLC0415 - unit tests do not pay for them

    capture = session.config.pluginmanager.getplugin("capturemanager")
    with capture.global_and_fixture_disabled():
        prepare.prepare(needs, mysql_versions=versions)
    artifacts.seal()


def _needs(items: list[pytest.Item]) -> tuple[set[str], set[str]]:
    """Return the servers that the markers name, and the MySQL versions other than the default."""
    needs: set[str] = set()
    versions: set[str] = set()
    for item in items:
        for name in ("kafka", "spark", "registry", "debezium"):
            if item.get_closest_marker(name):
                needs.add(name)
        for marker in item.iter_markers("mysql"):
            versions.update(marker.args)
            if not marker.args:
                needs.add("mysql")
    return needs, versions
