"""One table per group of types, with rows that contain the extreme values of each type.

The same rows are inserted three times: before the snapshot, while streaming, and into a table that is created while
streaming (``X_new``).
"""

# ruff: noqa: E501 - a row stays on its line

from __future__ import annotations

from typing import Final, NamedTuple

from tests.debezium_parity.values import JSON_ROWS, SPATIAL_KINDS, SPATIAL_ROWS, TEMPORAL_ROWS


class TypeTable(NamedTuple):
    """A table: its columns after ``id INT PRIMARY KEY``, and its rows as SQL value lists without the id."""

    name: str
    columns: tuple[str, ...]
    rows: tuple[str, ...]
    suffix: str = ""

    def create(self, *, name: str | None = None) -> str:
        """Return CREATE TABLE with the table's name or another one."""
        members = ",\n  ".join(("id INT NOT NULL", *self.columns, "PRIMARY KEY (id)"))
        return f"CREATE TABLE `{name or self.name}` (\n  {members}\n){self.suffix}"

    def inserts(self, *, name: str | None = None, first_id: int = 1) -> list[str]:
        """Return one INSERT per row, ids from ``first_id``."""
        return [
            f"INSERT INTO `{name or self.name}` VALUES ({first_id + index}{', ' if row else ''}{row})"
            for index, row in enumerate(self.rows)
        ]


def _all(value: str, columns: tuple[str, ...]) -> str:
    return ", ".join([value] * len(columns))


_INTEGERS: Final = (
    "ti TINYINT",
    "tiu TINYINT UNSIGNED",
    "b BOOLEAN",
    "ti1 TINYINT(1)",
    "ti1u TINYINT(1) UNSIGNED",
    "si SMALLINT",
    "siu SMALLINT UNSIGNED",
    "mi MEDIUMINT",
    "miu MEDIUMINT UNSIGNED",
    "i INT",
    "iu INT UNSIGNED",
    "igu INTEGER UNSIGNED",
    "bi BIGINT",
    "biu BIGINT UNSIGNED",
    "iz INT(10) ZEROFILL",
    "biz BIGINT(20) ZEROFILL",
    "nn INT NOT NULL",
)
_FLOATS: Final = (
    "f FLOAT",
    "f24 FLOAT(24)",
    "f25 FLOAT(25)",
    "f53 FLOAT(53)",
    "fu FLOAT UNSIGNED",
    "d DOUBLE",
    "r REAL",
    "dp DOUBLE PRECISION",
)
_SYNONYMS: Final = (
    "de DEC",
    "de6 DEC(6,2)",
    "nu NUMERIC",
    "fx FIXED",
    "bo BOOL",
    "i1 INT1",
    "i2 INT2",
    "i3 INT3 UNSIGNED",
    "i4 INT4",
    "i8 INT8 UNSIGNED",
    "mi MIDDLEINT",
    "i INTEGER",
    "f4 FLOAT4",
    "f8 FLOAT8",
    "dp DOUBLE PRECISION UNSIGNED",
    "ch CHARACTER(5)",
    "cv CHARACTER VARYING(9)",
    "vc VARCHARACTER(9)",
    "nc NATIONAL CHAR(5)",
    "nvc NATIONAL VARCHAR(5)",
    "ncv NCHAR VARCHAR(5)",
    "lo LONG",
    "lv LONG VARCHAR",
    "lvb LONG VARBINARY",
    "va VARCHAR(9) ASCII",
    "vb VARCHAR(9) BINARY",
)
_TEMPORALS: Final = (
    "d DATE",
    *(f"t{n} TIME({n})" for n in range(7)),
    *(f"dt{n} DATETIME({n})" for n in range(7)),
    *(f"ts{n} TIMESTAMP({n}) NULL" for n in range(7)),
    "y YEAR",
)
_CHARSETS: Final = (
    "latin1",
    "latin2",
    "gbk",
    "sjis",
    "cp932",
    "big5",
    "euckr",
    "ujis",
    "gb2312",
    "gb18030",
    "cp1251",
    "cp1250",
    "greek",
    "hebrew",
    "koi8r",
    "utf16",
    "utf16le",
    "ucs2",
    "utf32",
    "utf8",
    "utf8mb4",
    "ascii",
)
_BYTES: Final = (
    *("armscii8", "cp1250", "cp1251", "cp1256", "cp1257", "cp850", "cp852", "cp866", "dec8", "geostd8", "greek"),
    *(
        "hebrew",
        "hp8",
        "keybcs2",
        "koi8r",
        "koi8u",
        "latin2",
        "latin5",
        "latin7",
        "macce",
        "macroman",
        "swe7",
        "tis620",
    ),
)
"""The single-byte character sets except latin1 and ascii."""
_AMBIGUOUS_BYTES: Final = {
    "big5": "a145a14ea15aa1c3a1e3a2ccf9d6f9dd",
    "cp932": "5c7e815f8160817c8191874081adfa40f040",
    "eucjpms": "5c7ea1c0a1c1a1ddada18ea18ff3f38fa2b7f5a18ff5a1",
    "euckr": "5ca1a4a1aaa2e6b0a1c8fe8141",
    "gb18030": "a1a4a2e3a8bc8135f43790308130fe50aaa1",
    "gb2312": "a1a4a1aab0a1f7fe",
    "gbk": "a1a4a1aaa2a1a980fe50aaa1",
    "sjis": "5c7e815f8160817c81918740a1",
    "ujis": "5c7ea1c0a1c1a1ddada18ea18fa2b78fb0a1f5a1",
}
"""Bytes that decoders are known to decode differently."""
_STRINGS: Final = (
    "c CHAR(20)",
    "v VARCHAR(60)",
    "nc NCHAR(20)",
    "nv NVARCHAR(20)",
    "tt TINYTEXT",
    "t TEXT",
    "mt MEDIUMTEXT",
    "lt LONGTEXT",
    "vb VARCHAR(60) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin",
    "vl VARCHAR(400)",
)
_BINARIES: Final = (
    "b4 BINARY(4)",
    "b1 BINARY",
    "b300 BINARY(200)",
    "vb VARBINARY(20)",
    "vb300 VARBINARY(300)",
    "tb TINYBLOB",
    "bl BLOB",
    "mb MEDIUMBLOB",
    "lb LONGBLOB",
    "cb CHAR(4) CHARACTER SET binary",
    "vcb VARCHAR(9) CHARACTER SET binary",
    "txb TEXT CHARACTER SET binary",
)


TYPE_TABLES: Final = (
    TypeTable(
        "integers",
        _INTEGERS,
        (
            "NULL, " * 16 + "0",
            "0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0",
            (
                "-128, 255, TRUE, -128, 255, -32768, 65535, -8388608, 16777215, -2147483648, 4294967295, 4294967295, "
                "-9223372036854775808, 18446744073709551615, 4294967295, 18446744073709551615, -1"
            ),
            (
                "127, 128, 1, 127, 2, 32767, 32768, 8388607, 8388608, 2147483647, 2147483648, 2147483648, "
                "9223372036854775807, 9223372036854775808, 42, 7, 2147483647"
            ),
        ),
    ),
    TypeTable(
        "floats",
        _FLOATS,
        (
            _all("NULL", _FLOATS),
            *(
                _all(value, _FLOATS)
                for value in (
                    *("0", "1", "5.6", "0.1", "100", "1e7", "1e-3", "9.999e-4", "12345678", "123456.7", "16777217"),
                    *("3.4028234e38", "1.17549435e-38", "1.4e-45", "1e10", "33554432", "0.3333333333333333", "2e-3"),
                )
            ),
            "-5.6, -5.6, -5.6, -5.6, 5.6, -5.6, -1e21, -1e-7",
            (
                "-3.4028234e38, -1e-45, 1.7976931348623157e308, -1.7976931348623157e308, 0, 2.2250738585072014e-308, "
                "5e-324, 123456789012345678"
            ),
            "NULL, NULL, 1e22, 1e23, NULL, 2e-3, 9007199254740993, 4.35",
        ),
    ),
    TypeTable(
        "floats_scaled",
        ("f FLOAT(7,3)", "fw FLOAT(30,10)", "d DOUBLE(10,4)", "r REAL(8,2)", "fu FLOAT(9,2) UNSIGNED ZEROFILL"),
        ("NULL, NULL, NULL, NULL, NULL", "5.61, 5.61, 5.61, 5.61, 5.61", "-1234.567, 0.1, -123456.7891, 0.005, 999.99"),
    ),
    TypeTable("synonyms", _SYNONYMS, (_all("NULL", _SYNONYMS), _all("0", _SYNONYMS), _all("1", _SYNONYMS))),
    TypeTable(
        "decimals",
        (
            "d DECIMAL",
            "d52 DECIMAL(5,2)",
            "d380 DECIMAL(38,0)",
            "d6530 DECIMAL(65,30)",
            "d1010 DECIMAL(10,10)",
            "n NUMERIC(10,4)",
            "du DECIMAL(10,3) UNSIGNED",
            "dz DECIMAL(8,0) ZEROFILL",
            "fx FIXED(6,1)",
            "dn DECIMAL(9,3) NOT NULL",
        ),
        (
            "NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, 0",
            "0, 0, 0, 0, 0, 0, 0, 0, 0, -0.001",
            "1, 3.44, 1, 3.444, 0.5, 3.444, 3.444, 3.44, 3.4, 3.444",
            (
                f"-9999999999, -999.99, -{'9' * 38}, -{'9' * 35}.{'9' * 30}, -0.9999999999, -999999.9999, 9999999.999, "
                "999999.99, -99999.9, 999999.999"
            ),
            f"9999999999, 999.99, {'9' * 38}, {'9' * 35}.{'9' * 30}, 0.0000000001, 127.0000, 0.128, 1.28, 12.8, 128",
            "127, 1.27, 128, 0.000000000000000000000000000128, 0.0000000256, -0.0128, 0.255, 2.56, -12.8, -0.128",
        ),
    ),
    TypeTable(
        "bits",
        (
            "b BIT",
            "b1 BIT(1)",
            "b2 BIT(2)",
            "b7 BIT(7)",
            "b8 BIT(8)",
            "b9 BIT(9)",
            "b16 BIT(16)",
            "b33 BIT(33)",
            "b64 BIT(64)",
        ),
        (
            "NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL",
            "0, 0, 0, 0, 0, 0, 0, 0, 0",
            "1, 1, b'11', b'1111111', b'11111111', b'111111111', 65535, 8589934591, 18446744073709551615",
            "1, 0, b'10', b'1000001', b'10000001', b'100000010', 258, 4328719365, 72623859790382856",
        ),
    ),
    TypeTable("temporals", _TEMPORALS, TEMPORAL_ROWS),
    TypeTable(
        "zero_dates",
        (
            "d DATE",
            "dt DATETIME(3)",
            "ts TIMESTAMP(3) NULL",
            "y YEAR",
            "dn DATE NOT NULL",
            "dtn DATETIME NOT NULL",
            "dtn6 DATETIME(6) NOT NULL",
            "tsn TIMESTAMP(2) NOT NULL",
            "yn YEAR NOT NULL",
            "dd DATE NOT NULL DEFAULT '2001-02-03'",
            "dtd DATETIME NOT NULL DEFAULT '2001-02-03 04:05:06'",
        ),
        (
            (
                "'0000-00-00', '0000-00-00', '0000-00-00', 0, '0000-00-00', '0000-00-00', '0000-00-00', '0000-00-00', 0, "
                "'0000-00-00', '0000-00-00'"
            ),
            (
                "'2010-00-00', '2010-00-00 01:02:03', NULL, NULL, '2010-00-00', '2010-05-00 00:00:00', "
                "'0001-00-00 00:00:00.000001', '2001-01-01 00:00:00', 2001, '2010-00-01', '2010-00-01'"
            ),
            (
                "'2024-00-10', '2024-00-10 23:59:59.999', NULL, NULL, '2024-00-10', '2024-00-10 01:02:03', "
                "'2024-10-00 01:02:03.000004', '2001-01-01 00:00:00', 2001, '2024-00-10', '2024-10-00'"
            ),
        ),
    ),
    TypeTable(
        "strings",
        _STRINGS,
        (
            _all("NULL", _STRINGS),
            _all("''", _STRINGS),
            _all("'plain'", _STRINGS),
            _all("' lead and trail '", _STRINGS),
            _all(r"'q\" b\\ s/ '", _STRINGS),
            _all(r"'\n\r\t\b\Z\0x'", _STRINGS),
            _all("CHAR(1,2,7,11,12,27,31,127 USING utf8mb4)", _STRINGS),
            _all("'é€ñ 日本 Ж'", _STRINGS),
            "'😀', '😀', 'é', 'é', '😀', '😀', '😀', '😀', '😀', '😀'",
            _all("_utf8mb4 x'E280A8E280A9C2A0EFBBBFEFBFBF'", _STRINGS),
            _all("'<&>{}[]=+'", _STRINGS),
            _all("'x'", _STRINGS[:-1]) + ", REPEAT('y', 300)",
        ),
    ),
    TypeTable(
        "charsets",
        (
            *(f"c_{charset} CHAR(12) CHARACTER SET {charset}" for charset in _CHARSETS),
            *(f"t_{charset} TEXT CHARACTER SET {charset}" for charset in _CHARSETS),
        ),
        (
            _all("NULL", _CHARSETS * 2),
            _all("''", _CHARSETS * 2),
            _all("'a'", _CHARSETS * 2),
            _all("'é€ł~\\\\日本'", _CHARSETS * 2),
            _all("'ЖяΩ שלום 中文'", _CHARSETS * 2),
            _all("'한국 ①㈱～－'", _CHARSETS * 2),
            _all("_latin1 x'8081859FA0FF'", _CHARSETS * 2),
        ),
    ),
    TypeTable(
        "charset_bytes",
        tuple(f"t_{charset} TEXT CHARACTER SET {charset}" for charset in (*_BYTES, *_AMBIGUOUS_BYTES)),
        (
            ", ".join(
                [f"x'{bytes(range(0x20, 0x80)).hex()}'"] * len(_BYTES) + [f"x'{b}'" for b in _AMBIGUOUS_BYTES.values()]
            ),
            ", ".join([f"x'{bytes(range(0x80, 0x100)).hex()}'"] * len(_BYTES) + ["NULL"] * len(_AMBIGUOUS_BYTES)),
        ),
    ),
    TypeTable(
        "binaries",
        _BINARIES,
        (
            _all("NULL", _BINARIES),
            _all("''", _BINARIES),
            _all("x'00'", _BINARIES),
            "x'FF00', x'FF', x'FF00', x'FF00', x'FF00', x'FF00', x'FF00', x'FF00', x'FF00', x'FF00', x'FF00', x'41'",
            (
                "x'FBEFBEFF', x'3E', x'FBEFBEFF', x'FBEFBEFF', x'FBEFBEFF', x'FBEFBEFF', x'FBEFBEFF', x'FBEFBEFF', "
                "x'FBEFBEFF', x'FBEFBEFF', x'FBEFBEFF', x'42'"
            ),
            _all("' '", _BINARIES),
        ),
    ),
    TypeTable(
        "enums",
        (
            "e ENUM('a', 'b,c', 'it''s', '\"q\"', 'é', 'back\\\\slash', 'x y', '')",
            "en ENUM('small', 'LARGE', 'XL') NOT NULL DEFAULT 'LARGE'",
            "el ENUM('ä', 'ö') CHARACTER SET latin1",
            "s SET('a', 'b', 'c d', 'é', 'it''s', '\"q\"')",
            "sn SET('1', '2', '3') NOT NULL DEFAULT '1,3'",
            "s64 SET(" + ", ".join(f"'m{n}'" for n in range(64)) + ")",
        ),
        (
            "NULL, 'small', NULL, NULL, '', NULL",
            "'a', 'LARGE', 'ä', 'a', '1', 'm0'",
            "'b,c', 'XL', 'ö', 'a,b,c d', '1,2,3', 'm63'",
            "'it''s', 1, 'ä', 'é,b', 6, 'm0,m31,m32,m63'",
            "'\"q\"', 2, 'ä', 'it''s,\"q\"', 7, ''",
            "'é', 3, 'ä', '', 4, 18446744073709551615",
            "'back\\\\slash', 1, 'ä', 63, 0, 1",
            "'x y', 1, 'ä', 1, 0, 2",
            "'', 1, 'ä', 1, 0, 3",
            "0, 0, 0, 0, 0, 0",
        ),
    ),
    TypeTable("json", ("j JSON", "jn JSON NOT NULL"), JSON_ROWS),
    TypeTable(
        "spatial",
        ("g GEOMETRY", *(f"c{index} {kind}" for index, kind in enumerate(SPATIAL_KINDS)), "w POINT SRID 4326"),
        SPATIAL_ROWS,
    ),
)
"""Numbers, bits, dates, text, bytes, labels, JSON, geometries."""
