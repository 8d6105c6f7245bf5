"""Notifications: report the progress of snapshots to a topic or to the log."""
