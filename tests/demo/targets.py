"""The sinks of ``./run demo --sinks``: their settings, their servers, and how their tables are read back."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Final, get_args

from pyspark.sql import Window
from pyspark.sql import functions as fn

from tailrace.schemas.rowkind import RowKind
from tailrace.schemas.sequence import SEQUENCE_COLUMN
from tailrace.spark_consumer.normalize.rowkind import JSON_OPTIONS
from tailrace.spark_consumer.sink.kafka import OFFSET_HEADER, PART_HEADER, PARTITION_HEADER
from tailrace.spark_consumer.sink.shape import CURRENT, IS_DELETED, KIND, OFFSET, PART, PARTITION, Shape
from tests.demo import sample_database
from tests.demo.many_tables import KINDS, kind_of
from tests.embedded.mysql import MySqlServer
from tests.embedded.postgresql import PostgresServer

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

    from tests.demo.stack import Stack

_DATABASE: Final = sample_database.DATABASE
_CATALOG: Final = "demo"


class Target:
    """One sink. ``start`` starts its server, if it has one."""

    kind = ""
    """The type of the sink."""
    shapes: ClassVar[tuple[Shape, ...]] = ("scd1",)
    """The shapes that its tables get, in turn."""

    def __init__(self, stack: Stack, name: str) -> None:
        self.stack, self.name = stack, name

    def start(self) -> None:
        """Start the server."""

    def settings(self) -> dict[str, Any]:
        """Return the properties of the sink."""
        return {}

    def read(self, spark: SparkSession, table: str) -> DataFrame:
        """Return the rows of a table; other columns than those of the source may be there."""
        raise NotImplementedError

    def read_shape(self, spark: SparkSession, table: str, shape: Shape) -> DataFrame:
        """Return the rows of a table of some shape that the source has now."""
        rows = self.read(spark, table)
        if shape == "soft-delete":
            return rows.where(f"NOT {IS_DELETED}")
        if shape == "scd2":
            return rows.where(CURRENT)
        if shape == "history":
            last = _last(rows, KINDS[kind_of(table)].key, [SEQUENCE_COLUMN, PARTITION, OFFSET, PART])
            return last.where(fn.col(KIND) != RowKind.DELETE.value)
        return rows


class Delta(Target):
    """Tables in a folder."""

    kind = "delta"
    shapes = get_args(Shape)

    def settings(self) -> dict[str, Any]:
        """Return the folder."""
        return {"sink.path": self.stack.sink}

    def read(self, spark: SparkSession, table: str) -> DataFrame:
        """Read the table."""
        return spark.read.format("delta").load(f"{self.stack.sink}/{_DATABASE}/{table}")


class Iceberg(Target):
    """Tables of a catalog of files."""

    kind = "iceberg"
    shapes = get_args(Shape)

    def settings(self) -> dict[str, Any]:
        """Return the names of the tables."""
        return {"sink.table": f"{_CATALOG}.{_DATABASE}.{{table}}"}

    def read(self, spark: SparkSession, table: str) -> DataFrame:
        """Read the table."""
        return spark.read.format("iceberg").load(f"{self.stack.work}/iceberg/{_DATABASE}/{table}")


class Postgres(Target):
    """Tables of a PostgreSQL server."""

    kind = "jdbc"
    shapes = get_args(Shape)
    driver = "org.postgresql.Driver"

    def __init__(self, stack: Stack, name: str) -> None:
        super().__init__(stack, name)
        self.server: PostgresServer | MySqlServer = self._server()
        stack.add(self.server)

    def _server(self) -> PostgresServer | MySqlServer:
        # It does not run as root, who alone can read the folder of the demo.
        return PostgresServer()

    @property
    def url(self) -> str:
        """The JDBC URL."""
        assert isinstance(self.server, PostgresServer)
        return self.server.url

    @property
    def properties(self) -> dict[str, str]:
        """The connection properties."""
        return {}

    def start(self) -> None:
        """Start the server."""
        self.server.start()

    def settings(self) -> dict[str, Any]:
        """Return the address."""
        found = {"sink.url": self.url, "sink.user": self.server.user, "sink.password": self.server.password}
        return found | {f"sink.properties.{name}": value for name, value in self.properties.items()}

    def read(self, spark: SparkSession, table: str) -> DataFrame:
        """Read the table."""
        options = {**self.properties, "url": self.url, "user": self.server.user, "password": self.server.password}
        reader = spark.read.format("jdbc").options(**options, driver=self.driver, preferTimestampNTZ="true")
        return reader.option("dbtable", f"{_DATABASE}.{table}").load()


class MySql(Postgres):
    """Tables of another MySQL server."""

    driver = "com.mysql.cj.jdbc.Driver"

    def _server(self) -> PostgresServer | MySqlServer:
        return MySqlServer(directory=self.stack.folder(f"target-{self.name}"))

    @property
    def url(self) -> str:
        """The JDBC URL."""
        return f"jdbc:mysql://{self.server.host}:{self.server.port}/"

    @property
    def properties(self) -> dict[str, str]:
        """The connection properties."""
        return {"allowPublicKeyRetrieval": "true"}


class Parquet(Target):
    """Changelogs as files."""

    kind = "parquet"

    @property
    def _folder(self) -> str:
        return f"{self.stack.work}/parquet"

    def settings(self) -> dict[str, Any]:
        """Return the folder."""
        return {"sink.path": self._folder}

    def read(self, spark: SparkSession, table: str) -> DataFrame:
        """Return the last row of each key, unless it is a delete."""
        rows = spark.read.option("mergeSchema", "true").parquet(f"{self._folder}/{_DATABASE}/{table}")
        last = _last(rows, ["_key"], ["_seq", "_partition", "_offset", "_part"])
        return last.where(fn.col("_kind") != "-D")


class Kafka(Target):
    """Changelogs in topics."""

    kind = "kafka"
    prefix = "changelog"

    def read(self, spark: SparkSession, table: str) -> DataFrame:
        """Return the last row of each key, unless it is a delete; a record that is there twice counts once."""
        records = _records(spark, self.stack.bootstrap, f"{self.prefix}.{sample_database.PREFIX}.{_DATABASE}.{table}")
        order = [_header(name).cast("bigint") for name in (PARTITION_HEADER, OFFSET_HEADER, PART_HEADER)]
        numbered = records.withColumns(dict(zip(("p", "o", "n"), order, strict=True)))
        # A key is in one partition of the source.
        last = _last(numbered, ["key"], ["o", "n"])
        parsed = fn.from_json("value", f"op STRING, data STRUCT<{_struct(table)}>", JSON_OPTIONS)
        return last.select(parsed.alias("parsed")).where("parsed.op <> '-D'").select("parsed.data.*")


class UpsertKafka(Target):
    """The last row of each key in topics."""

    kind = "upsert-kafka"
    prefix = "latest"

    def read(self, spark: SparkSession, table: str) -> DataFrame:
        """Return the last value of each key."""
        records = _records(spark, self.stack.bootstrap, f"{self.prefix}.{sample_database.PREFIX}.{_DATABASE}.{table}")
        last = _last(records, ["key"], ["offset"]).where("value IS NOT NULL")
        parsed = fn.from_json("value", KINDS[kind_of(table)].types, JSON_OPTIONS)
        return last.select(parsed.alias("parsed")).select("parsed.*")


TARGETS: Final[dict[str, type[Target]]] = {
    "delta": Delta,
    "iceberg": Iceberg,
    "postgres": Postgres,
    "mysql": MySql,
    "parquet": Parquet,
    "kafka": Kafka,
    "upsert-kafka": UpsertKafka,
}
"""The names that ``--sinks`` takes."""


def session_settings(stack: Stack) -> dict[str, str]:
    """Return the settings of the consumer's session for the catalog of the Iceberg sink."""
    name = f"spark.sql.catalog.{_CATALOG}"
    return {
        name: "org.apache.iceberg.spark.SparkCatalog",
        f"{name}.type": "hadoop",
        f"{name}.warehouse": f"{stack.work}/iceberg",
    }


def _records(spark: SparkSession, bootstrap: str, topic: str) -> DataFrame:
    reader = spark.read.format("kafka").option("kafka.bootstrap.servers", bootstrap).option("subscribe", topic)
    found = reader.option("includeHeaders", "true").option("kafka.isolation.level", "read_committed").load()
    return found.withColumn("value", fn.col("value").cast("string"))


def _header(name: str) -> Column:
    return fn.get(fn.filter("headers", lambda each: each["key"] == name), fn.lit(0))["value"].cast("string")


def _last(rows: DataFrame, key: Sequence[str], order: Sequence[str]) -> DataFrame:
    newest = Window.partitionBy(*key).orderBy(*(fn.col(name).desc() for name in order))
    return rows.withColumn("_rank", fn.row_number().over(newest)).where("_rank = 1").drop("_rank")


def _struct(table: str) -> str:
    return ", ".join(each.strip().replace(" ", ": ", 1) for each in _columns(KINDS[kind_of(table)].types))


def _columns(ddl: str) -> list[str]:
    """Split at commas that are not within brackets."""
    parts, depth = [""], 0
    for letter in ddl:
        depth += {"(": 1, ")": -1}.get(letter, 0)
        if letter == "," and not depth:
            parts.append("")
        else:
            parts[-1] += letter
    return parts
