"""Every character set is read as the server reads it: each of its bytes and pairs, by rows of real columns."""

from __future__ import annotations

import json
from typing import Final

import pytest

from tailrace.producer.mysql.text.charset import DECODABLE, text_decoder
from tailrace.producer.mysql.text.collation import CHARSETS
from tests.support.codec import BothSources
from tests.support.database import Database
from tests.support.values import value_options

SINGLE: Final = (
    *(
        "armscii8",
        "ascii",
        "cp1250",
        "cp1251",
        "cp1256",
        "cp1257",
        "cp850",
        "cp852",
        "cp866",
        "dec8",
        "geostd8",
        "greek",
    ),
    *(
        "hebrew",
        "hp8",
        "keybcs2",
        "koi8r",
        "koi8u",
        "latin1",
        "latin2",
        "latin5",
        "latin7",
        "macce",
        "macroman",
        "swe7",
    ),
    "tis620",
)
DOUBLE: Final = ("big5", "cp932", "euckr", "gb18030", "gb2312", "gbk", "sjis", "ucs2", "utf16", "utf16le")
EUC: Final = ("eucjpms", "ujis")
UNICODE: Final = ("utf32", "utf8mb3", "utf8mb4")

_BYTES = "CREATE TABLE bytes (n INT PRIMARY KEY, b BINARY(1))"
_SURROGATES = range(0xD800, 0xE000)


def _stored(database: Database, charset: str, sequences: str) -> dict[bytes, str]:
    """Return what the server says of each sequence that a column can hold, as it lies there; of others, their start.

    ``sequences`` is a SELECT of binary strings.
    """
    database.execute("SET sql_mode = ''")
    database.execute(f"CREATE TABLE texts (t VARCHAR(9) CHARACTER SET {charset})")
    database.execute(f"INSERT IGNORE INTO texts {sequences}")
    found = database.execute("SELECT CAST(t AS BINARY), CAST(CONVERT(t USING utf8mb4) AS BINARY) FROM texts")
    return {bytes(stored): bytes(text).decode() for stored, text in found}


def _fill_bytes(database: Database) -> None:
    database.execute(_BYTES)
    database.execute("INSERT INTO bytes VALUES " + ", ".join(f"({n}, x'{n:02x}')" for n in range(256)))


def _misread(charset: str, decoded: dict[bytes, str]) -> list[tuple[str, str, str]]:
    read = text_decoder(charset)
    return [(data.hex(), text, read(data)) for data, text in decoded.items() if read(data) != text]


def test_every_set_of_the_server_is_known(database: Database) -> None:
    """None is missing, and each that is known has a reader."""
    names = {name for (name,) in database.execute("SELECT CHARACTER_SET_NAME FROM information_schema.CHARACTER_SETS")}

    assert {"utf8mb3" if name == "utf8" else name for name in names} == CHARSETS == DECODABLE
    assert {*SINGLE, *DOUBLE, *EUC, *UNICODE, "binary"} == CHARSETS


@pytest.mark.parametrize("charset", SINGLE)
def test_every_byte_is_read_as_the_server_reads_it(database: Database, charset: str) -> None:
    """All 256 of them; newer servers hold ascii to its 128."""
    _fill_bytes(database)

    decoded = _stored(database, charset, "SELECT b FROM bytes")

    assert len(decoded) == 256 or (charset == "ascii" and len(decoded) == 129)
    assert not _misread(charset, decoded)


@pytest.mark.parametrize("charset", DOUBLE)
def test_every_pair_is_read_as_the_server_reads_it(database: Database, charset: str) -> None:
    """Every pair that a column can hold, mapped or not; a half of a surrogate pair is refused where it can be held."""
    _fill_bytes(database)

    decoded = _stored(database, charset, "SELECT CONCAT(a.b, b.b) FROM bytes a, bytes b")
    if charset == "ucs2":
        halves = [data for data in decoded if int.from_bytes(data, "big") in _SURROGATES]
        assert len(halves) == len(_SURROGATES)
        assert {decoded.pop(half) for half in halves} == {""}
        with pytest.raises(UnicodeError):
            text_decoder(charset)(halves[0])

    assert len(decoded) > 7_000
    assert not _misread(charset, decoded)


@pytest.mark.parametrize("charset", EUC)
def test_every_character_of_two_or_three_bytes_is_read_as_the_server_reads_it(database: Database, charset: str) -> None:
    """JIS X 0201, 0208 and 0212, what IBM and NEC added, and the characters of one's own."""
    _fill_bytes(database)
    pairs = "SELECT CONCAT(a.b, b.b) FROM bytes a, bytes b WHERE a.n > 127"
    triples = "SELECT CONCAT(x'8f', a.b, b.b) FROM bytes a, bytes b WHERE a.n > 160 AND b.n > 160"

    decoded = _stored(database, charset, f"{pairs} UNION ALL {triples}")

    assert len(decoded) > 2 * 94 * 94
    assert not _misread(charset, decoded)


@pytest.mark.parametrize("charset", ["gb18030", "utf16", "utf16le", *UNICODE])
def test_characters_of_four_bytes_are_read_as_the_server_reads_them(database: Database, charset: str) -> None:
    """Every 61st one beyond the basic plane, and each plane's ends; where it takes as many, the basic plane too."""
    points = [n for n in range(0x10000, 0x110000) if not n % 61 or n % 0x10000 in {0, 0xFFFF}]
    if charset in {"gb18030", *UNICODE}:
        points += [n for n in range(0x80, 0x10000) if n not in _SURROGATES]
    if charset == "utf8mb3":
        points = [n for n in points if n < 0x10000]
    codec = {"utf16": "utf_16_be", "utf16le": "utf_16_le", "utf32": "utf_32_be", "gb18030": "gb18030"}.get(
        charset, "utf8"
    )
    database.execute("CREATE TABLE bytes (b VARBINARY(4))")
    for start in range(0, len(points), 20_000):
        values = ", ".join(f"(x'{chr(n).encode(codec).hex()}')" for n in points[start : start + 20_000])
        database.execute(f"INSERT INTO bytes VALUES {values}")

    decoded = _stored(database, charset, "SELECT b FROM bytes")

    assert len(decoded) == len(points)
    assert not _misread(charset, decoded)


@pytest.mark.parametrize("charset", [*SINGLE, *DOUBLE, *EUC, *UNICODE])
def test_select_and_log_give_what_the_server_says(database: Database, charset: str) -> None:
    """Rows of each set, with what has no character in it, are the same by both sources, and as the server has them."""
    both = BothSources(database)
    tail = {"utf16le": b"A\0", "utf16": b"\0A", "ucs2": b"\0A"}.get(charset, b"A")
    database.execute("SET sql_mode = ''")
    _fill_bytes(database)
    database.execute(f"CREATE TABLE t (id INT PRIMARY KEY AUTO_INCREMENT, v VARCHAR(20) CHARACTER SET {charset})")
    if charset in SINGLE:
        database.execute(f"INSERT INTO t (v) SELECT CONCAT(b, x'{tail.hex()}', b) FROM bytes ORDER BY n")
    elif charset == "utf32":
        database.execute(
            "INSERT INTO t (v) SELECT CONCAT(x'0000', a.b, b.b, x'00000041') FROM bytes a, bytes b "
            "WHERE a.n NOT BETWEEN 216 AND 223 AND b.n % 17 = 3 ORDER BY a.n, b.n"
        )
    elif charset in UNICODE:
        database.execute("INSERT INTO t (v) VALUES ('é中'), ('')")
    else:
        # In a double-byte set what is malformed is cut off when it is stored: an empty text stays.
        database.execute(f"INSERT IGNORE INTO t (v) SELECT CONCAT(a.b, b.b, x'{tail.hex()}') FROM bytes a, bytes b "
                         "WHERE a.n NOT BETWEEN 216 AND 223 AND b.n NOT BETWEEN 216 AND 223 "
                         "AND a.n >= 64 AND b.n % 5 = 0 ORDER BY a.n, b.n")  # fmt: skip
    table = both.table("t")
    decoded = database.execute("SELECT CAST(CONVERT(v USING utf8mb4) AS BINARY) FROM t ORDER BY id")

    selected = both.selected(table, value_options())

    assert selected == both.logged(table, value_options())
    assert [json.loads(row)["v"] for _, row in selected] == [bytes(text).decode() for (text,) in decoded]


@pytest.mark.parametrize(
    ("charset", "data"),
    [
        ("big5", b"\xa4"),
        ("gbk", b"a\xff\xfe"),
        ("euckr", b"\xb0"),
        ("sjis", b"\x81\x20"),
        ("ujis", b"\x8f\xa1"),
        ("gb18030", b"\x81\x30\x81"),
        ("utf16", b"\xd8\x00"),
        ("utf8mb4", b"\xff"),
        ("ucs2", b"\0"),
    ],
)
def test_what_no_column_can_hold_is_refused(charset: str, data: bytes) -> None:
    """Cut characters and bytes that begin none."""
    with pytest.raises(UnicodeError):
        text_decoder(charset)(data)
