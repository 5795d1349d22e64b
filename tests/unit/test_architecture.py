"""The rooms of the design: who may import whom, and what may be done where."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "pylogtable"
SPARK = ROOT / "spark_ext" / "pyspark_pylogtable"

# A module may import from its own layer and from those below it.
LAYERS: dict[int, set[str]] = {
    0: {
        "errors",
        "arguments",
        "model",
        "config",
        "paths",
        "codec",
        "schema",
        "partitioner",
        "bloom",
        "html",
        "deferred",
    },
    1: {
        "snapshot",
        "leaf",
        "lookup",
        "rows",
        "records",
        "plan",
        "report",
        "group_report",
        "health",
        "overview",
        "page",
    },
    2: {"storage", "sequence"},
    3: {
        "manifest",
        "segment_file",
        "segment_writer",
        "extent",
        "staging",
        "key_search",
        "latest",
        "survivors",
        "rewriting",
        "compaction",
        "groups",
        "verify",
    },
    4: {
        "runtime",
        "commit",
        "appending",
        "view",
        "maintenance",
        "vacuum",
        "pending",
        "delivery",
        "producer",
        "group_log",
        "lag",
        "group",
        "store_group",
        "fetching",
        "seat",
        "consumer",
        "timeline",
        "topic",
        "store",
        "doctor",
        "report_page",
    },
}
# What stands on top of the library and uses only its public names.
OUTSIDE = {"__main__", "cli"}
IMPURE = {"time", "uuid", "random", "secrets"}
ONLY_IN = {
    "pyarrow.parquet": {"deferred"},
    "pylogtable.deferred.pq": {"segment_file", "segment_writer", "manifest"},
    "fsspec": {"storage"},
    "s3fs": {"storage"},
    "pyspark": set(),
}
MAX_LINES = 450


def modules() -> list[Path]:
    return sorted(PACKAGE.rglob("*.py"))


def room_of(path: Path) -> str:
    """`plan` for plan/read.py, `topic` for topic.py."""
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def room_of_outsider(path: Path) -> str:
    return room_of(path) if path.is_relative_to(PACKAGE) else "spark_ext"


def layer_of(room: str) -> int | None:
    return next((layer for layer, rooms in LAYERS.items() if room in rooms), None)


def imports(path: Path) -> Iterator[tuple[str, str | None]]:
    """(module, name) of every import, also inside functions; relative ones are not used here."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield alias.name, None
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path} imports relatively"
            for alias in node.names:
                yield node.module or "", alias.name


def inner_rooms(path: Path) -> Iterator[str]:
    for module, name in imports(path):
        parts = module.split(".")
        if parts[0] == "pylogtable":
            yield parts[1] if len(parts) > 1 else str(name)


def ids(path: Path) -> str:
    return str(path.relative_to(PACKAGE))


@pytest.mark.parametrize("path", modules(), ids=ids)
def test_imports_go_down_only(path: Path) -> None:
    room = room_of(path)
    if room == "__init__" or room in OUTSIDE:
        return
    layer = layer_of(room)
    assert layer is not None, f"{room} has no layer: put it into the table"
    for other in inner_rooms(path):
        below = layer_of(other)
        assert below is not None, f"{room} imports {other}, which has no layer"
        assert below <= layer, f"{room} (layer {layer}) imports {other} (layer {below})"


def test_no_two_modules_import_each_other() -> None:
    names = {".".join(p.relative_to(ROOT).with_suffix("").parts): p for p in modules()}
    graph = {
        name: {m for m, _ in imports(path) if m in names and m != name}
        for name, path in names.items()
        if not name.endswith("__init__")
    }
    done: set[str] = set()

    def visit(name: str, trail: tuple[str, ...]) -> None:
        assert name not in trail, f"a cycle: {' -> '.join([*trail, name])}"
        if name not in done:
            for other in graph.get(name, ()):
                visit(other, (*trail, name))
            done.add(name)

    for name in graph:
        visit(name, ())


@pytest.mark.parametrize("path", modules(), ids=ids)
def test_the_lower_layers_read_no_clock_and_draw_no_lots(path: Path) -> None:
    layer = layer_of(room_of(path))
    if layer is None or layer > 3:
        return
    imported = {module.split(".")[0] for module, _ in imports(path)}
    assert not imported & IMPURE
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Attribute):
            assert node.attr not in {"now", "utcnow", "today", "urandom"}, f"line {node.lineno}"


@pytest.mark.parametrize("path", modules(), ids=ids)
def test_clock_and_chance_come_from_runtime_alone(path: Path) -> None:
    imported = {module.split(".")[0] for module, _ in imports(path)}
    assert not imported & IMPURE or room_of(path) == "runtime"


@pytest.mark.parametrize("path", modules(), ids=ids)
def test_foreign_libraries_stay_in_their_rooms(path: Path) -> None:
    for module, name in imports(path):
        full = f"{module}.{name}" if name else module
        for library, rooms in ONLY_IN.items():
            if module == library or full == library or module.startswith(f"{library}."):
                assert room_of(path) in rooms, f"{path.name} imports {full}"


@pytest.mark.parametrize("path", modules(), ids=ids)
def test_the_pure_rooms_touch_no_store(path: Path) -> None:
    layer = layer_of(room_of(path))
    if layer is not None and layer <= 1:
        assert "storage" not in set(inner_rooms(path))


@pytest.mark.parametrize("path", [*modules(), *sorted(SPARK.rglob("*.py"))], ids=lambda p: p.name)
def test_modules_stay_small_and_say_what_they_are(path: Path) -> None:
    text = path.read_text()
    assert len(text.splitlines()) <= MAX_LINES
    if text.strip():
        assert ast.get_docstring(ast.parse(text))


@pytest.mark.parametrize("path", [p for p in modules() if p.name == "__init__.py"], ids=ids)
def test_init_files_only_export(path: Path) -> None:
    """By imports, or, at the top, by tables of names and the two functions that look into them."""
    is_top = path.parent == PACKAGE
    names = {"__all__", "__version__", *(("_MODULES", "_HOMES", "_OTHER_NAMES") if is_top else ())}
    for node in ast.parse(path.read_text()).body:
        is_docstring = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        is_name = isinstance(node, ast.Assign) and all(
            isinstance(target, ast.Name) and target.id in names for target in node.targets
        )
        is_lazy = is_top and (
            (isinstance(node, ast.Import) and node.names[0].name == "importlib")
            or (isinstance(node, ast.FunctionDef) and node.name in {"__getattr__", "__dir__"})
            or (
                isinstance(node, ast.If)
                and ast.unparse(node.test) == "TYPE_CHECKING"
                and all(isinstance(inner, ast.ImportFrom) for inner in node.body)
                and not node.orelse
            )
        )
        is_import = isinstance(node, ast.ImportFrom)
        assert is_docstring or is_name or is_lazy or is_import, f"line {node.lineno}"


def test_the_three_lists_of_public_names_agree() -> None:
    """What type checkers see, what `*` gives, and where each name is found."""
    import pylogtable

    shown = {}
    for node in ast.walk(ast.parse((PACKAGE / "__init__.py").read_text())):
        if isinstance(node, ast.ImportFrom) and str(node.module).startswith("pylogtable."):
            for alias in node.names:
                shown[alias.asname or alias.name] = (node.module, alias.name)
    found = {
        name: (f"pylogtable.{module}", pylogtable._OTHER_NAMES.get(name, name))
        for name, module in pylogtable._HOMES.items()
    }
    assert found == shown
    assert sorted(pylogtable.__all__) == sorted(shown)


@pytest.mark.parametrize(
    "path",
    [*(p for p in modules() if room_of(p) in OUTSIDE), *sorted(SPARK.rglob("*.py"))],
    ids=lambda p: p.name,
)
def test_what_stands_outside_uses_only_public_names(path: Path) -> None:
    import pylogtable

    for module, name in imports(path):
        if module.split(".")[0] == "pylogtable":
            if room_of_outsider(path) in OUTSIDE and module.startswith("pylogtable.cli"):
                continue
            assert module == "pylogtable", f"{path.name} imports {module}"
            assert name is None or name in pylogtable.__all__, f"{path.name} imports {name}"


@pytest.mark.parametrize("name", ["utils", "helpers", "common", "misc"])
def test_there_is_no_drawer_for_everything(name: str) -> None:
    assert not list(PACKAGE.rglob(f"{name}.py"))
