"""The consumer's configuration: Spark's and Kafka's own names, checked as a whole, every fault reported at once."""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from tailrace.runtime.config.property import Property
from tailrace.runtime.config.section import Section, SectionSpec, properties_of
from tailrace.runtime.errors import ConfigError
from tailrace.spark_consumer import config_file
from tailrace.spark_consumer.sink.plugin import SinkPlugin, installed_sinks, load_sink

_SECRET: Final = re.compile(r"password|secret|jaas|token|credential|\.key$", re.IGNORECASE)
_PASSED_ON: Final = ("kafka.", "spark.")
_OURS: Final = {
    "kafka.isolation.level": "it is always read_committed",
    "kafka.group.id": "Spark keeps offsets in the checkpoint; use groupIdPrefix",
    "kafka.auto.offset.reset": "a first start always reads from the earliest offset",
    "kafka.key.deserializer": "Spark reads bytes",
    "kafka.value.deserializer": "Spark reads bytes",
    "kafka.enable.auto.commit": "Spark keeps offsets in the checkpoint",
}
_SECRET_VARIABLES: Final = (
    "kafka.security.protocol",
    "kafka.sasl.mechanism",
    "kafka.sasl.jaas.config",
    "kafka.ssl.truststore.location",
    "kafka.ssl.truststore.password",
    "kafka.ssl.keystore.location",
    "kafka.ssl.keystore.password",
    "kafka.ssl.key.password",
)
_BOOTSTRAP: Final = "kafka.bootstrap.servers"


class ConsumerConfig(BaseModel):
    """Every setting, with its name as alias; settings under ``kafka.`` and ``spark.`` are passed on."""

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=False)

    bootstrap_servers: str = Field(alias=_BOOTSTRAP, min_length=1)
    topic_prefix: str = Field(alias="topic.prefix", pattern=r"^[A-Za-z0-9._-]+$")
    checkpoint: str = Field(alias="checkpointLocation", min_length=1)
    query_name: str | None = Field(default=None, alias="queryName")
    max_offsets: int = Field(default=2_000_000, alias="maxOffsetsPerTrigger", gt=0)
    min_partitions: int | None = Field(default=None, alias="minPartitions", gt=0)
    group_prefix: str | None = Field(default=None, alias="groupIdPrefix")
    processing_time: str = Field(default="1 second", alias="trigger.processingTime")
    available_now: bool = Field(default=False, alias="trigger.availableNow")

    sink: str = Field(alias="sink", min_length=1)
    sink_options: Section = Field(default_factory=Section)

    monitor_port: int = Field(default=0, alias="monitor.port", ge=0, le=65535)
    monitor_host: str = Field(default="127.0.0.1", alias="monitor.host")
    log_format: Literal["auto", "json", "text"] = Field(default="auto", alias="log.format")
    log_level: Literal["debug", "info", "warning", "error"] = Field(default="info", alias="log.level")

    client: Mapping[str, str] = Field(default_factory=dict, alias="kafka.")
    spark: Mapping[str, str] = Field(default_factory=dict, alias="spark.")

    @property
    def kafka_client(self) -> dict[str, str]:
        """Client options as Spark takes them, with their ``kafka.`` in front."""
        return {**{f"kafka.{name}": value for name, value in self.client.items()}, _BOOTSTRAP: self.bootstrap_servers}

    @property
    def source_options(self) -> dict[str, str]:
        """Options of the Kafka source that are passed on as they are."""
        given = {"minPartitions": self.min_partitions, "groupIdPrefix": self.group_prefix}
        return {name: str(value) for name, value in given.items() if value is not None}

    @property
    def name(self) -> str:
        """The query's name."""
        return self.query_name or f"tailrace-{self.topic_prefix}"

    def shown(self) -> dict[str, Any]:
        """Return the effective settings for people, secrets masked."""
        flat: dict[str, Any] = {}
        dumped = self.model_dump(by_alias=True, exclude={"sink_options"})
        for entry in _declared(type(self.sink_options)):
            dumped[entry.name.removesuffix("*")] = getattr(self.sink_options, entry.target)
        for key, value in dumped.items():
            if isinstance(value, Mapping):
                flat.update({key + name: inner for name, inner in value.items()})
            else:
                flat[key] = value
        return {key: "***" if _SECRET.search(key) else value for key, value in flat.items() if value is not None}

    def __repr__(self) -> str:
        return f"ConsumerConfig({self.shown()})"

    __str__ = __repr__


def load(path: Path | None, environment: Mapping[str, str] | None = None) -> ConsumerConfig:
    """Read a file and the environment over it.

    Raises ConfigError with every fault found.
    """
    given = config_file.load(path) if path is not None else {}
    variables = [key for key in _known() if key != _BOOTSTRAP] + ["bootstrap.servers", *_SECRET_VARIABLES]
    variables += [entry.name for entry in _of_sinks() if not entry.is_wildcard]
    given |= config_file.from_environment(variables, os.environ if environment is None else environment)
    return parse(given)


def parse(given: Mapping[str, str]) -> ConsumerConfig:
    """Check flat keys and return the configuration; raises ConfigError with every fault found."""
    known = _known()
    of_sinks = _of_sinks()
    faults: list[str] = []
    fields: dict[str, Any] = {}
    of_sink: dict[str, str] = {}
    passed: dict[str, dict[str, str]] = {lead: {} for lead in _PASSED_ON}
    for key, value in given.items():
        name = _BOOTSTRAP if key == "bootstrap.servers" else key
        lead = next((lead for lead in _PASSED_ON if name.startswith(lead)), None)
        if name in _OURS:
            faults.append(f"{key}: may not be set: {_OURS[name]}")
        elif name in known:
            fields[name] = value
        elif lead is not None and len(name) > len(lead):
            passed[lead][name if lead == "spark." else name.removeprefix(lead)] = value
        elif any(entry.matches(key) for entry in of_sinks):
            of_sink[key] = value
        else:
            faults.append(_unknown(key, [*known, *(entry.name for entry in of_sinks if not entry.is_wildcard)]))
    try:
        if given.get("sink"):
            fields["sink_options"] = _sink_options(load_sink(given["sink"]), of_sink)
    except ConfigError as error:
        faults += error.faults
    try:
        config = ConsumerConfig.model_validate({**fields, **passed})
    except ValidationError as error:
        faults += [_fault(detail) for detail in error.errors(include_url=False, include_input=False)]
        raise ConfigError(faults) from None
    if faults:
        raise ConfigError(faults)
    return config


def _sink_options(plugin: SinkPlugin, given: Mapping[str, str]) -> Section:
    faults: list[str] = []
    fields: dict[str, Any] = {}
    for entry in _declared(plugin.options):
        for name in filter(entry.matches, given):
            try:
                value = entry.value_type.read(given[name])
            except (ValueError, LookupError, OverflowError):
                faults.append(f"{name}: must be {entry.value_type.expects}, not {given[name]!r}")
                continue
            if entry.is_prefix:
                fields.setdefault(entry.target, {})[entry.suffix(name)] = value
            else:
                fields[entry.target] = value
        if entry.required and entry.name not in given:
            faults.append(f"{entry.name}: must be set")
    if faults:
        raise ConfigError(faults)
    return plugin.options(**fields)


def _known() -> list[str]:
    aliases = (field.alias for field in ConsumerConfig.model_fields.values())
    return [alias for alias in aliases if alias is not None and not alias.endswith(".")]


def _declared(options: type[Section]) -> list[Property]:
    return list(properties_of(SectionSpec(options, {})))


def _of_sinks() -> list[Property]:
    return [entry for plugin in installed_sinks().values() for entry in _declared(plugin.options)]


def _unknown(key: str, known: list[str]) -> str:
    near = difflib.get_close_matches(
        key.lower(), [name.lower() for name in (*known, "bootstrap.servers")], n=1, cutoff=0.6
    )
    if not near:
        return f"{key}: no such setting"
    meant = next(name for name in (*known, "bootstrap.servers") if name.lower() == near[0])
    return f"{key}: no such setting; did you mean {meant}?"


def _fault(detail: Any) -> str:
    place = ".".join(str(part) for part in detail["loc"])
    message = detail["msg"].removeprefix("Value error, ")
    if detail["type"] == "missing":
        return f"{place}: must be set"
    return f"{place}: {message}" if place else message
