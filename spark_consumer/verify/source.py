"""The checksums of a table at its source: ``tailrace checksums``, one process for the comparison of a table.

The halves share the contract alone, and the command may run on another host. Requests go through its standard input:
no name of a column is an argument, which a shell on another host could read.
"""

from __future__ import annotations

import subprocess
import time
from collections.abc import Collection, Iterator, Sequence
from tempfile import TemporaryFile
from types import TracebackType
from typing import Final, Self

import structlog

from tailrace.runtime.errors import TailraceError
from tailrace.schemas.verification import (
    BucketSum,
    ChosenKeys,
    ComparedRow,
    ComparedTable,
    Keys,
    Record,
    RepairRequest,
    Request,
    SumsProgress,
    Window,
    from_line,
    to_line,
)
from tailrace.spark_consumer.sink.ledger import LEAVE_OUT

_SHOWN: Final = 2000
_END_S: Final = 30.0
_SHOW_S: Final = 10.0

log = structlog.get_logger(__name__)


class SourceFailedError(TailraceError):
    """The command that reads the source ended with an error, or too early."""


class SourceChecksums:
    """Reads one table; the context ends the process."""

    def __init__(self, command: Sequence[str], topic: str) -> None:
        """``command`` runs ``tailrace checksums`` with the configuration of the producer."""
        self._command, self._topic = [*command, "--topic", topic], topic

    def __enter__(self) -> Self:
        self._errors = TemporaryFile()  # a pipe would have to be read meanwhile
        self._process = subprocess.Popen(
            self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._errors
        )
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is not None:
            self._process.kill()
        with self._process, self._errors:
            try:
                self._process.communicate(timeout=_END_S)
            except subprocess.TimeoutExpired:
                self._process.kill()

    def plan(self) -> ComparedTable:
        """Return what of the table can be compared; the first call."""
        first = self._next()
        assert isinstance(first, ComparedTable)
        return first

    def sums(self, columns: Collection[str]) -> tuple[dict[int, BucketSum], Window]:
        """Return the sums of the buckets that have rows."""
        sums: dict[int, BucketSum] = {}
        begun = shown = time.monotonic()
        for record in self._answer(Request(tuple(columns))):
            if isinstance(record, Window):
                return sums, record
            if isinstance(record, SumsProgress):
                if (now := time.monotonic()) > shown + _SHOW_S:
                    rate = round(record.rows / (now - begun))
                    log.info("source read", topic=self._topic, rows=record.rows, of=record.of, rows_per_s=rate)
                    shown = now
                continue
            assert isinstance(record, BucketSum)
            sums[record.bucket] = record
        raise AssertionError

    def rows(self, columns: Collection[str], keys: Keys, *, texts: bool) -> tuple[dict[str, str], Window]:
        """Return the checksums of some rows, or their texts, by the text of the key."""
        rows: dict[str, str] = {}
        for record in self._answer(Request(tuple(columns), keys, texts)):
            if isinstance(record, Window):
                return rows, record
            assert isinstance(record, ComparedRow)
            if rows.setdefault(record.key, record.content) != record.content:
                raise SourceFailedError(
                    "two rows of the source have one key, and only one of them is in the target",
                    hint=f"name columns in message.key.columns whose values are unique; or {LEAVE_OUT}",
                    topic=self._topic,
                )
        raise AssertionError

    def repair(self, keys: ChosenKeys) -> None:
        """Have the rows of keys read again; on return their records are in the topic."""
        for _ in self._answer(RepairRequest(keys)):
            return

    def _answer(self, request: Request | RepairRequest) -> Iterator[Record]:
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(to_line(request))
            self._process.stdin.flush()
        except BrokenPipeError:
            raise self._ended() from None
        while True:
            yield self._next()

    def _next(self) -> Record:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line.endswith(b"\n"):
            raise self._ended()
        return from_line(line)

    def _ended(self) -> SourceFailedError:
        try:
            self._process.wait(_END_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
        self._errors.seek(0)
        return SourceFailedError(
            "the source could not be read",
            hint=f"run the command by hand; or {LEAVE_OUT}",
            command=" ".join(self._command),
            topic=self._topic,
            answer=self._errors.read()[-_SHOWN:].decode(errors="replace").strip(),
        )
