"""The compiled extension, and whether it is used: this module alone asks. Without it Python writes the same bytes."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, Final

__all__ = ["SWITCH", "codec", "is_used", "unused_because"]

SWITCH: Final = "TAILRACE_NATIVE"
"""The environment variable that switches the extension off with ``0``."""
_INTERFACE: Final = 15


def _load() -> tuple[Any, str]:
    """Return the extension, and why it cannot be used; empty if it can."""
    if os.environ.get(SWITCH) == "0":
        return None, f"{SWITCH}=0"
    try:
        from tailrace.producer.native import codec as found  # noqa: PLC0415 - it may be missing
    except ImportError as error:
        return None, f"it is not built: {error}"
    return found, "" if found.INTERFACE == _INTERFACE else "it was built from another version; run ./run setup"


if TYPE_CHECKING:
    from tailrace.producer.native import codec

    _PROBLEM = ""
else:
    codec, _PROBLEM = _load()


def unused_because() -> str:
    """Return why the extension is not used; empty if it is used."""
    return f"{SWITCH}=0" if os.environ.get(SWITCH) == "0" else _PROBLEM


def is_used() -> bool:
    """Return whether ``codec`` is there, and used."""
    return not unused_because()
