"""Transforms: expressions are checked with the position of a fault, and rows equal those of a slow reference."""

from __future__ import annotations

import random
import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest
from pyspark.sql import types as tp

from tailrace.schemas.alteration import Alteration, AlterationKind, ColumnChange
from tailrace.schemas.connect import ConnectField
from tailrace.schemas.sequence import Sequence
from tailrace.schemas.table import TableSchema
from tailrace.spark_consumer.errors import TransformError
from tailrace.spark_consumer.images import Images
from tailrace.spark_consumer.normalize.rowkind import to_changelog
from tailrace.spark_consumer.source.control import ControlTopic
from tailrace.spark_consumer.source.json_decoder import image_fields, row_type
from tailrace.spark_consumer.source.schema_tracker import SchemaTracker
from tailrace.spark_consumer.source.types import SEQUENCE_TYPE
from tailrace.spark_consumer.transform.columns import find_columns
from tailrace.spark_consumer.transform.rules import Rules, read_rules
from tailrace.spark_consumer.transform.table_transform import TableTransform, failing_record
from tailrace.spark_consumer.transform.transforms import Transforms
from tests.spark.records import connect, decimal, table_schema

if TYPE_CHECKING:
    from pyspark.sql import Row, SparkSession

SCHEMA: Final = table_schema(
    "p",
    "orders",
    ConnectField("price", decimal(10, 2)),
    ConnectField("qty", connect("int32")),
    ConnectField("st`at.us", connect("string", name="io.debezium.data.Enum", allowed="a,b")),
    ConnectField("day", connect("int32", name="io.debezium.time.Date")),
)


def rules(projection: str = "", condition: str = "", keys: str = "") -> Rules:
    """Return one transform for all tables."""
    given = {"t.source-table": ".*", "t.projection": projection, "t.filter": condition, "t.primary-keys": keys}
    found, problems = read_rules("t", given, None, {})
    assert problems == []
    return found


def transform(
    spark: SparkSession, projection: str = "", condition: str = "", keys: str = "", schema: TableSchema = SCHEMA
) -> TableTransform:
    """Return the transform of the test table."""
    columns, faults = find_columns(spark, rules(projection, condition, keys).transforms[0], schema)
    assert faults == []
    return TableTransform.of(schema, (schema.database, schema.table), columns)


def faults(spark: SparkSession, projection: str = "", condition: str = "", keys: str = "") -> list[str]:
    """Return the faults of a transform of the test table."""
    return find_columns(spark, rules(projection, condition, keys).transforms[0], SCHEMA)[1]


def tracker(*schemas: TableSchema, alterations: Iterable[Alteration] = ()) -> SchemaTracker:
    """Return published schemas, the latest last."""
    found = SchemaTracker(ControlTopic("schemas", {}))
    for number, schema in enumerate(schemas):
        found.add(schema.to_json(sequence=Sequence(1, 1, 10 * number, 0, 0)))
    for alteration in alterations:
        found.add(alteration.to_json())
    return found


def shown(schema: TableSchema) -> dict[str, str]:
    """Return the Spark types of the columns of a schema."""
    return {each.name: each.dataType.simpleString() for each in row_type(schema)}


def test_projection_passes_through_renames_casts_and_computes(spark: SparkSession) -> None:
    found = transform(
        spark,
        "id AS order_id, upper(name) AS name, price * qty AS total, cast(price AS decimal(12,4)) AS exact,\n"
        "  `st``at.us` AS state, cast(qty AS tinyint) AS small, qty > 1 AS many, to_timestamp(day) AS since,\n"
        "  __schema_name__ AS shard, named_struct('a', qty) AS nested, * EXCEPT (id, qty)",
    )

    assert shown(found.schema) == {
        "order_id": "bigint",
        "name": "string",
        "total": "decimal(21,2)",
        "exact": "decimal(12,4)",
        "state": "string",
        "small": "smallint",
        "many": "boolean",
        "since": "timestamp",
        "shard": "string",
        "nested": "struct<a:int>",
        "price": "decimal(10,2)",
        "st`at.us": "string",
        "day": "date",
    }
    assert found.schema.key == ("order_id",)
    by_name = {column.name: column.schema for column in found.schema.columns}
    assert by_name["state"] == SCHEMA.columns[4].schema, "a column that is passed through keeps its type of the source"
    assert (by_name["order_id"].optional, by_name["shard"].optional, by_name["total"].optional) == (False, False, True)


def test_star_stands_for_the_columns_that_no_other_item_names(spark: SparkSession) -> None:
    found = transform(spark, "upper(name) AS NAME, *")

    assert list(shown(found.schema)) == ["NAME", "id", "price", "qty", "st`at.us", "day"]


FAULTS: Final = [
    ("upper(nmae) AS name, *", 7, 4, "`nmae` cannot be resolved"),
    ("*, price *  * 2 AS x", 15, 1, "Syntax error at or near '2'"),
    ("*, id FROM t", 7, 1, "Syntax error at or near 'FROM'"),
    ("*, price * qty", 4, 11, "needs a name"),
    ("*, (SELECT 1) AS x", 4, 10, "subquery"),
    ("*, id IN (SELECT 1) AS x", 7, 13, "subquery"),
    ("*, 1 + sum(id) OVER () AS x", 8, 15, "window"),
    ("*, count(id) AS x", 4, 14, "aggregate"),
    ("*, explode(array(1)) AS x", 4, 22, "returns rows"),
    ("*, 1 + rand() AS x", 8, 6, "another one each time"),
    ("*, current_date AS x", 4, 12, "depends on the time"),
    ("*, now() AS x", 4, 5, "depends on the time"),
    ("*, current_user() AS x", 4, 14, "the session"),
    ("*, java_method('java.lang.System', 'exit', 1) AS x", 4, 42, "another one each time"),
    ("*, struct(*) AS x", 11, 1, "within an expression"),
    ("*, NULL AS x", 4, 9, "type void"),
    ("*, array(day) AS x", 4, 15, "type array<date>"),
    ("*, of_somebody(id) AS x", 4, 15, "registered"),
    ("*, name AS ID, id", 16, 1, "given twice"),
    ("*, *", 4, 1, "given twice"),
    ("*,\n  name, nope(id) AS x", 9, 8, "`nope`"),
    ("*, ", 4, 1, "Syntax error"),
    ("name", 1, 1, "the key column id is left out"),
]


def test_each_fault_of_a_projection_is_refused_with_its_position(spark: SparkSession) -> None:
    spark.udf.register("of_somebody", lambda value: value, "bigint")
    for text, column, length, message in FAULTS:
        found = faults(spark, text)

        assert len(found) == 1, (text, found)
        first, line, marks = found[0].splitlines()
        number = 2 if "\n" in text else 1
        assert first.startswith(f"transforms.t.projection, line {number}, column {column}: "), (text, first)
        assert message in first, (text, first)
        assert line.strip() == text.splitlines()[number - 1].strip()
        assert (marks.index("^") - 3, marks.count("^")) == (column, length), (text, marks)


def test_all_faults_are_reported_at_once(spark: SparkSession) -> None:
    found = faults(spark, "*, upper(nmae) AS a, lower(emial) AS b", "price * 2", "qty")

    assert [text.partition(":")[0] for text in found] == [
        "transforms.t.projection, line 1, column 10",
        "transforms.t.projection, line 1, column 28",
        "transforms.t.filter, line 1, column 1",
        "transforms.t.primary-keys, line 1, column 1",
    ]
    assert "true or false" in found[2]
    assert "depends on qty, which an update can change" in found[3]


@pytest.mark.parametrize(("columns", "key"), [("name", ""), ("id, name", "name")])
def test_another_key_than_that_of_the_source_is_refused_with_what_can_have_it(
    spark: SparkSession, columns: str, key: str
) -> None:
    [found] = faults(spark, columns, "", key)

    assert "materialize of the library" in found
    named = re.search(r"docs/\w+\.md", found)
    assert named is not None
    assert "`materialize(" in (Path(__file__).parents[2] / named[0]).read_text(encoding="utf-8")


@pytest.mark.parametrize("kind", ["DOUBLE", "FLOAT", "BINARY", "DECIMAL(9, 2)"])
def test_column_that_tells_tables_apart_has_one_text_for_each_value(spark: SparkSession, kind: str) -> None:
    [found] = faults(spark, f"CAST(substr(__schema_name__, 1) AS {kind}) AS shard, *", "", "id, shard")

    assert found.startswith("transforms.t.primary-keys, line 1, column 5: shard tells the rows of a table from others")


def test_variables_are_not_replaced(spark: SparkSession) -> None:
    session = spark.newSession()
    found = Transforms(session, rules("*, '${system:user.name}' AS x"), tracker(SCHEMA)).of(SCHEMA)

    row = found.apply(records(session, [entry("c", 0, after=line(1))], Images.UPSERT), Images.UPSERT).first()
    assert row is not None
    assert row["after"]["x"] == "${system:user.name}"


def test_key_can_be_computed_from_the_key(spark: SparkSession) -> None:
    found = transform(spark, "concat(__table_name__, '-', id) AS code, name", keys="code")

    assert found.schema.key == ("code",)
    upserts = found.apply(records(spark, [entry("d", 0, before=line(7))], Images.UPSERT), Images.UPSERT).collect()
    assert [row["before"].asDict() for row in upserts] == [{"code": "orders-7"}]
    changes = found.apply(records(spark, [entry("d", 0, before=line(7))], Images.CHANGELOG), Images.CHANGELOG).collect()
    assert [bytes(row["key"]) for row in changes] == [b'{"code":"orders-7"}']


def line(key: int, **values: Any) -> dict[str, Any]:
    """Return a row of the test table."""
    return {"id": key, "name": "n", "price": Decimal("1.50"), "qty": 2, "st`at.us": "a", "day": None, **values}


def entry(op: str, offset: int, **more: Any) -> dict[str, Any]:
    """Return a decoded record."""
    images = [row for row in (more.get("after"), more.get("before")) if row is not None]
    return {
        "partition": 0,
        "offset": offset,
        "key": f'{{"id":{images[0]["id"]}}}'.encode() if images else None,
        "split": None,
        "incremental": False,
        "seq": (1, 1, 100 + offset, 0, 0),
        "op": op,
        "ts_ms": 1000 + offset,
        "checksum": None,
        "before": None,
        "after": None,
        **more,
    }


def records(spark: SparkSession, entries: Iterable[Mapping[str, Any]], images: Images) -> Any:
    """Return decoded records as the decoder makes them."""
    types = {each.name: each for each in row_type(SCHEMA)}
    rows = {
        name: tp.StructType([types[field.name] for field in image_fields(SCHEMA, name, images)])
        for name in ("before", "after")
    }
    fields = {
        "partition": tp.IntegerType(),
        "offset": tp.LongType(),
        "key": tp.BinaryType(),
        "split": tp.StringType(),
        "incremental": tp.BooleanType(),
        "seq": SEQUENCE_TYPE,
        "op": tp.StringType(),
        "ts_ms": tp.LongType(),
        "checksum": tp.LongType(),
        **rows,
    }

    def image(name: str, row: Mapping[str, Any] | None) -> tuple[Any, ...] | None:
        return None if row is None else tuple(row[field.name] for field in rows[name])

    values = [tuple(image(name, each[name]) if name in rows else each[name] for name in fields) for each in entries]
    return spark.createDataFrame(values, tp.StructType([tp.StructField(name, kind) for name, kind in fields.items()]))


CONDITION: Final = "qty > 3 AND name <> 'test'"
PROJECTION: Final = "id AS order_id, upper(name) AS name, price * qty AS total"
MIX: Final = [None, "test", "ab", "Ü"]


def is_in(row: Mapping[str, Any] | None) -> bool:
    """Evaluate the filter: SQL's NULL does not match."""
    if row is None or row["qty"] is None or row["name"] is None:
        return False
    return bool(row["qty"] > 3 and row["name"] != "test")


def projected(row: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """Evaluate the projection."""
    if row is None:
        return None
    total = None if row["qty"] is None else row["price"] * row["qty"]
    return {"order_id": row["id"], "name": row["name"] and row["name"].upper(), "total": total}


def random_entries(seed: int, count: int) -> list[dict[str, Any]]:
    """Return changes of a few keys, each with the images that its op has; some belong to an incremental snapshot."""
    chance = random.Random(seed)
    rows: dict[int, dict[str, Any]] = {}
    found = []
    for offset in range(count):
        key = chance.randrange(40)
        before = rows.get(key)
        new = line(key, name=chance.choice(MIX), qty=chance.choice([None, 1, 3, 4, 9]), price=Decimal(offset) / 100)
        op = chance.choice("ud") if before else chance.choice("cr")
        if before and chance.random() < 0.2:
            op, new = "r", before  # a row that is read again
        incremental = chance.random() < 0.3
        more = {"incremental": incremental, "before": before if op in "ud" else None}
        found.append(entry(op, offset, **more, after=None if op == "d" else new))
        if op == "d":
            del rows[key]
        else:
            rows[key] = new
    return [*found, entry("t", count)]


def as_dict(row: Row | None) -> dict[str, Any] | None:
    """Return a struct as a dictionary."""
    return None if row is None else row.asDict()


def test_upserts_equal_the_reference(spark: SparkSession) -> None:
    entries = random_entries(5, 1500)
    found = transform(spark, PROJECTION, CONDITION).apply(records(spark, entries, Images.UPSERT), Images.UPSERT)

    expected = []
    for each in entries:
        leaves = each["op"] in "cru" and not is_in(each["after"])
        image = each["after"] or each["before"]
        key = None if image is None else {"order_id": image["id"]}
        has_key = leaves or each["before"] is not None
        expected.append(
            {
                **each,
                "op": "d" if leaves else each["op"],
                "before": key if has_key else None,
                "after": None if leaves else projected(each["after"]),
            }
        )
    rows = [
        {**row.asDict(), "key": row["key"] and bytes(row["key"]), "seq": tuple(row["seq"])}
        | {name: as_dict(row[name]) for name in ("before", "after")}
        for row in found.orderBy("offset").collect()
    ]
    assert rows == expected


def test_changelogs_equal_the_reference(spark: SparkSession) -> None:
    entries = random_entries(6, 1500)
    found = transform(spark, PROJECTION, CONDITION).apply(records(spark, entries, Images.CHANGELOG), Images.CHANGELOG)

    expected: list[tuple[int, str, dict[str, Any] | None]] = []
    for each in entries:
        before, after, at = each["before"], each["after"], each["offset"]
        if each["incremental"]:
            if each["op"] == "d":
                expected.append((at, "-D", projected(before)))
            elif is_in(after):
                expected.append((at, "+U", projected(after)))
            else:
                expected.append((at, "-D", projected(before if before is not None else after)))
            continue
        was, now = is_in(before), is_in(after)
        if was and now:
            expected += [(at, "-U", projected(before)), (at, "+U", projected(after))]
        elif now:
            expected.append((at, "+I", projected(after)))
        elif was:
            expected.append((at, "-D", projected(before)))
    rows = to_changelog(found).orderBy("offset", "part").collect()
    assert [(row["offset"], row["kind"], as_dict(row["row"])) for row in rows] == expected
    assert all(bytes(row["key"]) == f'{{"order_id":{row["row"]["order_id"]}}}'.encode() for row in rows)


def test_the_record_that_an_expression_fails_for_is_named(spark: SparkSession) -> None:
    """Two of 300 records in three partitions fail; the first of them is found whatever Spark computes first."""
    found = transform(spark, "id, cast(name AS INT) AS number, 10 DIV qty AS part", "qty <> 77")
    entries = [
        entry("c", 7 * number, partition=number % 3, after=line(number, name=str(number), qty=5))
        for number in range(300)
    ]

    def failure(changes: Mapping[int, Mapping[str, Any]], images: Images) -> TransformError | None:
        changed = [{**each, "after": {**each["after"], **changes.get(n, {})}} for n, each in enumerate(entries)]
        return failing_record(records(spark, changed, images), found, images)

    for images in (Images.UPSERT, Images.CHANGELOG):
        assert failure({}, images) is None
        error = failure({263: {"name": "x"}, 200: {"qty": 0}, 131: {"name": "twelve"}}, images)
        assert error is not None
        start, _, reason = error.message.partition(": ")
        assert start == "the transform of shop.orders fails for a record"
        assert reason.startswith("topic p.shop.orders, partition 2, offset 917: [CAST_INVALID_INPUT] (SQLSTATE ")
    other = failure({200: {"qty": 0}}, Images.UPSERT)
    assert other is not None
    assert "partition 2, offset 1400: [DIVIDE_BY_ZERO]" in other.message
    assert transform(spark, "id AS k, * EXCEPT (qty)").computes is False


def alteration(statement: str, pos: int, *changes: ColumnChange) -> Alteration:
    """Return an ALTER TABLE of the test table."""
    return Alteration(SCHEMA.topic, "shop", "orders", statement, changes, Sequence(1, 1, pos, 0, 0))


def test_a_renamed_column_stops_the_table_and_names_the_statement(spark: SparkSession) -> None:
    renamed = replace(
        SCHEMA, columns=tuple(replace(c, name="amount") if c.name == "qty" else c for c in SCHEMA.columns)
    )
    statement = "ALTER TABLE orders RENAME COLUMN qty TO amount"
    change = alteration(statement, 5, ColumnChange(AlterationKind.RENAME, "amount", "qty"))
    schemas = tracker(SCHEMA, renamed, alterations=[change])
    transforms = Transforms(spark, rules("*, price * qty AS total"), schemas)

    with pytest.raises(TransformError) as caught:
        transforms.of(renamed)

    assert "transforms.t.projection, line 1, column 12: " in caught.value.message
    assert caught.value.hint == "change the setting to the columns that the table has now, and start again"
    assert caught.value.context["source"] == statement
    assert "amount" in str(caught.value.context["columns"])
    assert transforms.problems() == [], "the configuration was right: the other tables go on"
    assert Transforms(spark, rules("*, price * wrong AS total"), schemas).problems() != []


class Sinks:
    """One sink, which can write several tables to one target or not."""

    def __init__(self, *, merges: bool = False, images: Images = Images.CHANGELOG) -> None:
        self._merges = merges
        self._images = images

    def name_of(self, topic: str) -> str:
        """Return the name of the only sink."""
        return f"sink of {topic}"[:4]

    def images(self, topic: str) -> Images:
        """Return what the test says."""
        assert topic
        return self._images

    def merges_tables(self, topic: str) -> bool:
        """Return what the test says."""
        assert topic
        return self._merges


def test_a_table_with_soft_deletes_has_no_filter(spark: SparkSession) -> None:
    sinks = Sinks(images=Images.UPSERT_WITH_BEFORE)

    filtered = Transforms(spark, rules(condition="qty > 3"), tracker(SCHEMA), sinks)
    [problem] = filtered.problems()
    assert "a table with soft deletes has no filter" in problem
    with pytest.raises(TransformError, match="soft deletes"):
        filtered.of(SCHEMA)

    projected = Transforms(spark, rules(PROJECTION), tracker(SCHEMA), sinks)
    assert projected.problems() == []
    images = Images.UPSERT_WITH_BEFORE
    found = projected.of(SCHEMA).apply(records(spark, [entry("d", 0, before=line(7))], images), images).collect()
    assert [row["before"].asDict() for row in found] == [{"order_id": 7, "name": "N", "total": Decimal("3.00")}]


def test_tables_share_a_target_if_its_key_tells_them_apart(spark: SparkSession) -> None:
    one, other = (replace(table_schema("p", "orders"), topic=f"p.{name}.o", database=name) for name in ("s_1", "s_2"))

    to_one = "s_(\\d)\\.(.*)", "Shop.$2"

    def transforms(
        projection: str, keys: str = "", *, merges: bool = True, route: tuple[str, str] = to_one
    ) -> Transforms:
        given = {"t.source-table": ".*", "t.projection": projection, "t.primary-keys": keys}
        routes = {"r.source-table": route[0], "r.sink-table": route[1]}
        found, problems = read_rules("t", given, "r", routes)
        assert problems == []
        return Transforms(spark, found, tracker(one, other), Sinks(merges=merges))

    def refused(found: Transforms) -> str:
        [problem] = found.problems()
        assert found.problems(lambda schema: schema == one) == []
        assert found.of(one).schema.database == "Shop"
        with pytest.raises(TransformError) as caught:
            found.of(other)
        assert problem == f"routes: {caught.value.message}"
        assert caught.value.hint == "change routes or the key, and start again"
        return problem

    start = "routes: s_1.orders, s_2.orders have one target, shop.orders"
    assert refused(transforms("*", merges=False)) == f"{start}: this sink needs a target for each table"
    missing = "its key does not tell their rows apart"
    assert refused(transforms("*")).startswith(f"{start}, and {missing}")
    assert missing in refused(transforms("__schema_name__ AS shard, *")), "the column is not part of the key"
    assert missing in refused(transforms("__table_name__ AS shard, *", "shard, id")), "the column is the same in both"

    in_one = "__table_name__ AS shard, nullif(__schema_name__, 's_1') AS b, *"
    assert missing in refused(transforms(in_one, "shard, b, id")), "the column that differs is constant in one only"

    right = transforms("int(substr(__schema_name__, 3)) AS shard, *", "shard, id")
    assert right.problems() == []
    assert [right.of(schema).shard for schema in (one, other)] == [{"shard": "1"}, {"shard": "2"}]

    into_one = transforms("__schema_name__ AS shard, *", "shard, id", route=("s_2\\.(.*)", "s_1.$1"))
    [problem] = into_one.problems()
    assert problem.startswith("routes: s_1.orders, s_2.orders have one target, s_1.orders, and s_1.orders has no route")


def test_alterations_follow_the_columns_that_a_star_stands_for(spark: SparkSession) -> None:
    new = ConnectField("extra", connect("int32"))
    latest = replace(
        SCHEMA,
        columns=(
            *(replace(c, name="amount") if c.name == "qty" else c for c in SCHEMA.columns if c.name != "day"),
            new,
        ),
    )
    changes = [
        alteration("1", 1, ColumnChange(AlterationKind.ADD, "extra", schema=new.schema, value=7)),
        alteration("2", 2, ColumnChange(AlterationKind.RENAME, "amount", "qty")),
        alteration("3", 3, ColumnChange(AlterationKind.DROP, "day")),
        alteration("4", 4, ColumnChange(AlterationKind.CONVERT, "name")),
    ]

    def seen(projection: str, condition: str = "") -> list[tuple[str, list[tuple[str, str, str]]]]:
        found = transform(spark, projection, condition, schema=latest).alterations(changes)
        return [(each.statement, [(c.kind.value, c.column, c.old) for c in each.changes]) for each in found]

    assert seen("*") == [
        ("1", [("add", "extra", "")]),
        ("2", [("rename", "amount", "qty")]),
        ("3", [("drop", "day", "")]),
        ("4", [("convert", "name", "")]),
    ]
    assert seen("id, amount AS n, extra AS more") == [("1", [("add", "more", "")])]
    assert seen("* EXCEPT (extra), upper(name) AS loud", "name > ''") == [
        ("2", [("rename", "amount", "qty")]),
        ("3", [("drop", "day", "")]),
        ("4", [("convert", "", "")]),
    ]
    assert seen("id, upper(name) AS loud") == [("4", [("convert", "loud", "")])]
