"""What is stored of schema changes with a target: a damaged text is named, with its value and what to do."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tailrace.spark_consumer.errors import SinkError
from tailrace.spark_consumer.evolution.attempt import Attempt
from tailrace.spark_consumer.evolution.policy import SourceNames, read_mark


@pytest.mark.parametrize(
    ("read", "what"),
    [
        (Attempt.from_json, "an interrupted schema change"),
        (SourceNames.from_json, "the columns of the source"),
        (read_mark, "the mark of schema changes"),
    ],
    ids=["attempt", "names", "mark"],
)
@pytest.mark.parametrize("text", ["{", "7", '{"position": 1}', '{"stored": {"fields": 3}}', '["x"]'])
def test_a_damaged_text_is_named(read: Callable[[str], object], what: str, text: str) -> None:
    with pytest.raises(SinkError, match=what) as caught:
        read(text)

    assert caught.value.context["value"] == text
    assert caught.value.hint.startswith(
        "restore the stored text from the history of the target, or move the target away"
    )


def test_a_mark_with_columns_is_read_by_its_last_position() -> None:
    text = '[[[1, 1, 2, 0, 0], ["id"], ["id", "n"]], [[1, 1, 3, 0, 0], ["id", "n"], ["id", "m"]]]'

    assert [read_mark(text), read_mark("1.1.3.0.0"), read_mark("[]"), read_mark("")] == ["1.1.3.0.0"] * 2 + [""] * 2
