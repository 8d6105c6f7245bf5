"""The password of the account: a text, or what a command writes at each connect (``database.password.command``).

No shell runs the command. What it writes to its standard output is never shown, what it writes to stderr is.
"""

from __future__ import annotations

import shlex
import subprocess
from dataclasses import dataclass, field
from typing import Final

from tailrace.producer.errors import SourceUnavailableError

_SHOWN: Final = 500


@dataclass(frozen=True, slots=True)
class Password:
    """Neither is part of the repr."""

    text: str = field(default="", repr=False)
    command: str = field(default="", repr=False)
    """As for a shell, with quotes; empty: ``text`` is the password."""

    def read(self, timeout_s: float) -> str:
        """Return the password. Raises SourceUnavailableError if the command fails: it may succeed later."""
        if not self.command:
            return self.text
        arguments = shlex.split(self.command)
        facts: dict[str, object] = {"program": arguments[0]}
        try:
            done = subprocess.run(
                arguments, stdin=subprocess.DEVNULL, capture_output=True, timeout=timeout_s, check=True
            )
        except subprocess.CalledProcessError as error:
            raise _failed(**facts, exit_code=error.returncode, stderr=_shown(error.stderr, error.stdout)) from None
        except subprocess.TimeoutExpired as error:
            facts |= {"timeout_s": timeout_s, "stderr": _shown(error.stderr, error.stdout)}
            raise _failed(**facts) from None
        except OSError as error:
            raise _failed(**facts, cause=error.strerror) from None
        password = done.stdout.decode("utf-8", "replace").rstrip("\r\n")
        if not password:
            raise _failed(**facts, cause="it wrote nothing", stderr=_shown(done.stderr, b""))
        return password


def _shown(stderr: bytes | None, secret: bytes | None) -> str:
    """Return the end of what the command reported, without a password that it repeats there."""
    text = (stderr or b"").decode("utf-8", "replace").strip()
    for word in (secret or b"").decode("utf-8", "replace").split():
        text = text.replace(word, "***")
    return text[-_SHOWN:]


def _failed(**facts: object) -> SourceUnavailableError:
    return SourceUnavailableError(
        "database.password.command did not return a password",
        hint="run the command as the user of the producer; it must write the password alone to its standard output, "
        "within connect.timeout.ms",
        **facts,
    )
