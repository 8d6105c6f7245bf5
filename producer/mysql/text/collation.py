"""Collation ids of MySQL 5.7 to 9 and of MariaDB 10.6 to 11.8; ``charset`` decodes the character sets themselves.

The binlog names a collation by number. ``utf8`` and ``utf8mb3`` are one set, whose name changed in 8.0.30; it is called
``utf8mb3`` here whatever the server calls it, so that catalog and binlog agree.
"""

from __future__ import annotations

from typing import Final

from tailrace.producer.mysql.text.charset import nearest_codec, text_decoder
from tailrace.runtime.errors import SchemaError

_IDS: Final = {
    "armscii8": "32 64 1056 1088",
    "ascii": "11 65 1035 1089",
    "big5": "1 84 1025 1108",
    "binary": "63",
    "cp1250": "26 34 44 66 99 1050 1090",
    "cp1251": "14 23 50-52 1074-1075",
    "cp1256": "57 67 1081 1091",
    "cp1257": "29 58 59 1082-1083",
    "cp850": "4 80 1028 1104",
    "cp852": "40 81 1064 1105",
    "cp866": "36 68 1060 1092",
    "cp932": "95 96 1119-1120",
    "dec8": "3 69 1027 1093",
    "eucjpms": "97 98 1121-1122",
    "euckr": "19 85 1043 1109",
    "gb18030": "248-250",
    "gb2312": "24 86 1048 1110",
    "gbk": "28 87 1052 1111",
    "geostd8": "92 93 1116-1117",
    "greek": "25 70 1049 1094",
    "hebrew": "16 71 1040 1095",
    "hp8": "6 72 1030 1096",
    "keybcs2": "37 73 1061 1097",
    "koi8r": "7 74 1031 1098",
    "koi8u": "22 75 1046 1099",
    "latin1": "5 8 15 31 47-49 94 1032 1071",
    "latin2": "2 9 21 27 77 1033 1101",
    "latin5": "30 78 1054 1102",
    "latin7": "20 41 42 79 1065 1103",
    "macce": "38 43 1062 1067",
    "macroman": "39 53 1063 1077",
    "sjis": "13 88 1037 1112",
    "swe7": "10 82 1034 1106",
    "tis620": "18 89 1042 1113",
    "ucs2": "35 90 128-151 159 640-642 1059 1114 1152 1174 2560-2727 2744-2759",
    "ujis": "12 91 1036 1115",
    "utf16": "54 55 101-124 672-674 1078-1079 1125 1147 2816-2983 3000-3015",
    "utf16le": "56 62 1080 1086",
    "utf32": "60 61 160-183 736-738 1084-1085 1184 1206 3072-3239 3256-3271",
    "utf8mb3": "33 76 83 192-215 223 576-579 1057 1107 1216 1238 2048-2215 2232-2247",
    "utf8mb4": "45 46 224-247 255-323 608-611 1069-1070 1248 1270 2304-2471 2488-2503",
}


def _expand() -> dict[int, str]:
    table: dict[int, str] = {}
    for charset, ids in _IDS.items():
        for part in ids.split():
            first, _, last = part.partition("-")
            table.update(dict.fromkeys(range(int(first), int(last or first) + 1), charset))
    return table


_BY_COLLATION: Final = _expand()
CHARSETS: Final = frozenset(_IDS)
"""Every supported character set."""


def charset_of_collation(collation: int) -> str:
    """Return the character set of a collation id. Raises SchemaError for an unknown id."""
    try:
        return _BY_COLLATION[collation]
    except KeyError:
        raise SchemaError(
            "a column has a collation that is not known",
            hint="convert the column to a collation of MySQL 8 (ALTER TABLE … CONVERT TO CHARACTER SET utf8mb4)",
            collation_id=collation,
        ) from None


def canonical(charset: str) -> str:
    """Return the canonical name of a character set."""
    return "utf8mb3" if charset == "utf8" else charset


def decode(text: bytes, charset: str, *, what: str) -> str:
    """Decode a name or an enum value. Raises SchemaError for bytes invalid in the character set."""
    try:
        return text_decoder(charset)(text)
    except UnicodeError:
        raise SchemaError(
            f"{what} is not text of its character set",
            hint="check the column's character set",
            charset=charset,
            bytes=text[:50].hex(),
        ) from None


def decode_statement(text: bytes, collation: int) -> tuple[str, bool]:
    """Decode a statement, with U+FFFD for bytes that are no text, as Debezium does; return whether there were any.

    A server logs what clients send: literals and comments may have any bytes, whatever the database. So a statement
    never raises. A collation that is not known, of a later server or of one's own, is read as utf8mb4: all that servers
    have added since 8.0 are of it.
    """
    charset = _BY_COLLATION.get(collation, "utf8mb4")
    try:
        return text_decoder(charset)(text), False
    except UnicodeError:
        return text.decode(nearest_codec(charset), "replace"), True
