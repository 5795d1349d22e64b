"""What the documents say about the repository is true: links, files, tables, the map of rooms."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import pylogtable
from pylogtable import LogTableError
from pylogtable.format import config
from tests.documents import (
    DOCUMENTS,
    ROOT,
    anchors,
    code,
    name_of,
    prose,
    quoted,
    read,
    section,
    table,
)
from tests.library.test_architecture import (
    CORE,
    LIBRARY,
    LIBRARY_ROOMS,
    LIBRARY_TOP,
    SPARK,
    SPARK_ROOMS,
    SPARK_TOP,
)
from tests.library.test_public_api import ENGINE_SIGNATURES, SIGNATURES

GUIDE = read("pylogtable/README.md")
CONTRIBUTING = read("CONTRIBUTING.md")
SOURCES = ("tests/", "pylogtable/", "spark_ext/", "format_spec/", "benchmarks/", "notebooks/",
           "examples/")  # fmt: skip
MAPS = {
    "### The rooms of the library": (LIBRARY, LIBRARY_ROOMS, LIBRARY_TOP),
    "### The rooms of the Spark side": (SPARK, SPARK_ROOMS, SPARK_TOP),
}
each_document = pytest.mark.parametrize("path", DOCUMENTS, ids=name_of)


@each_document
def test_every_link_has_a_target(path: Path) -> None:
    for target in re.findall(r"\]\(([^)]+)\)", prose(path.read_text(encoding="utf-8"))):
        if target.startswith("https://"):
            continue
        file, _, anchor = target.partition("#")
        found = path if not file else (path.parent / file).resolve()
        assert found.exists(), f"{target}: there is no {file}"
        if anchor:
            assert anchor in anchors(found.read_text(encoding="utf-8")), f"{target}: no heading"


@each_document
def test_every_named_file_exists(path: Path) -> None:
    for name in quoted(prose(path.read_text(encoding="utf-8"))):
        is_module = re.fullmatch(r"\w+/[\w/]+\.py", name) is not None
        if (is_module or name.startswith(SOURCES)) and not re.search(r"[<… ]", name):
            assert list(ROOT.glob(name)) or (path.parent / name).exists(), f"there is no {name}"


@each_document
def test_documents_have_no_todos_and_no_local_paths(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert not re.search(r"\b(TODO|FIXME|TBD|XXX)\b", text)
    assert not re.search(r"(/work/|/home/|/root/|/Users/)", text)


@pytest.mark.parametrize("heading", MAPS, ids=["library", "spark"])
def test_the_map_lists_every_folder_and_module(heading: str) -> None:
    package, rooms, top = MAPS[heading]
    rows = {cells[0].strip("`"): quoted(cells[1]) for cells in table(section(GUIDE, heading))}
    assert list(rows) == list(rooms)
    shown = sorted(place for places in rows.values() for place in places)
    folders = {f"{path.parent.name}/" for path in package.glob("*/__init__.py")}
    modules = {path.name for path in package.glob("*.py") if path.name != "__init__.py"}
    assert shown == sorted(folders | modules)
    for room, places in rows.items():
        for place in places:
            name = place.removesuffix("/").removesuffix(".py")
            assert top.get(name, name) == room, f"{place} is in another room"


@pytest.mark.parametrize("heading", MAPS, ids=["library", "spark"])
def test_the_map_says_what_a_room_may_import(heading: str) -> None:
    _, rooms, _ = MAPS[heading]
    shown = {
        room.strip("`"): set(imports.replace("core", ", ".join(CORE)).split(", "))
        for room, _, _, imports in table(section(GUIDE, heading))
    }
    assert shown == {room: imports or {""} for room, imports in rooms.items()}


def test_every_change_names_rooms_that_exist() -> None:
    rows = list(table(section(GUIDE, "### What a change touches")))
    assert len(rows) >= 7
    for change, library, spark in rows:
        for cell, rooms in ((library, LIBRARY_ROOMS), (spark, SPARK_ROOMS)):
            first = re.split(r"[;,] ", cell)[0]
            assert not cell or first.split(" ")[0] in rooms, change


def test_every_decision_names_modules_that_exist() -> None:
    for question, modules in table(section(GUIDE, "### Where is it decided?")):
        for module in quoted(modules):
            folder = ROOT if module.startswith("spark_ext/") else LIBRARY
            assert (folder / module).is_file(), question


def test_contributing_explains_each_change_of_the_map() -> None:
    for change, *_ in table(section(GUIDE, "### What a change touches")):
        assert f"\n### A new {change}\n" in CONTRIBUTING


def test_contributing_names_every_folder_of_tests() -> None:
    rows = table(section(CONTRIBUTING, "## How the tests are laid out"))
    named = [name for cells in rows for name in quoted(cells[0])]
    folders = [f"{path.parent.name}/" for path in (ROOT / "tests").glob("*/__init__.py")]
    assert sorted(named) == sorted(folders)


@each_document
def test_every_make_target_that_is_named_exists(path: Path) -> None:
    targets = re.findall(r"^([\w-]+):", read("Makefile"), re.MULTILINE)
    text = path.read_text(encoding="utf-8")
    shown = "\n".join(body for _, body in code(text, "sh")) + "\n" + "\n".join(quoted(prose(text)))
    assert set(re.findall(r"^make ([\w-]+)", shown, re.MULTILINE)) <= set(targets)


def test_the_guide_names_every_call_that_users_rely_on() -> None:
    examples = "\n".join(body for _, body in code(GUIDE, "python"))
    shown = examples + "".join(f"{name}\n" for name in quoted(prose(GUIDE)))
    classes = {"Store", "Topic", "Group", "Consumer", "Producer"}
    for call in SIGNATURES.keys() - ENGINE_SIGNATURES.keys():
        owner, _, name = call.__qualname__.rpartition(".")
        if owner in classes or not owner:
            assert re.search(rf"\b{name}\b(?!=)", shown), call.__qualname__


def test_the_guide_names_every_error() -> None:
    errors = {
        name
        for name in pylogtable.__all__
        if isinstance(kind := getattr(pylogtable, name), type) and issubclass(kind, LogTableError)
    }
    named = {name for cells in table(section(GUIDE, "## Errors")) for name in quoted(cells[0])}
    assert named == errors - {"LogTableError"}


def test_the_guide_has_the_settings_and_defaults_of_the_library() -> None:
    rows = table(section(GUIDE, "## Settings"))
    assert {quoted(key)[0]: quoted(default)[0] for key, default, _ in rows} == (
        config.describe_config({})
    )


def test_every_decision_is_in_the_index_and_lists_rejected_options() -> None:
    decisions = sorted((ROOT / "format_spec" / "decisions").glob("*.md"))
    index = section(read("format_spec/README.md"), "## Decisions")
    assert re.findall(r"\]\(decisions/([^)]+)\)", index) == [path.name for path in decisions]
    for path in decisions:
        text = path.read_text(encoding="utf-8")
        headings = re.findall(r"^## (.+)$", text, re.MULTILINE)
        assert headings == ["Context", "Decision", "Rejected", "Consequences"], path.name


def test_every_benchmark_is_in_the_tables_of_figures() -> None:
    figures = section(read("benchmarks/README.md"), "## Figures")
    named = re.findall(r"^\| `(\w+)` \|", figures, re.MULTILINE)
    modules = {path.stem for path in (ROOT / "benchmarks").glob("*.py")}
    modules |= {path.parent.name for path in (ROOT / "benchmarks").glob("*/__main__.py")}
    assert sorted(named) == sorted(
        modules - {"__init__", "__main__", "far_server", "generate", "result"}
    )
