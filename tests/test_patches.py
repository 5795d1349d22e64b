"""No test changes a constant of the library.

`from x import LIMIT` binds a name of its own: a patch of one module does not reach the other, and
the test passes without testing what it says. A test that needs smaller pieces opens a store with
its own `Limits`.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]

#: What a program of an earlier version knew; and a constant of Python.
ALLOWED = {"READER_FEATURES", "WRITER_FEATURES", "INLINE_MAX_BYTES", "SIG_DFL"}


def patched(source: str) -> Iterator[str]:
    """The constants of modules of the library that this source patches or assigns."""
    tree = ast.parse(source)
    modules = {
        alias.asname or alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.Import | ast.ImportFrom)
        for alias in node.names
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and ast.unparse(node.func).endswith("setattr"):
            texts = [a.value for a in node.args if isinstance(a, ast.Constant)]
            names = [str(text).rpartition(".") for text in texts[:1]]
            yield from (name for module, _, name in names if _is_ours(module))
        elif isinstance(node, ast.Assign):
            for target in node.targets:
                if isinstance(target, ast.Attribute) and ast.unparse(target.value) in modules:
                    yield target.attr


def _is_ours(module: str) -> bool:
    return not module or module.startswith(("pylogtable.", "pyspark_pylogtable."))


def constants(source: str) -> set[str]:
    return {name for name in patched(source) if name.isupper()}


def test_no_test_changes_a_constant_of_the_library() -> None:
    found = {
        (str(path.relative_to(ROOT)), name)
        for path in sorted((ROOT / "tests").rglob("*.py"))
        for name in constants(path.read_text(encoding="utf-8")) - ALLOWED
    }
    assert not found


def test_changed_constants_are_found() -> None:
    assert constants('monkeypatch.setattr("pylogtable.log.commits.WAVE", 1)') == {"WAVE"}
    assert constants('patch.setattr(commits, "WAVE", 1)') == {"WAVE"}
    assert constants("from pylogtable.log import commits\ncommits.WAVE = 1") == {"WAVE"}
    assert not constants('monkeypatch.setattr(commits, "read", None)')
