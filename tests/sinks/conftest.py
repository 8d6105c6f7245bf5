"""Marks the cases of the conformance suite that a sink runs with ``--all`` only."""

from __future__ import annotations

import pytest

from tests.sinks.conformance import SinkConformance


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The methods belong to all sinks, so a decorator cannot mark them."""
    for item in items:
        sink = getattr(item, "cls", None)
        if sink is not None and issubclass(sink, SinkConformance) and getattr(item, "originalname", "") in sink.long:
            item.add_marker(pytest.mark.long)
