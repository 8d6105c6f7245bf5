"""The whole oracle: real Debezium beside Tailrace on the same servers, in every mode."""

from __future__ import annotations

import pytest

from tests.debezium_parity.__main__ import main

pytestmark = [pytest.mark.mysql, pytest.mark.kafka, pytest.mark.long, pytest.mark.timeout(900)]


def test_nothing_differs_from_real_debezium(capsys: pytest.CaptureFixture[str]) -> None:
    """The command ends with 0: every record is equal but for named exceptions."""
    code = main([])

    printed = capsys.readouterr().out
    assert "nothing is different" in printed, printed[-6000:]
    assert code == 0
