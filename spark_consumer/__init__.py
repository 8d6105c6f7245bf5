"""Applies the change events of a topic prefix to tables and changelogs, with Spark.

Public modules; everything else is internal and may change:

- ``app``: the program for ``spark-submit``; ``tailrace consume`` runs the same.
- ``config``: the configuration of a consumer.
- ``sink.plugin``: how a package adds a sink (entry point group ``tailrace.sinks``).
- ``sink.base``: the protocol that a sink implements.
- ``archive``: builds the archive for ``spark-submit --py-files``.

Imports point downwards: app, cli > query, session > config, pipeline > tables > sink > changelog, normalize >
source > monitor, images, background, files.
"""
