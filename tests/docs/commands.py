"""Commands of shell blocks: what a line runs, and which commands and options ``tailrace`` and ``./run`` have."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping

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
    """Return the options of each command of ``tailrace``."""
    group = typer.main.get_command(build())
    assert isinstance(group, TyperGroup)
    return {
        name: {option for parameter in command.params for option in parameter.opts}
        for name, command in group.commands.items()
    }


def run_commands() -> set[str]:
    """Return the commands of ``./run``: the patterns of its ``case``."""
    script = (ROOT / "run").read_text(encoding="utf-8")
    cases = script[script.index("case $command in") :]
    patterns = re.findall(r"^    ([\w| -]+)\)$", cases, re.MULTILINE)
    return {word for pattern in patterns for word in re.split(r" *\| *", pattern)}
