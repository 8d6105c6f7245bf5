"""Several sinks in one query: their configuration, which table goes where, and one whose engine is down."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest

from tailrace.runtime.config.section import Section
from tailrace.runtime.errors import ConfigError
from tailrace.schemas.table import TableSchema
from tailrace.spark_consumer import config, session
from tailrace.spark_consumer.app import load_sinks
from tailrace.spark_consumer.errors import SinkError, TargetUnavailableError, UnreachableSinkError, concerns_all_tables
from tailrace.spark_consumer.images import Images
from tailrace.spark_consumer.query import processing_time
from tailrace.spark_consumer.sink.base import Sink, SinkContext
from tailrace.spark_consumer.sink.delta_sink import DeltaSink
from tailrace.spark_consumer.sink.hudi_sink import HudiSink
from tailrace.spark_consumer.sink.iceberg_sink import _prepare_session
from tailrace.spark_consumer.sink.plugin import SinkPlugin, load_sink
from tailrace.spark_consumer.sink.routing import Assignments, QuerySink, SharedQuerySink, SinkRouter, TableSinks
from tailrace.spark_consumer.source.topics import TableFilter

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

COMMON = {"bootstrap.servers": "b:1", "topic.prefix": "p", "checkpointLocation": "/c"}
GOOD = {
    **COMMON,
    "sinks": "lake, ice,pg",
    "sinks.lake.type": "delta",
    "sinks.lake.sink.path": "/tables",
    "sinks.lake.table.include.list": r"shop\.a,shop\.b{1\,2}",
    "sinks.ice.type": "iceberg",
    "sinks.ice.sink.table": "c.shop.{table}",
    "sinks.ice.table.include.list": r"shop\.ice_.*",
    "sinks.pg.type": "jdbc",
    "sinks.pg.sink.url": "jdbc:postgresql://h/d",
    "sinks.pg.sink.password": "hidden-one",
    "sinks.pg.sink.properties.sslkey": "hidden-two",
    "sinks.pg.table.exclude.list": r"shop\.(a|bb?|ice_.*)",
}
SCHEMA = TableSchema("p.shop.t", "shop", "t", (), ())


def problems(changes: Mapping[str, str]) -> tuple[str, ...]:
    """Return what is wrong with a configuration."""
    with pytest.raises(ConfigError) as caught:
        config.parse({**GOOD, **changes})
    return caught.value.problems


def test_each_sink_has_its_own_properties_and_tables() -> None:
    loaded = config.parse(GOOD)
    lake, ice, pg = loaded.chosen_sinks

    assert [(each.name, each.kind) for each in (lake, ice, pg)] == [
        ("lake", "delta"),
        ("ice", "iceberg"),
        ("pg", "jdbc"),
    ]
    assert (cast("Any", lake.options).path, cast("Any", ice.options).table) == ("/tables", "c.shop.{table}")
    assert lake.tables == TableFilter((r"shop\.a", r"shop\.b{1,2}"))
    assert pg.tables.excluded == (r"shop\.(a|bb?|ice_.*)",)
    assert (loaded.sink_names, loaded.warnings) == ("lake,ice,pg", ())


def test_the_effective_configuration_is_shown_without_secrets() -> None:
    shown = config.describe(config.parse(GOOD))

    assert "hidden" not in str(shown)
    assert (shown["sinks"], shown["sinks.lake.sink.path"], shown["sinks.pg.sink.batchsize"]) == (
        "lake,ice,pg",
        "/tables",
        "1000",
    )
    assert config.describe(config.parse(shown)) == shown


def test_names_and_properties_may_come_from_variables() -> None:
    loaded = config.load(None, {"SINKS": "lake", "SINKS_LAKE_TYPE": "delta", "SINKS_LAKE_SINK_PATH": "/tables"}, COMMON)

    assert cast("Any", loaded.chosen_sinks[0].options).path == "/tables"


def test_all_faults_of_the_sinks_are_reported_together() -> None:
    found = problems(
        {
            "sinks.lake.table.include.list": "(",
            "sinks.lake.sink.path": "",
            "sinks.ice.sink.table": "x.{table}",
            "sinks.ice.sink.tabel": "y",
            "sinks.pg.type": "paimon",
            "sinks.other.type": "delta",
        }
    )

    assert sorted(found) == [
        "sinks.ice.sink.tabel is not a known property; did you mean sinks.ice.sink.table?",
        "sinks.ice.sink.table: a name such as catalog.schema.{table} is needed, with the catalog of Spark",
        "sinks.lake.sink.path is missing: the directory of the tables; or set sink.table",
        (
            "sinks.lake.table.include.list: '(' (flag) is not regular expressions separated by commas: '(': missing ), "
            "unterminated subpattern at position 0"
        ),
        "sinks.other.type is not a known property; did you mean sinks.ice.type?",
        (
            "sinks.pg.type: 'paimon' is not installed; installed sinks: console, delta, hudi, iceberg, jdbc, kafka, "
            "parquet, upsert-kafka"
        ),
    ]


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ({"sink": "delta"}, "sinks: sink is set too; use one of them"),
        ({"sinks": "lake,Lake"}, "'lake' is there twice"),
        ({"sinks": "a-b"}, "'a-b' is no name"),
        ({"sinks": "lake,new"}, "sinks.new.type is missing"),
    ],
)
def test_wrong_names_are_faults(given: Mapping[str, str], problem: str) -> None:
    assert any(problem in each for each in problems(given))


def test_sink_or_sinks_is_needed() -> None:
    for given in (COMMON, {**COMMON, "sinks": ""}):
        with pytest.raises(ConfigError, match="sink is missing: Name of the sink; or set sinks"):
            config.parse(given)


def test_a_property_without_the_name_of_its_sink_has_a_warning() -> None:
    loaded = config.parse({**GOOD, "sink.path": "/elsewhere"})

    assert loaded.warnings == ("sink.path has no effect: sinks is set; write it as sinks.<name>.sink.path",)


def test_a_table_goes_to_the_sink_whose_lists_have_it() -> None:
    router = SinkRouter(load_sinks(config.parse(GOOD)), "p")

    found = {table: router.name_of(f"p.shop.{table}") for table in ("a", "BB", "ice_1", "aa", "c")}

    assert found == {"a": "lake", "BB": "lake", "ice_1": "ice", "aa": "pg", "c": "pg"}
    assert router.problems(f"p.shop.{table}" for table in found) == []


def test_tables_with_no_sink_or_several_are_reported_together() -> None:
    changes = {"sinks.lake.table.include.list": "shop.a.*", "sinks.pg.table.exclude.list": "shop.(x|ice).*"}
    router = SinkRouter(load_sinks(config.parse({**GOOD, **changes})), "p")

    none, several = router.problems(["p.shop.a", "p.shop.x2", "p.shop.x1", "p.shop.a2", "p.shop.ok"])

    assert none.startswith("sinks: tables without a sink: shop.x1, shop.x2; add them")
    assert several.startswith("sinks: tables of more than one sink (lake, pg): shop.a, shop.a2; a table goes to one")
    for table, problem in (("x1", "has no sink"), ("a", "is a table of lake and pg")):
        with pytest.raises(SinkError, match=rf"shop\.{table} {problem}") as caught:
            router.of(f"p.shop.{table}")
        assert "sinks.<name>.table.include.list and sinks.<name>.table.exclude.list so that" in caught.value.hint
        assert "or leave it out with table.exclude.list, and start again" in caught.value.hint
    assert (router.name_of("p.shop.x1"), router.name_of("p.shop.a")) == ("", "")


def test_a_long_list_of_tables_is_cut() -> None:
    router = SinkRouter(load_sinks(config.parse({**GOOD, "sinks.pg.table.exclude.list": ".*"})), "p")

    [text] = router.problems(f"p.shop.x{number:03}" for number in range(100))

    assert "shop.x019 and 80 more;" in text
    assert "shop.x020" not in text


def test_a_table_with_several_shapes_is_reported_at_the_start() -> None:
    changes = {"sinks.lake.sink.shape.overrides": r"shop\.a:scd2;shop\..*:history"}
    sinks = load_sinks(config.parse({**GOOD, **changes}))
    router = SinkRouter(sinks, "p")

    assert [sink.name for sink in sinks if sink.has_overrides] == ["lake"]
    assert router.problems(["p.shop.aa", "p.shop.bb"]) == []
    [text] = router.problems(["p.shop.a", "p.shop.aa"])
    start = "sinks.lake.sink.shape.overrides: several expressions match shop.a: "
    assert text.startswith(rf"{start}shop\.a:scd2, shop\..*:history;")


def test_images_are_those_of_the_sink_of_a_table_or_chosen_by_it_per_table() -> None:
    def choose(options: Section, database: str, table: str) -> Images:
        assert (options, database) == (lake.options, "shop")
        return Images.CHANGELOG if table == "history" else Images.UPSERT

    [lake] = load_sinks(config.parse({**COMMON, "sink": "delta", "sink.path": "/t"}))
    chosen = replace(lake, plugin=replace(lake.plugin, table_images=choose))
    console = {name: text for name, text in GOOD.items() if not name.startswith("sinks.pg.sink.")}
    several = TableSinks(load_sinks(config.parse({**console, "sinks.pg.type": "console"})), "p", "/c")

    assert [SinkRouter([chosen], "p").images(f"p.shop.{t}") for t in ("history", "t")] == [
        Images.CHANGELOG,
        Images.UPSERT,
    ]
    assert [several.is_changelog(f"p.shop.{table}") for table in ("a", "ice_1", "c")] == [False, False, True]


def test_a_table_that_moved_to_another_sink_is_a_fault() -> None:
    assigned = Assignments("/c")
    assigned._known = {"p.shop.a": "lake", "p.shop.b": "lake", "p.shop.c": "pg"}

    assert assigned.problems({"p.shop.c": "pg", "p.shop.new": "pg", "p.shop.a": ""}) == []
    [text] = assigned.problems({"p.shop.a": "pg", "p.shop.b": "pg"})
    assert text.startswith("sinks: p.shop.a, p.shop.b went to the sink lake until now and would go to pg")
    assert "/c/tailrace/sinks.json" in text


def test_session_has_the_jars_and_settings_of_all_sinks() -> None:
    plugins = [load_sink("delta"), load_sink("iceberg"), load_sink("jdbc"), load_sink("delta")]
    found = session.coordinates(plugins, "4.1.3")
    extensions = session.required_settings(plugins)["spark.sql.extensions"].split(",")

    assert len(found) == len(set(found))
    assert set(found) == {jar for plugin in plugins for jar in session.coordinates([plugin], "4.1.3")}
    assert [name.rpartition(".")[2] for name in extensions] == [
        "DeltaSparkSessionExtension",
        "IcebergSparkSessionExtensions",
    ]


class _Conf(dict[str, str]):
    """The settings of a session."""

    set = dict.__setitem__


def test_a_session_without_the_settings_of_a_sink_gets_their_names() -> None:
    conf = _Conf()
    spark = cast("Any", SimpleNamespace(conf=conf))
    for kind, open_sink, named in (("delta", DeltaSink, 2), ("hudi", HudiSink, 1)):
        with pytest.raises(SinkError, match=r"^the Spark session has no") as caught:
            open_sink(spark, cast("Any", None), cast("Any", None))
        needed = session.required_settings([load_sink(kind)]).items()
        assert sum(f"{name}={value}" in caught.value.hint for name, value in needed) == named
    for missing, setting in (
        ("has no Iceberg extension", "spark.sql.extensions=org.apache.iceberg.spark.extensions.IcebergSpark"),
        ("has no catalog lake, which sink.table names", "spark.sql.catalog.lake=org.apache.iceberg.spark.SparkCatalog"),
    ):
        with pytest.raises(SinkError, match=missing) as caught:
            _prepare_session(spark, "lake")
        assert setting in caught.value.hint
        [(name, value)] = re.findall(r"(spark\.sql\.[\w.]+)=([\w.]+)", caught.value.hint)
        conf[name] = value
    _prepare_session(spark, "lake")


def test_sinks_that_need_other_values_of_a_setting_are_a_fault() -> None:
    delta = load_sink("delta")
    other = replace(load_sink("console"), spark_settings={"spark.sql.catalog.spark_catalog": "other.Catalog"})

    with pytest.raises(ConfigError, match=r"delta needs spark\.sql\.catalog\.spark_catalog=org.*console needs other"):
        session.required_settings([delta, other])


def test_all_sinks_without_the_spark_version_are_named() -> None:
    with pytest.raises(ConfigError) as caught:
        session.coordinates([load_sink("delta"), load_sink("iceberg")], "4.3.0")

    assert [problem.split()[1] for problem in caught.value.problems] == ["delta", "iceberg"]


@pytest.mark.parametrize(
    ("kinds", "expected"),
    [(("delta", "kafka"), "10 seconds"), (("delta", "parquet", "kafka"), "1 minute"), (("kafka",), "1 second")],
)
def test_trigger_is_the_longest_default_of_the_sinks(kinds: tuple[str, ...], expected: str) -> None:
    assert processing_time([QuerySink(kind, load_sink(kind), Section()) for kind in kinds]) == expected


class Target:
    """A sink on a server that can be down."""

    def __init__(self) -> None:
        self.error: Exception | None = TargetUnavailableError("no connection", sqlstate="08001")
        self.calls = 0

    def open(self) -> Sink:
        """Connect."""
        self._call()
        return cast("Sink", self)

    def applied(self, schema: TableSchema) -> Mapping[int, int]:  # noqa: ARG002 - part of the protocol
        """Ask the server."""
        self._call()
        return {0: 7}

    def _call(self) -> None:
        self.calls += 1
        if self.error is not None:
            raise self.error


def test_server_of_one_sink_that_is_down_stops_its_tables_only() -> None:
    target = Target()
    sink = SharedQuerySink("pg", target.open)
    sink.open()
    for _ in range(3):
        with pytest.raises(UnreachableSinkError, match="the engine of the sink pg cannot be reached") as caught:
            sink.applied(SCHEMA)
        assert not concerns_all_tables(caught.value)
        assert (caught.value.context["sink"], caught.value.context["cause"]) == ("pg", "no connection")
        assert "go on at the next attempt (tailrace.parked.table.retry.ms, or the signal SIGUSR1)" in caught.value.hint
    assert target.calls == 1  # not once for each table

    target.error = None
    sink.retry()
    assert sink.applied(SCHEMA) == {0: 7}


@pytest.mark.parametrize(
    ("error", "lost"),
    [
        (ConnectionRefusedError("refused"), True),
        (RuntimeError("Caused by: java.net.ConnectException: Connection refused"), False),
        (OSError("No space left on device"), False),
        (SinkError("the table has another column"), False),
    ],
)
def test_only_a_lost_server_is_an_error_of_the_sink(error: Exception, lost: bool) -> None:
    target = Target()
    target.error = None
    sink = SharedQuerySink("pg", target.open)
    sink.open()
    target.error = error

    with pytest.raises(UnreachableSinkError if lost else type(error)) as caught:
        sink.applied(SCHEMA)

    assert (caught.value is error) is not lost


def test_all_sinks_are_closed_although_one_fails() -> None:
    closed: list[str] = []

    class Closing:
        def __init__(self, name: str) -> None:
            self.name = name

        def close(self) -> None:
            closed.append(self.name)
            if self.name == "b":
                raise SinkError("b cannot be closed")

    def plugin(name: str) -> SinkPlugin:
        return replace(load_sink("console"), open=lambda *_: cast("Sink", Closing(name)))

    sinks = TableSinks([QuerySink(name, plugin(name), Section()) for name in "abc"], "p", "/c")
    sinks.open(cast("SparkSession", None), cast("SinkContext", None))

    with pytest.raises(SinkError, match="b cannot be closed"):
        sinks.close()

    assert sorted(closed) == ["a", "b", "c"]
