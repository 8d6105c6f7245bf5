"""What the order of a splitting column depends on."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tailrace.producer.kafka.state_store import TableState, decode
from tailrace.producer.model.split import KeyColumn
from tailrace.producer.model.table import Column
from tailrace.producer.model.table_mode import TableMode

TEXT = KeyColumn(Column("k", "varchar", length=40, charset="utf8mb4"), "utf8mb4_0900_ai_ci")
NUMBER = KeyColumn(Column("k", "int"), is_integer=True)


def column(key: KeyColumn, **changes: Any) -> KeyColumn:
    """Return a splitting column with another definition."""
    return replace(key, column=replace(key.column, **changes))


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (TEXT, replace(TEXT, collation="utf8mb4_general_ci")),
        (TEXT, column(TEXT, charset="latin1")),
        (TEXT, column(TEXT, name="other")),
        (TEXT, KeyColumn(Column("k", "varbinary", length=40, charset="binary"))),
        (NUMBER, column(NUMBER, unsigned=True)),
        (NUMBER, TEXT),
        (KeyColumn(Column("k", "decimal", scale=2)), KeyColumn(Column("k", "decimal", scale=1))),
        (KeyColumn(Column("k", "datetime", fsp=6)), KeyColumn(Column("k", "datetime"))),
        (KeyColumn(Column("k", "binary", length=4)), KeyColumn(Column("k", "binary", length=8))),
        (
            KeyColumn(Column("k", "enum", enum_values=("a", "b"))),
            KeyColumn(Column("k", "enum", enum_values=("b", "a"))),
        ),
    ],
)
def test_another_order_is_another_definition(one: KeyColumn, other: KeyColumn) -> None:
    assert one.definition != other.definition


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (NUMBER, column(NUMBER, data_type="bigint")),
        (TEXT, column(TEXT, length=80)),
        (TEXT, column(TEXT, nullable=False)),
    ],
)
def test_a_wider_column_has_the_same_order(one: KeyColumn, other: KeyColumn) -> None:
    assert one.definition == other.definition


def test_the_definition_is_stored_with_the_plan() -> None:
    plan = TableState(TableMode.SNAPSHOT, "s", [1], ("k",), (TEXT.definition,))

    assert decode({b"table/db.t": plan.to_json()}, dict).tables == {"db.t": plan}  # type: ignore[arg-type]
