"""docs/types.md: generated, and complete."""

from __future__ import annotations

from pathlib import Path

from tailrace.producer.mysql.types.registry import FAMILIES
from tailrace.producer.serialization.types_reference import examples, page

PAGE = Path(__file__).resolve().parents[2] / "docs" / "types.md"


def test_the_page_is_current() -> None:
    assert page() == PAGE.read_text(encoding="utf-8"), (
        "run: python -m tailrace.producer.serialization.types_reference > docs/types.md"
    )


def test_every_type_has_an_example() -> None:
    shown = {column.data_type for _, column in examples()}

    assert shown == {data_type for family in FAMILIES for data_type in family.data_types}
