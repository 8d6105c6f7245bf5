"""The reference pages of the producer's configuration, generated from its sections."""

from __future__ import annotations

from typing import Final

from tailrace.producer.config.definition import DEFINITION, GROUPS
from tailrace.runtime.config.property import Support
from tailrace.runtime.config.reference import GENERATED, supported_table, unsupported_names, unsupported_table

_SUPPORTED: Final = f"""# Configuration of the producer

{GENERATED.format(command="python -m tailrace.producer.config --docs docs")}

The properties of the producer: those of the Debezium MySQL connector 3.6, with its defaults unless noted, and those
that begin with `tailrace.`. Other properties of Debezium are [ignored or rejected](configuration-ignored.md).

A configuration is a `.properties` file in UTF-8, or JSON: flat, nested, or as it is posted to Kafka Connect
(`{{"name": …, "config": {{…}}}}`), or a [pipeline file](pipeline.md).

```
tailrace produce --config shop.json --set snapshot.max.threads=4
tailrace config --config shop.json     # prints the effective configuration, secrets masked
tailrace check --config shop.json      # checks configuration and database, writes nothing
```

- All errors are reported together. `--set` overrides environment variables, which override the file.
- The **environment variable** of a property is its name in upper case, with `_` for other characters and between words
  in camel case: `signal.kafka.groupId` is `SIGNAL_KAFKA_GROUP_ID`. With `_FILE` at its end it is the path of a file
  with the value: `DATABASE_PASSWORD_FILE=/run/secrets/password`. `name`, `transforms`, `predicates`, `converters` and
  `config.providers` have none.
- Values may contain the **placeholders** `${{file:/path/secrets.properties:key}}`, `${{dir:/path:file}}` and
  `${{env:NAME}}`.
- `*` in a name stands for any text. Names that begin with `key.` are there with `value.` too. Times whose name ends
  with `ms` are milliseconds.
- Lists of databases, tables and columns (`db.table.column`) are regular expressions for the whole name, separated by
  commas. Masks and truncations do not change record keys.
"""

_UNSUPPORTED: Final = f"""# Ignored and rejected properties

{GENERATED.format(command="python -m tailrace.producer.config --docs docs")}

Which properties of the Debezium MySQL connector and of Kafka Connect the [producer](configuration.md) does not support.
Values after *except* ask for what happens anyway and are accepted. Names that begin with `key.` are there with `value.`
too.
"""

_REJECTED: Final = """
## Rejected

They would change the records. The producer does not start.
"""

_IGNORED: Final = """
## Ignored

They change nothing. Each start, and `tailrace config`, warns of those that are set, with the reason.
"""


def pages() -> dict[str, str]:
    """Return the reference pages by file name."""
    supported = [_SUPPORTED]
    for group in GROUPS:
        properties = DEFINITION.properties_of(group)
        if any(entry.support is Support.SUPPORTED for entry in properties):
            supported.append(f"\n## {group.title}\n\n{supported_table(properties)}")
    unsupported = [_UNSUPPORTED]
    unsupported.append(f"{_REJECTED}\n{unsupported_table(DEFINITION.table.properties, Support.REJECTED)}")
    unsupported.append(f"{_IGNORED}\n{unsupported_names(DEFINITION.table.properties, Support.IGNORED)}")
    return {"configuration.md": "".join(supported), "configuration-ignored.md": "".join(unsupported)}
