"""GTIDs of MariaDB, and positions of them.

A GTID is ``domain-server-sequence``. Within a domain the binlog has the sequence numbers in growing order, which the
parser checks, so the last GTID of each domain says which transactions a position includes. Domains are independent.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Final, NamedTuple

from tailrace.producer.errors import BinlogError
from tailrace.producer.mysql.gtid import GtidSet

_GTID: Final = re.compile(r"(\d+)-(\d+)-(\d+)")


class Gtid(NamedTuple):
    """One transaction."""

    domain: int
    server: int
    sequence: int

    @classmethod
    def parse(cls, text: str) -> Gtid:
        """Read ``0-1-42``. Raises BinlogError for another form, such as a GTID of MySQL."""
        found = _GTID.fullmatch(text.strip())
        if found is None:
            raise BinlogError(
                "a GTID has an unknown form",
                hint="capture MariaDB under another topic.prefix than MySQL: its GTIDs are domain-server-sequence",
                seen=text[:200],
            )
        return cls(*map(int, found.groups()))

    def __str__(self) -> str:
        return f"{self.domain}-{self.server}-{self.sequence}"


class GtidPosition(GtidSet):
    """The last GTID of each domain: an immutable set that has all GTIDs before them."""

    __slots__ = ("_last",)

    def __init__(self, last: Mapping[int, Gtid]) -> None:
        super().__init__({})
        self._last = dict(last)

    @staticmethod
    def of(gtids: GtidSet) -> GtidPosition:
        """Return GTIDs as those of MariaDB, which they are."""
        assert isinstance(gtids, GtidPosition), "a position of MariaDB does not compare with GTIDs of MySQL"
        return gtids

    @classmethod
    def parse(cls, text: str) -> GtidPosition:
        """Read ``0-1-42,3-1-7``."""
        return cls({}).with_gtids(filter(None, (part.strip() for part in text.split(","))))

    def __str__(self) -> str:
        return ",".join(str(self._last[domain]) for domain in sorted(self._last))

    def __repr__(self) -> str:
        return f"GtidPosition({str(self)!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, GtidPosition) and self._last == other._last

    def __hash__(self) -> int:
        return hash(str(self))

    def __bool__(self) -> bool:
        return bool(self._last)

    def __iter__(self) -> Iterator[Gtid]:
        return iter(self._last.values())

    def sequence(self, domain: int) -> int:
        """Return the last sequence number of a domain, 0 if there is none."""
        return self._last[domain].sequence if domain in self._last else 0

    def has(self, gtid: str) -> bool:
        """Return whether a transaction is included."""
        return self._includes(Gtid.parse(gtid))

    def _includes(self, gtid: Gtid) -> bool:
        return gtid.domain in self._last and gtid.sequence <= self._last[gtid.domain].sequence

    def contains(self, other: GtidSet) -> bool:
        """Return whether every transaction of ``other`` is included."""
        return all(map(self._includes, self.of(other)))

    def with_gtid(self, gtid: str) -> GtidPosition:
        """Return the position that includes one more transaction."""
        return self.with_gtids((gtid,))

    def with_gtids(self, gtids: Iterable[str]) -> GtidPosition:
        """Return the position that includes more transactions."""
        last = dict(self._last)
        for gtid in map(Gtid.parse, gtids):
            if gtid.domain not in last or gtid.sequence > last[gtid.domain].sequence:
                last[gtid.domain] = gtid
        return GtidPosition(last)

    def union(self, other: GtidSet) -> GtidPosition:
        """Return the position that includes the transactions of both."""
        return self.with_gtids(map(str, self.of(other)))

    def minus(self, other: GtidSet | GtidState) -> GtidPosition:
        """Return the last GTIDs that ``other`` does not have."""
        return GtidPosition({last.domain: last for last in self if not other.has(str(last))})


class GtidState:
    """The last GTID of each server in each domain: whether a server has a transaction, or one in its place."""

    def __init__(self, text: str) -> None:
        """``text`` is ``gtid_binlog_state``."""
        gtids = [Gtid.parse(part) for part in text.split(",") if part.strip()]
        self._last = {(each.domain, each.server): each.sequence for each in gtids}

    def __str__(self) -> str:
        return ",".join(f"{domain}-{server}-{sequence}" for (domain, server), sequence in sorted(self._last.items()))

    def has(self, gtid: str) -> bool:
        """Return whether a transaction is in the binlog, or was before files of it were purged."""
        domain, server, sequence = Gtid.parse(gtid)
        return sequence <= self._last.get((domain, server), 0)

    def contains(self, other: GtidPosition) -> bool:
        """Return whether it has the last transactions of a position, and so those before them."""
        return all(self.has(str(last)) for last in other)

    def shares_server(self, other: GtidPosition) -> bool:
        """Return whether both have transactions of one domain."""
        return not {domain for domain, _ in self._last}.isdisjoint(last.domain for last in other)
