"""What an error of Java is, without its words: a message can quote a value, and a value can be any text.

Nothing is decided by a message, and no message that can quote a value is shown where values are not.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, NamedTuple

from py4j.protocol import Py4JError, Py4JJavaError  # type: ignore[import-untyped]
from pyspark import SparkContext
from pyspark.errors import PySparkException

SPARK_ERRORS: Final = (PySparkException, Py4JJavaError)
"""What a failed statement raises; errors of Java that Spark does not know come as they are."""

_MOST_CAUSES: Final = 20
_RAISED: Final = "USER_RAISED_EXCEPTION"
_NAMES_ONLY: Final = ("org.apache.spark.sql.AnalysisException", "org.apache.kafka.common.KafkaException")
"""Classes whose messages quote names and settings, but no rows."""
_PARSING: Final = "org.apache.spark.sql.catalyst.parser.ParseException"
_ENDING: Final = ("java.lang.VirtualMachineError", "java.util.concurrent.RejectedExecutionException")
"""Out of memory; and a task that an executor gets while it ends."""
_SPARK: Final = "org.apache.spark.SparkException"
_SHOWN: Final = 300


class JavaError(NamedTuple):
    """One exception of Java."""

    classes: tuple[str, ...]
    """Its class, and the ones above it."""
    condition: str
    """That of Spark; '' if it has none."""
    sqlstate: str
    """That of Spark or of a database; '' if it has none."""
    exception: Any

    def is_any(self, *names: str) -> bool:
        """Return whether it is of one of some classes."""
        return not set(names).isdisjoint(self.classes)

    @property
    def raised(self) -> str:
        """The message that ``raise_error`` was given; '' for another exception."""
        if self.condition == _RAISED:
            return str(_called(_called(self.exception, "getMessageParameters"), "get", "errorMessage"))
        # Spark 3 has no condition for it.
        return self.message if self.classes[0] == "java.lang.RuntimeException" else ""

    @property
    def message(self) -> str:
        """The message, for the log and for classes that are known to quote no values."""
        return str(_called(self.exception, "getMessage") or "")


def java_errors(error: BaseException | None) -> Iterator[JavaError]:
    """Yield the Java exceptions of an error and of its causes, from the outermost to the first cause."""
    while error is not None:
        java: Any = getattr(error, "java_exception", None) or getattr(error, "_origin", None)
        for _ in range(_MOST_CAUSES):
            if java is None:
                break
            condition = _called(java, "getCondition") or _called(java, "getErrorClass") or ""
            state = _called(java, "getSqlState") or _called(java, "getSQLState") or ""
            yield JavaError(tuple(_classes(java)), str(condition), str(state), java)
            java = _called(java, "getCause")
        error = error.__cause__


def session_is_lost(error: BaseException) -> bool:
    """Return whether the session has ended, or whether its jobs were cancelled: the query is about to stop."""
    if SparkContext._gateway is None:  # noqa: SLF001 - no session was ever there
        return False
    context: Any = SparkContext._active_spark_context  # noqa: SLF001 - that of any session
    try:
        if context is None or context._jsc is None or context._jsc.sc().isStopped():  # noqa: SLF001
            return True
    except (Py4JError, OSError):  # there is no Java process any more
        return True
    return any(each.condition == "SPARK_JOB_CANCELLED" for each in java_errors(error))


def ends_executors(error: BaseException) -> bool:
    """Return whether tasks ran out of memory, or ended without an exception of their own: their executors were lost."""
    found = list(java_errors(error))
    ending = any(each.is_any(*_ENDING) for each in found)
    return ending or bool(found and found[-1].classes[0] == _SPARK and not found[-1].condition)


def summary(error: BaseException) -> str:
    """Return what an error is in one line: Spark's condition or the class, and the SQLSTATE, but no values."""
    found = list(java_errors(error))
    if not found:
        return type(error).__name__
    for each in found:
        if each.is_any(*_NAMES_ONLY) and not each.is_any(_PARSING):
            text = " ".join((each.message.splitlines() or [""])[0].split())[:_SHOWN]
            return text if each.condition else f"{each.classes[0]}: {text}"
    # The first cause says most; those above it often say only that a task or a batch failed.
    known = next((each for each in reversed(found) if each.condition or each.sqlstate), found[-1])
    state = f" (SQLSTATE {known.sqlstate})" if known.sqlstate else ""
    return f"[{known.condition}]{state}" if known.condition else f"{known.classes[0]}{state}"


def _called(target: Any, name: str, *arguments: object) -> Any:
    """Return the result of a method; None if the object has no such method, or fails in it."""
    try:
        return getattr(target, name)(*arguments)
    except Py4JError:
        return None


def _classes(java: Any) -> Iterator[str]:
    found = _called(java, "getClass")
    while found is not None:
        yield str(found.getName())
        found = _called(found, "getSuperclass")
