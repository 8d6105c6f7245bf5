"""Loads the configuration: properties of the consumer, and those of its sinks; generates their reference page."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Final

from tailrace.runtime.config.definition import Check, ConfigDefinition, Group
from tailrace.runtime.config.draft import Draft
from tailrace.runtime.config.property import Property, Support, ignored
from tailrace.runtime.config.reference import GENERATED, supported_table, unsupported_names
from tailrace.runtime.config.section import SectionSpec, properties_of
from tailrace.runtime.errors import ConfigError
from tailrace.spark_consumer.config import converters
from tailrace.spark_consumer.config.consumer import UNSUPPORTED, ConsumerConfig, check_rules
from tailrace.spark_consumer.config.sinks import (
    NamedSinkConfig,
    names_in,
    path_of,
    prefix_of,
    sections_of_sinks,
)
from tailrace.spark_consumer.sink.plugin import SinkPlugin, installed_sinks, load_sink

COMMON: Final = Group(
    "Properties of all sinks",
    ("", "converters.key", "converters.value", "transforms"),
    (*UNSUPPORTED, *converters.UNSUPPORTED),
)
_OPTIONS: Final = "sink_options"


def definition(sink: str | None, named: Mapping[str, str | None] | None = None) -> ConfigDefinition[ConsumerConfig]:
    """Return the definition for a sink. The properties of other installed sinks are known and ignored.

    ``named`` are the kinds of several sinks by name, None where the kind is not known.
    """
    plugins = installed_sinks()
    if named:
        return _definition_of_several(plugins, named)
    plugin = plugins.pop(sink, None) if sink else None
    if plugin is None:
        return ConfigDefinition(
            ConsumerConfig, (COMMON, _others(plugins, set())), checks=(_check_sink, _check_registries, check_rules)
        )
    own = Group(f"Sink {plugin.name}", (_OPTIONS,))
    others = _others(plugins, {entry.name for entry in options_of(plugin)})
    sections = {_OPTIONS: plugin.options}
    checks = (_check_one_choice, _check_dead_letters, _check_registries, check_rules, *plugin.checks)
    return ConfigDefinition(ConsumerConfig, (COMMON, own, others), sections=sections, checks=checks)


def _definition_of_several(
    plugins: Mapping[str, SinkPlugin], named: Mapping[str, str | None]
) -> ConfigDefinition[ConsumerConfig]:
    chosen = {name: plugins.get(kind or "") for name, kind in named.items()}
    groups, checks = [COMMON], [_check_one_choice, _check_dead_letters, _check_registries, check_rules]
    for name, plugin in chosen.items():
        path, prefix = path_of(name), prefix_of(name)
        # The fault is the kind: without one no property of the sink is known.
        unknown = ignored("its kind is not known", f"{prefix}*")
        groups.append(Group(f"Sink {name}", (path, f"{path}.options"), () if plugin else unknown))
        checks.append(partial(_check_kind, name))
        if plugin is not None:
            checks += [partial(_check_named, name, plugin, check) for check in plugin.checks]
    groups.append(_others(plugins, set(), "sinks is set; write it as sinks.<name>.{property}"))
    sections = sections_of_sinks({name: plugin.options if plugin else None for name, plugin in chosen.items()})
    return ConfigDefinition(ConsumerConfig, groups, sections=sections, checks=checks)


def all_properties() -> Iterator[Property]:
    """Yield the properties that a configuration can have, with those of all installed sinks."""
    yield from definition(None).properties_of(COMMON)
    yield Property("sinks.*", "Properties of one of several sinks.")
    for plugin in installed_sinks().values():
        yield from options_of(plugin)


def options_of(plugin: SinkPlugin) -> tuple[Property, ...]:
    """Return the properties that a sink declares."""
    return tuple(properties_of(SectionSpec(plugin.options), _OPTIONS))


def options_of_named(name: str) -> tuple[Property, ...]:
    """Return the properties that each of several sinks has."""
    return tuple(properties_of(SectionSpec(NamedSinkConfig, {"name": name})))


_OF_ANOTHER: Final = "it is a property of the sink {sink}"


def _others(plugins: Mapping[str, SinkPlugin], own: set[str], reason: str = _OF_ANOTHER) -> Group:
    found: dict[str, Property] = {}
    for plugin in plugins.values():
        for entry in options_of(plugin):
            if entry.name not in own:
                why = reason.format(sink=plugin.name, property=entry.name)
                if entry.name in plugin.rejected_elsewhere:
                    owners = [name for name, each in plugins.items() if entry.name in each.rejected_elsewhere]
                    why = f"only the sinks {', '.join(owners)} have it" if reason == _OF_ANOTHER else why
                    other = replace(entry, support=Support.REJECTED, no_op_values=(entry.default or "",))
                else:
                    other = replace(entry, support=Support.IGNORED)
                found.setdefault(entry.name, replace(other, reason=why))
    return Group("Other sinks", (), tuple(found.values()))


def _check_sink(draft: Draft) -> None:
    if draft.is_set("sink"):
        try:
            load_sink(draft.settings["sink"].value.strip())
        except ConfigError as error:
            draft.problems += error.problems
    elif not draft.is_set("sinks") and not draft.file_unread:
        draft.problems.append("sink is missing: Name of the sink; or set sinks. Expected: a text that is not empty")


def _check_one_choice(draft: Draft) -> None:
    if draft.is_set("sink") and draft.is_set("sinks"):
        draft.problems.append("sinks: sink is set too; use one of them")


def _check_kind(name: str, draft: Draft) -> None:
    kind = f"{prefix_of(name)}type"
    if draft.is_set(kind):
        try:
            load_sink(draft.settings[kind].value.strip())
        except ConfigError as error:
            draft.problems += [kind + problem.removeprefix("sink") for problem in error.problems]


def _check_named(name: str, plugin: SinkPlugin, check: Check, draft: Draft) -> None:
    """Run a check of a plug-in on the settings of one of several sinks, under the names that the plug-in knows."""
    prefix = prefix_of(name)
    names = [entry.name.partition("*")[0] for entry in options_of(plugin)]
    common = {key: setting for key, setting in draft.settings.items() if not key.startswith((prefix, "sink."))}
    own = {key.removeprefix(prefix): setting for key, setting in draft.settings.items() if key.startswith(prefix)}
    view = Draft(draft.table, {**common, **own}, draft.values)
    check(view)

    def named(text: str) -> str:
        return prefix + text if text.startswith(tuple(names)) else f"sinks.{name}: {text}"

    draft.problems += [named(problem) for problem in view.problems]
    draft.warnings += [named(warning) for warning in view.warnings]


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
    first = definition(None)
    sink = first.peek("sink", path, environ, overrides)
    names = names_in(first.peek("sinks", path, environ, overrides))
    if not names:
        return definition(sink).load(path, environ, overrides)
    kinds = definition(None, dict.fromkeys(names))
    named = {name: kinds.peek(f"{prefix_of(name)}type", path, environ, overrides) for name in names}
    return definition(None, named).load(path, environ, overrides)


def parse(settings: Mapping[str, str]) -> ConsumerConfig:
    """Return the configuration of some settings alone. Raises ConfigError with all problems."""
    return load(None, {}, settings)


def describe(config: ConsumerConfig) -> dict[str, str]:
    """Return the effective settings by property, secrets masked."""
    named = {} if config.sink else {chosen.name: chosen.kind for chosen in config.chosen_sinks}
    return definition(config.sink, named).describe(config)


_HEAD: Final = f"""# Configuration of the consumer

{GENERATED.format(command="python -m tailrace.spark_consumer.config --docs docs")}

The properties of the consumer, named as by Spark's Kafka source, streaming queries and Kafka's Java client. A sink has
the properties of each section that names it. Files, environment variables (`MAX_OFFSETS_PER_TRIGGER`), placeholders,
lists, names that begin with `key.` and the properties of the schema registry are as for the
[producer](configuration.md#converters-and-schemas).

```
tailrace consume --config consumer.json --set trigger.availableNow=true
tailrace consume --config consumer.json --show     # prints the effective configuration, secrets masked
```
"""

_SEVERAL: Final = """With [`sinks`](sinks.md#several-sinks), `sinks.NAME.` precedes each property of a sink, such as
`sinks.NAME.sink.path` (`SINKS_NAME_SINK_PATH`).
"""

_OF_THE_REGISTRY: Final = (".converter.schema.registry.", ".converter.basic.auth.")
"""Parts of the names of properties that the page of the producer describes."""


def pages() -> dict[str, str]:
    """Return the reference page by file name."""
    common = definition(None).properties_of(COMMON)
    own = [entry for entry in common if not any(part in entry.name for part in _OF_THE_REGISTRY)]
    parts = [_HEAD, f"\n## All sinks\n\n{supported_table(own)}"]
    parts.append(f"\n## Several sinks\n\n{_SEVERAL}\n{supported_table(options_of_named('NAME'))}")
    parts += _sinks()
    for support in (Support.REJECTED, Support.IGNORED):
        parts.append(f"\n## {str(support).capitalize()}\n\n{unsupported_names(common, support)}")
    return {"consumer-configuration.md": "".join(parts)}


def _sinks() -> list[str]:
    """Return a section for each sink, after those of the properties that several sinks have in common."""
    plugins = dict(sorted(installed_sinks().items()))
    sinks_of: dict[str, list[str]] = {}
    properties: dict[str, Property] = {}
    for name, plugin in plugins.items():
        for entry in options_of(plugin):
            row = supported_table([entry])
            sinks_of.setdefault(row, []).append(name)
            properties[row] = entry
    sections: dict[tuple[str, ...], list[Property]] = {(name,): [] for name in plugins}
    for row, names in sinks_of.items():
        sections.setdefault(tuple(names), []).append(properties[row])
    return [_section(names, sections[names]) for names in sorted(sections, key=lambda names: (-len(names), names))]


def _section(names: Sequence[str], properties: Sequence[Property]) -> str:
    title = f"\n## Sink{'s' if len(names) > 1 else ''} {', '.join(names)}\n"
    return f"{title}\n{supported_table(properties)}" if properties else ""
