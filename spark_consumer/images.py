"""Which row images of a change event a sink reads."""

from __future__ import annotations

from enum import Enum


class Images(Enum):
    """The input form of a sink; it decides what is decoded and how a batch is normalized."""

    UPSERT = "upsert"
    """The last change per key is enough: the whole ``after`` image and the key columns of ``before``."""
    UPSERT_WITH_BEFORE = "upsert with before"
    """As UPSERT, with the whole ``before`` image: a sink keeps the last values of deleted rows."""
    CHANGELOG = "changelog"
    """Every change counts: both images whole, and one row per key for each snapshot split."""
