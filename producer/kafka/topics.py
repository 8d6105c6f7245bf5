"""Creates missing topics and checks the settings of existing ones that correctness depends on."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AdminClient,
    ConfigResource,
    NewTopic,
    ResourceType,
)

from tailrace.producer.kafka.client import KafkaSettings, translate
from tailrace.runtime.errors import KafkaRequestError

COMPACTED: Final[Mapping[str, str]] = {"cleanup.policy": "compact"}


@dataclass(frozen=True, slots=True)
class TopicSpec:
    """A topic that must exist; ``partitions`` and ``config`` are used when it is created."""

    name: str
    partitions: int = 1
    replication_factor: int = -1
    config: Mapping[str, str] = field(default_factory=dict)
    exact_partitions: bool = False
    """An existing topic with another number of partitions is an error."""


class Topics:
    """Creates and checks topics."""

    def __init__(self, settings: KafkaSettings) -> None:
        self._admin = AdminClient(settings.common())
        self._timeout = settings.request_timeout_s
        self._known: set[str] = set()

    def ensure(self, specs: Iterable[TopicSpec]) -> None:
        """Create missing topics. Raises KafkaRequestError if an existing topic has unsuitable settings."""
        unchecked = {spec.name: spec for spec in specs if spec.name not in self._known}
        if not unchecked:
            return
        try:
            existing = self._admin.list_topics(timeout=self._timeout).topics
        except KafkaException as error:
            raise translate(error, "listing topics") from error
        self._verify([spec for spec in unchecked.values() if spec.name in existing], existing)
        missing = [spec for name, spec in unchecked.items() if name not in existing]
        if missing:
            self._create(missing)
        self._known.update(unchecked)

    def _create(self, specs: list[TopicSpec]) -> None:
        created = self._admin.create_topics(
            [
                NewTopic(
                    spec.name,
                    num_partitions=spec.partitions,
                    replication_factor=spec.replication_factor,
                    config=dict(spec.config),
                )
                for spec in specs
            ],
            operation_timeout=self._timeout,
            request_timeout=self._timeout,
        )
        for name, result in created.items():
            try:
                result.result()
            except KafkaException as error:
                if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                    raise translate(error, f"creating topic {name}") from error

    def _verify(self, specs: list[TopicSpec], existing: Mapping[str, object]) -> None:
        for spec in specs:
            partitions = len(getattr(existing[spec.name], "partitions", {}))
            if spec.exact_partitions and partitions != spec.partitions:
                raise KafkaRequestError(
                    f"topic {spec.name} must have {spec.partitions} partition(s)",
                    hint="delete the topic, or choose another topic.prefix",
                    seen=partitions,
                )
        compacted = [spec for spec in specs if spec.config.get("cleanup.policy") == "compact"]
        if not compacted:
            return
        resources = [ConfigResource(ResourceType.TOPIC, spec.name) for spec in compacted]
        for resource, result in self._admin.describe_configs(resources, request_timeout=self._timeout).items():
            try:
                policy = result.result()["cleanup.policy"].value
            except KafkaException as error:
                raise translate(error, f"describing topic {resource.name}") from error
            if "compact" not in policy or "delete" in policy:
                raise KafkaRequestError(
                    f"topic {resource.name} must be compacted: its records must not expire",
                    hint=f"set cleanup.policy=compact on topic {resource.name}",
                    seen=policy,
                )
