"""Keeps what Debezium wrote as JSON lines, byte for byte, with long repeated texts written once.

A file holds two kinds of lines: ``"text"`` strings, numbered from 0 in their order, and records
``[topic without prefix, partition, offset, key, value, headers]``. A key or value is null, its text, or
``[number, payload text]`` for ``{"schema":<text of that number>,"payload":<payload text>}``; headers are the number of
the text of ``[[name, value], ...]``. ``about.json`` beside the files says which versions ran and what they were told.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Final

from tests.debezium_parity.topics import Written, heartbeat_topic

FOLDER: Final = Path(__file__).with_name("golden")

HEARTBEAT: Final = "heartbeat"
"""Stands for the topic of heartbeats, whose name does not begin with the prefix."""

_HEAD: Final = '{"schema":'
_MIDDLE: Final = ',"payload":'


def write(path: Path, records: Iterable[Written], *, prefix: str) -> None:
    """Write ``records``, sorted by topic, partition and offset, to ``path``."""
    numbers: dict[str, int] = {}
    with path.open("w", encoding="utf-8") as out:

        def put(line: object) -> None:
            out.write(json.dumps(line, ensure_ascii=False, separators=(",", ":")) + "\n")

        def number(text: str) -> int:
            if text not in numbers:
                numbers[text] = len(numbers)
                put(text)
            return numbers[text]

        def shorten(raw: bytes | None) -> object:
            if raw is None:
                return None
            text = raw.decode("utf-8")
            if not text.startswith(_HEAD):
                return text
            schema, payload = split_schema(text)
            return [number(schema), payload]

        for record in sorted(records, key=lambda each: each[:3]):
            headers = [[name, None if value is None else value.decode()] for name, value in record.headers]
            name = HEARTBEAT if record.topic == heartbeat_topic(prefix) else record.topic.removeprefix(prefix)
            line = [name, record.partition, record.offset]
            line += [shorten(record.key), shorten(record.value), number(json.dumps(headers, ensure_ascii=False))]
            put(line)


def read(path: Path, *, prefix: str) -> Iterator[Written]:
    """Yield the records of a file, exactly as they were written."""
    texts: list[str] = []

    def restore(short: Any) -> bytes | None:
        if isinstance(short, list):
            return f"{_HEAD}{texts[short[0]]}{_MIDDLE}{short[1]}}}".encode()
        return None if short is None else str(short).encode()

    with path.open(encoding="utf-8") as lines:
        for line in lines:
            item = json.loads(line)
            if isinstance(item, str):
                texts.append(item)
                continue
            topic, partition, offset, key, value, headers = item
            pairs = tuple((name, None if text is None else text.encode()) for name, text in json.loads(texts[headers]))
            name = heartbeat_topic(prefix) if topic == HEARTBEAT else prefix + topic
            yield Written(name, partition, offset, restore(key), restore(value), pairs)


def split_schema(text: str) -> tuple[str, str]:
    """Part ``{"schema":S,"payload":P}`` into the texts S and P."""
    _, end = json.JSONDecoder().raw_decode(text, len(_HEAD))
    if not text.startswith(_MIDDLE, end) or not text.endswith("}"):
        raise ValueError(f"not a schema and a payload: {text[:80]}...")
    return text[len(_HEAD) : end], text[end + len(_MIDDLE) : -1]
