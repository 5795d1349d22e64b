"""A test that makes a constant of the library smaller must do so where the library reads it.

`from x import LIMIT` binds a name of its own: after that, a patch of one module does not reach the
other, and the test passes without testing what it says.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
SOURCES = {"pylogtable": ROOT, "pyspark_pylogtable": ROOT / "spark_ext"}

#: Tests that patch an importer on purpose, and not the module that has the constant.
ON_PURPOSE = {
    # Where an append is joined; the jobs have the same limit, and take no part.
    ("tests/spark/test_table.py", "pyspark_pylogtable.table.append", "DRIVER_BYTES"),
}


class Patch(NamedTuple):
    """`setattr(module, name, …)` in a test; `name` is None if it is not written there."""

    where: str
    module: str
    name: str | None


@cache
def parse(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def library_module(name: str) -> ast.Module | None:
    """The source of a module of the library; None if there is no such module."""
    top = SOURCES.get(name.partition(".")[0])
    if top is None:
        return None
    path = top.joinpath(*name.split(".")).with_suffix(".py")
    return parse(path) if path.is_file() else None


@cache
def imported(tree: ast.AST) -> dict[str, str]:
    """What the names stand for that imports bind, as `module.name`."""
    found = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                found[alias.asname or alias.name] = f"{node.module}.{alias.name}"
        elif isinstance(node, ast.Import):
            for alias in node.names:
                if alias.asname:
                    found[alias.asname] = alias.name
    return found


@cache
def read_in_functions(tree: ast.AST) -> set[str]:
    """The names that are looked up when a function runs. Defaults of arguments and fields of
    classes are looked up when the module is imported."""
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
            body = node.body if isinstance(node.body, list) else [node.body]
            names = (inner for part in body for inner in ast.walk(part))
            found.update(n.id for n in names if isinstance(n, ast.Name))
    return found


def patches(path: Path) -> Iterator[Patch]:
    tree = parse(path)
    names = imported(tree)
    where = str(path.relative_to(ROOT))
    for node in ast.walk(tree):
        if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)):
            continue
        if node.func.attr != "setattr" or not node.args:
            continue
        target, *rest = node.args
        if isinstance(target, ast.Constant):
            module, _, name = str(target.value).rpartition(".")
            yield Patch(where, module, name)
        elif isinstance(target, (ast.Name, ast.Attribute)):
            first, _, more = ast.unparse(target).partition(".")
            module = ".".join(part for part in (names.get(first, first), more) if part)
            given = rest[0].value if isinstance(rest[0], ast.Constant) else None
            yield Patch(where, module, None if given is None else str(given))


def faults(found: set[Patch]) -> Iterator[str]:
    """Why patches of one test file do not do what they say."""
    for patch in sorted(found, key=str):
        tree = library_module(patch.module)
        if tree is None or patch.name is None or not patch.name.isupper():
            continue
        said = f"{patch.where}: {patch.module}.{patch.name}"
        if patch.name not in read_in_functions(tree):
            yield f"{said} is not read there when a function runs"
        home = imported(tree).get(patch.name, "").rpartition(".")[0]
        source = library_module(home)
        if source is None or patch.name not in read_in_functions(source) or patch in ON_PURPOSE:
            continue
        if not {Patch(patch.where, home, name) for name in (patch.name, None)} & found:
            yield f"{said} is imported from {home}, which reads it as well and is not patched"


def test_constants_are_patched_where_they_are_read() -> None:
    files = sorted((ROOT / "tests").rglob("*.py"))
    by_file = [set(patches(path)) for path in files]
    constants = [p for found in by_file for p in found if p.name is not None and p.name.isupper()]
    assert len(constants) > 80  # otherwise it is this test that sees nothing
    assert [fault for found in by_file for fault in faults(found)] == []


def test_patches_in_a_wrong_module_are_found() -> None:
    importer, where = "pylogtable.log.stored_roots", "tests/test_it.py"
    wrong = Patch(where, importer, "ROOT_INTERVAL")
    (fault,) = faults({wrong})
    assert fault.endswith(
        "imported from pylogtable.log.root_plan, which reads it as well and is not patched"
    )
    assert not [*faults({wrong, Patch(where, "pylogtable.log.root_plan", "ROOT_INTERVAL")})]
    assert not [*faults({wrong, Patch(where, "pylogtable.log.root_plan", None)})]
    # A default of an argument, bound when the module was imported.
    (fault,) = faults({Patch(where, "pylogtable.topic_jobs", "BUDGET_BYTES")})
    assert "is not read there when a function runs" in fault
