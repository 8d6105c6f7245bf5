"""The consumer's configuration: Spark's and Kafka's own names, checked as a whole, every fault reported at once."""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from tailrace.runtime.errors import ConfigError
from tailrace.spark_consumer import config_file

_SECRET: Final = re.compile(r"password|secret|jaas|token|credential|\.key$", re.IGNORECASE)
_PASSED_ON: Final = ("kafka.", "sink.kafka.", "sink.properties.", "spark.")
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
    """Every setting, under its own name as alias; values under ``kafka.``, ``sink.kafka.``, ``sink.properties.`` and
    ``spark.`` are passed on."""

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

    sink: Literal["delta", "kafka", "console"] = Field(alias="sink")
    sink_path: str | None = Field(default=None, alias="sink.path")
    sink_topic: str | None = Field(default=None, alias="sink.topic")
    sink_partitions: int = Field(default=1, alias="sink.partitions", gt=0)
    sink_rows: int = Field(default=20, alias="sink.numRows", gt=0)

    monitor_port: int = Field(default=0, alias="monitor.port", ge=0, le=65535)
    monitor_host: str = Field(default="127.0.0.1", alias="monitor.host")
    log_format: Literal["auto", "json", "text"] = Field(default="auto", alias="log.format")
    log_level: Literal["debug", "info", "warning", "error"] = Field(default="info", alias="log.level")

    client: Mapping[str, str] = Field(default_factory=dict, alias="kafka.")
    sink_client: Mapping[str, str] = Field(default_factory=dict, alias="sink.kafka.")
    sink_properties: Mapping[str, str] = Field(default_factory=dict, alias="sink.properties.")
    spark: Mapping[str, str] = Field(default_factory=dict, alias="spark.")

    @model_validator(mode="after")
    def _check_sink(self) -> ConsumerConfig:
        if self.sink == "delta" and not self.sink_path:
            raise ValueError("sink.path: the delta sink needs the directory under which its tables are kept")
        return self

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
        for key, value in self.model_dump(by_alias=True).items():
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
    given |= config_file.from_environment(variables, os.environ if environment is None else environment)
    return parse(given)


def parse(given: Mapping[str, str]) -> ConsumerConfig:
    """Check flat keys and return the configuration; raises ConfigError with every fault found."""
    known = _known()
    faults: list[str] = []
    fields: dict[str, Any] = {}
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
        else:
            faults.append(_unknown(key, known))
    try:
        config = ConsumerConfig.model_validate({**fields, **passed})
    except ValidationError as error:
        faults += [_fault(detail) for detail in error.errors(include_url=False, include_input=False)]
        raise ConfigError(faults) from None
    if faults:
        raise ConfigError(faults)
    return config


def _known() -> list[str]:
    aliases = (field.alias for field in ConsumerConfig.model_fields.values())
    return [alias for alias in aliases if alias is not None and not alias.endswith(".")]


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
