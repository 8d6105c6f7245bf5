"""The order of a changelog entry as the version of its row."""

from __future__ import annotations


def is_late(order: list[int], known: list[int], *, is_add: bool) -> bool:
    """Return whether an entry is about an older version than the one that is known, by the orders of both.

    A retract precedes the add of its order.
    """
    return order < known or (order == known and not is_add)
