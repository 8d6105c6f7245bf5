"""The rows of the tables with many rows: dates and times, JSON, geometries."""

from __future__ import annotations

from typing import Final


def _temporal_row(date: str, time: str, datetime: str, timestamp: str, year: str) -> str:
    return ", ".join((date, *[time] * 7, *[datetime] * 7, *[timestamp] * 7, year))


TEMPORAL_ROWS: Final = (
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


_MORE_JSON_TEXTS: Final = (
    "-0",
    "[-0, -0.0, 0e0, -0e0, 0.00001, 2.5e-8, 1e22, 123456789012345678, 1e308]",
    "[18446744073709551616, -9223372036854775809, 9007199254740993, 4294967296, -2147483649, 65536]",
    r'"\u00e9 \ud83d\ude00 \u0000 \u001f \u007f \u0080 \uffff \/"',
    '{"a": 1, "a": 2, "b": {"b": 1, "B": 2, "b": 3}}',
    r'{"\u0061": "\u0022", "": "", " ": " ", "\u0001": 1}',
    '"1e5 and 1.0, true: null"',
)


def _json_literal(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


JSON_ROWS: Final = (
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
    *(f"{_json_literal(text)}, {_json_literal(text)}" for text in _MORE_JSON_TEXTS),
    *(
        f"{expression}, JSON_ARRAY({expression})"
        for expression in (
            "CAST(CAST('2015-01-15 23:24:25.123456' AS DATETIME(6)) AS JSON)",
            "CAST(CAST('00:00:00' AS TIME) AS JSON)",
            "CAST(CAST('12:34:56.000001' AS TIME(6)) AS JSON)",
            "CAST(DATE '9999-12-31' AS JSON)",
            "CAST(CAST(-0.01 AS DECIMAL(5,2)) AS JSON)",
            f"CAST(CAST('{'9' * 35}.{'9' * 30}' AS DECIMAL(65,30)) AS JSON)",
            f"CAST(CAST('-{'8' * 65}' AS DECIMAL(65,0)) AS JSON)",
            "JSON_OBJECT('g', ST_GeomFromText('LINESTRING(0 0, 1.5 1)'), 'b', BINARY 'x', 'n', 1.10)",
            "JSON_OBJECT('b', 1, 'B', 2, 'aa', 3, 'a', 4, 'é', 5, '10', 6, '9', 7, '', 8, 'a b', 9)",
            "CONCAT(REPEAT('[', 60), '{\"deep\": -1}', REPEAT(']', 60))",
            'JSON_MERGE_PRESERVE(\'{"a": [1]}\', \'{"a": 2, "b": {"c": null}}\')',
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
SPATIAL_KINDS: Final = (
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
            for column in SPATIAL_KINDS
        ]
        cells.append("ST_GeomFromText('POINT(48.5 9.25)', 4326)")
        rows.append(", ".join(cells))
    rows.append(
        ", ".join(["ST_GeomFromText('POINT(3 4)', 3857)", "ST_GeomFromText('POINT(3 4)', 4326)", *["NULL"] * 7])
    )
    return tuple(rows)


SPATIAL_ROWS: Final = _spatial_rows()
