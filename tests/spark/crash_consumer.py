"""A consumer in a process of its own that dies by SIGKILL at a chosen moment of a batch; run by test_kill.py.

    python -m tests.spark.crash_consumer CONFIG MOMENT

MOMENT is ``never`` or ``<before|after>-<append|merge|apply>:<n>``: at the n-th such moment, counted from 1.
"""

from __future__ import annotations

import os
import signal
import sys
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tailrace.spark_consumer import app, config
from tailrace.spark_consumer.sink.base import Sink
from tailrace.spark_consumer.sink.delta import DeltaSink

if TYPE_CHECKING:
    from collections.abc import Callable


class Killer:
    """Puts moments around the steps of a Delta sink."""

    def __init__(self, moment: str) -> None:
        self._when, _, number = moment.partition(":")
        self._number = int(number or 0)
        self._seen: Counter[str] = Counter()

    def around(self, name: str, step: Callable[..., None]) -> Callable[..., None]:
        """Return the step with a moment before and after it."""

        def run(*arguments: Any) -> None:
            self._moment(f"before-{name}")
            step(*arguments)
            self._moment(f"after-{name}")

        return run

    def wrap(self, sink: Sink) -> Sink:
        """Put moments into a sink."""
        assert isinstance(sink, DeltaSink)
        victim: Any = sink
        victim._append = self.around("append", victim._append)
        victim._merge = self.around("merge", victim._merge)
        victim.apply = self.around("apply", victim.apply)
        return sink

    def _moment(self, name: str) -> None:
        self._seen[name] += 1
        if name == self._when and self._seen[name] == self._number:
            # The whole group: this process, and the Java beside it, which would otherwise finish the batch.
            os.killpg(0, signal.SIGKILL)


def main() -> int:
    """Run until everything is read, or until the moment comes."""
    app.run(config.load(Path(sys.argv[1])), wrap=Killer(sys.argv[2]).wrap)
    return 0


if __name__ == "__main__":
    sys.exit(main())
