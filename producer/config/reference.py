"""The reference page of the configuration, made from the table of properties."""

from __future__ import annotations

from tailrace.producer.config.properties import GROUPS
from tailrace.producer.config.property import ANY, Property, Status

_HEAD = """# Configuration

<!-- Made from producer/config/properties by `python -m tailrace.producer.config --docs`; change it there. -->

A configuration is a JSON file or a `.properties` file in UTF-8.
The JSON may be flat, or as it is posted to Kafka Connect: `{"name": …, "config": {…}}`.
The names are those of the Debezium MySQL connector 3.6.
What Tailrace cannot honour of a connector's file is told at start, all of it at once.

```
tailrace produce --config shop.json --set snapshot.max.threads=4
tailrace config --config shop.json     # the effective configuration, secrets masked
tailrace check --config shop.json      # the source's prerequisites, nothing is written
```

**Where a value comes from.** The file, over it the environment, over it the flags.
The variable of a property is its name in capitals with `_` for every other character: `DATABASE_HOSTNAME` is
`database.hostname`. With `_FILE` at its end the variable names a file that holds the value, as secrets are mounted:
`DATABASE_PASSWORD_FILE=/run/secrets/password`. `PRODUCER_OVERRIDE_SASL_PASSWORD` is `producer.override.sasl.password`.
`name`, `transforms`, `predicates`, `converters` and `config.providers` are not read from the environment.

**Placeholders** in any value: `${file:/path/secrets.properties:key}`, `${dir:/path:file}` and `${env:NAME}`.

**What happens to a property** is in the column *status*:

- *honoured*: it has its effect;
- *accepted*: it has no effect here, and a warning says why;
- *refused*: it would change the records and is not there, so that the start fails; values after "only" ask for what
  happens anyway and are taken.

A name that is in none of the tables is a fault, with the nearest known name.
`*` in a name stands for any text.
"""


def page() -> str:
    """Return docs/configuration.md."""
    parts = [_HEAD]
    for title, properties in GROUPS:
        parts.append(f"\n## {title}\n\n| property | meaning | default | status |\n| --- | --- | --- | --- |\n")
        parts += [_line(entry) for entry in properties]
    return "".join(parts)


def _line(entry: Property) -> str:
    name = f"`{entry.name}`" + "".join(f"<br>also `{alias}`" for alias in entry.aliases)
    meaning = entry.meaning
    if entry.status is Status.SUPPORTED and entry.kind is not ANY:
        meaning += f" *{entry.kind.expects[0].upper()}{entry.kind.expects[1:]}.*"
    return f"| {name} | {_cell(meaning)} | {_default(entry)} | {_cell(_status(entry))} |\n"


def _default(entry: Property) -> str:
    if entry.status is not Status.SUPPORTED:
        return ""
    if entry.required:
        return "required"
    default = f"`{entry.default}`" if entry.default else ""
    return f"{default} (Debezium: `{entry.debezium}`)" if entry.debezium else default


def _status(entry: Property) -> str:
    if entry.status is Status.SUPPORTED:
        later = "".join(f"; `{value}` refused: {reason}" for value, reason in entry.later.items())
        return "honoured" + later
    known = " or ".join(f"`{word}`" for word in entry.harmless if word)
    if entry.status is Status.REJECTED and known:
        return f"refused, only {known}: {entry.reason}"
    return f"{entry.status.value}: {entry.reason}"


def _cell(text: str) -> str:
    return text.replace("|", "\\|")
