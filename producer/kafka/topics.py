"""Creates missing topics and checks the settings of existing ones that correctness depends on."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import structlog
from confluent_kafka import KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AdminClient,
    ConfigResource,
    NewTopic,
    OffsetSpec,
    ResourceType,
)

from tailrace.producer.errors import TopicsRefusedError
from tailrace.producer.kafka.client import KafkaSettings
from tailrace.producer.kafka.delivery import ConnectionErrors
from tailrace.producer.kafka.errors import NO_LEADER, UNKNOWN_PARTITION, translate
from tailrace.runtime.errors import KafkaRequestError, Retryable
from tailrace.schemas.names import schemas_topic, state_topic, watermarks_topic

log = structlog.get_logger(__name__)

_RECORDS_PER_REQUEST: Final = 2_000
"""A KRaft controller refuses a request that would write more than 10,000 records of its own log."""
_SLICE_S: Final = 5.0
"""After this part of a wait the reports of refused connections are looked at."""
_LEADER_PAUSE_S: Final = 0.01
_LEADER_WAIT_S: Final = 120.0
"""A broker that creates many topics leads the last of them late. As long as librdkafka waits for a delivery."""
_REPORT_S: Final = 5.0
"""A longer wait is logged, and again after each such time."""
_NOT_LED_YET: Final = NO_LEADER | UNKNOWN_PARTITION
_ASSUMED_PARTITIONS: Final = 12
"""For topics whose number of partitions is the broker's default, which clients cannot always read."""


@dataclass(frozen=True, slots=True)
class TopicSpec:
    """A topic that must exist; ``partitions`` and ``config`` are used when it is created."""

    name: str
    partitions: int = 1
    replication_factor: int = -1
    config: Mapping[str, str] = field(default_factory=dict)
    exact_partitions: bool = False
    """An existing topic with another number of partitions is an error."""
    kept: bool = False
    """The records must not expire: the settings of an existing topic are checked."""

    @property
    def cost(self) -> int:
        """The number of records that a controller writes for the topic."""
        return 1 + (self.partitions if self.partitions > 0 else _ASSUMED_PARTITIONS) + len(self.config)


def request_batches(specs: Iterable[TopicSpec]) -> Iterator[list[TopicSpec]]:
    """Divide topics into requests that a controller accepts; a topic that exceeds the limit alone has its own."""
    batch: list[TopicSpec] = []
    cost = 0
    for spec in specs:
        if batch and cost + spec.cost > _RECORDS_PER_REQUEST:
            yield batch
            batch, cost = [], 0
        batch.append(spec)
        cost += spec.cost
    if batch:
        yield batch


class Topics:
    """Creates and checks topics."""

    def __init__(self, settings: KafkaSettings) -> None:
        self._connections = ConnectionErrors()
        config: dict[str, Any] = {**settings.common(), "error_cb": self._connections.note}
        self._admin = AdminClient(config)
        self._timeout = settings.request_timeout_s
        self._known: set[str] = set()

    def ensure(self, specs: Iterable[TopicSpec]) -> set[str]:
        """Create missing topics and return their names.

        Raises KafkaRequestError if an existing topic has unsuitable settings, and TopicsRefusedError behind the
        creation of the others if Kafka refuses some of them.
        """
        unchecked = {spec.name: spec for spec in specs if spec.name not in self._known}
        if not unchecked:
            return set()
        existing = self._existing()
        self._verify([spec for spec in unchecked.values() if spec.name in existing], existing)
        missing = [spec for name, spec in unchecked.items() if name not in existing]
        refused: dict[str, KafkaRequestError] = {}
        for batch in request_batches(missing):
            refused |= self._create(batch)
            self._await_leaders(spec for spec in batch if spec.name not in refused)
        self._known.update(unchecked.keys() - refused.keys())
        if refused:
            raise TopicsRefusedError(refused)
        return {spec.name for spec in missing}

    def missing(self, names: Iterable[str]) -> set[str]:
        unchecked = set(names) - self._known
        return unchecked - set(self._existing()) if unchecked else set()

    def with_records(self, names: Iterable[str]) -> set[str]:
        """Return the names of existing topics that have, or had, records."""
        wanted = list(names)
        existing = self._existing() if wanted else {}
        partitions = [
            TopicPartition(name, number) for name in wanted for number in range(_partition_count(existing, name))
        ]
        if not partitions:
            return set()
        newest: OffsetSpec = OffsetSpec.latest()  # type: ignore[no-untyped-call]
        answers = self._admin.list_offsets(dict.fromkeys(partitions, newest), request_timeout=self._timeout)
        found: set[str] = set()
        for partition, answer in answers.items():
            try:
                if answer.result().offset > 0:
                    found.add(partition.topic)
            except KafkaException as error:
                raise translate(error, f"asking for the end of topic {partition.topic}") from error
        return found

    def _existing(self) -> Mapping[str, object]:
        until = time.monotonic() + self._timeout
        while True:
            try:
                return self._admin.list_topics(timeout=_SLICE_S).topics
            except KafkaException as error:
                self._admin.poll(0)
                if time.monotonic() >= until or self._connections.refused:
                    raise translate(error, "listing topics", cause=self._connections.last) from error

    def _create(self, specs: list[TopicSpec]) -> dict[str, KafkaRequestError]:
        """Create topics; return why some of them are refused, in a way that a repetition does not change."""
        refused: dict[str, KafkaRequestError] = {}
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
                if error.args[0].code() == KafkaError.TOPIC_ALREADY_EXISTS:
                    continue
                problem = translate(error, f"creating topic {name}")
                if isinstance(problem, Retryable) or not isinstance(problem, KafkaRequestError):
                    raise problem from error
                refused[name] = problem
        return refused

    def _await_leaders(self, specs: Iterable[TopicSpec]) -> None:
        """Wait until the leader of each partition of new topics answers: a broker learns late what it leads.

        A producer may lose the first records that it sends before that (``TransactionalProducer``).
        """
        begin = time.monotonic()
        until, report = begin + _LEADER_WAIT_S, begin + _REPORT_S
        missing = self._partitions(specs, until)
        while missing:
            newest: OffsetSpec = OffsetSpec.latest()  # type: ignore[no-untyped-call]
            answers = self._admin.list_offsets(dict.fromkeys(missing, newest), request_timeout=self._timeout)
            missing = []
            for partition, answer in answers.items():
                try:
                    answer.result()
                except KafkaException as error:
                    if error.args[0].code() not in _NOT_LED_YET or time.monotonic() >= until:
                        raise translate(error, f"asking the leader of new topic {partition.topic}") from error
                    missing.append(partition)
            if missing:
                if time.monotonic() >= report:
                    report += _REPORT_S
                    seconds = round(time.monotonic() - begin)
                    log.info("waiting for the leaders of new topics", partitions=len(missing), seconds=seconds)
                time.sleep(_LEADER_PAUSE_S)
                self._existing()  # the client would go on with what it knows of the topics, for minutes

    def _partitions(self, specs: Iterable[TopicSpec], until: float) -> list[TopicPartition]:
        """Return the partitions of new topics; their number is the broker's default where a topic has none given."""
        counts = {spec.name: spec.partitions for spec in specs}
        while any(count <= 0 for count in counts.values()) and time.monotonic() < until:
            found = self._existing()
            counts = {name: count if count > 0 else _partition_count(found, name) for name, count in counts.items()}
        return [TopicPartition(name, number) for name, count in counts.items() for number in range(count)]

    def _verify(self, specs: list[TopicSpec], existing: Mapping[str, object]) -> None:
        for spec in specs:
            partitions = _partition_count(existing, spec.name)
            if spec.exact_partitions and partitions != spec.partitions:
                raise KafkaRequestError(
                    f"topic {spec.name} must have {spec.partitions} partition(s)",
                    hint="delete the topic if it has no records, or choose another topic.prefix",
                    seen=partitions,
                )
        checked = {spec.name: spec for spec in specs if spec.kept}
        if not checked:
            return
        resources = [ConfigResource(ResourceType.TOPIC, name) for name in checked]
        for resource, result in self._admin.describe_configs(resources, request_timeout=self._timeout).items():
            try:
                seen = {name: entry.value for name, entry in result.result().items()}
            except KafkaException as error:
                raise translate(error, f"describing topic {resource.name}") from error
            _verify_kept(checked[resource.name], seen)


def _partition_count(existing: Mapping[str, object], name: str) -> int:
    return len(getattr(existing.get(name), "partitions", {}))


def _verify_kept(spec: TopicSpec, seen: Mapping[str, str]) -> None:
    """Raise KafkaRequestError if a compacted topic expires; warn if the records of another one do."""
    policy = seen["cleanup.policy"]
    if spec.config.get("cleanup.policy") == "compact":
        if "compact" not in policy or "delete" in policy:
            raise KafkaRequestError(
                f"topic {spec.name} must be compacted: its records must not expire",
                hint=f"set cleanup.policy=compact on topic {spec.name}",
                seen=policy,
            )
        return
    limits = {name: seen.get(name, "") for name in ("retention.ms", "retention.bytes") if seen.get(name) != "-1"}
    if "delete" in policy and limits:
        log.warning(
            "the records of a topic expire: readers that start later will miss them",
            topic=spec.name,
            seen=limits,
            hint=f"set {', '.join(f'{name}=-1' for name in limits)} on topic {spec.name}",
        )


_SCHEMAS: Final[Mapping[str, str]] = {"cleanup.policy": "compact"}

_STATE: Final[Mapping[str, str]] = {
    "cleanup.policy": "compact",
    # The offset is written several times a second, and a start reads the whole topic. The active segment is never
    # compacted, so it is kept small, and the rest is compacted soon.
    "segment.ms": "300000",
    "segment.bytes": str(8 * 1024 * 1024),
    "min.cleanable.dirty.ratio": "0.1",
}

_WATERMARKS: Final[Mapping[str, str]] = {
    # A changelog reader may start at any time and needs the END certificate of every split. The three records of a
    # split share one key, so the topic is not compacted.
    "cleanup.policy": "delete",
    "retention.ms": "-1",
    "retention.bytes": "-1",
}


def own_topics(prefix: str, *, replication_factor: int) -> Iterator[TopicSpec]:
    """Yield Tailrace's own topics of a prefix, which exist whatever is captured; each has one partition."""
    for name, config in (
        (state_topic(prefix), _STATE),
        (schemas_topic(prefix), _SCHEMAS),
        (watermarks_topic(prefix), _WATERMARKS),
    ):
        yield TopicSpec(name, 1, replication_factor, config, exact_partitions=True, kept=True)
