"""Types of the arguments of the benchmarks."""

from __future__ import annotations


def setting(text: str) -> tuple[str, str]:
    """Read ``NAME=VALUE``."""
    name, _, value = text.partition("=")
    return name, value
