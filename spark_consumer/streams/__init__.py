"""Stateful operators on changelogs, with their state in Spark's state store."""
