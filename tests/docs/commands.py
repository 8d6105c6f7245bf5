"""Commands of shell blocks: what a line runs, and which commands and options ``tailrace`` and ``./run`` have."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping
from typing import Any

import typer
from typer.core import TyperGroup

from tailrace.runtime.cli import build
from tests.docs.samples import ROOT

_HEREDOC = re.compile(r"<<-?'?(?P<word>\w+)'?")


def commands(text: str) -> Iterator[list[str]]:
    """Yield the commands of a shell block as lists of words; bodies of here-documents are passed over."""
    lines = iter(re.sub(r"\\\n", " ", text).splitlines())
    for line in lines:
        words = shlex.split(line, comments=True)
        if words:
            yield words
        if here := _HEREDOC.search(line):
            for body in lines:
                if body.strip() == here["word"]:
                    break


def tailrace_options() -> Mapping[str, set[str]]:
    """Return the options of each command of ``tailrace``; a command of a group is ``group command``."""
    return dict(_options(typer.main.get_command(build())))


def _options(group: Any, prefix: str = "") -> Iterator[tuple[str, set[str]]]:
    for name, command in group.commands.items():
        yield prefix + name, {option for parameter in command.params for option in parameter.opts}
        if isinstance(command, TyperGroup):
            yield from _options(command, f"{prefix}{name} ")


def run_commands() -> set[str]:
    """Return the commands of ``./run``: the patterns of its ``case``."""
    script = (ROOT / "run").read_text(encoding="utf-8")
    cases = script[script.index("case $command in") :]
    patterns = re.findall(r"^    ([\w| -]+)\)$", cases, re.MULTILINE)
    return {word for pattern in patterns for word in re.split(r" *\| *", pattern)}
