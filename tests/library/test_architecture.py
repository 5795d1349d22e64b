"""The rooms of the design: who may import whom, and what may be done where."""

from __future__ import annotations

import ast
import functools
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path

import pytest

import pylogtable
import pylogtable.engine
import pylogtable.kafka
import pylogtable.metrics
import pylogtable.prove
import pylogtable.run

ROOT = Path(__file__).parents[2]
LIBRARY = ROOT / "pylogtable"
SPARK = ROOT / "spark_ext" / "pyspark_pylogtable"

# Folder -> folders it may import. "words" and "facade" are the modules at the top of the package.
CORE = {"words", "format", "runtime", "storage", "log", "segments"}
WORK = {*CORE, "read", "groups", "jobs", "topics", "append"}
LIBRARY_ROOMS: dict[str, set[str]] = {
    "words": set(),
    "format": {"words"},
    "runtime": {"words"},
    "storage": {"words", "runtime"},
    "log": {"words", "format", "storage", "runtime"},
    "segments": {"words", "format", "storage"},
    "topics": {"words", "format"},
    "read": CORE,
    "groups": {*CORE, "read"},
    "jobs": {*CORE, "read", "groups"},
    "append": {*CORE, "topics", "jobs", "groups"},
    "check": {*CORE, "read"},
    "publish": {*CORE, "read", "jobs", "check"},
    "mirror": {*CORE, "append", "jobs"},
    "facade": {*WORK, "check", "publish", "mirror"},
    "report": {"words", "format", "runtime", "groups", "jobs", "read", "publish", "facade"},
    "kafka": {"words", "format", "runtime", "facade"},
    "run": {*CORE, "jobs", "publish", "mirror", "kafka", "facade"},
    "metrics": {
        "public",
        "words",
        "format",
        "runtime",
        "log",
        "read",
        "groups",
        "jobs",
        "publish",
        "facade",
        "report",
    },
    "prove": {"words", "runtime", "storage", "facade", "report"},
    "cli": {"public", "words", "facade", "kafka", "metrics", "prove", "run"},
    "__main__": {"cli"},
}
LIBRARY_TOP = {
    **dict.fromkeys(
        (
            "errors",
            "arguments",
            "events",
            "lazy_arrow",
            "limits",
            "log_lines",
            "observe",
            "times",
            "presentation",
        ),
        "words",
    ),
    **dict.fromkeys(
        (
            "topic",
            "topic_writes",
            "topic_groups",
            "topic_jobs",
            "store",
            "store_consumers",
            "maintain",
        ),
        "facade",
    ),
    "engine": "facade",
    "operation": "runtime",
    "tracing": "runtime",
}
SPARK_ROOMS: dict[str, set[str]] = {
    "worker_imports": set(),
    "shipped": set(),
    "columns": set(),
    "request": set(),
    "tasks": {"columns", "request"},
    "batch": {"columns", "request", "tasks"},
    "stream": {"columns", "request", "tasks"},
    "source": {"shipped", "request", "batch", "stream"},
    "table": {"columns", "tasks", "source"},
    "diagnosis": {"source", "table"},
}
SPARK_TOP = dict.fromkeys(("source", "registration"), "source")
PURE = {"words", "format", "topics"}
POOLS = ("ThreadPoolExecutor", "Threads")
IMPURE = {"time", "uuid", "random", "secrets"}
ONLY_IN = {
    "pyarrow.parquet": {"words"},
    "pylogtable.lazy_arrow.pq": {"segments", "log", "publish"},
    "fsspec": {"storage"},
    "s3fs": {"storage"},
    "pyiceberg": {"publish"},
    "pyroaring": {"publish"},
    "pyspark": set(),
    "confluent_kafka": {"kafka"},
    "fastavro": {"kafka"},
    "google.protobuf": {"kafka"},
    "opentelemetry": set(),
    "prometheus_client": {"metrics"},
}
# What stands on top of the library and uses only its public names.
OUTSIDE = {"__main__", "cli"}
MAX_LINES = 450
MAX_PUBLIC_NAMES = 55
# Plain values outside of `format/` that plans take and give.
PLANNED = {"segments.read_task", "append.explicit_offsets", "append.shaping"}


@functools.cache
def tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def modules(package: Path = LIBRARY) -> list[Path]:
    return sorted(package.rglob("*.py"))


def room_of(path: Path) -> str:
    """`plan` for read/plan.py; a module at the top is in the room that the table gives it."""
    package, top = (LIBRARY, LIBRARY_TOP) if path.is_relative_to(LIBRARY) else (SPARK, SPARK_TOP)
    first = path.relative_to(package).parts[0].removesuffix(".py")
    return top.get(first, first)


@functools.cache
def imports(path: Path) -> tuple[tuple[str, str | None], ...]:
    """(module, name) of every import, also inside functions; relative ones are not used here."""
    return tuple(_imports(path))


def _imports(path: Path) -> Iterator[tuple[str, str | None]]:
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield alias.name, None
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path} imports relatively"
            for alias in node.names:
                yield node.module or "", alias.name


def rooms_imported(path: Path) -> set[str]:
    package, top = (LIBRARY, LIBRARY_TOP) if path.is_relative_to(LIBRARY) else (SPARK, SPARK_TOP)
    found = set()
    for module, name in imports(path):
        parts = module.split(".")
        if parts[0] == package.name:
            first = parts[1] if len(parts) > 1 else str(name)
            is_room = (
                first in top or (package / first).exists() or (package / f"{first}.py").exists()
            )
            found.add(top.get(first, first) if is_room else "public")
    return found - {room_of(path)}


def home(module: str) -> Path:
    """The file of a module of the library."""
    return LIBRARY.joinpath(*module.split(".")[1:] or ["__init__"]).with_suffix(".py")


def ids(path: Path) -> str:
    return str(path.relative_to(ROOT))


def for_each(paths: Iterable[Path]) -> Callable[[Callable[[Path], None]], Callable[[], None]]:
    """One test for all of these modules: a test of its own for each costs more than it checks."""
    modules_checked = list(paths)

    def decorate(check: Callable[[Path], None]) -> Callable[[], None]:
        def test() -> None:
            assert modules_checked
            for path in modules_checked:
                check(path)

        test.__name__, test.__doc__ = check.__name__, check.__doc__
        return test

    return decorate


@for_each([*modules(), *modules(SPARK)])
def test_a_room_imports_only_the_rooms_it_may(path: Path) -> None:
    rooms = LIBRARY_ROOMS if path.is_relative_to(LIBRARY) else SPARK_ROOMS
    room = room_of(path)
    if room == "__init__":
        return
    assert room in rooms, f"{ids(path)} is in no room: put it into a folder, or into the table"
    forbidden = rooms_imported(path) - rooms[room]
    assert not forbidden, f"{ids(path)} ({room}) imports {sorted(forbidden)}"


@pytest.mark.parametrize("rooms", [LIBRARY_ROOMS, SPARK_ROOMS], ids=["library", "spark"])
def test_the_table_of_rooms_has_no_cycle(rooms: Mapping[str, set[str]]) -> None:
    assert_no_cycle(rooms)


@pytest.mark.parametrize(
    ("root", "package"), [(ROOT, LIBRARY), (ROOT / "spark_ext", SPARK)], ids=["library", "spark"]
)
def test_no_modules_import_each_other(root: Path, package: Path) -> None:
    names = {".".join(p.relative_to(root).with_suffix("").parts): p for p in modules(package)}
    assert_no_cycle(
        {
            name: {m for m, _ in imports(path) if m in names and m != name}
            for name, path in names.items()
            if not name.endswith("__init__")
        }
    )


def assert_no_cycle(graph: Mapping[str, set[str]]) -> None:
    done: set[str] = set()

    def visit(name: str, trail: tuple[str, ...]) -> None:
        assert name not in trail, f"a cycle: {' -> '.join([*trail, name])}"
        if name not in done:
            for other in graph.get(name, ()):
                visit(other, (*trail, name))
            done.add(name)

    for name in graph:
        visit(name, ())


def test_every_folder_is_in_the_table_and_has_a_docstring() -> None:
    for package, rooms in ((LIBRARY, LIBRARY_ROOMS), (SPARK, SPARK_ROOMS)):
        for folder in sorted(p.parent for p in package.glob("*/__init__.py")):
            assert folder.name in rooms
            assert ast.get_docstring(ast.parse((folder / "__init__.py").read_text()))


def is_plan(path: Path) -> bool:
    return path.stem == "plan" or path.stem.endswith("_plan")


@for_each([p for p in modules() if is_plan(p)])
def test_plans_import_only_what_is_pure(path: Path) -> None:
    """So a plan reads no clock, draws no random numbers, and reaches no store but through the state
    that it is given."""
    for module, _ in imports(path):
        if module.startswith("pylogtable."):
            is_pure = room_of(home(module)) in PURE or is_plan(home(module))
            is_value = module.removeprefix("pylogtable.") in PLANNED
            assert is_pure or is_value, f"{ids(path)} imports {module}"


@for_each([p for p in modules() if room_of(p) in PURE or is_plan(p)])
def test_pure_modules_use_no_clock_and_no_randomness(path: Path) -> None:
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.Attribute):
            assert node.attr not in {"now", "utcnow", "today", "urandom"}, f"line {node.lineno}"


@for_each(modules())
def test_only_runtime_uses_clock_and_randomness(path: Path) -> None:
    imported = {module.split(".")[0] for module, _ in imports(path)}
    assert not imported & IMPURE or room_of(path) == "runtime"


@for_each([p for p in [*modules(), *modules(SPARK)] if room_of(p) != "cli"])
def test_no_generator_waits_for_its_threads_when_it_is_dropped(path: Path) -> None:
    """Whoever yields inside of a pool of threads borrows them: see `borrowed_pool`. The command
    line drops none of its generators."""
    pools = [
        block
        for block in ast.walk(tree(path))
        if isinstance(block, ast.With)
        and any(name in ast.unparse(item) for item in block.items for name in POOLS)
    ]
    inside = [part for block in pools for part in ast.walk(block)]
    assert not any(isinstance(part, ast.Yield | ast.YieldFrom) for part in inside), ids(path)


@for_each(modules())
def test_third_party_libraries_are_imported_only_where_allowed(path: Path) -> None:
    for module, name in imports(path):
        full = f"{module}.{name}" if name else module
        for library, rooms in ONLY_IN.items():
            if module == library or full == library or module.startswith(f"{library}."):
                assert room_of(path) in rooms, f"{path.name} imports {full}"


@for_each([*modules(), *modules(SPARK)])
def test_modules_are_small_and_have_a_docstring(path: Path) -> None:
    text = path.read_text()
    assert len(text.splitlines()) <= MAX_LINES
    if text.strip():
        assert ast.get_docstring(tree(path))


@for_each([p for p in modules() if p.name == "__init__.py"])
def test_init_files_only_export(path: Path) -> None:
    """By imports, or, at the top, by tables of names and the two functions that look into them."""
    is_top = path.parent == LIBRARY
    names = {"__all__", "__version__", *(("_MODULES", "_HOMES") if is_top else ())}
    for node in tree(path).body:
        is_docstring = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        is_name = isinstance(node, ast.Assign) and all(
            isinstance(target, ast.Name) and target.id in names for target in node.targets
        )
        is_lazy = is_top and (
            (isinstance(node, ast.Import) and node.names[0].name == "importlib")
            or (isinstance(node, ast.FunctionDef) and node.name in {"__getattr__", "__dir__"})
        )
        is_import = isinstance(node, ast.ImportFrom)
        assert is_docstring or is_name or is_lazy or is_import, f"line {node.lineno}"


def test_type_checkers_see_the_public_names() -> None:
    """`__init__.pyi` has each name, from the module where `__init__.py` finds it."""
    stub = ast.parse((LIBRARY / "__init__.pyi").read_text())
    shown = {
        alias.asname: (str(node.module), alias.name)
        for node in stub.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    homes = pylogtable._HOMES.items()
    assert shown == {name: (f"pylogtable.{module}", name) for name, module in homes}
    assert len(pylogtable.__all__) <= MAX_PUBLIC_NAMES


@for_each([*(p for p in modules() if room_of(p) in OUTSIDE), *modules(SPARK)])
def test_code_outside_the_library_uses_only_public_names(path: Path) -> None:
    public = {
        "pylogtable": {*pylogtable.__all__, "engine"},
        "pylogtable.engine": set(pylogtable.engine.__all__),
        "pylogtable.kafka": set(pylogtable.kafka.__all__),
        "pylogtable.metrics": set(pylogtable.metrics.__all__),
        "pylogtable.prove": set(pylogtable.prove.__all__),
        "pylogtable.run": set(pylogtable.run.__all__),
    }
    own = {"cli", "words"} if room_of(path) == "cli" else {"cli"}
    for module, name in imports(path):
        if module.split(".")[0] == "pylogtable" and room_of(home(module)) not in own:
            assert module in public, f"{path.name} imports {module}"
            assert name is None or name in public[module], f"{path.name} imports {name}"


@pytest.mark.parametrize("name", ["utils", "helpers", "common", "misc"])
def test_there_is_no_catch_all_module(name: str) -> None:
    assert not list(LIBRARY.rglob(f"{name}.py"))
