"""Prints rows per CPU second of the codec alone: rows as bytes in, keys and envelopes as bytes out.

Run: python -m tests.bench.codec_speed. Two tables: ``customer`` (18 columns of integers and text, some NULL) and
``orders`` (8 columns with decimal, datetime(3), timestamp, enum, json).
"""

from __future__ import annotations

import random
import struct
import time
from collections.abc import Callable, Sequence
from functools import partial
from itertools import pairwise

from tailrace.producer.model.codec import EventEnvelope, SnapshotEnvelope
from tailrace.producer.model.table import Column, Table, TableId
from tailrace.producer.serialization.table_codec import TableCodec
from tests.support.values import DEFAULT_CODEC

ROWS = 3_000
ROUNDS = 5
SECONDS_PER_ROUND = 0.6

_SOURCE = (
    '"source":{"version":"0.1.0","connector":"mysql","name":"shop","ts_ms":1731327511000,"snapshot":"true","db":"tpcds",'
    '"sequence":null,"ts_us":1731327511000000,"ts_ns":1731327511000000000,"table":"customer","server_id":1,'
    '"gtid":"3e11fa47-71ca-11e1-9e33-c80aa9429562:23","file":"mysql-bin.000003","pos":797,"row":'
)
_MIDDLE = ',"thread":9,"query":null},"transaction":null,"op":"'
_CLOCK = '","ts_ms":1731327511000,"ts_us":1731327511000000,"ts_ns":1731327511000000000}'
SNAPSHOT = SnapshotEnvelope(f",{_SOURCE}0{_MIDDLE}r{_CLOCK}".encode())
EVENT = EventEnvelope(f",{_SOURCE}".encode(), _MIDDLE.encode(), _CLOCK.encode())

Cell = tuple[bytes, bytes] | None
"""A value in the text protocol and in a row image."""


def _int(value: int) -> Cell:
    return str(value).encode(), struct.pack("<i", value)


def _text(value: str) -> Cell:
    raw = value.encode()
    return raw, bytes([len(raw)]) + raw


def customer() -> tuple[Table, list[list[Cell]]]:
    """Return a table like TPC-DS customer; 3.5 % of the nullable values are NULL."""
    numbers = {0, 2, 3, 4, 5, 6, 11, 12, 13}
    names = (
        "c_customer_sk",
        "c_customer_id",
        "c_current_cdemo_sk",
        "c_current_hdemo_sk",
        "c_current_addr_sk",
        "c_first_shipto_date_sk",
        "c_first_sales_date_sk",
        "c_salutation",
        "c_first_name",
        "c_last_name",
        "c_preferred_cust_flag",
        "c_birth_day",
        "c_birth_month",
        "c_birth_year",
        "c_birth_country",
        "c_login",
        "c_email_address",
        "c_last_review_date",
    )
    columns = tuple(
        Column(name, "int", nullable=i > 0)
        if i in numbers
        else Column(name, "char", nullable=i > 1, length=200, charset="utf8mb4")
        for i, name in enumerate(names)
    )
    pick = random.Random(7)

    def row(i: int) -> list[Cell]:
        first, last = pick.choice(["Javier", "Amy", "Latisha", "Michael"]), pick.choice(["Lewis", "Moses", "Hamilton"])
        cells: list[Cell] = [
            _int(i),
            _text(f"AAAAAAAA{i:08d}"),
            _int(pick.randrange(1_900_000)),
            _int(pick.randrange(7_200)),
            _int(pick.randrange(50_000)),
            _int(2_450_000 + pick.randrange(9_000)),
            _int(2_450_000 + pick.randrange(9_000)),
            _text(pick.choice(["Mr.", "Mrs.", "Dr."])),
            _text(first),
            _text(last),
            _text(pick.choice("YN")),
            _int(pick.randrange(1, 29)),
            _int(pick.randrange(1, 13)),
            _int(pick.randrange(1924, 1993)),
            _text(pick.choice(["CHILE", "UNITED KINGDOM", "TOGO"])),
            _text(""),
            _text(f"{first}.{last}@example{i}.com"),
            _text("2452508"),
        ]
        return [cells[k] if k < 2 or pick.random() >= 0.035 else None for k in range(len(cells))]

    return Table(TableId("tpcds", "customer"), columns, ("c_customer_sk",)), [row(i + 1) for i in range(ROWS)]


def orders() -> tuple[Table, list[list[Cell]]]:
    """Return a table of the types that are slowest to decode."""
    columns = (
        Column("id", "bigint", nullable=False),
        Column("customer", "int"),
        Column("amount", "decimal", precision=12, scale=2),
        Column("placed", "datetime", fsp=3),
        Column("changed", "timestamp", fsp=0),
        Column("state", "enum", charset="utf8mb4", enum_values=("new", "paid", "sent")),
        Column("note", "varchar", length=400, charset="utf8mb4"),
        Column("extra", "json"),
    )
    pick = random.Random(8)

    def row(i: int) -> list[Cell]:
        cents, day, second = pick.randrange(100_000_00), pick.randrange(1, 29), pick.randrange(60)
        whole, part = divmod(cents, 100)
        packed = bytearray((b"\0" + whole.to_bytes(4, "big"))[-5:] + bytes([part]))
        packed[0] ^= 0x80
        moment = ((2024 * 13 + 3) << 5 | day) << 17 | 10 << 12 | 20 << 6 | second
        state = pick.randrange(3)
        binary = bytes.fromhex("0001000c000b00010005") + struct.pack("<h", day) + b"a"
        return [
            (str(i).encode(), struct.pack("<q", i)),
            _int(pick.randrange(100_000)),
            (f"{whole}.{part:02d}".encode(), bytes(packed)),
            (
                f"2024-03-{day:02d} 10:20:{second:02d}.500".encode(),
                ((moment + (1 << 39)) << 16 | 5000).to_bytes(7, "big"),
            ),
            (f"2024-03-{day:02d} 10:20:{second:02d}".encode(), (1_709_287_200 + day * 86_400).to_bytes(4, "big")),
            (columns[5].enum_values[state].encode(), bytes([state + 1])),
            (b"leave at the door", b"\x11\x00leave at the door"),
            (b'{"a": %d}' % day, struct.pack("<I", len(binary)) + binary),
        ]

    return Table(TableId("shop", "orders"), columns, ("id",)), [row(i + 1) for i in range(ROWS)]


def packets(rows: Sequence[Sequence[Cell]]) -> bytes:
    """Return rows as packets of the text protocol."""
    out = bytearray()
    for row in rows:
        body = b"".join(b"\xfb" if cell is None else bytes([len(cell[0])]) + cell[0] for cell in row)
        out += len(body).to_bytes(3, "little") + b"\0" + body
    return bytes(out)


def image(row: Sequence[Cell]) -> bytes:
    """Return one row image."""
    nulls = sum(1 << i for i, cell in enumerate(row) if cell is None)
    return nulls.to_bytes((len(row) + 7) // 8, "little") + b"".join(cell[1] for cell in row if cell is not None)


def measure(name: str, rows: int, work: Callable[[], object]) -> None:
    """Run ``work`` repeatedly; print the best and the median round."""
    speeds = []
    for _ in range(ROUNDS):
        done, start = 0, time.process_time()
        while (spent := time.process_time() - start) < SECONDS_PER_ROUND:
            work()
            done += rows
        speeds.append(done / spent)
    print(f"{name:34} {sorted(speeds)[ROUNDS // 2]:>12,.0f} rows/s median {max(speeds):>12,.0f} best")


def main() -> None:
    """Measure all encoders of both tables."""
    for table, rows in (customer(), orders()):
        codec = TableCodec(table, "p.db.table", DEFAULT_CODEC)
        name = table.id.table
        block = packets(rows)
        images = [image(row) for row in rows]
        batches = [b"".join(images[i : i + 20]) for i in range(0, ROWS, 20)]
        changed = [old + new for old, new in zip(images, images, strict=True)]
        change_batches = [b"".join(changed[i : i + 20]) for i in range(0, ROWS, 20)]
        print(f"{name}: {len(block) // ROWS} bytes a row")
        measure(f"{name} select", ROWS, _whole(codec, block))
        measure(f"{name} insert, 20 rows an event", ROWS, _batches(codec.inserts, batches))
        measure(f"{name} insert, 1 row an event", ROWS, _batches(codec.inserts, images))
        measure(f"{name} update, 20 rows an event", ROWS, _batches(codec.updates, change_batches))
        measure(f"{name} update, 1 row an event", ROWS, _batches(codec.updates, changed))
        keys = partial(codec.updates, keys=True)
        measure(f"{name} update, 1 row, with raw keys", ROWS, _batches(keys, changed))
        moved = [old + new for old, new in pairwise(images)]
        measure(f"{name} update of the key, 1 row", len(moved), _batches(codec.updates, moved))
        measure(f"{name} delete, 1 row an event", ROWS, _batches(codec.deletes, images))


def _whole(codec: TableCodec, block: bytes) -> Callable[[], None]:
    def run() -> None:
        codec.snapshot(block, 0, len(block), SNAPSHOT)

    return run


def _batches(encode: Callable[..., object], events: Sequence[bytes]) -> Callable[[], None]:
    def run() -> None:
        for event in events:
            encode(event, 0, len(event), EVENT)

    return run


if __name__ == "__main__":
    main()
