"""A short soak; ``./run soak`` runs longer ones."""

from __future__ import annotations

import pytest

from tests.soak.__main__ import main

pytestmark = [pytest.mark.mysql, pytest.mark.kafka, pytest.mark.timeout(1200)]


def test_nothing_is_lost_or_doubled_by_random_faults(capsys: pytest.CaptureFixture[str]) -> None:
    """Less than a minute of faults, then every topic against its source."""
    code = main(["--minutes", "0.7", "--seed", "3", "--rows", "200"])

    printed = capsys.readouterr().out
    assert " 0 lost, 0 doubled" in printed, printed[-4000:]
    assert code == 0, printed[-4000:]
