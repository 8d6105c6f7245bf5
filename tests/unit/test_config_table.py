"""The table of properties agrees with itself, with the sections, with Debezium's list and with the reference page."""

from __future__ import annotations

from pathlib import Path

from tailrace.producer.config import ProducerConfig
from tailrace.producer.config.load import find
from tailrace.producer.config.properties import PROPERTIES
from tailrace.producer.config.property import Property, Status
from tailrace.producer.config.reference import page
from tailrace.producer.config.sections import Section
from tailrace.producer.config.sources import environment_name

DOCS = Path(__file__).parents[2] / "docs" / "configuration.md"

# Every property that the manual of the MySQL connector 3.6 lists; parts in angle brackets are written out.
DEBEZIUM = """
bigint.unsigned.handling.mode binary.handling.mode binlog.buffer.size binlog.net.read.timeout
binlog.net.write.timeout column.exclude.list column.include.list column.mask.hash.SHA-256.with.salt.abc
column.mask.with.8.chars column.mask.hash.v2.SHA-256.with.salt.abc column.propagate.source.type
column.truncate.to.20.chars connect.keep.alive connect.keep.alive.interval.ms connect.timeout.ms connector.class
converters custom.metric.tags custom.sanitize.pattern database.exclude.list database.hostname database.include.list
database.initial.statements database.jdbc.driver database.password database.port database.protocol
database.query.timeout.ms database.server.id database.server.id.offset database.ssl.keystore
database.ssl.keystore.password database.ssl.mode database.ssl.truststore database.ssl.truststore.password
database.user datatype.propagate.source.type ddl.parser.type decimal.handling.mode driver.connectTimeout
enable.time.adjuster errors.max.retries event.converting.failure.handling.mode
event.deserialization.failure.handling.mode event.processing.failure.handling.mode executor.shutdown.timeout.ms
extended.headers.enabled field.name.adjustment.mode gtid.ignore.on.recovery gtid.source.excludes
gtid.source.filter.dml.events gtid.source.includes guardrail.collections.limit.action guardrail.collections.max
heartbeat.action.query heartbeat.interval.ms include.query include.schema.changes include.schema.comments
inconsistent.schema.handling.mode incremental.snapshot.allow.schema.changes incremental.snapshot.chunk.size
incremental.snapshot.watermarking.strategy legacy.snapshot.max.threads max.batch.size max.queue.size
max.queue.size.in.bytes message.key.columns min.row.count.to.stream.results name notification.enabled.channels
notification.sink.topic.name openlineage.integration.enabled openlineage.integration.config.file.path
openlineage.integration.job.namespace openlineage.integration.dataset.kafka.bootstrap.servers poll.interval.ms
post.processors provide.transaction.metadata query.fetch.size queue.provider.type read.only
retriable.restart.connector.wait.ms schema.exclude.list schema.history.internal
schema.history.internal.kafka.bootstrap.servers schema.history.internal.kafka.query.timeout.ms
schema.history.internal.kafka.recovery.attempts schema.history.internal.kafka.topic
schema.history.internal.skip.unparseable.ddl schema.history.internal.store.only.captured.tables.ddl
schema.history.internal.consumer.security.protocol schema.include.list schema.name.adjustment.mode
signal.consumer.security.protocol signal.data.collection signal.enabled.channels signal.file
signal.kafka.bootstrap.servers signal.kafka.groupId signal.kafka.poll.timeout.ms signal.kafka.topic
signal.poll.interval.ms skip.messages.without.change skipped.operations snapshot.delay.ms snapshot.fetch.size
snapshot.include.collection.list snapshot.lock.timeout.ms snapshot.locking.mode snapshot.locking.mode.custom.name
snapshot.max.threads snapshot.max.threads.multiplier snapshot.mode snapshot.mode.configuration.based.snapshot.data
snapshot.mode.configuration.based.snapshot.on.data.error snapshot.mode.configuration.based.snapshot.on.schema.error
snapshot.mode.configuration.based.snapshot.schema snapshot.mode.configuration.based.start.stream
snapshot.mode.custom.name snapshot.query.mode snapshot.query.mode.custom.name snapshot.select.statement.overrides
snapshot.select.statement.overrides.db.t snapshot.tables.order.by.row.count source.struct.version
sourceinfo.struct.maker statistics.metrics.enabled streaming.delay.ms table.exclude.list table.ignore.builtin
table.include.list tasks.max time.precision.mode tombstones.on.delete topic.cache.size topic.delimiter
topic.heartbeat.name topic.heartbeat.prefix topic.naming.strategy topic.prefix topic.transaction
transaction.metadata.factory unavailable.value.placeholder use.nongraceful.disconnect
connection.validation.timeout.ms heartbeat.topics.prefix
"""


def attributes() -> set[str]:
    """Return every attribute of the sections as ``section.attribute``."""
    found = set()
    for name, field in ProducerConfig.model_fields.items():
        section = field.annotation
        if isinstance(section, type) and issubclass(section, Section):
            found |= {f"{name}.{attribute}" for attribute in section.model_fields}
        else:
            found.add(name)
    return found - {"warnings"}


def test_every_property_of_the_connector_is_known() -> None:
    """None of them is an unknown name."""
    assert [name for name in DEBEZIUM.split() if find(name) is None] == []


def test_honoured_properties_and_attributes_are_the_same_set() -> None:
    """A property without a place would be dropped, an attribute without a property could not be set."""
    places = {entry.place for entry in PROPERTIES if entry.place}

    assert places == attributes()


def test_names_are_given_once_and_status_has_its_reason() -> None:
    """Aliases included; what is not honoured says why, what is honoured has a default that can be read."""
    names = [name for entry in PROPERTIES for name in (entry.name, *entry.aliases)]
    assert len(names) == len(set(names))
    for entry in PROPERTIES:
        assert entry.meaning.endswith("."), entry.name
        assert (entry.status is Status.SUPPORTED) != bool(entry.reason), entry.name
        if entry.default is not None:
            entry.kind.read(entry.default)


def test_no_two_properties_share_an_environment_variable() -> None:
    """Dots, dashes and case all become the same character."""

    def known(entry: Property) -> bool:
        return entry.in_environment and not entry.open

    variables = [
        environment_name(name) for entry in PROPERTIES if known(entry) for name in (entry.name, *entry.aliases)
    ]
    assert len(variables) == len(set(variables))


def test_the_reference_page_is_current() -> None:
    """It is made by ``python -m tailrace.producer.config --docs``."""
    assert page() == DOCS.read_text(encoding="utf-8"), (
        "run: python -m tailrace.producer.config --docs > docs/configuration.md"
    )
