"""Tables of every type family, with rows that go to the limits of each type.

The same rows are written three times: before the snapshot, after it, and into a twin table made while streaming.
"""

# ruff: noqa: E501 - a row stays on its line

from __future__ import annotations

from typing import Final, NamedTuple


class Family(NamedTuple):
    """One table: its columns after ``id INT PRIMARY KEY``, and rows as SQL value lists without the id."""

    name: str
    columns: tuple[str, ...]
    rows: tuple[str, ...]
    suffix: str = ""

    def create(self, *, name: str | None = None) -> str:
        """Return CREATE TABLE; ``name`` replaces the table's own."""
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


def _temporal_row(date: str, time: str, datetime: str, timestamp: str, year: str) -> str:
    return ", ".join((date, *[time] * 7, *[datetime] * 7, *[timestamp] * 7, year))


_TEMPORAL_ROWS: Final = (
    _temporal_row("NULL", "NULL", "NULL", "NULL", "NULL"),
    _temporal_row(
        "'2014-09-08'", "'17:51:04.777777'", "'2014-09-08 17:51:04.777777'", "'2014-09-08 17:51:04.777777'", "2014"
    ),
    _temporal_row("'1970-01-01'", "'00:00:00'", "'1970-01-01 00:00:00'", "'1970-01-01 00:00:01'", "1970"),
    _temporal_row("'9999-12-31'", "'838:59:59'", "'9999-12-31 23:59:59'", "'2038-01-19 03:14:07'", "2155"),
    _temporal_row("'1000-01-01'", "'-838:59:59'", "'1000-01-01 00:00:00'", "'1970-01-01 00:00:01.000001'", "1901"),
    _temporal_row("'1969-12-31'", "'-00:00:00.000001'", "'1969-12-31 23:59:59.999999'", "'2000-02-29 12:30:00.5'", "0"),
    _temporal_row(
        "'2262-04-11'", "'-733:00:00.0011'", "'2262-04-11 23:47:16.854775'", "'2004-04-09 00:00:00.100000'", "'00'"
    ),
    _temporal_row(
        "'0018-04-01'", "'-00:00:01.5'", "'0018-04-01 01:02:03.123456'", "'2037-12-31 23:59:59.999999'", "70"
    ),
    _temporal_row("'1582-10-04'", "'24:00:00'", "'1582-10-10 10:10:10.000010'", "'2019-03-31 01:30:00.000100'", "69"),
    _temporal_row(
        "'0099-12-31'", "'23:59:59.999999'", "'0099-12-31 23:59:59.000001'", "'2019-10-27 00:30:00.120000'", "99"
    ),
)

_JSON_TEXTS: Final = (
    "null",
    "true",
    "false",
    "0",
    "-1",
    "32767",
    "32768",
    "-32769",
    "2147483648",
    "4294967295",
    "9223372036854775807",
    "-9223372036854775808",
    "18446744073709551615",
    "1.5",
    "1.0",
    "-0.0",
    "0.1",
    "1e15",
    "1e16",
    "1e21",
    "1e100",
    "1e-7",
    "1.7976931348623157e308",
    "5e-324",
    "123456.789e3",
    '""',
    '"str"',
    r'"q \" b \\ s / n \n r \r t \t b \b f \f bell \u0007 del \u007f ls \u2028 é € 😀 <&>\u0027"',
    "[]",
    "{}",
    '[1, "a", null, true, false, {"b": []}, [[]], -1.25]',
    '{"b": 1, "a": 2, "aa": 3, "": 4, "B": 5, "é": 6, "aaa": {"z": 1, "y": [1, 2, {"x": null}]}}',
    '{"k\\"ey": "v", "a b": 1, "tab\\t": 2}',
    "[1e0, 1.10, 100000, 99999999999999999999, 3.141592653589793238]",
)


def _json_literal(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


_JSON_ROWS: Final = (
    "NULL, '{}'",
    *(f"{_json_literal(text)}, {_json_literal(text)}" for text in _JSON_TEXTS),
    *(
        f"{expression}, JSON_OBJECT('v', {expression})"
        for expression in (
            "CAST(DATE '2015-01-15' AS JSON)",
            "CAST(TIME '23:24:25' AS JSON)",
            "CAST(TIME '-23:24:25.12' AS JSON)",
            "CAST(TIME '838:59:59' AS JSON)",
            "CAST(TIMESTAMP '2015-01-15 23:24:25.12' AS JSON)",
            "CAST(CAST('2015-01-15 23:24:25' AS DATETIME) AS JSON)",
            "CAST(CAST(1.1000 AS DECIMAL(10,4)) AS JSON)",
            "CAST(CAST(-212765.700000000000000000 AS DECIMAL(38,18)) AS JSON)",
            "CAST(CAST(0 AS DECIMAL(5,2)) AS JSON)",
            "CAST(CAST(12345678901234567890123456789 AS DECIMAL(30,0)) AS JSON)",
            "CAST(x'cafe00' AS JSON)",
            "CAST(b'101' AS JSON)",
            "CAST(CAST(255 AS UNSIGNED) AS JSON)",
            "CAST(POINT(1, 2) AS JSON)",
            "JSON_ARRAY(NULL, TRUE, 1, 1.5, 1.5e0, 'a', DATE '0001-01-01', JSON_OBJECT())",
        )
    ),
)

_GEOMETRIES: Final = (
    "POINT(1 -2.5)",
    "LINESTRING(0 0, 10 10, 20 25)",
    "POLYGON((0 0, 10 0, 10 10, 0 10, 0 0), (5 5, 7 5, 7 7, 5 7, 5 5))",
    "MULTIPOINT(0 0, 20 20)",
    "MULTILINESTRING((10 48, 10 21), (16 0, 16 23))",
    "MULTIPOLYGON(((28 26, 28 0, 84 0, 84 42, 28 26)))",
    "GEOMETRYCOLLECTION(POINT(10 10), LINESTRING(15 15, 20 20))",
)
_KINDS: Final = (
    "POINT",
    "LINESTRING",
    "POLYGON",
    "MULTIPOINT",
    "MULTILINESTRING",
    "MULTIPOLYGON",
    "GEOMETRYCOLLECTION",
)


def _spatial_rows() -> tuple[str, ...]:
    rows = ["NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL"]
    for geometry in (*_GEOMETRIES, "GEOMETRYCOLLECTION EMPTY"):
        kind = geometry.split("(", maxsplit=1)[0].split(" ", maxsplit=1)[0]
        cells = [f"ST_GeomFromText('{geometry}')"]
        cells += [
            f"ST_GeomFromText('{geometry}')" if kind == column and "EMPTY" not in geometry else "NULL"
            for column in _KINDS
        ]
        cells.append("ST_GeomFromText('POINT(48.5 9.25)', 4326)")
        rows.append(", ".join(cells))
    rows.append(
        ", ".join(["ST_GeomFromText('POINT(3 4)', 3857)", "ST_GeomFromText('POINT(3 4)', 4326)", *["NULL"] * 7])
    )
    return tuple(rows)


FAMILIES: Final = (
    Family(
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
    Family(
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
    Family(
        "floats_scaled",
        ("f FLOAT(7,3)", "fw FLOAT(30,10)", "d DOUBLE(10,4)", "r REAL(8,2)", "fu FLOAT(9,2) UNSIGNED ZEROFILL"),
        ("NULL, NULL, NULL, NULL, NULL", "5.61, 5.61, 5.61, 5.61, 5.61", "-1234.567, 0.1, -123456.7891, 0.005, 999.99"),
    ),
    Family(
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
    Family(
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
    Family("temporals", _TEMPORALS, _TEMPORAL_ROWS),
    Family(
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
        ),
    ),
    Family(
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
    Family(
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
    Family(
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
    Family(
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
    Family("json", ("j JSON", "jn JSON NOT NULL"), _JSON_ROWS),
    Family(
        "spatial",
        ("g GEOMETRY", *(f"c{index} {kind}" for index, kind in enumerate(_KINDS)), "w POINT SRID 4326"),
        _spatial_rows(),
    ),
)
"""Numbers, bits, dates, text, bytes, labels, documents, places."""
