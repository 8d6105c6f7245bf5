"""Sinks as plug-ins: what a sink module declares, and how the consumer finds it.

A package adds a sink with an entry point whose name is the value of the property ``sink``::

    [project.entry-points."tailrace.sinks"]
    delta = "tailrace.spark_consumer.sink.delta_sink:SINK"
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from importlib.metadata import EntryPoint, entry_points
from typing import TYPE_CHECKING, Any, Final

import structlog

from tailrace.runtime.config.section import Section
from tailrace.runtime.errors import ConfigError
from tailrace.spark_consumer.images import Images, MetadataField
from tailrace.spark_consumer.sink.base import Sink, SinkContext

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tailrace.runtime.config.draft import Draft

log = structlog.get_logger(__name__)

GROUP: Final = "tailrace.sinks"
"""The entry point group."""


def _no_fields(_options: Any) -> tuple[MetadataField, ...]:
    return ()


def _no_jars(_options: Any) -> tuple[str, ...]:
    return ()


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkPlugin:
    """Everything that the consumer needs to know about a kind of sink."""

    name: str
    doc: str
    """One sentence for the reference page."""
    options: type[Section]
    """The sink's settings; the section declares their properties."""
    images: Images
    """What the sink reads of the changes of its tables."""
    guarantee: str
    """What the target contains after failures."""
    open: Callable[[SparkSession, Any, SinkContext], Sink]
    """Opens the sink with an instance of ``options``. Called once per query, in the session of its first batch."""
    rejected_elsewhere: Collection[str] = ()
    """Properties of ``options`` that are errors for a sink without them. Others are ignored there."""
    checks: tuple[Callable[[Draft], None], ...] = ()
    """Checks of the settings together; each adds its problems to the draft."""
    jars: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Spark version (``4.1``) to Maven coordinates, without Kafka's. Empty: Spark 4.1, no jars."""
    option_jars: Callable[[Any], tuple[str, ...]] = _no_jars
    """``options`` to further Maven coordinates, such as those of a driver."""
    spark_settings: Mapping[str, str] = field(default_factory=dict)
    """Settings that the session must have."""
    fields: Callable[[Any], tuple[MetadataField, ...]] = _no_fields
    """``options`` to the fields of the envelope that tables get as metadata columns."""
    table_images: Callable[[Any, str, str], Images] | None = None
    """Chooses the images of one table, instead of ``images``, by ``options``, database and table."""
    merges_tables: bool = False
    """Whether several captured tables can be written to one target; their keys differ then."""
    processing_time: str = "1 second"
    """The default of ``trigger.processingTime``."""

    def with_jars(self, options: Section) -> SinkPlugin:
        """Return the plug-in with the jars that some settings need."""
        more = self.option_jars(options)
        return replace(self, jars={line: (*jars, *more) for line, jars in self.jars.items()}) if more else self


def installed_sinks() -> dict[str, SinkPlugin]:
    """Return the installed sinks by name. A sink that cannot be loaded is logged and left out."""
    found = {}
    for name, entry in sorted(_entries().items()):
        try:
            found[name] = _load(entry)
        except ConfigError as error:
            log.warning("sink cannot be loaded", sink=name, error=error.message)
    return found


def load_sink(name: str) -> SinkPlugin:
    """Return one sink; raises ConfigError if it is not installed or cannot be loaded."""
    entries = _entries()
    if name not in entries:
        installed = ", ".join(sorted(entries)) or "none"
        raise ConfigError([f"sink: {name!r} is not installed; installed sinks: {installed}"])
    return _load(entries[name])


def _entries() -> dict[str, EntryPoint]:
    return {entry.name: entry for entry in entry_points(group=GROUP)}


def _load(entry: EntryPoint) -> SinkPlugin:
    try:
        plugin = entry.load()
    except (ImportError, AttributeError) as error:
        raise ConfigError([f"sink: {entry.name!r} cannot be loaded from {entry.value}: {error}"]) from error
    if not isinstance(plugin, SinkPlugin) or plugin.name != entry.name:
        raise ConfigError([f"sink: {entry.value} is not a SinkPlugin with the name {entry.name!r}"])
    return plugin
