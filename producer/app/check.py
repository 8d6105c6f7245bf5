"""``tailrace check``: what a start needs, on every server that it uses. Nothing is written."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass, field
from functools import partial

from tailrace.producer.app.connection_settings import kafka_settings, mysql_source
from tailrace.producer.app.signals import signal_settings
from tailrace.producer.app.validation import TableValidation, check_source
from tailrace.producer.config import ProducerConfig
from tailrace.producer.config.sections.converters import RegistrySettings
from tailrace.producer.errors import PrerequisiteError
from tailrace.producer.kafka.client import check_options
from tailrace.producer.kafka.topics import Topics
from tailrace.producer.serialization.captured_tables import CapturedTables
from tailrace.producer.serialization.envelope.topic_names import signal_topic
from tailrace.producer.serialization.schema_registry import SchemaRegistryClient
from tailrace.runtime.errors import TailraceError
from tailrace.schemas.names import state_topic


@dataclass(slots=True)
class Checked:
    """What the checks have found: each error is that of another server."""

    notes: list[str] = field(default_factory=list)
    errors: list[TailraceError] = field(default_factory=list)
    tables: int = 0


def check_servers(config: ProducerConfig) -> Checked:
    """Check the source, Kafka and the schema registries, each although another is at fault."""
    found = Checked(notes=list(config.warnings))
    for each in _checks(config, found):
        try:
            each()
        except TailraceError as error:
            found.errors.append(error)
    return found


def _checks(config: ProducerConfig, found: Checked) -> Iterator[Callable[[], object]]:
    def source() -> None:
        validation = _validate(config)
        found.notes += validation.notes
        found.tables = len(validation.tables)
        if validation.problems:
            raise PrerequisiteError(validation.problems)

    def kafka() -> None:
        check_options(kafka_settings(config))
        Topics(kafka_settings(config)).missing([state_topic(config.topics.prefix)])

    yield source
    yield kafka
    if "kafka" in config.signals.channels and signal_settings(config).common() != kafka_settings(config).common():
        yield lambda: Topics(signal_settings(config)).missing([signal_topic(config)])
    for settings in config.converters.registries:
        yield partial(_require_registry, settings, config.topics.prefix)


def _require_registry(settings: RegistrySettings, prefix: str) -> None:
    SchemaRegistryClient(settings).require_answer(f"{prefix}-value")


def _validate(config: ProducerConfig) -> TableValidation:
    source = mysql_source(config)
    captured = source.list_tables(config.filters.tables.includes)
    with closing(source.open_snapshot_session()) as session:
        return check_source(config, source, session, CapturedTables(config, session.describe), captured)
