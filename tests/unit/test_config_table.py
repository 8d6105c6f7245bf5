"""The producer's properties: complete, consistent, and described by the reference pages."""

from __future__ import annotations

from pathlib import Path
from typing import Literal, get_args, get_origin

import pytest

from tailrace.producer.config.definition import DEFINITION, GROUPS, fingerprint, load
from tailrace.producer.config.reference import pages
from tailrace.runtime.config.environment import variables_of
from tailrace.runtime.config.property import Property, Support
from tailrace.runtime.config.section import Section
from tests.unit.test_layers import imported

DOCS = Path(__file__).parents[2] / "docs"
PROPERTIES = DEFINITION.table.properties

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


def test_every_property_of_the_connector_is_known() -> None:
    assert [name for name in DEBEZIUM.split() if DEFINITION.table.find(name) is None] == []


def test_every_field_of_a_section_declares_a_property() -> None:
    undeclared = {
        f"{path}.{name}"
        for path, spec in DEFINITION.sections.items()
        for name, field in spec.model.model_fields.items()
        if not any(isinstance(entry, Property) for entry in field.metadata)
        and not (isinstance(field.annotation, type) and issubclass(field.annotation, Section))
    }

    assert undeclared == {".warnings"}


def test_every_section_is_in_one_group() -> None:
    """A section without a group would have no properties."""
    grouped = [path for group in GROUPS for path in group.sections]

    assert sorted(grouped) == sorted(set(DEFINITION.sections) - {""})


def test_words_of_a_property_are_those_of_its_field() -> None:
    """The type checker cannot compare ``one_of(X)`` with the annotation X. The description names each word."""
    for entry in PROPERTIES:
        section, _, attribute = entry.target.rpartition(".")
        if entry.support is not Support.SUPPORTED or section == "" or entry.is_wildcard:
            continue
        annotation = DEFINITION.sections[section].model.model_fields[attribute].annotation
        if get_origin(annotation) is Literal:
            assert entry.value_type.expects == "one of " + ", ".join(get_args(annotation)), entry.name
            assert [word for word in get_args(annotation) if word not in entry.doc] == [], entry.name


def test_names_are_unique_and_texts_are_complete() -> None:
    """Aliases included. Ignored and rejected properties have a reason, supported ones a default that can be read."""
    names = [name for entry in PROPERTIES for name in entry.names]
    assert len(names) == len(set(names))
    for entry in PROPERTIES:
        assert entry.doc.endswith(".") if entry.support is Support.SUPPORTED else entry.reason, entry.name
        assert not (entry.doc and entry.reason), entry.name
        if entry.default is not None:
            assert entry.value_type.read(entry.default) is not None


def test_values_are_written_as_they_are_read() -> None:
    for entry in PROPERTIES:
        if entry.default is not None:
            value = entry.value_type.read(entry.default)
            assert entry.value_type.read(entry.value_type.write(value)) == value, entry.name


def test_no_two_properties_share_an_environment_variable() -> None:
    """Dots, dashes and case all become the same character."""
    variables = [variable for entry in PROPERTIES for _, variable in variables_of(entry)]

    assert len(variables) == len(set(variables))


def test_what_concerns_only_the_run_does_not_change_the_fingerprint() -> None:
    """Runs that end at one boundary after another know the tables of prepared transactions, and their faults, again."""
    needed = {entry.name: "1" for entry in PROPERTIES if entry.required and entry.support is Support.SUPPORTED}
    before = fingerprint(load(None, {}, needed))
    run = {
        "tailrace.stop.at": "latest",
        "tailrace.http.port": "8080",
        "tailrace.log.level": "debug",
        "tailrace.binlog.watch.interval.ms": "0",
    }

    assert fingerprint(load(None, {}, {**needed, **run})) == before
    assert fingerprint(load(None, {}, {**needed, "table.include.list": "shop.orders"})) != before


@pytest.mark.parametrize("name", pages())
def test_reference_page_is_current(name: str) -> None:
    assert (DOCS / name).read_text(encoding="utf-8") == pages()[name], (
        "run: python -m tailrace.producer.config --docs docs"
    )


def test_config_imports_only_the_model_and_the_runtime() -> None:
    """Every other package of the producer may import the configuration."""
    folder = Path(__file__).parents[2] / "producer" / "config"
    allowed = ("tailrace.producer.config", "tailrace.producer.model", "tailrace.runtime")
    wrong = [
        f"{path.name} imports {name}"
        for path in sorted(folder.rglob("*.py"))
        for name in imported(path.read_text(encoding="utf-8"))
        if name.startswith("tailrace.") and not name.startswith(allowed)
    ]

    assert wrong == []
