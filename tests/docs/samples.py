"""Renders the sample events of the pages from docs/examples/events.json: ``python -m tests.docs.samples``."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

ROOT: Final = Path(__file__).parents[2]
PAGES: Final = (ROOT / "docs" / "events.md", ROOT / "README.md")
RECORDS: Final = ROOT / "docs" / "examples" / "events.json"
_WIDTH: Final = 108
_OF_THE_RUN: Final = "__debezium.context."
_SCHEMA: Final = "tailrace.schema"
_MARKER: Final = re.compile(r"<!-- (?P<kind>sample|row|last column): (?P<names>[^>]+?) -->\n.*?<!-- end -->", re.DOTALL)
"""``sample``: the whole record; ``row``: without what all events of a table have; ``last column``: of a definition."""
_OF_THE_ROW: Final = ("before", "after", "op")


class Sample(NamedTuple):
    """One recorded Kafka record; ``value`` is None for a tombstone."""

    name: str
    topic: str
    key: str | None
    value: str | None
    headers: dict[str, str]


def load() -> dict[str, Sample]:
    """Return the recorded samples by name."""
    return {entry["name"]: Sample(**entry) for entry in json.loads(RECORDS.read_text(encoding="utf-8"))}


def store(samples: Sequence[Sample]) -> None:
    """Write the recorded samples."""
    entries = [sample._asdict() for sample in samples]
    RECORDS.write_text(json.dumps(entries, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def rendered(page: str) -> str:
    """Return the page with every sample section rendered from the recorded events."""
    samples = load()

    def section(match: re.Match[str]) -> str:
        blocks = "\n\n".join(_BLOCKS[match["kind"]](samples[name]) for name in match["names"].split())
        return f"<!-- {match['kind']}: {match['names']} -->\n\n{blocks}\n\n<!-- end -->"

    return _MARKER.sub(section, page)


def render() -> None:
    """Write every page that shows samples."""
    for page in PAGES:
        page.write_text(rendered(page.read_text(encoding="utf-8")), encoding="utf-8")


def names(page: str) -> Iterator[str]:
    """Yield the names of the samples that the page shows."""
    for match in _MARKER.finditer(page):
        yield from match["names"].split()


def _record(sample: Sample) -> str:
    """Return a sample as Markdown: topic, key and headers as a list, the value as a JSON block.

    Without the headers of the run, which all records of tables have.
    """
    lines = [f"- topic `{sample.topic}`", f"- key `{sample.key or 'null'}`"]
    headers = [f"`{name}={value}`" for name, value in sample.headers.items() if not name.startswith(_OF_THE_RUN)]
    if headers:
        lines.append("- headers " + ", ".join(headers))
    if sample.value is None:
        return "\n".join([*lines, "- value `null`"])
    return "\n".join([*lines, "- value", "", _value(sample)])


def _row(sample: Sample) -> str:
    """Return a change event without topic, fingerprint of the schema, source, transaction and times."""
    if sample.value is None:
        return _record(sample)
    value = json.loads(sample.value)
    headers = {name: text for name, text in sample.headers.items() if name != _SCHEMA}
    row = _record(sample._replace(value=json.dumps({name: value[name] for name in _OF_THE_ROW}), headers=headers))
    return row.partition("\n")[2]


def _last_column(sample: Sample) -> str:
    """Return a schema change with the last column of its table alone."""
    value = json.loads(sample.value or "null")
    for change in value["tableChanges"]:
        del change["table"]["columns"][:-1]
    return _record(sample._replace(value=json.dumps(value)))


def _value(sample: Sample) -> str:
    return f"```json\n{_pretty(json.loads(sample.value or 'null'))}\n```"


_BLOCKS: Final = {"sample": _record, "row": _row, "last column": _last_column}


def _pretty(value: Any, indent: int = 0) -> str:
    """Return JSON in lines of limited width: nested objects of plain values are wrapped, not listed."""
    text = json.dumps(value, ensure_ascii=False)
    if not isinstance(value, dict | list) or (indent and indent + len(text) < _WIDTH - 14):
        return text
    inner, outer = " " * (indent + 2), " " * indent
    if isinstance(value, list):
        return "[\n" + ",\n".join(inner + _pretty(item, indent + 2) for item in value) + f"\n{outer}]"
    members = [f"{json.dumps(name)}: {_pretty(item, indent + 2)}" for name, item in value.items()]
    if indent and not any(isinstance(item, dict | list) for item in value.values()):
        return "{\n" + "\n".join(_wrapped(members, inner)) + f"\n{outer}}}"
    return "{\n" + ",\n".join(inner + member for member in members) + f"\n{outer}}}"


def _wrapped(members: Sequence[str], indent: str) -> Iterator[str]:
    line = ""
    for number, member in enumerate(members):
        piece = member if number == len(members) - 1 else f"{member},"
        if line and len(indent) + len(line) + 1 + len(piece) > _WIDTH:
            yield indent + line
            line = piece
        else:
            line = f"{line} {piece}".strip()
    yield indent + line


if __name__ == "__main__":
    render()
