"""Reads the hints of errors from the sources: each text that one can have, with … for what is not constant."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Mapping
from functools import cache, reduce
from importlib import import_module
from itertools import product
from pathlib import Path
from typing import Any, Final, NamedTuple

from tests.docs.samples import ROOT

UNKNOWN: Final = "…"
FOLDERS: Final = ("producer", "runtime", "schemas", "spark_consumer")
_NAMES: Final = ("hint", "remedy", "remove", "by_hand")
"""Parameters and fields with hints, or with parts of hints. Where one is passed on, it was read where it was given."""
_RETURNED_BY: Final = ("_remedy", "hint_for")
Local = Mapping[str, list[ast.expr]]
Indexes = Mapping[tuple[str, str], int]


class Hint(NamedTuple):
    """One text of a hint."""

    at: str
    text: str


@cache
def hints(folder: str) -> tuple[Hint, ...]:
    """Return the hints of the modules of a folder."""
    nodes = {
        path.relative_to(ROOT): list(ast.walk(ast.parse(path.read_text(encoding="utf-8"))))
        for path in sorted((ROOT / folder).rglob("*.py"))
    }
    indexes = {key: index for each in nodes.values() for key, index in _indexes(each)}
    return tuple(hint for path, each in nodes.items() for hint in _hints(path, each, indexes))


def _hints(path: Path, nodes: Iterable[ast.AST], indexes: Indexes) -> Iterator[Hint]:
    module = ".".join(("tailrace", *path.with_suffix("").parts)).removesuffix(".__init__")
    given = list(_given(nodes, indexes))
    local = _local(nodes) if given else {}
    for node in given:
        for text in _texts(node, module, local.get(node, {})):
            yield Hint(f"{path}:{node.lineno}", text)


def _indexes(nodes: Iterable[ast.AST]) -> Iterator[tuple[tuple[str, str], int]]:
    """Yield the index of each parameter that takes a hint."""
    for node in nodes:
        if isinstance(node, ast.FunctionDef):
            names = [each.arg for each in node.args.args if each.arg != "self"]
        elif isinstance(node, ast.ClassDef):
            names = [ast.unparse(each.target) for each in node.body if isinstance(each, ast.AnnAssign)]
        else:
            continue
        yield from (((node.name, name), index) for index, name in enumerate(names) if name in _NAMES)


def _given(nodes: Iterable[ast.AST], indexes: Indexes) -> Iterator[ast.expr]:
    """Yield the expressions that are hints."""
    for node in nodes:
        if isinstance(node, ast.FunctionDef):
            yield from (default for name, default in _defaults(node) if name in _NAMES)
            if node.name.endswith(_RETURNED_BY):
                yield from (each.value for each in ast.walk(node) if isinstance(each, ast.Return) and each.value)
        elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Attribute):
            if node.targets[0].attr in _NAMES:
                yield node.value
        elif isinstance(node, ast.Call):
            yield from (each.value for each in node.keywords if each.arg in _NAMES)
            name = getattr(node.func, "attr", getattr(node.func, "id", ""))
            taken = [indexes[name, each] for each in _NAMES if (name, each) in indexes]
            yield from (node.args[index] for index in taken if index < len(node.args))


def _local(nodes: Iterable[ast.AST]) -> dict[ast.AST, dict[str, list[ast.expr]]]:
    """Return the local variables at each node: those of the innermost function."""
    found = {}
    for function in nodes:
        if isinstance(function, ast.FunctionDef):
            local: dict[str, list[ast.expr]] = {each.arg: [] for each in function.args.args + function.args.kwonlyargs}
            for name, default in _defaults(function):
                local[name].append(default)
            for node in ast.walk(function):
                found[node] = local
                if isinstance(node, ast.Assign):
                    for name, value in _assigned(node.targets[0], node.value):
                        local.setdefault(name, []).append(value)
    return found


def _assigned(target: ast.expr, value: ast.expr) -> Iterator[tuple[str, ast.expr]]:
    if isinstance(target, ast.Name):
        yield target.id, value
    elif isinstance(target, ast.Tuple) and isinstance(value, ast.IfExp):
        yield from (*_assigned(target, value.body), *_assigned(target, value.orelse))
    elif isinstance(target, ast.Tuple):
        values = value.elts if isinstance(value, ast.Tuple) else [value] * len(target.elts)
        yield from (each for pair in zip(target.elts, values, strict=True) for each in _assigned(*pair))


def _defaults(function: ast.FunctionDef) -> Iterator[tuple[str, ast.expr]]:
    args = function.args
    last = zip(args.args[::-1], args.defaults[::-1], strict=False)
    yield from (
        (each.arg, default)
        for each, default in (*last, *zip(args.kwonlyargs, args.kw_defaults, strict=True))
        if default
    )


def _texts(node: ast.expr, module: str, local: Local) -> list[str]:
    def read(*nodes: ast.expr) -> list[str]:
        return [text for each in nodes for text in _texts(each, module, local)]

    match node:
        case ast.Constant(value=str(text)):
            return [text] if text else []
        case ast.JoinedStr(values=parts):
            return ["".join(texts) for texts in product(*(read(part) or [UNKNOWN] for part in parts))]
        case ast.FormattedValue(value=value):
            return read(value)
        case ast.BinOp(left=left, op=ast.Add(), right=right):
            return ["".join(texts) for texts in product(read(left) or [UNKNOWN], read(right) or [UNKNOWN])]
        case ast.IfExp(body=body, orelse=other):
            return read(body, other)
        case ast.Tuple(elts=[*_, last]):
            return read(last)
        case ast.Call(func=ast.Attribute(attr="join"), args=[ast.GeneratorExp(elt=element)]):
            return read(element)
        case ast.Call(func=ast.Attribute(value=mapping, attr="get"), args=[_, default]):
            return [*_strings(_constant(mapping, module)), *read(default)]
        case ast.Call(func=function) if ast.unparse(function).endswith(_RETURNED_BY):
            return []
        case ast.Name(id=name) if name in local:
            return [text for each in local[name] for text in _texts(each, module, {**local, name: []})] or (
                [] if name in _NAMES else [UNKNOWN]
            )
        case ast.Attribute(attr=name) | ast.Subscript(slice=ast.Constant(value=name)) if name in _NAMES:
            return []
        case ast.Name() | ast.Attribute():
            return _strings(_constant(node, module)) or [UNKNOWN]
    return [UNKNOWN]


def _constant(node: ast.expr, module: str) -> Any:
    """Return what a dotted name is in a module; None if it is not there."""
    first, *rest = ast.unparse(node).split(".")
    try:
        return reduce(getattr, rest, vars(import_module(module))[first])
    except (KeyError, AttributeError):
        return None


def _strings(value: Any) -> list[str]:
    if isinstance(value, Mapping):
        return [text for each in value.values() for text in _strings(each)]
    last = value[-1] if isinstance(value, tuple) else value
    return [last] if isinstance(last, str) else []
