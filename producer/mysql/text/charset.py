"""Decodes the bytes of each character set as the server does: for rows, enum values, names and statements.

Python's codecs where they read what ``CONVERT(… USING utf8mb4)`` does, and tables of the server's own where they do
not. What a character set leaves open is '?', as in every answer of the server; bytes that no column can hold are an
error. Java reads some of these sets in yet another way: while streaming, Debezium takes armscii8, dec8, geostd8, hp8
and swe7 for Windows-1252, keybcs2 for cp852, and koi8u for koi8r.
"""

from __future__ import annotations

import re
from codecs import charmap_decode
from collections.abc import Callable, Mapping
from functools import cache, lru_cache
from typing import Final, NamedTuple

TextDecoder = Callable[[bytes], str]
"""Decodes bytes of a character set. Raises UnicodeError for invalid bytes."""

_UNMAPPED: Final = "?"
_KEPT_CHARS: Final = 65_536
"""Cached characters per set, for sets that need more than the codec."""

_UNICODE: Final = {
    "binary": "utf-8",
    "ucs2": "utf_16_be",
    "utf16": "utf_16_be",
    "utf16le": "utf_16_le",
    "utf32": "utf_32_be",
    "utf8mb3": "utf-8",
    "utf8mb4": "utf-8",
}

_GEORGIAN: Final = "აბგდევზჱთიკლმნჲოპჟრსტჳუფქღყშჩცძწჭხჴჯჰჵ"
_ARMENIAN: Final = "❁§։)(»«—.՝,-՟…՜՛՞ԱաԲբԳգԴդԵեԶզԷէԸըԹթԺժԻիԼլԽխԾծԿկՀհՁձՂղՃճՄմՅյՆնՇշՈոՉչՊպՋջՌռՍսՎվՏտՐրՑցՒւՓփՔքՕօՖֆ’'"

_SINGLE: Final[Mapping[str, tuple[str, Mapping[int, str]]]] = {
    "armscii8": ("latin_1", {0xA1: _ARMENIAN}),
    "ascii": ("ascii", {}),
    "cp1250": ("cp1250", {}),
    "cp1251": ("cp1251", {}),
    "cp1256": ("cp1256", dict.fromkeys((0x8A, 0x8F, 0x98, 0x9A, 0x9F, 0xAA, 0xC0, 0xFF), _UNMAPPED)),
    "cp1257": ("cp1257", {}),
    "cp850": ("cp850", {}),
    "cp852": ("cp852", {}),
    "cp866": ("cp866", {0xFC: "ⁿ²"}),
    "dec8": (
        "latin_1",
        {
            **dict.fromkeys((0xA4, 0xA6, 0xB4, 0xB8, 0xBE, 0xD0, 0xDE, 0xF0, 0xFE, 0xFF), _UNMAPPED),
            0xA8: "¤",
            0xAC: 4 * _UNMAPPED,
            0xD7: "Œ",
            0xDD: "Ÿ",
            0xF7: "œ",
            0xFD: "ÿ",
        },
    ),
    "geostd8": (
        "cp1252",
        {
            **dict.fromkeys((0x83, 0x88, 0x8A, 0x8C, 0x8E, 0x98, 0x99, 0x9A, 0x9C, 0x9E, 0x9F), _UNMAPPED),
            0xC0: _GEORGIAN.ljust(0x3D, _UNMAPPED) + "№" + 2 * _UNMAPPED,
        },
    ),
    "greek": ("iso8859_7", {0xA1: "ʽʼ", **dict.fromkeys((0xA4, 0xA5, 0xAA), _UNMAPPED)}),
    "hebrew": ("iso8859_8", {0xAF: "‾"}),
    "hp8": ("hp_roman8", {}),
    "keybcs2": (
        "cp437",
        {
            0x80: "Č",
            0x83: "ď",
            0x85: "ĎŤčěĚĹÍľĺ",
            0x8F: "Á",
            0x91: "žŽ",
            0x95: "ÓůÚý",
            0x9B: "ŠĽÝŘť",
            0xA4: "ňŇŮÔšřŕŔ",
        },
    ),
    "koi8r": ("koi8_r", {}),
    "koi8u": ("koi8_u", {0x95: "•"}),
    "latin1": ("cp1252", {byte: chr(byte) for byte in (0x81, 0x8D, 0x8F, 0x90, 0x9D)}),
    "latin2": ("iso8859_2", {}),
    "latin5": ("iso8859_9", {}),
    "latin7": ("iso8859_13", {}),
    "macce": ("mac_latin2", {}),
    "macroman": ("mac_roman", {}),
    "swe7": ("ascii", {0x40: "É", 0x5B: "ÄÖÅÜ", 0x60: "é", 0x7B: "äöåü", 0x7F: _UNMAPPED}),
    "tis620": ("tis_620", {0xA0: "\ufffd", 0xDB: 4 * "\ufffd", 0xFC: 4 * "\ufffd"}),
}
"""The Python codec, and the first byte from which the server has other characters."""


class _Wide(NamedTuple):
    """A character set of one to four bytes per character; all of them include ASCII."""

    codec: str
    shape: bytes
    """Regular expression of a non-ASCII character."""
    others: Mapping[bytes, str] = {}
    """Characters that the server reads differently than the codec."""
    more: Callable[[bytes], str] = lambda _: _UNMAPPED
    """Decodes a character that the codec does not have."""


_GBK: Final = rb"[\x81-\xfe][\x40-\x7e\x80-\xfe]"
_SJIS: Final = rb"[\xa1-\xdf]|[\x81-\x9f\xe0-\xfc][\x40-\x7e\x80-\xfc]"
_EUC: Final = rb"\x8e[\xa0-\xdf]|\x8f[\xa1-\xfe][\xa1-\xfe]|[\xa1-\xfe][\xa1-\xfe]"
_ROW: Final = 94
_USER_ROW: Final = 0xF5
"""The first of ten rows of user-defined characters, in either plane."""
_OWN_CHARS: Final = 0xE000
_IBM: Final = (
    "ⅰⅱⅲⅳⅴⅵⅶⅷⅸⅹⅠⅡⅢⅣⅤⅥⅦⅧⅨⅩ＇＂㈱№℡炻仼僴凬匇匤\ufa0e咊坙\ufa0f\ufa10增寬峵嵓\ufa11德悅愠敎昻晥\ufa12\uf929栁"
    "\ufa13\ufa14橫櫢淸淲瀨\ufa15\ufa16甁皂皞\ufa17礰\ufa18\ufa19\ufa1a\ufa1b竧\ufa1c\ufa1d綠緖\ufa1e"
    "荢\ufa1f薰\ufa20\ufa21蠇\ufa22譿賴赶\ufa23\ufa24\ufa25郞\ufa26鄕\ufa27\ufa28閒\uf9dc\ufa29霻靍靑"
    "\ufa2a\ufa2b\ufa2c馞髙魲\ufa2d黑"
)
_FIRST_IBM: Final = (0xF3 - 0xA1) * _ROW + 0xF3 - 0xA1


def _own(char: bytes) -> str:
    """Return a user-defined character (they are numbered across both planes), else '?'."""
    first, row, cell = (0, *char) if len(char) == 2 else (10 * _ROW, *char[1:])
    if row < _USER_ROW:
        return 2 * _UNMAPPED if row == 0x8E else _UNMAPPED
    return chr(_OWN_CHARS + first + (row - _USER_ROW) * _ROW + cell - 0xA1)


def _of_shift_jis(char: bytes) -> str:
    """Return the character of Microsoft's Shift_JIS at the same position of JIS X 0208, else '?'."""
    row, cell = char[0] - 0xA1, char[1] - 0xA1
    lead = row // 2 + (0x81 if row < 2 * 0x1F else 0xC1)
    trail = 0x9F + cell if row % 2 else 0x40 + cell + (cell >= 0x3F)
    try:
        return bytes((lead, trail)).decode("cp932")
    except UnicodeDecodeError:
        return _UNMAPPED


def _ibm_or_own(char: bytes) -> str:
    if char[0] == 0x8E or char[-2] >= _USER_ROW:
        return _own(char)
    if len(char) == 2:
        return _of_shift_jis(char)
    index = (char[1] - 0xA1) * _ROW + char[2] - 0xA1 - _FIRST_IBM
    return _IBM[index] if 0 <= index < len(_IBM) else _UNMAPPED


def _pairs(text: str) -> dict[bytes, str]:
    """Parse ``hex=character`` words."""
    return {bytes.fromhex(word[:-2]): word[-1] for word in text.split()}


_WIDE: Final[Mapping[str, _Wide]] = {
    "big5": _Wide(
        "big5",
        rb"[\xa1-\xf9][\x40-\x7e\xa1-\xfe]",
        _pairs("f9d6=碁 f9d7=銹 f9d8=裏 f9d9=墻 f9da=恒 f9db=粧 f9dc=嫺")
        | dict.fromkeys(map(bytes.fromhex, ("a15a", "a1c3", "a1c5", "a1fe", "a240", "a2cc", "a2ce")), "\ufffd"),
    ),
    "cp932": _Wide("cp932", _SJIS),
    "eucjpms": _Wide(
        "euc_jp",
        _EUC,
        _pairs("a1c1=～ a1c2=∥ a1dd=－ a1f1=￠ a1f2=￡ a2cc=￢ 8fa2b7=～ 8fa2c3=￤"),
        _ibm_or_own,
    ),
    "euckr": _Wide("cp949", rb"[\x81-\xfe][\x41-\x5a\x61-\x7a\x81-\xfe]"),
    "gb18030": _Wide(
        "gb18030",
        rb"[\x81-\xfe][\x30-\x39][\x81-\xfe][\x30-\x39]|" + _GBK,
        _pairs("a8bc=ḿ 8135f437=\ue7c7"),
    ),
    "gb2312": _Wide("gb2312", rb"[\xa1-\xf7][\xa1-\xfe]"),
    "gbk": _Wide("cp936", _GBK),
    "sjis": _Wide("shift_jis", _SJIS, _pairs("815f=\\")),
    "ujis": _Wide("euc_jp", _EUC, _pairs("a1c0=\\"), _own),
}

DECODABLE: Final = frozenset({*_UNICODE, *_SINGLE, *_WIDE})
"""Every character set with a decoder: all that servers have."""


@cache
def text_decoder(charset: str) -> TextDecoder:
    """Return the decoder of a character set by its canonical name. Raises KeyError if it has none."""
    if charset in _SINGLE:
        return _single(*_SINGLE[charset])
    if charset in _WIDE:
        return _wide(_WIDE[charset])
    codec = _UNICODE[charset]
    return lambda data: data.decode(codec)


def agreeing_codec(charset: str) -> str | None:
    """Return the Python codec if it decodes everything as the server does, else None: the decoder is needed."""
    if charset in _UNICODE:
        return _UNICODE[charset]
    known = _WIDE.get(charset)
    return None if known is None or known.others else known.codec


def nearest_codec(charset: str) -> str:
    """Return the Python codec that decodes most of a character set as the server does."""
    return _UNICODE.get(charset) or (_WIDE[charset].codec if charset in _WIDE else _SINGLE[charset][0])


def _single(codec: str, others: Mapping[int, str]) -> TextDecoder:
    table = list(bytes(range(256)).decode(codec, "replace").replace("\ufffd", _UNMAPPED))
    for start, chars in others.items():
        table[start : start + len(chars)] = chars
    chars = "".join(table)
    return lambda data: charmap_decode(data, "strict", chars)[0]


def _wide(known: _Wide) -> TextDecoder:
    codec, others, more = known.codec, known.others, known.more
    char = re.compile(rb"[\x00-\x7f]+|" + known.shape)
    # May match the end of one character and the start of the next: the slow path then gives the same result.
    other = re.compile(b"|".join(map(re.escape, others))).search if others else None

    @lru_cache(_KEPT_CHARS)
    def one(found: bytes) -> str:
        try:
            return others[found] if found in others else found.decode(codec)
        except UnicodeDecodeError:
            return more(found)

    def slowly(data: bytes) -> str:
        parts, at = [], 0
        for match in char.finditer(data):
            if match.start() != at:
                break
            found = match[0]
            parts.append(found.decode("ascii") if found.isascii() else one(found))
            at = match.end()
        if at != len(data):
            raise UnicodeDecodeError(codec, data, at, at + 1, "no character of the set")
        return "".join(parts)

    def read(data: bytes) -> str:
        if other is not None and other(data):
            return slowly(data)
        try:
            return data.decode(codec)
        except UnicodeDecodeError:
            return slowly(data)

    return read
