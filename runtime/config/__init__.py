"""The configuration machine of both halves.

A half declares each property once, as a field of a section (``section.supported``), or in a list of properties that
are ignored or rejected. ``ConfigDefinition`` collects them. It loads the configuration, prints it with secrets masked,
and is the source of the reference pages.

The machine is our own. pydantic-settings and dynaconf stop at pydantic's validation: they cannot read Debezium's dotted
names with wildcards, explain ignored and rejected properties, or report problems of all sources in one error.
"""
