"""Notifications: what becomes of snapshots, told to a topic or to the log."""
