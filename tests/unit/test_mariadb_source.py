"""What a MariaDB source makes of the answers of a server, without one."""

from __future__ import annotations

from typing import Any, cast

import pytest

from tailrace.producer.mariadb import source
from tailrace.producer.model.binlog_events import TransactionCommit


def test_end_above_4_gib_is_no_sign_of_an_older_copy(monkeypatch: pytest.MonkeyPatch) -> None:
    """The server has no answer for such a position, and every restart would be refused."""
    monkeypatch.setattr(source, "query", lambda *_: pytest.fail("asks the server"))
    source._require_end(cast("Any", None), TransactionCommit("0-1-5", "b.000001", 1 << 32, 1))
