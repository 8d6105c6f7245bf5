"""Sets of GTIDs, for the checks of the soak: nothing here is shared with the producer."""

from __future__ import annotations

from collections.abc import Iterable


class Gtids:
    """What was executed: the ranges of numbers of each server."""

    def __init__(self, text: str = "") -> None:
        self._ranges: dict[str, list[tuple[int, int]]] = {}
        for part in filter(None, text.replace("\n", "").split(",")):
            server, *ranges = part.strip().split(":")
            for each in ranges:
                first, _, last = each.partition("-")
                self._ranges.setdefault(server.lower(), []).append((int(first), int(last or first)))

    def __contains__(self, gtid: str) -> bool:
        server, _, number = gtid.partition(":")
        return any(first <= int(number) <= last for first, last in self._ranges.get(server.lower(), ()))

    def add(self, gtid: str) -> None:
        """Add one GTID."""
        server, _, text = gtid.partition(":")
        number = int(text)
        ranges = self._ranges.setdefault(server.lower(), [])
        for at, (first, last) in enumerate(ranges):
            if last + 1 == number:
                ranges[at] = (first, number)
                return
        if gtid not in self:
            ranges.append((number, number))

    def __str__(self) -> str:
        return ",".join(
            ":".join([server, *(f"{first}-{last}" for first, last in sorted(ranges))])
            for server, ranges in self._ranges.items()
        )


def in_any(gtid: str, sets: Iterable[Gtids]) -> bool:
    """Return whether one of the sets has a GTID."""
    return any(gtid in each for each in sets)
