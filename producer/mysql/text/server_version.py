"""Versions of servers as text: sessions, checks and the parser of the binlog read them in one way."""

from __future__ import annotations

import re


def version_number(version: str) -> int:
    """Return the version of a server as version comments have it: 80033 for 8.0.33, 101106 for MariaDB 10.11.6."""
    major, minor, patch = (*map(int, re.findall(r"\d+", version)[:3]), 0, 0, 0)[:3]
    return major * 10_000 + minor * 100 + patch
