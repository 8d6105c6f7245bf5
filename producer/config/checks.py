"""Checks that concern more than one property."""

from __future__ import annotations

from typing import Final

from pydantic import SecretStr

from tailrace.producer.config.java_client import client_options
from tailrace.runtime.config.definition import Check
from tailrace.runtime.config.draft import Draft

# The options of the Kafka clients that delivery depends on, with the only allowed value ("" = must not be set).
_RESERVED_OPTIONS: Final = {
    "enable.idempotence": "true",
    "acks": "all",
    "request.required.acks": "-1",
    "transactional.id": "",
    "partitioner": "murmur2_random",
    "isolation.level": "read_committed",
    "enable.auto.commit": "false",
}


def _include_and_exclude_lists(draft: Draft) -> None:
    for kind in ("database", "table", "column"):
        lists = [f"{kind}.{side}.list" for side in ("include", "exclude")]
        if all(map(draft.is_set, lists)):
            draft.problems.append(f"{lists[0]} and {lists[1]} exclude each other; keep one")


def _one_password(draft: Draft) -> None:
    names = ["database.password", "database.password.command"]
    if all(map(draft.is_set, names)):
        draft.problems.append(f"{names[0]} and {names[1]} exclude each other; keep one")


def _reserved_kafka_options(draft: Draft) -> None:
    for name, allowed in _RESERVED_OPTIONS.items():
        given: SecretStr | None = draft.values.get("kafka.overrides", {}).get(name)
        if given is not None and given.get_secret_value() != allowed:
            draft.problems.append(
                f"kafka.{name}: {given.get_secret_value()!r} would break the delivery guarantee; "
                + (f"the only allowed value is {allowed}" if allowed else "remove it")
            )


def _java_client_options(draft: Draft) -> None:
    given: dict[str, SecretStr] = draft.values.get("kafka.overrides", {})
    read = client_options({name: value.get_secret_value() for name, value in given.items()})
    draft.problems += [f"producer.override.{problem}" for problem in read.problems]
    draft.warnings += [
        f"producer.override.{name} has no effect: it is an option of Java's client alone" for name in read.ignored
    ]


def _unicode_prefix(draft: Draft) -> None:
    prefix = draft.values.get("topics.prefix", "")
    if draft.values.get("topics.naming") == "unicode" and "_" in prefix:
        draft.problems.append(
            f"topic.prefix: with topic.naming.strategy=unicode the topics of tables would start with "
            f"{prefix.replace('_', '_u005f')}, and all others with {prefix}; choose a prefix without _"
        )


def _avro_needs_registry(draft: Draft) -> None:
    draft.problems += [
        f"{side}.converter.schema.registry.url is missing: {side}s in Avro need a schema registry"
        for side in ("key", "value")
        if draft.values.get(f"converters.{side}.converter") == "avro"
        and f"converters.{side}.registry" not in draft.values
    ]


def _snapshot_mode(draft: Draft) -> None:
    mode = draft.values.get("snapshot.mode")
    configured = draft.values.get("snapshot.configured_data") or draft.values.get("snapshot.configured_stream")
    if mode == "configuration_based" and not configured:
        draft.problems.append(
            "snapshot.mode=configuration_based: there is nothing to do; set "
            "snapshot.mode.configuration.based.snapshot.data or snapshot.mode.configuration.based.start.stream to true"
        )
    if mode == "recovery":
        draft.warnings.append("snapshot.mode=recovery is treated as no_data: there is no schema history to recover")


def _distribution_factors(draft: Draft) -> None:
    lower, upper = draft.values.get("snapshot.even_lower", 0), draft.values.get("snapshot.even_upper", 1)
    if lower > upper:
        draft.problems.append(
            f"chunk-key.even-distribution.factor.lower-bound: {lower:g} is greater than the upper bound, {upper:g}"
        )


def _notification_channels(draft: Draft) -> None:
    for channel, what, field, name in (
        ("sink", "topic", "notifications.topic", "notification.sink.topic.name"),
        ("webhook", "URL", "notifications.webhook_url", "tailrace.notification.webhook.url"),
    ):
        if channel in draft.values.get("notifications.channels", ()) and field not in draft.values:
            draft.problems.append(f"notification.enabled.channels: the channel {channel} needs a {what}; set {name}")


def _new_topics(draft: Draft) -> None:
    draft.problems += [
        f"topic.creation.default.{name.replace('_', '.')}: '0' is neither -1 nor greater than 0"
        for name in ("partitions", "replication_factor")
        if draft.values.get(f"topics.{name}") == 0
    ]


CHECKS: Final[tuple[Check, ...]] = (
    _include_and_exclude_lists,
    _one_password,
    _reserved_kafka_options,
    _java_client_options,
    _unicode_prefix,
    _avro_needs_registry,
    _snapshot_mode,
    _distribution_factors,
    _notification_channels,
    _new_topics,
)
