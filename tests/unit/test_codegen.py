"""Generated source: the documented example, and the description of the objects that it names."""

from __future__ import annotations

import re
from pathlib import Path
from struct import Struct

import pytest

from tailrace.producer.app.debug import render
from tailrace.producer.model.table import Column, Table, TableId
from tailrace.producer.serialization.codegen import BytesExpression, CodeBuilder, source_of
from tailrace.producer.serialization.table_codec import TableCodec
from tests.support.values import DEFAULT_CODEC

PAGE = Path(__file__).resolve().parents[2] / "docs" / "codegen.md"
ITEMS = Table(
    TableId("shop", "items"),
    (
        Column("id", "int", nullable=False),
        Column("name", "varchar", length=160, charset="utf8mb4"),
        Column("added", "date", nullable=False),
    ),
    ("id",),
)


def documented_example() -> str:
    """Return the printed functions of docs/codegen.md."""
    found = re.search(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    assert found is not None
    return found[1]


def test_documented_example_is_the_output() -> None:
    """Of ``tailrace debug codec`` for the CREATE TABLE on the page."""
    assert documented_example() == render(TableCodec(ITEMS, "shop.items", DEFAULT_CODEC))


def test_source_lists_the_bound_objects() -> None:
    """The same text in every process: no addresses; long constants are truncated."""
    builder = CodeBuilder()
    names = [
        builder.bind("unpack", Struct("<iB").unpack_from),
        builder.bind("search", re.compile("[a-z]").search),
        builder.bind("constant", b"x" * 100),
        builder.bind("errors", (ValueError, KeyError)),
    ]

    source = source_of(builder.compile("f", "a", [f"return {', '.join(names)}"]))

    assert source.splitlines()[:2] == [
        "# unpack_0 = Struct('<iB').unpack_from",
        "# search_1 = re.compile('[a-z]').search",
    ]
    assert source.splitlines()[2].endswith("... (100 in all)")
    assert source.splitlines()[3:5] == ["# errors_3 = (ValueError, KeyError)", "def f(a):"]
    assert "=unpack_0" not in source


def test_function_is_compiled_at_its_first_call() -> None:
    """Once; its source is known before."""
    builder = CodeBuilder()
    limit = builder.bind("limit", 7)
    lines = [f"return a + b + {limit}"]
    eager = builder.compile("f", "a, *, b=1", lines)
    function = builder.compile("f", "a, *, b=1", lines, at_first_call=True)
    broken = builder.compile("g", "", ["return +"], at_first_call=True)

    assert source_of(function) == source_of(eager)
    assert [function(2), function(2, b=3)] == [eager(2), eager(2, b=3)] == [10, 12]
    with pytest.raises(SyntaxError):
        broken()


def test_functions_of_one_source_have_objects_of_their_own() -> None:
    """Their code is compiled once."""
    builders = [CodeBuilder(), CodeBuilder()]
    functions = [
        builder.compile("f", "a", [f"return a + {builder.bind('limit', limit)}"])
        for builder, limit in zip(builders, (1, 100), strict=True)
    ]

    assert [function(7) for function in functions] == [8, 107]
    assert functions[0].__code__ is functions[1].__code__


def test_bytes_expression_escapes_constants() -> None:
    """Percent signs, quotes, backslashes and other bytes; a long constant is bound."""
    constant = b"100%'\\\x00\xff{}"
    builder = CodeBuilder()
    expression = BytesExpression(builder).constant(constant).value("a").constant(b"y" * 65).value("7", "%d")

    function = builder.compile("f", "a", [f"return {expression}"])

    assert function(b"-") == constant + b"-" + b"y" * 65 + b"7"
