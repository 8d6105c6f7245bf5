"""What a person runs in place of the sink: the texts of operations, in the order in which they work."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final, cast

from pyspark.sql import types as tp

from tailrace.spark_consumer.sink.delta_table import DeltaTable
from tailrace.spark_consumer.sink.hudi_table import HudiTable
from tailrace.spark_consumer.sink.table_names import Location
from tailrace.spark_consumer.sink.target import (
    Add,
    AllowNull,
    Drop,
    Note,
    Operation,
    RemoveRows,
    Rename,
    Retype,
    SetProperties,
    Widen,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NO_SPARK: Final = cast("SparkSession", None)
COLUMNS: Final[list[Operation]] = [
    Add.one("a b", tp.IntegerType()),
    Drop("c"),
    Rename("d", "e"),
    Widen("n", tp.LongType()),
    Retype("t", tp.StringType()),
    AllowNull("o"),
]


class KnownDelta(DeltaTable):
    """A table whose properties are given."""

    given: dict[str, str]

    @property
    def properties(self) -> dict[str, str]:
        """The table's properties."""
        return self.given


def delta(**properties: str) -> KnownDelta:
    """Return a table with the properties of a topic."""
    table = KnownDelta(NO_SPARK, Location.at("/t"))
    table.given = {f"tailrace.{name}": value for name, value in properties.items()}
    return table


def statements(table: DeltaTable, *operations: Operation) -> list[str]:
    """Return the statements, without what they begin with."""
    return [text.removeprefix("ALTER TABLE delta.`/t` ") for text in table.explain(operations).split("; ")]


def test_statements_of_columns() -> None:
    assert statements(delta(), *COLUMNS) == [
        "SET TBLPROPERTIES ('delta.columnMapping.mode' = 'name', 'delta.enableTypeWidening' = 'true')",
        "ADD COLUMNS (`a b` int)",
        "DROP COLUMN `c`",
        "RENAME COLUMN `d` TO `e`",
        "ALTER COLUMN `n` TYPE bigint",
        "ALTER COLUMN `t` TYPE string",
        "ALTER COLUMN `o` DROP NOT NULL",
    ]


def test_a_type_that_the_target_cannot_change_needs_no_property() -> None:
    assert statements(delta(), Retype("t", tp.StringType())) == ["ALTER COLUMN `t` TYPE string"]


def test_rows_are_removed_first_and_properties_set_before_columns() -> None:
    found = statements(
        delta(), Add.one("c", tp.IntegerType()), SetProperties({"delta.appendOnly": "false"}), RemoveRows()
    )

    assert found == [
        "DELETE FROM delta.`/t`",
        "SET TBLPROPERTIES ('delta.appendOnly' = 'false')",
        "ADD COLUMNS (`c` int)",
    ]


def test_a_state_is_what_it_changes() -> None:
    table = delta(topic="p.d.t", columns="names", altered="1.1.1.0.0")

    after = replace(table.state, last_alteration="1.1.2.0.0")
    assert statements(table, Note(after)) == ["SET TBLPROPERTIES ('tailrace.altered' = '1.1.2.0.0')"]
    assert statements(table, Drop("c"), Note(table.state))[1:] == ["DROP COLUMN `c`"]


def test_a_note_keeps_what_another_process_has_stored_since() -> None:
    class Shared(KnownDelta):
        """A table to which another process adds a column of its layout after the first change."""

        def alter(self, clause: str) -> None:
            made.append(clause)
            self.given = {**self.given, "tailrace.addedColumns": '["__op"]'}

    made: list[str] = []
    table = Shared(NO_SPARK, Location.at("/t"))
    table.given = {"tailrace.columns": "names", "tailrace.altered": "1.1.1.0.0"}

    table.change([Drop("c"), Note(replace(table.state, last_alteration="1.1.2.0.0"))])

    assert made[-2:] == ["DROP COLUMN `c`", "SET TBLPROPERTIES ('tailrace.altered' = '1.1.2.0.0')"]


def test_calls_for_a_table_without_a_name() -> None:
    first, *calls = HudiTable(NO_SPARK, "/t", "t", {}).explain([*COLUMNS, RemoveRows()]).split("; ")

    assert first == "from tailrace.spark_consumer.sink.hudi_table import HudiTable"
    assert [call.removeprefix("HudiTable.at(spark, '/t').") for call in calls] == [
        "remove_rows()",
        "add('a b', 'int')",
        "drop('c')",
        "rename('d', 'e')",
        "retype('n', 'bigint')",
        "retype('t', 'string')",
        "allow_null()",
    ]
