"""Tables of properties for the reference pages, in Markdown."""

from __future__ import annotations

from collections.abc import Iterable

from tailrace.runtime.config.property import Property, Status


def supported_table(properties: Iterable[Property]) -> str:
    """Return the table of supported properties."""
    lines = ["| property | default | description |\n| --- | --- | --- |\n"]
    lines += [_supported_line(entry) for entry in properties if entry.status is Status.SUPPORTED]
    return "".join(lines)


def unsupported_table(properties: Iterable[Property]) -> str:
    """Return the table of properties that are ignored or rejected."""
    lines = ["| property | description | status | reason |\n| --- | --- | --- | --- |\n"]
    lines += [_unsupported_line(entry) for entry in properties if entry.status is not Status.SUPPORTED]
    return "".join(lines)


def _supported_line(entry: Property) -> str:
    doc = entry.doc
    if entry.value_type.expects:
        doc += f" *{entry.value_type.expects[0].upper()}{entry.value_type.expects[1:]}.*"
    doc += "".join(f" `{value}` is rejected: {reason}." for value, reason in entry.rejected_values.items())
    return f"| {_names(entry)} | {_default(entry)} | {_cell(doc)} |\n"


def _unsupported_line(entry: Property) -> str:
    values = " or ".join(f"`{word}`" if word else "an empty value" for word in entry.no_op_values)
    status = f"{entry.status}, except {values}" if values else str(entry.status)
    return f"| {_names(entry)} | {_cell(entry.doc)} | {status} | {_cell(entry.reason)} |\n"


def _names(entry: Property) -> str:
    return f"`{entry.name}`" + "".join(f"<br>or `{alias}`" for alias in entry.aliases)


def _default(entry: Property) -> str:
    if entry.required:
        return "required"
    default = f"`{entry.default}`" if entry.default else ""
    return f"{default} ({entry.default_note})".strip() if entry.default_note else default


def _cell(text: str) -> str:
    return text.replace("|", "\\|")
