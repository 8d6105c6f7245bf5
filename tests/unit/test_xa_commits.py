"""Which statements of other sessions a snapshot takes for XA commits."""

from __future__ import annotations

import time

import pytest

from tailrace.producer.mysql.xa_commits import may_commit


@pytest.mark.parametrize(
    ("statement", "expected"),
    [
        (b"XA COMMIT 'a'", True),
        (b"/* a */ xa/**/commit X'61',X'',1 ONE PHASE", True),
        (b"XA\n  COMMIT 'a'", True),
        (b"XA PREPARE 'a'", False),
        (b"COMMIT /* XA */", False),
        (b"SELECT xa_commit, xa, committed FROM t", False),
    ],
)
def test_both_words_are_looked_for_in_their_order(statement: bytes, expected: bool) -> None:
    assert may_commit(statement) is expected


def test_the_time_does_not_grow_with_the_square_of_the_text() -> None:
    """Who may only SELECT could hold the whole process otherwise, at each split."""
    statement = b"SELECT SLEEP(3600) /* " + b"XA " * 100_000 + b"xcommit */"
    started = time.thread_time()

    assert not may_commit(statement)
    assert time.thread_time() - started < 1
