"""One Iceberg table: creation, rows, table properties and what its snapshots tell.

The ledger (ledger.py) is a property of the summary of each snapshot that the sink commits: the records of a batch and
the offsets that are applied with them are one commit. Snapshots of others have none; the newest one that has counts.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, ClassVar, Final

from pyspark.sql import functions as fn
from pyspark.sql import types as tp

from tailrace.runtime.errors import SchemaError
from tailrace.schemas.sequence import SEQUENCE_COLUMN, Sequence
from tailrace.schemas.table import TableSchema
from tailrace.spark_consumer.errors import SinkError
from tailrace.spark_consumer.java_errors import SPARK_ERRORS
from tailrace.spark_consumer.normalize.rowkind import RENAME_COLUMN
from tailrace.spark_consumer.sink.ledger import Ledger, was_replaced
from tailrace.spark_consumer.sink.shape import PLAIN, Layout
from tailrace.spark_consumer.sink.state import COMMIT_OF_ALTERATION
from tailrace.spark_consumer.sink.statements import assignments, column_list
from tailrace.spark_consumer.sink.table_names import quote
from tailrace.spark_consumer.sink.target_table import TargetTable
from tailrace.spark_consumer.small_data import SMALL_FILES, SMALL_TABLE

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

DEFAULTS: Final[Mapping[str, str]] = {
    "format-version": "2",
    # A change marks rows as deleted instead of rewriting every file that contains one.
    "write.delete.mode": "merge-on-read",
    "write.merge.mode": "merge-on-read",
    "write.update.mode": "merge-on-read",
    # Each batch is a commit with a metadata file of its own.
    "write.metadata.delete-after-commit.enabled": "true",
    # After other commits, some snapshots that have a ledger stay.
    "history.expire.min-snapshots-to-keep": "10",
}
LEDGER: Final = "tailrace.ledger"
"""Summary of a snapshot: the ledger."""
_REPLACED: Final = "tailrace.replaced"
"""Summary of a snapshot: which replacement of all rows it was."""

_BRANCH: Final = "tailrace_"
"""Start of the names of branches that have a commit until it is complete."""
_MAX_AGE_MS: Final = 86_400_000
"""After this time, the branch of a process that was killed is removed with old snapshots."""

_OPTION: Final = "snapshot-property."
_SETTING: Final = "spark.sql.iceberg.snapshot-property."
_RESERVED: Final = frozenset(
    {"_file", "_pos", "_deleted", "_spec_id", "_partition", "_row_id", "_last_updated_sequence_number"}
)
"""Names of columns that every Iceberg table has by itself."""
_NOT_IDENTIFYING: Final = (tp.FloatType, tp.DoubleType, tp.StructType, tp.ArrayType, tp.MapType)


class IcebergTable(TargetTable):
    """An Iceberg table in a catalog."""

    format: ClassVar[str] = "Iceberg"

    _newest: int | None = None
    """The snapshot that the ledger was read at; None: there was none."""

    @property
    def exists(self) -> bool:
        """Whether the catalog has the table."""
        return bool(self._spark.catalog.tableExists(self.sql_name))

    def require_format(self) -> None:
        """Raise SinkError if a table of that name exists that is not an Iceberg table."""
        if not self.exists:
            return
        try:
            self.load()
        except SPARK_ERRORS as error:
            raise SinkError(
                f"{self.name} cannot be read as an Iceberg table",
                hint="set another sink.table, or rename the table",
                cause=str(error).splitlines()[0],
            ) from error

    def load(self) -> Any:
        """Return the table of Iceberg's Java library, as it is now."""
        jvm: Any = self._spark._jvm  # noqa: SLF001 - a query of the metadata tables would run a job
        session: Any = self._spark._jsparkSession  # noqa: SLF001
        return jvm.org.apache.iceberg.spark.Spark3Util.loadIcebergTable(session, self.sql_name)

    @property
    def properties(self) -> Mapping[str, str]:
        """The table's properties. Raises SinkError if the rows are older than an ALTER TABLE that they tell of."""
        if self._properties is None:
            loaded = self.load()
            found = self._seen(dict(loaded.properties()))
            commit = found.get(COMMIT_OF_ALTERATION, "")
            self.require_commit(commit, found=not commit or _has_snapshot(loaded, commit))
            self._properties = found
        return self._properties

    def set(self, properties: Mapping[str, str]) -> None:
        """Set table properties."""
        super().set(self.marked(properties, lambda: _shown(self.load().currentSnapshot())))

    @property
    def columns(self) -> tp.StructType:
        """The table's columns."""
        if self._columns is None:
            self._columns = self.rows().schema
        return self._columns

    @property
    def has_no_files(self) -> bool:
        """Whether the table is empty: it has no data files."""
        return self._total("total-data-files") == 0

    @property
    def commits(self) -> int:
        """How many commits the table has, also those whose snapshots are removed; format version 1 has no number."""
        loaded = self.load()
        newest = loaded.currentSnapshot()
        return 0 if newest is None else int(newest.sequenceNumber() or loaded.history().size())

    @property
    def is_small(self) -> bool:
        """Whether it takes little time to read all files; the newest snapshot has their number and size."""
        return self._total("total-data-files") <= SMALL_FILES and self._total("total-files-size") <= SMALL_TABLE

    def rows(self) -> DataFrame:
        """Return the rows of the table."""
        return self._spark.read.table(self.sql_name)

    def append(self, rows: DataFrame, metadata: str) -> None:
        """Append rows in one commit; columns are matched by name."""
        with self.following() as target:
            rows.writeTo(target).option(f"{_OPTION}{LEDGER}", metadata).append()

    @contextmanager
    def following(self) -> Iterator[str]:
        """Yield the name of the table for one commit that follows the version whose ledger, or rows, were read.

        Iceberg finds no conflict between two appends, and none between a MERGE and what was committed before the MERGE
        was planned. So the commit is made in a branch from that version. That the table goes on with the branch fails
        if it has another snapshot meanwhile.
        """
        branch, loaded = f"{_BRANCH}{uuid.uuid4().hex[:12]}", self.load()
        begun = loaded.manageSnapshots()
        # Without a snapshot, an empty one is made.
        begun = begun.createBranch(branch) if self._newest is None else begun.createBranch(branch, self._newest)
        begun.setMaxRefAgeMs(branch, _MAX_AGE_MS).commit()
        try:
            yield f"{self.sql_name}.{quote('branch_' + branch)}"
            loaded.refresh()
            loaded.manageSnapshots().fastForwardBranch("main", branch).removeBranch(branch).commit()
        except BaseException:
            loaded.refresh()
            if loaded.refs().containsKey(branch):
                loaded.manageSnapshots().removeBranch(branch).commit()
            raise

    def replace(self, rows: Callable[[DataFrame], DataFrame], *, once: tuple[str, int] | None) -> None:
        """Replace all rows in one commit; not again if a snapshot says that it was made."""
        loaded, options = self.load(), {}
        if once is not None:
            if was_replaced((summary.get(_REPLACED, "") for summary in _summaries(loaded)), once):
                return
            options[f"{_OPTION}{_REPLACED}"] = f"{once[0]} {once[1]}"
        # Iceberg would replace what another process has committed since the rows were read.
        self._newest = _id(loaded.currentSnapshot())
        with self.following() as target:
            rows(self._spark.read.table(target)).writeTo(target).options(**options).overwrite(fn.lit(True))

    def commit_settings(self, metadata: str) -> Mapping[str, str]:
        """Return the settings of a session in which a statement commits with the metadata of a ledger."""
        return {f"{_SETTING}{LEDGER}": metadata}

    def newest_ledger(self, topic: str) -> Ledger | None:
        """Return the ledger of the current snapshot, or of the newest one before it that has one."""
        loaded = self.load()
        self._newest = _id(loaded.currentSnapshot())
        return Ledger.newest(topic, (summary.get(LEDGER) for summary in _summaries(loaded)))

    def before(self, sequence: Sequence) -> str:
        """Return the condition of the rows with a smaller sequence; Iceberg cannot compare a column with a struct."""
        column, conditions, equal = quote(SEQUENCE_COLUMN), [], f"{quote(SEQUENCE_COLUMN)} IS NOT NULL"
        for name, value in sequence._asdict().items():
            stored = f"coalesce({column}.{name}, -1)"
            conditions.append(f"({equal} AND {stored} < {value}L)")
            equal = f"{equal} AND {stored} = {value}L"
        return " OR ".join(conditions)

    def ledger_text(self) -> str:
        """Return the newest ledger as it is stored; '' if there is none."""
        return next((summary[LEDGER] for summary in _summaries(self.load()) if LEDGER in summary), "")

    def newest_is(self, ledger: str) -> bool:
        """Return whether the current snapshot has a ledger, as it is stored."""
        return next((summary.get(LEDGER) for summary in _summaries(self.load())), None) == ledger

    def create(self, schema: TableSchema, properties: Mapping[str, str], layout: Layout = PLAIN) -> None:
        """Create the empty table: the columns of the captured table, the sequence column, those of the layout."""
        columns = self.new_columns(schema, layout)
        optional = {column.name for column in schema.columns if column.schema.optional}
        listed = [
            column_list([each]) + (" NOT NULL" if each.name in schema.key and each.name not in optional else "")
            for each in columns
        ]
        self._create_schema()
        self._spark.sql(
            f"CREATE TABLE {self.sql_name} ({', '.join(listed)}) USING ICEBERG "
            f"TBLPROPERTIES ({assignments({**DEFAULTS, **self.as_stored(properties)})})"
        )
        self.refresh()
        types = {each.name: each.dataType for each in columns}
        if layout.takes_changelog:
            return
        if not any(name in optional or isinstance(types[name], _NOT_IDENTIFYING) for name in schema.key):
            # Not every reader needs them: a table without them, after a failure here, is complete as well.
            self.alter(f"SET IDENTIFIER FIELDS {', '.join(map(quote, schema.key))}")

    def check_schema(self, schema: TableSchema) -> None:
        """Raise SinkError for a table without a key, SchemaError for one with a name that Iceberg reserves."""
        super().check_schema(schema)
        for column in schema.columns:
            if column.name.lower() in _RESERVED:
                raise SchemaError(
                    f"column {column.name!r} of {schema.database}.{schema.table} has a name that Iceberg reserves",
                    hint=RENAME_COLUMN,
                )

    @staticmethod
    def can_widen(stored: tp.DataType, wider: tp.DataType) -> bool:
        """Return whether Iceberg promotes a type to another one."""
        if isinstance(stored, tp.DecimalType):
            return isinstance(wider, tp.DecimalType) and (
                wider.scale == stored.scale and wider.precision >= stored.precision
            )
        return (isinstance(stored, tp.IntegerType) and isinstance(wider, tp.LongType)) or (
            isinstance(stored, tp.FloatType) and isinstance(wider, tp.DoubleType)
        )

    def _total(self, name: str) -> int:
        snapshot = self.load().currentSnapshot()
        return 0 if snapshot is None else int(snapshot.summary().get(name) or 0)


def _id(snapshot: Any) -> int | None:
    return None if snapshot is None else int(snapshot.snapshotId())


def _order(snapshot: Any) -> list[int]:
    """Return what orders the snapshots that led to each other; format version 1 has only the time."""
    return [int(snapshot.sequenceNumber()), int(snapshot.timestampMillis())]


def _shown(snapshot: Any) -> str:
    """Return a snapshot with its order, which is known when it is expired; '' for none."""
    return "" if snapshot is None else " ".join(map(str, [_id(snapshot), *_order(snapshot)]))


def _has_snapshot(loaded: Any, shown: str) -> bool:
    """Return whether a snapshot has led to the current one; an earlier release stored it without its order."""
    number, *order = map(int, shown.split())
    for each in _snapshots(loaded):
        if _id(each) == number:
            return True
        if order and _order(each) < order:
            return False
    # An expired one has no older ones that led to the current one either.
    return loaded.snapshot(number) is None


def _summaries(loaded: Any) -> Iterator[Mapping[str, str]]:
    return (dict(snapshot.summary()) for snapshot in _snapshots(loaded))


def _snapshots(loaded: Any) -> Iterator[Any]:
    """Yield the snapshots of a table, from the current one back to the oldest that is left."""
    snapshot = loaded.currentSnapshot()
    while snapshot is not None:
        yield snapshot
        parent = snapshot.parentId()
        snapshot = None if parent is None else loaded.snapshot(parent)
