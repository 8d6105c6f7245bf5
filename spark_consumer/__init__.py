"""Applies the change events of a topic prefix to tables and changelogs, with Spark.

The library is what this package exports; ``changes`` and ``streams`` have its documentation::

    from tailrace.spark_consumer import apply_changes, decode, latest, read_changes, to_changelog
    from tailrace.spark_consumer import JoinSide, join, materialize

Public modules; everything else is internal and may change:

- ``app``: the program for ``spark-submit``; ``tailrace consume`` runs the same.
- ``config``: the configuration of a consumer.
- ``sink.plugin``: how a package adds a sink (entry point group ``tailrace.sinks``).
- ``sink.base``: the protocol that a sink implements.
- ``archive``: builds the archive for ``spark-submit --py-files``.

Imports point downwards: app, cli > query, session > config, pipeline > tables > sink > transform,
streams > normalize, changes > source > monitor, images, files.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from tailrace.spark_consumer.changes import apply_changes, decode, latest, read_changes, to_changelog
    from tailrace.spark_consumer.streams.operators import JoinSide, join, materialize

__all__ = ["JoinSide", "apply_changes", "decode", "join", "latest", "materialize", "read_changes", "to_changelog"]

_STREAMS: Final = ("JoinSide", "join", "materialize")
"""Names of the library that are not in ``changes``."""


def __getattr__(name: str) -> Any:
    # Spark takes a second to import, and the command line does not need it.
    if name in __all__:
        module = "streams.operators" if name in _STREAMS else "changes"
        return getattr(import_module(f"tailrace.spark_consumer.{module}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
