"""Small files on the file system of the checkpoint, through Hadoop: any file system that Spark can write."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from py4j.protocol import Py4JError  # type: ignore[import-untyped]

from tailrace.spark_consumer.jvm import java_class

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def read_text(spark: SparkSession, name: str) -> str | None:
    """Return the content of a file, or None if it cannot be read."""
    content = _read(spark, name)
    return _read(spark, f"{name}.tmp") if content is None else content


def _read(spark: SparkSession, name: str) -> str | None:
    path = _path(spark, name)
    try:
        stream = _file_system(spark, path).open(path)
        try:
            return str(java_class(spark, "org.apache.commons.io.IOUtils").toString(stream, "UTF-8"))
        finally:
            stream.close()
    except Py4JError:
        return None


def write_text(spark: SparkSession, name: str, text: str) -> None:
    """Write a file, or replace it; if the process dies in between, ``read_text`` returns the old or the new content."""
    path, draft = _path(spark, name), _path(spark, f"{name}.tmp")
    files = _file_system(spark, path)
    stream = files.create(draft, True)
    try:
        stream.write(bytearray(text.encode()))
    finally:
        stream.close()
    # Most file systems do not rename to a name that exists. Until the second step the draft is complete.
    files.delete(path, False)
    if not files.rename(draft, path):
        raise OSError(f"{draft} cannot be renamed to {path}")


def exists(spark: SparkSession, name: str) -> bool:
    """Return whether a file or directory exists."""
    path = _path(spark, name)
    return bool(_file_system(spark, path).exists(path))


def children(spark: SparkSession, name: str) -> list[str]:
    """Return the names in a directory, sorted; an empty list if there is no such directory."""
    path = _path(spark, name)
    files = _file_system(spark, path)
    return sorted(str(entry.getPath().getName()) for entry in files.listStatus(path)) if files.exists(path) else []


def delete(spark: SparkSession, name: str) -> None:
    """Remove a file, or a directory with its content."""
    path = _path(spark, name)
    _file_system(spark, path).delete(path, True)


def _path(spark: SparkSession, name: str) -> Any:
    return java_class(spark, "org.apache.hadoop.fs.Path")(name)


def _file_system(spark: SparkSession, path: Any) -> Any:
    context: Any = spark.sparkContext
    return path.getFileSystem(context._jsc.hadoopConfiguration())  # noqa: SLF001
