"""Small files on the file system of the checkpoint, through Hadoop: any file system that Spark can write.

Documents are files of JSON, each with the version of its format, for which the rule of runtime/stored_format.py holds.
A document that is empty, cut off or without its fields is an error that names the file, never absent.

What cannot be read is an error, never absent: only a file that the file system does not have counts as missing. Every
other error is raised as ``StoredFileError``, which names the file and the cause, after some tries if it may pass.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final, TypeVar

import structlog
from py4j.java_gateway import is_instance_of  # type: ignore[import-untyped]
from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]

from tailrace.runtime.stored_format import require_known_format
from tailrace.runtime.versions import program_version
from tailrace.spark_consumer.errors import StoredFileError, first_lines
from tailrace.spark_consumer.jvm import java_class

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Result = TypeVar("Result")

_IO_ERROR: Final = "java.io.IOException"
_MISSING: Final = ("java.io.FileNotFoundException", "java.nio.file.NoSuchFileException")
_CHECKSUM: Final = "org.apache.hadoop.fs.ChecksumException"
_LASTING: Final = (
    *_MISSING,
    _CHECKSUM,
    "java.nio.file.FileSystemException",
    "org.apache.hadoop.fs.FileAlreadyExistsException",
    "org.apache.hadoop.fs.ParentNotDirectoryException",
    "org.apache.hadoop.security.AccessControlException",
)
"""I/O errors that do not pass by themselves: no permission, a wrong checksum, another kind of entry."""
_PAUSES_S: Final = (0.2, 1.0)
"""Before each further try; the clients of remote file systems have tries of their own."""

log = structlog.get_logger(__name__)


def read_text(spark: SparkSession, name: str) -> str | None:
    """Return the content of a file; None if there is no such file."""

    def read() -> str | None:
        path = _path(spark, name)
        files = _file_system(spark, path)
        try:
            stream = files.open(path)
        except Py4JJavaError as error:
            # Java has one class for a file that is missing and a local file that may not be opened.
            if _is_any(spark, error, _MISSING) and not files.exists(path):
                return None
            raise
        try:
            return str(java_class(spark, "org.apache.commons.io.IOUtils").toString(stream, "UTF-8"))
        finally:
            stream.close()

    return _attempt(spark, name, "read", read)


def replace_text(spark: SparkSession, name: str, draft: str, text: str) -> None:
    """Write a file, or replace it by way of the file ``draft``.

    At any time the file has the old or the new content, or it is missing and the draft has the new content. Most file
    systems do not rename to a name that exists, so the file is removed while its successor has the name of the draft.
    What is being written has a third name, which nobody reads: neither of the two is ever incomplete.
    """
    path, ready, unfinished = _path(spark, name), _path(spark, draft), _path(spark, f"{name}.part")

    def rename(files: Any, source: Any, target: Any) -> None:
        if not files.rename(source, target):
            raise StoredFileError(f"{source} cannot be renamed to {target}", hint="check the file system")

    def write() -> None:
        files = _file_system(spark, path)
        stream = files.create(unfinished, True)
        try:
            stream.write(bytearray(text.encode()))
        finally:
            stream.close()
        if files.exists(path):
            files.delete(ready, False)
            rename(files, unfinished, ready)
            files.delete(path, False)
            rename(files, ready, path)
        else:
            rename(files, unfinished, path)
            files.delete(ready, False)

    _attempt(spark, name, "written", write)


def exists(spark: SparkSession, name: str) -> bool:
    """Return whether a file or directory exists."""
    path = _path(spark, name)
    return _attempt(spark, name, "looked up", lambda: bool(_file_system(spark, path).exists(path)))


def children(spark: SparkSession, name: str) -> list[str]:
    """Return the names in a directory, sorted; an empty list if there is no such directory."""
    path = _path(spark, name)

    def read() -> list[str]:
        files = _file_system(spark, path)
        return sorted(str(entry.getPath().getName()) for entry in files.listStatus(path)) if files.exists(path) else []

    return _attempt(spark, name, "listed", read)


def delete(spark: SparkSession, name: str) -> None:
    """Remove a file, or a directory with its content, if it is there."""
    path = _path(spark, name)

    def remove() -> None:
        files = _file_system(spark, path)
        if not files.delete(path, True) and files.exists(path):
            raise StoredFileError(f"{name} cannot be removed", hint="check the permissions of its directory")

    _attempt(spark, name, "removed", remove)


def _attempt(spark: SparkSession, name: str, what: str, action: Callable[[], Result]) -> Result:
    """Return the result of an action on a file, which is tried again after an error that may pass."""
    for pause in (*_PAUSES_S, None):
        try:
            return action()
        except Py4JJavaError as error:
            cause = first_lines(str(error.java_exception.toString()), 1)
            if pause is None or not _is_any(spark, error, (_IO_ERROR,)) or _is_any(spark, error, _LASTING):
                hint = "restore access to the file system, or the file from a copy of the checkpoint"
                if _is_any(spark, error, (_CHECKSUM,)):
                    folder, _, base = name.rpartition("/")
                    hint = f"restore the file from a copy; if it was edited, remove its checksum {folder}/.{base}.crc"
                raise StoredFileError(f"{name} cannot be {what}", hint=hint, cause=cause) from error
            log.warning("access to a file is tried again", file=name, cause=cause)
            time.sleep(pause)
    raise AssertionError("the last attempt returns or raises")


def _is_any(spark: SparkSession, error: Py4JJavaError, classes: tuple[str, ...]) -> bool:
    gateway = spark.sparkContext._gateway  # noqa: SLF001 - the only access to the JVM
    return any(is_instance_of(gateway, error.java_exception, name) for name in classes)


def _path(spark: SparkSession, name: str) -> Any:
    return java_class(spark, "org.apache.hadoop.fs.Path")(name)


def _file_system(spark: SparkSession, path: Any) -> Any:
    context: Any = spark.sparkContext
    return path.getFileSystem(context._jsc.hadoopConfiguration())  # noqa: SLF001


Content = TypeVar("Content")

FORMAT: Final = 1
"""The version of the format of all documents."""
_SUFFIX: Final = ".json"
_DRAFT: Final = ".tmp"
_HINT: Final = (
    "restore the file from a copy of its directory; without one start with an empty checkpoint: the targets tell what "
    "they have applied, except kafka and parquet, which need new ones"
)


def read_document(spark: SparkSession, name: str, parse: Callable[[dict[str, Any]], Content]) -> Content | None:
    """Return the content of a document as ``parse`` returns it; None if there is no such file."""
    for file in (name, f"{name}{_DRAFT}"):
        text = read_text(spark, file)
        if text is not None:
            return _parsed(file, text, parse)
    return None


def write_document(spark: SparkSession, name: str, body: Mapping[str, Any]) -> None:
    """Write a document, or replace it; if the process dies in between, it has the old or the new content."""
    stored = {"format": FORMAT, "program": program_version(), **body}
    replace_text(spark, name, f"{name}{_DRAFT}", json.dumps(stored))


def delete_document(spark: SparkSession, name: str) -> None:
    """Remove a document; its draft goes first, or it would be in its place."""
    delete(spark, f"{name}{_DRAFT}")
    delete(spark, name)


def document_names(spark: SparkSession, folder: str) -> list[str]:
    """Return the names of the documents in a directory, without ``.json``, sorted; files of others are passed over."""
    names = {name.removesuffix(_DRAFT) for name in children(spark, folder)}
    return sorted(name.removesuffix(_SUFFIX) for name in names if name.endswith(_SUFFIX))


def _parsed(file: str, text: str, parse: Callable[[dict[str, Any]], Content]) -> Content:
    try:
        body = json.loads(text)
    except json.JSONDecodeError as error:
        what = "is incomplete, or no JSON" if text.strip() else "is empty"
        raise StoredFileError(f"{file} {what}", hint=_HINT, characters=len(text)) from error
    if not isinstance(body, dict):
        raise StoredFileError(f"{file} is not a document of Tailrace", hint=_HINT)
    try:
        require_known_format(file, body, FORMAT)
        return parse(body)
    except (AttributeError, IndexError, KeyError, TypeError, ValueError) as error:
        raise StoredFileError(
            f"{file} lacks a field, or has a value of the wrong kind", hint=_HINT, cause=repr(error)[:200]
        ) from error
