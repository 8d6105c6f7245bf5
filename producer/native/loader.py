"""Whether the compiled extension is used. Without it Python alone writes the same bytes."""

from __future__ import annotations

import os
from typing import Final

SWITCH: Final = "TAILRACE_NATIVE"
"""The environment variable that switches the extension off with ``0``."""
_INTERFACE: Final = 15


def unused_because() -> str:
    """Return why the extension is not used; empty if it is used."""
    if os.environ.get(SWITCH) == "0":
        return f"{SWITCH}=0"
    try:
        from tailrace.producer.native import codec  # noqa: PLC0415 - the module is optional
    except ImportError as error:
        return f"it is not built: {error}"
    if codec.INTERFACE != _INTERFACE:
        return "it was built from another version; run ./run setup"
    return ""


def is_used() -> bool:
    """Return whether rows are encoded by the extension."""
    return not unused_because()
