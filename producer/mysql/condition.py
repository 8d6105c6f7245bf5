"""Conditions of incremental snapshots: predicates over the columns of one table that read nothing else.

A condition comes from a signal and becomes part of a SELECT. So it must stay within its parentheses, and it may neither
read other tables nor call anything but known functions without effects: the rule is a list of what is allowed.
"""

from __future__ import annotations

import re
from typing import Final

MAX_LENGTH: Final = 10_000

_TOKEN: Final = re.compile(
    r"""(?P<blank>[\ \t\r\n]++)
    |(?P<text>'(?:[^'\\]|''|\\.)*+'|"(?:[^"\\]|""|\\.)*+")
    |(?P<quoted>`(?:[^`]|``)++`)
    |(?P<word>[0-9A-Za-z_$\u0080-\U0010ffff]++)
    |(?P<comment>--|/\*|\*/|\#)
    |(?P<open>\()
    |(?P<close>\))
    |(?P<mark>[-+*/%=<>!&|^~.,])
    |(?P<other>.)""",
    re.DOTALL | re.VERBOSE,
)

_CLAUSES: Final = (
    "SELECT TABLE VALUES WITH UNION INTO OUTFILE FOR LOCK PROCEDURE LIMIT ORDER GROUP HAVING EXISTS WHERE JOIN "
    "PARTITION CALL"
)
_OPERATORS_AND_TYPES: Final = (
    "AND OR XOR NOT IN IS LIKE BETWEEN REGEXP RLIKE DIV MOD CASE WHEN THEN ELSE BINARY INTERVAL ESCAPE AGAINST OF "
    "CHAR NCHAR VARCHAR DECIMAL DATETIME TIME DATE YEAR FLOAT DOUBLE SIGNED UNSIGNED ROW"
)
_FUNCTIONS: Final = (
    "ABS ACOS ASCII ASIN ATAN ATAN2 BIN BIT_COUNT BIT_LENGTH CAST CEIL CEILING CHAR_LENGTH CHARACTER_LENGTH CHARSET "
    "COALESCE COLLATION CONCAT CONCAT_WS CONV CONVERT CONVERT_TZ COS COT CRC32 CURDATE CURRENT_DATE CURRENT_TIME "
    "CURRENT_TIMESTAMP CURTIME DATEDIFF DATE_ADD DATE_FORMAT DATE_SUB DAY DAYNAME DAYOFMONTH DAYOFWEEK DAYOFYEAR "
    "DEGREES ELT EXP EXTRACT FIELD FIND_IN_SET FLOOR FORMAT FROM_BASE64 FROM_DAYS FROM_UNIXTIME GREATEST HEX HOUR IF "
    "IFNULL INET_ATON INET_NTOA INET6_ATON INET6_NTOA INSTR ISNULL JSON_CONTAINS JSON_CONTAINS_PATH JSON_DEPTH "
    "JSON_EXTRACT JSON_KEYS JSON_LENGTH JSON_OVERLAPS JSON_SEARCH JSON_TYPE JSON_UNQUOTE JSON_VALID JSON_VALUE "
    "LAST_DAY LCASE LEAST LEFT LENGTH LN LOCALTIME LOCALTIMESTAMP LOCATE LOG LOG10 LOG2 LOWER LPAD LTRIM MAKEDATE "
    "MAKETIME MATCH MD5 MICROSECOND MID MINUTE MONTH MONTHNAME NOW NULLIF OCT OCTET_LENGTH ORD PERIOD_ADD PERIOD_DIFF "
    "PI POSITION POW POWER QUARTER RADIANS REGEXP_INSTR REGEXP_LIKE REGEXP_REPLACE REGEXP_SUBSTR REPLACE REVERSE RIGHT "
    "ROUND RPAD RTRIM SECOND SEC_TO_TIME SHA SHA1 SHA2 SIGN SIN SQRT STRCMP STR_TO_DATE SUBDATE ADDDATE SUBSTR "
    "SUBSTRING SUBSTRING_INDEX SUBTIME ADDTIME SYSDATE TAN TIMEDIFF TIMESTAMP TIMESTAMPADD TIMESTAMPDIFF TIME_FORMAT "
    "TIME_TO_SEC TO_BASE64 TO_DAYS TO_SECONDS TRIM TRUNCATE UCASE UNHEX UNIX_TIMESTAMP UPPER UTC_DATE UTC_TIME "
    "UTC_TIMESTAMP UUID_TO_BIN BIN_TO_UUID WEEK WEEKDAY WEEKOFYEAR WEIGHT_STRING YEARWEEK "
    "ST_X ST_Y ST_DISTANCE ST_WITHIN ST_CONTAINS ST_INTERSECTS ST_GEOMFROMTEXT ST_SRID MBRCONTAINS MBRWITHIN"
)
"""Functions whose result depends on their arguments, the clock or the session's zone only."""

_REFUSED_WORDS: Final = frozenset(_CLAUSES.split())
"""Reserved words that begin a subquery or another clause."""
_MAY_PRECEDE_PARENTHESIS: Final = frozenset((*_OPERATORS_AND_TYPES.split(), *_FUNCTIONS.split()))


def condition_problem(sql: str) -> str:
    """Return why a text is not a predicate that may be used, or ''."""
    if len(sql) > MAX_LENGTH:
        return f"it has more than {MAX_LENGTH} characters"
    depth = 0
    called = ""  # what a following parenthesis would call; '' after an operator
    last = ""
    for token in _TOKEN.finditer(sql):
        kind, text = token.lastgroup, token[0]
        if kind == "blank":
            continue
        if problem := _token_problem(kind, text, called):
            return problem
        depth += (kind == "open") - (kind == "close")
        if depth < 0:
            return "it closes a parenthesis that it did not open"
        called = f"{'.' if last == '.' else ''}{text.upper()}" if kind in {"word", "quoted"} else ""
        last = text
    return "it leaves a parenthesis open" if depth else ""


def _token_problem(kind: str | None, text: str, called: str) -> str:
    if kind == "comment":
        return f"it has a comment ({text})"
    if kind == "other":
        return f"it has {text!r}, which is not closed or not allowed in a condition"
    if kind == "word" and text.upper() in _REFUSED_WORDS:
        return f"{text} begins a subquery or a clause; a column of that name needs backticks"
    if kind == "open" and called and called not in _MAY_PRECEDE_PARENTHESIS:
        return f"the function {called.lstrip('.')} is not allowed"
    return ""
