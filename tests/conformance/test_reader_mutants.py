"""Each check of the two readers is removed in turn: a vector or a golden topic must notice it.

So a rule that a reader has to check, and that no vector or golden topic breaks, is found here.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

from tests.conformance.corpus import rules_in
from tests.conformance.reader_trials import (
    Trial,
    kept_trials,
    large_rows_trial,
    topic_trials,
    vector_trials,
)
from tests.depth import sample
from tests.reference import LIGHT_READER, REFERENCE_READER, load_readers

#: Checks that no vector and no golden topic can notice: how they begin, and the reason.
UNNOTICED = {
    "require(path, 'COMMIT-3', data is not None": "a commit goes between a listing and its read",
    "require(path, 'ROOT-5', part.pop('live')": "only for whoever lists all entries of a partition",
    "require(path, 'ROOT-5', part.pop('inline')": "the same",
    "raise InvalidRequest('that version is of": "a message of the command line",
}

FULL = [*topic_trials("reader"), *vector_trials(), *kept_trials(), large_rows_trial()]
LIGHT = [*topic_trials("light reader"), *kept_trials()]


@dataclass(frozen=True)
class Check:
    """A check in the source of a reader."""

    file: Path
    line: int
    column: int
    text: str


def _is_check(node: ast.AST) -> bool:
    if isinstance(node, ast.Raise):
        return node.exc is not None
    call = node.value if isinstance(node, ast.Expr) else None
    return isinstance(call, ast.Call) and getattr(call.func, "id", "") == "require"


def _checks() -> Iterator[Check]:
    for file in (LIGHT_READER, REFERENCE_READER):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"), str(file))):
            if _is_check(node) and isinstance(node, ast.stmt):
                yield Check(file, node.lineno, node.col_offset, ast.unparse(node))


CHECKS = list(_checks())


class _Removal(ast.NodeTransformer):
    def __init__(self, check: Check) -> None:
        self.check = check

    def generic_visit(self, node: ast.AST) -> ast.AST:
        if _is_check(node) and isinstance(node, ast.stmt):
            is_mine = (node.lineno, node.col_offset) == (self.check.line, self.check.column)
            if is_mine and ast.unparse(node) == self.check.text:
                return ast.copy_location(ast.Pass(), node)
        return super().generic_visit(node)


def _without(check: Check) -> tuple[ModuleType, ModuleType]:
    return load_readers(lambda tree: ast.fix_missing_locations(_Removal(check).visit(tree)))


def _noticed_by(check: Check) -> str | None:
    """The first vector or golden topic that the reader without this check fails."""
    light, full = _without(check)
    rules = rules_in(check.text)

    def is_likely(trial: Trial) -> bool:
        return trial.rule in rules

    trials = [(full.Reader, trial) for trial in FULL] + [(light.LightReader, t) for t in LIGHT]
    for level, trial in sorted(trials, key=lambda one: not is_likely(one[1])):
        if not trial.passes(light, level):
            return trial.name
    return None


def test_the_readers_pass_all_trials() -> None:
    light, full = load_readers()
    assert [t.name for t in FULL if not t.passes(light, full.Reader)] == []
    assert [t.name for t in LIGHT if not t.passes(light, light.LightReader)] == []


def test_every_check_is_noticed_when_it_is_removed() -> None:
    left = [
        f"{check.file.name}:{check.line}: {check.text}"
        for check in sample(CHECKS, every=10)
        if not check.text.startswith(tuple(UNNOTICED)) and _noticed_by(check) is None
    ]
    assert left == [], "add a vector or a golden topic that breaks the rule"


def test_the_list_of_exceptions_is_current() -> None:
    for text in UNNOTICED:
        assert any(check.text.startswith(text) for check in CHECKS), text
