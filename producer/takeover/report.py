"""What an operator is told of a takeover."""

from __future__ import annotations

from tailrace.producer.takeover.takeover import TakeoverResult


def report(adopted: TakeoverResult, *, stored: bool) -> str:
    """Return the lines for the terminal."""
    offset, log = adopted.offset, adopted.log
    lines = [
        f"connector: {offset.owner.connector}",
        f"stopped at: {offset.file}:{offset.pos}, event {offset.events}, row {offset.rows}",
        f"goes on at: {adopted.position.file}:{adopted.position.pos}",
        f"GTIDs seen: {adopted.position.gtids or 'none'}",
    ]
    if log.transaction:
        lines.append(
            f"within {log.transaction}: {log.events} rows event(s) of captured tables are done, "
            f"and {log.rows} row(s) of the next"
        )
    lines.append(f"tables taken over: {len(adopted.adopted)}")
    lines += [f"will be read as a new table: {table} (it has no topic)" for table in adopted.unread]
    lines.append("stored; go on with `tailrace produce`" if stored else "nothing was written (dry run)")
    return "\n".join(lines) + "\n"
