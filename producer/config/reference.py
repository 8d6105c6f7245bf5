"""The reference pages of the producer's configuration, generated from its sections."""

from __future__ import annotations

from typing import Final

from tailrace.producer.config.definition import DEFINITION, GROUPS
from tailrace.runtime.config.property import Support
from tailrace.runtime.config.reference import GENERATED, supported_table, unsupported_table

_SUPPORTED: Final = f"""# Configuration of the producer

{GENERATED.format(command="python -m tailrace.producer.config --docs docs")}

Tailrace reads the configuration of a Debezium MySQL connector 3.6. The properties have the same names and, unless the
tables below say otherwise, the same defaults. Properties that start with `tailrace.` exist only here.
Properties that Tailrace ignores or rejects are on [a page of their own](configuration-ignored.md).

A configuration is a JSON file or a `.properties` file in UTF-8. JSON can be flat, nested (names are joined by dots), or
have the form that is posted to Kafka Connect: `{{"name": …, "config": {{…}}}}`.

```
tailrace produce --config shop.json --set snapshot.max.threads=4
tailrace config --config shop.json     # prints the effective configuration, secrets masked
tailrace check --config shop.json      # checks configuration and database, writes nothing
```

An unknown property is an error; the message suggests a similar name. All errors are reported together.

**Precedence.** Options of the command line (`--set`) override environment variables, which override the file.

**Environment variables.** The variable of a property is its name in upper case, with `_` for all other characters
and between the words of a name in camel case: `database.hostname` is `DATABASE_HOSTNAME`, `signal.kafka.groupId` is
`SIGNAL_KAFKA_GROUP_ID`. If a variable ends in `_FILE`, it is the path of a file that contains the
value as it is: `DATABASE_PASSWORD_FILE=/run/secrets/password`. `PRODUCER_OVERRIDE_SASL_PASSWORD` is
`producer.override.sasl.password`. `name`, `transforms`, `predicates`, `converters` and `config.providers` cannot be set
by environment variables.

**Placeholders.** Values may contain `${{file:/path/secrets.properties:key}}`, `${{dir:/path:file}}` and
`${{env:NAME}}`.

**Wildcards.** `*` in a name stands for any text.
"""

_UNSUPPORTED: Final = f"""# Ignored and rejected properties

{GENERATED.format(command="python -m tailrace.producer.config --docs docs")}

These properties of the Debezium MySQL connector and of Kafka Connect have no effect in Tailrace:

- *ignored*: the producer logs a warning with the reason;
- *rejected*: the property would change the records, so that the producer does not start.

Values after *except* ask for what Tailrace does anyway. They cause neither a warning nor an error.
[Supported properties](configuration.md) are on a page of their own.
"""


def pages() -> dict[str, str]:
    """Return the reference pages by file name."""
    supported, unsupported = [_SUPPORTED], [_UNSUPPORTED]
    for group in GROUPS:
        properties = DEFINITION.properties_of(group)
        if any(entry.support is Support.SUPPORTED for entry in properties):
            supported.append(f"\n## {group.title}\n\n{supported_table(properties)}")
        if group.unsupported:
            unsupported.append(f"\n## {group.title}\n\n{unsupported_table(properties)}")
    return {"configuration.md": "".join(supported), "configuration-ignored.md": "".join(unsupported)}
