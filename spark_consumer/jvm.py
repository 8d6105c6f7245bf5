"""Classes of the JVM by their full names.

For a name in parts, as in ``jvm.java.util.ArrayList``, py4j asks the JVM for each part, and each question about a
package searches all jars.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from py4j.java_gateway import java_import  # type: ignore[import-untyped]

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_OF_PYSPARK: Final = (
    "org.apache.spark.api.python.PythonUtils",
    "org.apache.spark.sql.api.python.PythonSQLUtils",
)
"""Classes that PySpark calls by their short names; it imports their packages only, which are then searched in turn."""


def java_class(spark: SparkSession, name: str) -> Any:
    """Return a class; its static methods are attributes, and a call makes an object."""
    return getattr(spark._jvm, name)  # noqa: SLF001 - the only access to the JVM


def companion(spark: SparkSession, name: str) -> Any:
    """Return a companion object of Scala, by the name of its class."""
    return getattr(java_class(spark, f"{name}$"), "MODULE$")


def import_classes(spark: SparkSession) -> None:
    """Let PySpark find its classes at once."""
    for name in _OF_PYSPARK:
        java_import(spark._jvm, name)  # noqa: SLF001
