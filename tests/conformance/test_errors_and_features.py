"""Ties `format_spec/errors.md` and `format_spec/features.md` to the code."""

from __future__ import annotations

import re

from pylogtable import errors
from pylogtable.format import model
from tests.conformance.corpus import (
    REPOSITORY,
    SPEC_FOLDER,
    defined_rules,
    golden,
    golden_cases,
    rules_in,
    table_after,
    vector_files,
    vectors,
)

TEXT = (SPEC_FOLDER / "errors.md").read_text(encoding="utf-8")
FEATURES = (SPEC_FOLDER / "features.md").read_text(encoding="utf-8")


def _named_by_errors() -> set[str]:
    """The rules that errors and reports of the library name."""
    return {
        rule
        for path in (REPOSITORY / "pylogtable").rglob("*.py")
        for rule in re.findall(r'"([A-Z]{3,}-\d+)"', path.read_text(encoding="utf-8"))
    }


def test_every_error_class_is_in_the_table() -> None:
    classes = {
        name
        for name, found in vars(errors).items()
        if isinstance(found, type) and issubclass(found, errors.LogTableError)
    }
    rows = table_after(TEXT, "## Classes of errors")
    shown = {name for row in rows for name in re.findall(r"`(\w+Error)`", row[1])}
    assert shown == classes - {"LogTableError"}


def test_every_rule_that_an_error_names_is_in_the_tables() -> None:
    missing = _named_by_errors() - set(rules_in(TEXT))
    assert not missing, f"format_spec/errors.md says nothing about {sorted(missing)}"


def test_every_rule_of_a_corrupt_case_is_in_the_order_of_checks() -> None:
    checks = table_after(TEXT, "## Which rule wins") + table_after(
        TEXT, "## What only a checker reports"
    )
    ordered = set(rules_in(" ".join(cell for row in checks for cell in row)))
    cases = [v for n in vector_files() for v in vectors(n)]
    cases += [golden(case, "case.json") for case in golden_cases()]
    found = {
        case["error"]["rule"]
        for case in cases
        if isinstance(case.get("error"), dict) and "rule" in case["error"]
    }
    assert found <= ordered


def test_outcomes_are_kinds_of_errors() -> None:
    kinds = {row[0] for row in table_after(TEXT, "## Classes of errors")}
    outcomes = {row[3].partition(",")[0] for row in table_after(TEXT, "## Which rule wins")}
    assert outcomes <= kinds | {"ignored", "void"}


def test_the_documents_name_defined_rules_only() -> None:
    assert set(rules_in(TEXT)) | set(rules_in(FEATURES)) <= set(defined_rules())


def test_the_registry_has_the_features_that_the_library_knows() -> None:
    rows = table_after(FEATURES, "## Registry")
    reader = {name.strip("`") for name, read, *_ in rows if read == "yes"}
    writer = {name.strip("`") for name, _, write, *_ in rows if write == "yes"}
    assert (reader, writer) == (set(model.READER_FEATURES), set(model.WRITER_FEATURES)), (
        "edit the registry in format_spec/features.md"
    )
    assert reader <= writer, "what readers have to know stands in both lists [PROTO-4]"
