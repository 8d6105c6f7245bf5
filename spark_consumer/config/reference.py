"""The reference page of the consumer's configuration, generated from its properties and those of the sinks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from tailrace.runtime.config.property import Property, Support
from tailrace.runtime.config.reference import GENERATED, supported_table, unsupported_names
from tailrace.spark_consumer.config.definition import COMMON, definition, options_of, options_of_named
from tailrace.spark_consumer.sink.plugin import installed_sinks

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
