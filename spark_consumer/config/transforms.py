"""Transforms and routes of tables."""

from __future__ import annotations

from collections.abc import Mapping

from tailrace.runtime.config.draft import Draft
from tailrace.runtime.config.section import Section, prefixed, supported
from tailrace.runtime.config.value_types import ANY_TEXT, TEXT
from tailrace.spark_consumer.transform.reading import read_rules
from tailrace.spark_consumer.transform.rules import Rules


class TransformsConfig(Section):
    """What happens to the rows of tables before the sink gets them."""

    transforms: str | None = supported(
        "transforms",
        TEXT,
        doc="Names of [transforms](transforms.md), separated by commas; a table gets the first one that matches it.",
        in_environment=False,
    )
    transform_settings: Mapping[str, str] = prefixed(
        "transforms.*",
        ANY_TEXT,
        doc="`transforms.<name>.source-table`, `.projection`, `.filter` and `.primary-keys`.",
    )
    routes: str | None = supported(
        "routes",
        TEXT,
        doc="Names of [routes](transforms.md#routes), separated by commas; a table gets the first one that matches it.",
        in_environment=False,
    )
    route_settings: Mapping[str, str] = prefixed(
        "routes.*",
        ANY_TEXT,
        doc="`routes.<name>.source-table` and `.sink-table`.",
    )

    @property
    def rules(self) -> Rules:
        """The rules; the settings have been checked."""
        return read_rules(self.transforms, self.transform_settings, self.routes, self.route_settings)[0]


def check_rules(draft: Draft) -> None:
    """Add the problems of the rules that are seen without the schemas of the tables."""
    values = {name: draft.values.get(f"transforms.{name}") for name in TransformsConfig.model_fields}
    _, problems = read_rules(
        values["transforms"], values["transform_settings"] or {}, values["routes"], values["route_settings"] or {}
    )
    draft.problems += problems
