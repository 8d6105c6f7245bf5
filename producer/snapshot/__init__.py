"""Snapshots without locks: plans tables, divides them into splits, and reads splits in parallel."""
