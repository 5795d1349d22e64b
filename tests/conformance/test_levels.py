"""Every rule, vector and golden topic says which conformance levels it concerns."""

from __future__ import annotations

import json
from collections import Counter

import pytest

from tests.conformance.corpus import (
    SPEC_FOLDER,
    TOPICS,
    defined_rules,
    golden,
    golden_cases,
    rules_in,
    table_after,
    vector_files,
    vectors,
)

TEXT = (SPEC_FOLDER / "conformance.md").read_text(encoding="utf-8")
LEVELS = ["reader", "light reader", "appender", "maintainer", "group member"]
#: What the library decides where the format leaves the choice.
LIBRARY = "library"

RULES = {
    rule: [level for level, mark in zip(LEVELS, marks, strict=True) if mark == "yes"]
    for rules, *marks in table_after(TEXT, "## Rules")
    for rule in rules_in(rules)
}
FILES = {
    file.strip("`").removesuffix(".json"): levels.split(", ")
    for file, levels in table_after(TEXT, "## Vectors")
}
GOLDEN: dict[str, list[str]] = json.loads((TOPICS / "levels.json").read_text(encoding="utf-8"))


def test_the_levels_are_those_of_the_first_table() -> None:
    assert [row[0] for row in table_after(TEXT, "## Levels")] == LEVELS


def test_every_rule_has_a_level() -> None:
    missing = [rule for rule in defined_rules() if not RULES.get(rule)]
    assert not missing, f"give {missing} a row in the rules' table of format_spec/conformance.md"


def test_the_table_of_rules_is_sound() -> None:
    rows = table_after(TEXT, "## Rules")
    named = Counter(rule for rules, *_ in rows for rule in rules_in(rules))
    assert [rule for rule, times in named.items() if times > 1] == []
    assert set(named) <= set(defined_rules())
    assert {mark for _, *marks in rows for mark in marks} == {"yes", ""}


def test_every_vector_file_has_a_level() -> None:
    assert sorted(FILES) == vector_files(), "edit the vectors' table of format_spec/conformance.md"
    assert {level for levels in FILES.values() for level in levels} <= {*LEVELS, LIBRARY}


@pytest.mark.parametrize("name", vector_files())
def test_the_rules_of_a_vector_concern_its_levels(name: str) -> None:
    for vector in vectors(name):
        levels = vector.get("levels", FILES[name])
        assert levels, vector["name"]
        if levels == [LIBRARY]:
            continue
        concerned = {level for rule in vector["rules"] for level in RULES[rule]}
        assert set(levels) <= concerned, vector["name"]


def test_every_golden_topic_has_a_level() -> None:
    assert sorted(GOLDEN) == golden_cases(), "edit format_spec/topics/levels.json"


@pytest.mark.parametrize("case", golden_cases())
def test_the_rules_of_a_golden_topic_concern_its_levels(case: str) -> None:
    about = golden(case, "case.json")
    assert GOLDEN[case]
    concerned = {level for rule in about["rules"] for level in RULES[rule]}
    assert set(GOLDEN[case]) <= concerned
    if about.get("when") == "append":
        assert "reader" not in GOLDEN[case]
    if about.get("when") == "read":
        assert "appender" not in GOLDEN[case]


@pytest.mark.parametrize("level", LEVELS)
def test_every_level_has_vectors_and_golden_topics(level: str) -> None:
    assert any(level in v.get("levels", FILES[n]) for n in vector_files() for v in vectors(n))
    assert any(level in levels for levels in GOLDEN.values())
