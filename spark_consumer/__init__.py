"""Applies the change events of a topic prefix to tables and changelogs, with Spark.

The library is what this package exports; ``changes`` has its documentation::

    from tailrace.spark_consumer import apply_changes, decode, latest, read_changes, to_changelog

Public modules; everything else is internal and may change:

- ``app``: the program for ``spark-submit``; ``tailrace consume`` runs the same.
- ``config``: the configuration of a consumer.
- ``sink.plugin``: how a package adds a sink (entry point group ``tailrace.sinks``).
- ``sink.base``: the protocol that a sink implements.
- ``archive``: builds the archive for ``spark-submit --py-files``.

Imports point downwards: app, cli > query, session > start_checks > config, pipeline > tables > sink > transform >
changelog, normalize, changes > source > monitor, images, background, files.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tailrace.spark_consumer.changes import apply_changes, decode, latest, read_changes, to_changelog

__all__ = ["apply_changes", "decode", "latest", "read_changes", "to_changelog"]


def __getattr__(name: str) -> Any:
    # Spark takes a second to import, and the command line does not need it.
    if name in __all__:
        return getattr(import_module("tailrace.spark_consumer.changes"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
