"""Loads the consumer's configuration: its own properties and those that the sink's plug-in declares."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Final

from tailrace.runtime.config.definition import ConfigDefinition, Group
from tailrace.runtime.config.draft import Draft
from tailrace.runtime.config.property import Property, Support
from tailrace.runtime.config.section import SectionSpec, properties_of
from tailrace.runtime.errors import ConfigError
from tailrace.spark_consumer.config import converters
from tailrace.spark_consumer.config.consumer import UNSUPPORTED, ConsumerConfig
from tailrace.spark_consumer.config.transforms import check_rules
from tailrace.spark_consumer.sink.plugin import SinkPlugin, installed_sinks, load_sink

COMMON: Final = Group(
    "Properties of all sinks",
    ("", "converters.key", "converters.value", "transforms"),
    (*UNSUPPORTED, *converters.UNSUPPORTED),
)
_OPTIONS: Final = "sink_options"


def definition(sink: str | None) -> ConfigDefinition[ConsumerConfig]:
    """Return the definition for a sink. The properties of other installed sinks are known and ignored."""
    plugins = installed_sinks()
    plugin = plugins.pop(sink, None) if sink else None
    if plugin is None:
        return ConfigDefinition(
            ConsumerConfig, (COMMON, _others(plugins, set())), checks=(_check_sink, _check_registries, check_rules)
        )
    own = Group(f"Sink {plugin.name}", (_OPTIONS,))
    others = _others(plugins, {entry.name for entry in options_of(plugin)})
    sections = {_OPTIONS: plugin.options}
    checks = (_check_dead_letters, _check_registries, check_rules, *plugin.checks)
    return ConfigDefinition(ConsumerConfig, (COMMON, own, others), sections=sections, checks=checks)


def options_of(plugin: SinkPlugin) -> tuple[Property, ...]:
    """Return the properties that a sink declares."""
    return tuple(properties_of(SectionSpec(plugin.options), _OPTIONS))


def _others(plugins: Mapping[str, SinkPlugin], own: set[str]) -> Group:
    found: dict[str, Property] = {}
    for plugin in plugins.values():
        for entry in options_of(plugin):
            if entry.name not in own:
                reason = f"it is a property of the sink {plugin.name}"
                found.setdefault(entry.name, replace(entry, support=Support.IGNORED, reason=reason))
    return Group("Other sinks", (), tuple(found.values()))


def _check_sink(draft: Draft) -> None:
    if draft.is_set("sink"):
        try:
            load_sink(draft.settings["sink"].value.strip())
        except ConfigError as error:
            draft.problems += error.problems


def _check_registries(draft: Draft) -> None:
    for side in ("key", "value"):
        if draft.is_set(f"{side}.converter") and "avro" in draft.settings[f"{side}.converter"].value.lower():
            url = f"{side}.converter.schema.registry.url"
            if not draft.is_set(url):
                draft.problems.append(f"{url} is required: {side}.converter is Avro")


def _check_dead_letters(draft: Draft) -> None:
    def text(name: str) -> str:
        return draft.settings[name].value.strip() if draft.is_set(name) else ""

    topic = text("errors.deadletterqueue.topic.name")
    if text("errors.tolerance").lower() == "all" and not topic:
        draft.problems.append("errors.deadletterqueue.topic.name: it is needed for errors.tolerance=all")
    if topic.startswith(text("topic.prefix") + "."):
        draft.problems.append(
            f"errors.deadletterqueue.topic.name: {topic!r} would be read as a captured table; "
            "use a name that does not start with the topic prefix"
        )


def load(
    path: Path | None, environ: Mapping[str, str] | None = None, overrides: Mapping[str, str] | None = None
) -> ConsumerConfig:
    """Return the configuration of a file, the environment and flags. Raises ConfigError with all problems."""
    environ = os.environ if environ is None else environ
    sink = definition(None).peek("sink", path, environ, overrides)
    return definition(sink).load(path, environ, overrides)


def parse(settings: Mapping[str, str]) -> ConsumerConfig:
    """Return the configuration of some settings alone. Raises ConfigError with all problems."""
    return load(None, {}, settings)


def describe(config: ConsumerConfig) -> dict[str, str]:
    """Return the effective settings by property, secrets masked."""
    return definition(config.sink).describe(config)
