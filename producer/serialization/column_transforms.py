"""Applies the configured column rules to tables: which columns are dropped or transformed, and carry a source type."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tailrace.producer.config.column_transforms import ColumnProjection, Hash, TransformRule, Truncate, read_rule
from tailrace.producer.config.filters import ColumnFilter, any_matches, compile_list
from tailrace.producer.config.sections.filters import FiltersConfig
from tailrace.producer.model.table import Column, TableId
from tailrace.producer.mysql.types.registry import family_of, source_type
from tailrace.runtime.errors import SchemaError


class ColumnTransforms:
    """All rules of a configuration."""

    def __init__(self, filters: FiltersConfig) -> None:
        self._filter = ColumnFilter(include=filters.column_include, exclude=filters.column_exclude)
        self._rules = tuple(read_rule(name.get_secret_value(), text) for name, text in filters.transform_rules)
        self._source_types = compile_list(filters.source_types)
        self._by_type = compile_list(filters.source_types_by_type)

    @property
    def trivial(self) -> bool:
        return self._filter.trivial and not self._rules

    def project(self, table: TableId, columns: Sequence[Column], key: Sequence[str]) -> ColumnProjection | None:
        """Return the projection of a table; None if it changes nothing. Raises SchemaError for its ``problems``."""
        if self.trivial:
            return None
        problems = self.problems(table, columns, key)
        if problems:
            raise SchemaError("; ".join(problems), hint="correct the column properties, or exclude the table")
        dropped = frozenset(column.name for column in columns if not self._filter.includes(table, column.name))
        transforms = {column.name: rule.transform for column in columns for rule in self._matching(table, column)}
        transforms = {name: transform for name, transform in transforms.items() if name not in dropped}
        return ColumnProjection(dropped, transforms) if dropped or transforms else None

    def publishes(self, table: TableId, column: str) -> bool:
        return self._filter.includes(table, column)

    def carries_source_type(self, table: TableId, column: Column) -> bool:
        """Return whether a column's schema carries its source type. As in Debezium, a transformed column has none."""
        return self._is_selected_for_source_type(table, column) and not self._matching(table, column)

    def problems(self, table: TableId, columns: Sequence[Column], key: Sequence[str]) -> list[str]:
        """Return the reasons for which the rules cannot be applied to a table: one text for each column and rule."""
        found: list[str] = []
        for column in columns:
            name = f"{table}.{column.name}"
            if not self._filter.includes(table, column.name):
                if column.name in key:
                    found.append(
                        f"{self._filter} drops {name}, which is a key column: "
                        f"keep it, or set other key columns in message.key.columns"
                    )
                continue
            rules = self._matching(table, column)
            if len(rules) > 1:
                conflicting = " and ".join(map(str, rules))
                found.append(f"{name} is matched by properties of which only one can apply: {conflicting}")
            for rule in rules:
                if not isinstance(rule.transform, Truncate) and not family_of(column.data_type).is_text:
                    found.append(
                        f"{rule} matches {name}, which is {source_type(column).name}: only text can be masked, so that "
                        f"its values would be written unchanged; drop it with column.exclude.list"
                    )
                elif isinstance(rule.transform, Hash) and self._is_selected_for_source_type(table, column):
                    found.append(
                        f"{rule} matches {name}, and so does column.propagate.source.type or "
                        f"datatype.propagate.source.type: Debezium would write its values unchanged; "
                        f"remove the column from one of them"
                    )
        return found

    def transformed_keys(self, table: TableId, columns: Sequence[Column], key: Sequence[str]) -> list[str]:
        """Return the key columns whose values are transformed in rows. Record keys keep the original values."""
        return [column.name for column in columns if column.name in key and self._matching(table, column)]

    def unmatched(self, columns: Iterable[tuple[TableId, Column]]) -> list[str]:
        """Return the rules that match none of these columns, for messages."""
        names = [f"{table}.{column.name}" for table, column in columns]
        return [str(rule) for rule in self._rules if not any(any_matches(rule.columns, name) for name in names)]

    def _matching(self, table: TableId, column: Column) -> list[TransformRule]:
        name = f"{table}.{column.name}"
        return [rule for rule in self._rules if any_matches(rule.columns, name)]

    def _is_selected_for_source_type(self, table: TableId, column: Column) -> bool:
        if any_matches(self._source_types, f"{table}.{column.name}"):
            return True
        return bool(self._by_type) and any_matches(self._by_type, f"{table}.{source_type(column).name}")
