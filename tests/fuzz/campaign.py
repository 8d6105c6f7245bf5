"""Runs inputs: all go to the compiled code, a share of them to both implementations, whose outcomes must be equal."""

from __future__ import annotations

import ctypes
import faulthandler
import random
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from tests.fuzz.logs import compare_log
from tests.fuzz.mutations import mutated
from tests.fuzz.packets import compare_packets
from tests.fuzz.subject import OPS, Subject

_LOGS_OF_SUBJECT: Final = 2
_HANG_SECONDS: Final = 300


class FuzzError(AssertionError):
    """The implementations differ, or one of them failed."""


@dataclass(frozen=True, slots=True)
class Limits:
    """When a run ends, whichever comes first."""

    inputs: int
    seconds: float
    of_subject: int = 10_000
    """Inputs of one table."""
    logs: int = 50
    """Whole logs, for each table."""


@dataclass(slots=True)
class Tally:
    """What was done."""

    inputs: int = 0
    """Given to the compiled code."""
    compared: int = 0
    """Of these, also encoded by Python."""
    declined: int = 0
    """Not compared, and left to Python by the compiled code."""
    errors: int = 0
    """Compared, and ended in the same error."""
    logs: int = 0
    """Logs with a damaged table map; compared as well."""
    packets: int = 0
    """Logs damaged anywhere, parsed by both."""
    subjects: int = 0
    slowest: float = 0.0
    """Seconds of one input."""
    by_op: dict[str, int] = field(default_factory=dict)

    def __str__(self) -> str:
        ops = ", ".join(f"{op} {count:,}" for op, count in self.by_op.items())
        return (
            f"{self.inputs:,} inputs ({ops}) of {self.subjects:,} tables; {self.compared:,} compared with Python, "
            f"{self.errors:,} of them errors; {self.declined:,} of the others declined; "
            f"{self.logs:,} table maps; {self.packets:,} logs; slowest input {self.slowest:.2f} s"
        )


class Campaign:
    """One run. ``compared`` is the share of inputs that Python gets too; ``note`` gets the name of each input."""

    def __init__(
        self, seed: int, compared: float, *, guards: bool, note: Callable[[str], object] | None = None
    ) -> None:
        self._seed = seed
        self._compared = compared
        self._guard = _guard_of_bytes() if guards else None
        self._note = note
        self.tally = Tally(by_op=dict.fromkeys(OPS, 0))

    def run(self, limits: Limits, first: int = 0) -> Tally:
        """Run subjects, from a number on. Raises FuzzError with what is needed to repeat it."""
        until = time.monotonic() + limits.seconds
        number = first
        while self.tally.inputs < limits.inputs and time.monotonic() < until:
            if self._note is not None:
                # Ends the process with its stack if compiled code does not return.
                faulthandler.dump_traceback_later(_HANG_SECONDS + limits.logs // 20, exit=True)
            self._subject(number, limits)
            number += 1
        if self._note is not None:
            faulthandler.cancel_dump_traceback_later()
        return self.tally

    def _subject(self, number: int, limits: Limits) -> None:
        choose = random.Random(f"{self._seed}.{number}")
        subject, tally = Subject(choose), self.tally
        compiled = subject.compiled
        tally.subjects += 1
        for i in range(limits.of_subject):
            op = OPS[int(choose.random() * len(OPS))]
            keys = choose.random() < 0.3
            data = mutated(subject.sample(op), subject.sample(op), choose)
            is_compared = choose.random() < self._compared
            if self._note is not None:
                self._note(f"subject {number} input {i} {op} {'compared' if is_compared else 'compiled'}")
            start = time.perf_counter()
            encode = compiled[op]
            try:
                if is_compared:
                    tally.compared += 1
                    tally.errors += subject.compare(op, data, keys=keys)
                elif encode is not None:
                    if self._guard is not None:
                        self._guard(data)
                    tally.declined += encode(data, keys)
            except Exception as error:
                name = f"seed {self._seed} subject {number} input {i}: {op}, keys {keys}"
                raise FuzzError(f"{name}\n{subject}\n{data.hex()}") from error
            tally.slowest = max(tally.slowest, time.perf_counter() - start)
            if encode is not None:
                tally.inputs += 1
                tally.by_op[op] += 1
        name = f"seed {self._seed} subject {number}"
        tally.logs += _repeated(_LOGS_OF_SUBJECT, lambda: compare_log(choose), f"{name} table map")
        tally.packets += _repeated(limits.logs, lambda: compare_packets(choose, damaged=True), f"{name} log")


def _repeated(times: int, compare: Callable[[], object], name: str) -> int:
    """Make a comparison some times and return how often; an error tells the name and number."""
    for i in range(times):
        try:
            compare()
        except Exception as error:
            raise FuzzError(f"{name} {i}") from error
    return times


def _guard_of_bytes() -> Callable[[bytes], None]:
    """Return the function that makes the zero byte after the content of ``bytes`` unreadable for sanitized code.

    CPython allocates it with the content, so a read of one byte too many would not be seen.
    """
    poison = ctypes.CDLL(None).__asan_poison_memory_region
    poison.argtypes = (ctypes.c_void_p, ctypes.c_size_t)
    poison.restype = None
    before_content = bytes.__basicsize__ - 1

    def guard(data: bytes) -> None:
        if len(data) > 1:  # shorter ones may be shared
            poison(id(data) + before_content + len(data), 1)

    return guard
