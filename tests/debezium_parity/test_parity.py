"""Tailrace and real Debezium capture the same statements on the same servers, in all variants."""

from __future__ import annotations

import pytest

from tests.debezium_parity.__main__ import main

pytestmark = [
    pytest.mark.mysql,
    pytest.mark.kafka,
    pytest.mark.registry,
    pytest.mark.debezium,
    pytest.mark.long,
    pytest.mark.timeout(2700),
]


def test_records_equal_those_of_real_debezium(capsys: pytest.CaptureFixture[str]) -> None:
    """Every record is equal apart from the named exceptions."""
    code = main([])

    printed = capsys.readouterr().out
    assert "nothing is different" in printed, printed[-6000:]
    assert code == 0
