"""Build the configuration: file < environment < flags, every fault found before one error is raised."""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import SecretStr, ValidationError

from tailrace.producer.config.column_transforms import read_rule, without_salt
from tailrace.producer.config.filters import FilterFault
from tailrace.producer.config.properties import PROPERTIES
from tailrace.producer.config.property import COLUMN_RULE, Property, Status
from tailrace.producer.config.sections import ProducerConfig
from tailrace.producer.config.sources import Setting, Settings, read_environment, read_file, resolve_placeholders
from tailrace.runtime.errors import ConfigError

MASK = "********"

_EXACT = {name: entry for entry in PROPERTIES if not entry.open for name in (entry.name, *entry.aliases)}
_OPEN = tuple(entry for entry in PROPERTIES if entry.open)

# What the producer itself decides, with the only value that keeps what it promises ("" = none may be given).
_RESERVED_FOR_KAFKA = {
    "enable.idempotence": "true",
    "acks": "all",
    "request.required.acks": "-1",
    "transactional.id": "",
    "partitioner": "murmur2_random",
    "isolation.level": "read_committed",
    "enable.auto.commit": "false",
}

_SECRET_NAME = re.compile(r"password|secret|sasl\.jaas|credential|token|\.pem$|private", re.IGNORECASE)


def load(path: Path | None, environ: Mapping[str, str], overrides: Mapping[str, str] | None = None) -> ProducerConfig:
    """Return the configuration of a producer.

    ``path`` is a JSON or .properties file, ``overrides`` are the flags. Raises ConfigError with every fault found.
    """
    faults: list[str] = []
    settings: Settings = read_file(path, faults) if path else {}
    _overlay(settings, read_environment(environ, PROPERTIES, faults))
    _overlay(settings, {name: Setting(value, "flag") for name, value in (overrides or {}).items()})
    settings = {name: resolve_placeholders(name, setting, environ, faults) for name, setting in settings.items()}

    values: dict[str, Any] = {}
    warnings: list[str] = []
    for name, setting in settings.items():
        entry = find(name)
        if entry is None:
            faults.append(_unknown(name))
        elif entry.status is Status.SUPPORTED:
            _read(entry, name, setting, values, faults)
        elif setting.value.strip().lower() not in entry.harmless:
            if entry.status is Status.REJECTED:
                faults.append(_refusal(entry, name, setting))
            else:
                warnings.append(f"{name} has no effect: {entry.reason}")
    _defaults(settings, values, faults)
    _contradictions(settings, values, faults)
    if faults:
        raise ConfigError([_without_salts(fault, settings) for fault in faults])
    if values["snapshot.mode"] == "recovery":
        warnings.append("snapshot.mode=recovery: there is no schema history to recover; the log is followed (no_data)")
    return _build(values, tuple(_without_salts(warning, settings) for warning in warnings))


def _without_salts(text: str, settings: Settings) -> str:
    for name in settings:
        text = text.replace(name, without_salt(name))
    return text


def find(name: str) -> Property | None:
    """Return what is known of a name, or None."""
    return _EXACT.get(name) or next((entry for entry in _OPEN if entry.matches(name)), None)


def redact(name: str, value: str) -> str:
    """Return a value for a message: quoted, and masked where it may be a secret."""
    entry = find(name)
    if (entry is not None and entry.secret) or _SECRET_NAME.search(name):
        return MASK
    return repr(value)


def _overlay(settings: Settings, upper: Settings) -> None:
    """Put ``upper`` over ``settings``; two spellings of one property replace each other only across the layers."""
    for name, setting in upper.items():
        entry = find(name)
        for other in (entry.name, *entry.aliases) if entry is not None and not entry.open else ():
            if other in settings and other not in upper:
                del settings[other]
        settings[name] = setting


def _unknown(name: str) -> str:
    return f"{name} is not a known property{_suggestion(name, 0.75)}"


def _suggestion(name: str, likeness: float) -> str:
    near = difflib.get_close_matches(name, _EXACT, n=1, cutoff=likeness)
    return f"; did you mean {near[0]}?" if near else ""


def _refusal(entry: Property, name: str, setting: Setting) -> str:
    words = " or ".join(word or "(empty)" for word in entry.harmless)
    only = f"; it may only be {words}" if words else ""
    near = _suggestion(name, 0.85) if entry.open else ""
    return f"{name}: {redact(name, setting.value)} ({setting.origin}) is not supported: {entry.reason}{only}{near}"


def _read(entry: Property, name: str, setting: Setting, values: dict[str, Any], faults: list[str]) -> None:
    if entry.kind is COLUMN_RULE:
        _read_column_rule(entry, name, setting, values, faults)
        return
    if entry.open:
        head = entry.name.removesuffix("*")
        same = values.setdefault(entry.place, {})
        key = name.removeprefix(head)
        if key in same and same[key] != setting.value:
            faults.append(f"{name}: given twice with different values, as producer.override.{key} and kafka.{key}")
        same[key] = setting.value
        return
    place = entry.place
    if place in values:
        faults.append(
            f"{name}: the same is given under another name ({', '.join((entry.name, *entry.aliases))}); keep one"
        )
        return
    text = setting.value
    if not text.strip() and entry.default is None and not entry.required:
        return
    try:
        values[place] = entry.kind.read(text)
    except (ValueError, LookupError, OverflowError) as error:
        why = f": {error}" if type(error).__name__ == "FilterFault" else ""
        faults.append(f"{name}: {redact(name, text)} ({setting.origin}) is not {entry.kind.expects}{why}")
        return
    refused = entry.later.get(text.strip().lower()) or entry.later.get(str(values[place]))
    if refused:
        faults.append(f"{name}: {redact(name, text)} ({setting.origin}) is not supported: {refused}")


def _read_column_rule(entry: Property, name: str, setting: Setting, values: dict[str, Any], faults: list[str]) -> None:
    try:
        rule = read_rule(name, setting.value)
    except FilterFault as error:
        faults.append(f"{name}: {setting.value!r} ({setting.origin}) cannot be used: {error}")
        return
    if rule.columns:
        values[entry.place] = (*values.get(entry.place, ()), (SecretStr(name), setting.value))


def _defaults(settings: Settings, values: dict[str, Any], faults: list[str]) -> None:
    history = settings.get("schema.history.internal.kafka.bootstrap.servers")
    if "kafka.bootstrap_servers" not in values and history is not None and history.value.strip():
        values["kafka.bootstrap_servers"] = history.value.strip()
    for entry in PROPERTIES:
        if entry.status is not Status.SUPPORTED or entry.open or entry.place in values:
            continue
        if entry.required:
            given = next((n for n in (entry.name, *entry.aliases) if n in settings), None)
            if given is None:
                faults.append(f"{entry.name} is missing: {entry.meaning} Expected {entry.kind.expects}")
        elif entry.default is not None:
            values[entry.place] = entry.kind.read(entry.default)


def _contradictions(settings: Settings, values: dict[str, Any], faults: list[str]) -> None:
    for kind in ("database", "table", "column"):
        both = [f"{kind}.{side}.list" for side in ("include", "exclude")]
        if all(name in settings and settings[name].value.strip() for name in both):
            faults.append(f"{both[0]} and {both[1]} exclude each other: keep one")
    for name, only in _RESERVED_FOR_KAFKA.items():
        seen = values.get("kafka.overrides", {}).get(name)
        if seen is not None and seen != only:
            faults.append(
                f"kafka.{name}: {seen!r} would take away what is promised about delivery"
                + (f"; it may only be {only}" if only else "; leave it out")
            )
    faults += [
        f"{side}.converter.schema.registry.url is missing: {side}s in Avro need a schema registry"
        for side in ("key", "value")
        if values.get(f"converters.{side}") == "avro" and f"converters.{side}_registry" not in values
    ]
    if values.get("snapshot.mode") == "configuration_based" and not (
        values.get("snapshot.based_data") or values.get("snapshot.based_stream")
    ):
        faults.append(
            "snapshot.mode=configuration_based: neither snapshot.mode.configuration.based.snapshot.data nor "
            "snapshot.mode.configuration.based.start.stream is true, so that there is nothing to do"
        )
    if "sink" in values.get("notifications.channels", ()) and "notifications.topic" not in values:
        faults.append("notification.enabled.channels: the channel sink needs a topic; set notification.sink.topic.name")
    if values.get("snapshot.even_lower", 0) > values.get("snapshot.even_upper", 1):
        faults.append("chunk-key.even-distribution.factor.lower-bound is greater than the upper-bound")
    faults += [
        f"topic.creation.default.{name.replace('_', '.')}: '0' is neither -1 nor greater than 0"
        for name in ("partitions", "replication_factor")
        if values.get(f"topics.{name}") == 0
    ]


def _build(values: dict[str, Any], warnings: tuple[str, ...]) -> ProducerConfig:
    body: dict[str, Any] = {"warnings": warnings}
    for place, value in values.items():
        section, _, attribute = place.partition(".")
        if attribute:
            body.setdefault(section, {})[attribute] = value
        else:
            body[section] = value
    body["database"]["password"] = SecretStr(body["database"]["password"])
    try:
        return ProducerConfig.model_validate(body)
    except ValidationError as error:
        # The table of properties has checked every value, so that this is a fault of the table; never print the input.
        raise ConfigError([f"{'.'.join(map(str, e['loc']))}: {e['msg']}" for e in error.errors()]) from None


def describe(config: ProducerConfig) -> dict[str, str]:
    """Return the effective settings by property name, secrets masked."""
    body = config.model_dump()
    found: dict[str, str] = {}
    for entry in PROPERTIES:
        if entry.status is not Status.SUPPORTED:
            continue
        section, _, attribute = entry.place.partition(".")
        value = body[section][attribute] if attribute else body[section]
        if entry.kind is COLUMN_RULE:
            given = [(name.get_secret_value(), text) for name, text in value]
            found |= {without_salt(name): text for name, text in given if find(name) is entry}
        elif entry.open:
            if entry.name != "producer.override.*":  # the short form says the same
                head = entry.name.removesuffix("*")
                found |= {head + name: _plain(head + name, item) for name, item in sorted(value.items())}
        elif value is not None:
            found[entry.name] = MASK if entry.secret and value.get_secret_value() else _plain(entry.name, value)
    return found


def _plain(name: str, value: Any) -> str:
    if isinstance(value, SecretStr):
        return MASK if _SECRET_NAME.search(name) else value.get_secret_value()
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, tuple):
        return ";".join(value)
    if isinstance(value, frozenset):
        return ",".join(sorted(value)) or "none"
    return str(value)


__all__ = ["describe", "find", "load", "redact"]
