"""``tailrace status``: what the running programs say of themselves, on one screen."""

from __future__ import annotations

import http.client
import shutil
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Final

import orjson
import typer

from tailrace.runtime.commands import Debug
from tailrace.runtime.error_report import reporting_errors
from tailrace.runtime.errors import ConfigError, NoAnswerError
from tailrace.runtime.exit_code import ExitCode
from tailrace.runtime.printable import printable
from tailrace.runtime.status_report import Program, ProgramReport, StatusAddress, lines_of

_TIMEOUT_S: Final = 10.0
_INTERVAL_S: Final = 2.0
_CLEAR: Final = "\033[H\033[2J"
_ANY_ADDRESS: Final = {"": "127.0.0.1", "0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104 - not bound here


@dataclass(frozen=True, slots=True)
class Answer:
    """What a program has answered, or why it has not."""

    program: Program
    address: StatusAddress
    status: Mapping[str, Any] | None = None
    report: ProgramReport | None = None
    problem: str = ""


def read_status(program: Program, address: StatusAddress) -> dict[str, Any]:
    """Return /status of a program. Raises NoAnswerError."""

    def no_answer(reason: str) -> NoAnswerError:
        hint = f"start it, or set {program.port_property} and the address to those at which it can be reached from here"
        return NoAnswerError(f"the {program.title} at {address} does not answer", hint=hint, reason=reason)

    connection = http.client.HTTPConnection(
        _ANY_ADDRESS.get(address.host, address.host), address.port, timeout=_TIMEOUT_S
    )
    try:
        connection.request("GET", "/status")
        response = connection.getresponse()
        body = response.read()
        found = orjson.loads(body) if response.status == http.client.OK else None
    except (OSError, http.client.HTTPException, orjson.JSONDecodeError) as error:
        raise no_answer(str(error) or type(error).__name__) from None
    finally:
        connection.close()
    if not isinstance(found, dict) or program.name_field not in found:
        raise no_answer(f"what answers is no {program.title} (HTTP {response.status})")
    if found[program.name_field] != address.name:
        raise no_answer(f"another {program.title} answers: {found[program.name_field]}, not {address.name}")
    return found


def _answer(program: Program, address: StatusAddress) -> Answer:
    try:
        status = read_status(program, address)
        return Answer(program, address, status, program.report(status))
    except NoAnswerError as error:
        return Answer(program, address, problem=str(error.context["reason"]))
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        problem = f"it is another version of Tailrace: its /status lacks {error}"
        return Answer(program, address, problem=problem)


def require_port(program: Program, address: StatusAddress) -> StatusAddress:
    """Return the address. Raises ConfigError if the program has no /status."""
    if not address.port:
        reason = f"the {program.title} has no /status: set a port and restart it"
        raise ConfigError([f"{program.port_property} is 0: {reason}"])
    return address


def exit_code(answers: Sequence[Answer]) -> ExitCode:
    if any(answer.report is None for answer in answers):
        return ExitCode.UNAVAILABLE
    well = all(answer.report is not None and answer.report.is_well for answer in answers)
    return ExitCode.OK if well else ExitCode.FOUND


def screen(answers: Sequence[Answer], height: int | None = None) -> Iterator[str]:
    """Yield the lines of all programs; ``height``: as many as a terminal shows, if no table needs more."""
    for answer in answers:
        begin = f"{answer.program.title} {printable(answer.address.name)} at {answer.address}: "
        if answer.report is None:
            yield f"{begin}does not answer: {printable(answer.problem)}"
        else:
            yield begin + answer.report.state
            yield from lines_of(answer.report, None if height is None else height // len(answers) - 1)


def _as_json(answers: Sequence[Answer]) -> bytes:
    found = {
        answer.program.title: {
            "address": str(answer.address),
            "problem": answer.problem,
            "well": answer.report is not None and answer.report.is_well,
            "status": answer.status,
        }
        for answer in answers
    }
    return orjson.dumps(found, option=orjson.OPT_APPEND_NEWLINE)


def register_status(app: typer.Typer, producer: Program | None, consumer: Program | None) -> None:
    """Add the command; a half that is not installed is None."""

    def status(
        config: Annotated[Path | None, typer.Option("--config", help="Configuration of the producer.")] = None,
        consumer_config: Annotated[
            Path | None, typer.Option("--consumer", help="Configuration of the consumer.")
        ] = None,
        *,
        watch: Annotated[bool, typer.Option("--watch", help="Shows it again every 2 seconds, until Ctrl-C.")] = False,
        as_json: Annotated[bool, typer.Option("--json", help="Prints what the programs answer, in one line.")] = False,
        debug: Debug = False,
    ) -> None:
        """Show tables, position and lag of the running programs. Exit code 3: a table is in error, 69: no answer."""
        with reporting_errors(debug=debug):
            programs = list(_chosen(("--config", producer, config), ("--consumer", consumer, consumer_config)))
            terminal = sys.stdout.isatty() and not as_json
            while True:
                answers = [_answer(program, address) for program, address in programs]
                if as_json:
                    sys.stdout.buffer.write(_as_json(answers))
                else:
                    height = shutil.get_terminal_size().lines - 1 if terminal else None
                    text = "".join(f"{line}\n" for line in screen(answers, height))
                    sys.stdout.write(f"{_CLEAR}{text}" if watch and terminal else text)
                sys.stdout.flush()
                if not watch:
                    break
                time.sleep(_INTERVAL_S)
        raise typer.Exit(exit_code(answers))

    app.command("status")(status)


def _chosen(*given: tuple[str, Program | None, Path | None]) -> Iterator[tuple[Program, StatusAddress]]:
    if not any(path for _, _, path in given):
        raise ConfigError(["name the configuration of a program: --config of the producer, --consumer of the consumer"])
    for option, program, path in given:
        if path is not None:
            if program is None:
                raise ConfigError([f"{option}: that half of Tailrace is not installed here"])
            yield program, require_port(program, program.address(path))
