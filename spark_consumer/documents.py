"""What the consumer stores next to a checkpoint or a target: small JSON documents, each with the version of its format.

For versions the rule of runtime/stored_format.py holds. A document that is empty, cut off or without its fields is an
error that names the file, never absent.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final, TypeVar

from tailrace.runtime.stored_format import program_version, require_known_format
from tailrace.spark_consumer.errors import StoredFileError
from tailrace.spark_consumer.files import children, delete, read_text, replace_text

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

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
