"""A file system of Hadoop that fails at chosen calls, as a store that is throttled or a process that is killed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import TYPE_CHECKING, Any, Final

from tailrace.spark_consumer.jvm import java_class

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SCHEME: Final = "faulty"
_CLASS: Final = "FaultyFiles"
_SOURCE: Final = """
import java.io.IOException;
import java.net.URI;
import org.apache.hadoop.fs.*;
import org.apache.hadoop.util.Progressable;

/** Local files. Names that exist are not replaced by a rename, as on most file systems. */
public class FaultyFiles extends RawLocalFileSystem {
    public static int calls = 0, first = 0, last = 0;
    public static boolean lasting = true;

    private static boolean isFaulty() { calls++; return calls >= first && calls <= last; }

    private static void check() throws IOException { if (isFaulty()) fail(); }

    private static void fail() throws IOException {
        if (lasting) throw new IllegalStateException("fault at call " + calls);
        throw new IOException("fault at call " + calls);
    }

    public URI getUri() { return URI.create("faulty:///"); }

    public String getScheme() { return "faulty"; }

    public FSDataInputStream open(Path path, int size) throws IOException { check(); return super.open(path, size); }

    public FSDataOutputStream create(Path path, boolean overwrite, int size, short copies, long block,
            Progressable progress) throws IOException {
        boolean isFaulty = isFaulty();
        int call = calls, from = first;
        first = Integer.MAX_VALUE;
        FSDataOutputStream stream = super.create(path, overwrite, size, copies, block, progress);
        calls = call;
        first = from;
        if (!isFaulty) return stream;
        stream.close();  // it is empty then
        fail();
        return null;
    }

    public boolean rename(Path from, Path to) throws IOException {
        check();
        return !super.exists(to) && super.rename(from, to);
    }

    public boolean delete(Path path, boolean recursive) throws IOException {
        check();
        return super.delete(path, recursive);
    }

    public FileStatus[] listStatus(Path path) throws IOException { check(); return super.listStatus(path); }

    public boolean exists(Path path) throws IOException { check(); return super.exists(path); }
}
"""


class Faults:
    """Counts the calls since ``at``, and lets some of them fail."""

    def __init__(self, files: Any) -> None:
        self._files = files

    def at(self, first: int, last: int = 1 << 30, *, lasting: bool = True) -> None:
        """Let calls fail, from now on counted from 1; ``lasting``: with an error that is not tried again."""
        self._files.calls, self._files.first, self._files.last, self._files.lasting = 0, first, last, lasting

    def none(self) -> None:
        """Let no call fail."""
        self.at(1 << 30)

    @property
    def calls(self) -> int:
        """The number of calls since ``at``."""
        return int(self._files.calls)


@contextmanager
def faulty_files(spark: SparkSession) -> Iterator[Faults]:
    """Add the file system, for paths such as ``faulty:///tmp/x``."""
    context: Any = spark.sparkContext
    configuration = context._jsc.hadoopConfiguration()
    before, loader = configuration.getClassLoader(), _loader(spark)
    configuration.setClassLoader(loader)
    configuration.set(f"fs.{SCHEME}.impl", _CLASS)
    configuration.set(f"fs.{SCHEME}.impl.disable.cache", "true")
    try:
        faults = Faults(_Static(loader.loadClass(_CLASS)))
        faults.none()
        yield faults
    finally:
        configuration.setClassLoader(before)


@cache
def _loader(spark: SparkSession) -> Any:
    """Return the class loader of the class; py4j must not meet two classes of one name."""
    compiler = java_class(spark, "org.codehaus.janino.SimpleCompiler")()
    compiler.setParentClassLoader(java_class(spark, "java.lang.Thread").currentThread().getContextClassLoader())
    compiler.cook(_SOURCE)
    return compiler.getClassLoader()


class _Static:
    """The static fields of a class as attributes."""

    def __init__(self, java: Any) -> None:
        object.__setattr__(self, "_java", java)

    def __getattr__(self, name: str) -> Any:
        return self._java.getField(name).get(None)

    def __setattr__(self, name: str, value: Any) -> None:
        self._java.getField(name).set(None, value)
