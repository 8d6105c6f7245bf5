"""The reference page of the consumer's configuration, generated from its properties and those of the sinks."""

from __future__ import annotations

from typing import Final

from tailrace.runtime.config.reference import GENERATED, supported_table, unsupported_table
from tailrace.spark_consumer.config.definition import COMMON, definition, options_of, options_of_named
from tailrace.spark_consumer.sink.plugin import installed_sinks

_HEAD: Final = f"""# Configuration of the consumer

{GENERATED.format(command="python -m tailrace.spark_consumer.config --docs docs")}

Files, environment variables, `_FILE` variables and placeholders work as in
[the configuration of the producer](configuration.md). The names are those of Spark's Kafka source, of streaming
queries and of Kafka's Java client. The variable of `maxOffsetsPerTrigger` is `MAX_OFFSETS_PER_TRIGGER`.

```
tailrace consume --config consumer.json --set trigger.availableNow=true
tailrace consume --config consumer.json --show     # prints the effective configuration, secrets masked
```
"""

_SEVERAL: Final = """`sinks` has their names. Each property of a sink, such as `sink.path`, is written with `sinks.`,
the name and a dot before it; its variable is then `SINKS_NAME_SINK_PATH`. See [Several sinks](sinks.md#several-sinks).
"""


def pages() -> dict[str, str]:
    """Return the reference page by file name."""
    common = definition(None).properties_of(COMMON)
    parts = [_HEAD, f"\n## All sinks\n\n{supported_table(common)}"]
    parts.append(f"\n## Several sinks\n\n{_SEVERAL}\n{supported_table(options_of_named('NAME'))}")
    parts += [
        f"\n## Sink {name}\n\n{plugin.doc}\n\n{supported_table(options_of(plugin))}"
        for name, plugin in sorted(installed_sinks().items())
    ]
    parts.append(f"\n## Ignored and rejected properties\n\n{unsupported_table(common)}")
    return {"consumer-configuration.md": "".join(parts)}
