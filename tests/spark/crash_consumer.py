"""A consumer process that kills itself with SIGKILL at a given moment of a batch; used by test_kill.py.

    python -m tests.spark.crash_consumer CONFIG MOMENT

MOMENT is ``never`` or ``<before|after>-<step>:<n>``, with n counted from 1; a step is ``write_batch`` or one of STEPS.
"""

from __future__ import annotations

import os
import signal
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from tailrace.spark_consumer import app, config
from tailrace.spark_consumer.sink.base import Sink
from tailrace.spark_consumer.sink.plugin import SinkPlugin

if TYPE_CHECKING:
    from collections.abc import Callable


STEPS: Final = ("append", "merge", "write_changelog", "fill", "change_rows", "note", "unstage", "store", "write")
"""Steps of the sinks, private methods of theirs."""


class Killer:
    """Kills the process before or after a step of a sink."""

    def __init__(self, moment: str) -> None:
        self._when, _, number = moment.partition(":")
        self._number = int(number or 0)
        self._seen: Counter[str] = Counter()

    def around(self, name: str, step: Callable[..., None]) -> Callable[..., None]:
        """Return the step with a check of the moment before and after it."""

        def run(*arguments: Any, **named: Any) -> None:
            self._moment(f"before-{name}")
            step(*arguments, **named)
            self._moment(f"after-{name}")

        return run

    def wrap(self, plugin: SinkPlugin) -> SinkPlugin:
        """Return the plug-in with checks in the steps of its sink."""

        def open_sink(*arguments: Any) -> Sink:
            sink: Any = plugin.open(*arguments)
            for name in STEPS:
                if hasattr(sink, f"_{name}"):
                    setattr(sink, f"_{name}", self.around(name, getattr(sink, f"_{name}")))
            sink.write_batch = self.around("write_batch", sink.write_batch)
            opened: Sink = sink
            return opened

        return replace(plugin, open=open_sink)

    def _moment(self, name: str) -> None:
        self._seen[name] += 1
        if name == self._when and self._seen[name] == self._number:
            # The whole process group: the Java process would otherwise finish the batch.
            os.killpg(0, signal.SIGKILL)


def main() -> int:
    """Run until everything is read, or until the moment."""
    app.run(config.load(Path(sys.argv[1])), wrap=Killer(sys.argv[2]).wrap)
    return 0


if __name__ == "__main__":
    sys.exit(main())
