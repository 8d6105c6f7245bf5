"""Differences of JSON trees, and of lists of them; a difference is JSON itself.

The patch of a tree has the shape of what it changes: an object leads to a member or, by its index, to an item; a list
of one item replaces the value. ``{"after":{"d":["1.50"]}}`` replaces the member ``d`` of ``after``.

The edits of a list are, in order: ``3`` keeps the next three items, ``-2`` leaves the next two out, ``{"patch":P}``
changes the next item, anything else is an additional item.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from difflib import SequenceMatcher
from typing import Final

from tests.debezium_parity.tokens import Tree

_UNCHANGED: Final[Tree] = ()
_PATCH: Final = '"patch"'


def difference(old: Tree, new: Tree) -> Tree:
    """Return the patch that turns ``old`` into ``new``."""
    if old == new:
        return _UNCHANGED
    if isinstance(old, tuple) and isinstance(new, tuple) and [name for name, _ in old] == [name for name, _ in new]:
        members = [(name, left, right) for (name, left), (_, right) in zip(old, new, strict=True)]
        return tuple((name, difference(left, right)) for name, left, right in members if left != right)
    if isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        items = enumerate(zip(old, new, strict=True))
        return tuple((f'"{index}"', difference(left, right)) for index, (left, right) in items if left != right)
    return [new]


def patched(old: Tree, patch: Tree) -> Tree:
    """Apply a patch."""
    if isinstance(patch, list):
        [new] = patch
        return new
    if not isinstance(patch, tuple):
        raise ValueError(f"{patch} is not a patch")
    changes, found = dict(patch), old
    if isinstance(old, tuple):
        found = tuple((name, patched(value, changes.pop(name, _UNCHANGED))) for name, value in old)
    elif isinstance(old, list):
        found = [patched(value, changes.pop(f'"{index}"', _UNCHANGED)) for index, value in enumerate(old)]
    if changes:
        raise ValueError(f"the patched value has no {', '.join(changes)}")
    return found


def edits(old: Sequence[Tree], new: Sequence[Tree], *, label: Callable[[Tree], str]) -> Iterator[Tree]:
    """Yield the edits that turn ``old`` into ``new``; items with the same label are versions of one item."""
    matcher = SequenceMatcher(None, [label(each) for each in old], [label(each) for each in new], autojunk=False)
    kept = 0
    for kind, first, last, new_first, new_last in matcher.get_opcodes():
        if kind == "equal":
            for left, right in zip(old[first:last], new[new_first:new_last], strict=True):
                patch = difference(left, right)
                if patch == _UNCHANGED:
                    kept += 1
                    continue
                yield from _count(kept)
                kept = 0
                yield ((_PATCH, patch),)
            continue
        yield from _count(kept)
        kept = 0
        yield from _count(first - last)
        yield from new[new_first:new_last]
    yield from _count(kept)


def edited(old: Sequence[Tree], found: Iterable[Tree]) -> list[Tree]:
    """Apply the edits of a list."""
    new: list[Tree] = []
    at = 0
    for edit in found:
        if isinstance(edit, str):
            count = int(edit)
            if at + abs(count) > len(old):
                raise ValueError(f"the edits go beyond the {len(old)} items of the list")
            new += old[at : at + max(count, 0)]
            at += abs(count)
        elif isinstance(edit, tuple) and len(edit) == 1 and edit[0][0] == _PATCH:
            new.append(patched(old[at], edit[0][1]))
            at += 1
        else:
            new.append(edit)
    if at < len(old):
        raise ValueError(f"the edits end after {at} of {len(old)} items")
    return new


def _count(number: int) -> Iterator[Tree]:
    if number:
        yield str(number)
