"""Ties the specification to the vectors, the golden topics and the code."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator
from typing import get_args

import msgspec
import pytest

from pylogtable.format import config, json_codec, model, offers
from pylogtable.format.group_model import GroupOffer
from pylogtable.format.leaf import LEAF_SCHEMA
from pylogtable.format.schema import to_arrow
from pylogtable.limits import Limits
from pylogtable.log import clock_skew, commit_loop
from pylogtable.storage import remote
from tests.conformance.corpus import (
    REPOSITORY,
    RULE,
    SPEC_FOLDER,
    STORED_OBJECTS,
    TOPICS,
    defined_rules,
    golden,
    golden_cases,
    in_bytes_only,
    json_examples,
    rules_in,
    spec_text,
    table_after,
    vector_files,
    vectors,
)

TEXT = spec_text()
CONFORMANCE = (SPEC_FOLDER / "conformance.md").read_text(encoding="utf-8")
DEFINED = defined_rules()
WITHOUT_VECTOR = dict(table_after(CONFORMANCE, "## Rules without a vector"))
BLOCKS = json_examples()
TABLES = re.findall(r"^<!-- fields: (\w+) -->\n(.*?)\n\n", TEXT, re.MULTILINE | re.DOTALL)
LIMITS = Limits()


def _cited_by_cases() -> set[str]:
    by_vectors = {rule for name in vector_files() for v in vectors(name) for rule in v["rules"]}
    by_errors = {
        vector["error"]["rule"]
        for name in vector_files()
        for vector in vectors(name)
        if isinstance(vector.get("error"), dict) and "rule" in vector["error"]
    }
    by_topics = {rule for case in golden_cases() for rule in golden(case, "case.json")["rules"]}
    return by_vectors | by_errors | by_topics


def _cited_by_code() -> Iterator[tuple[str, str]]:
    """Rules in brackets, in ranges such as [SEG-2..5], and those that errors name."""
    for folder in ("pylogtable", "spark_ext"):
        for path in sorted((REPOSITORY / folder).rglob("*.py")):
            text = path.read_text(encoding="utf-8")
            where = str(path.relative_to(REPOSITORY))
            for rule in [*RULE.findall(text), *re.findall(r'"([A-Z]{3,}-\d+)"', text)]:
                yield where, rule
            for family, low, high in re.findall(r"\[([A-Z]+)-(\d+)\.\.(\d+)\]", text):
                for number in range(int(low), int(high) + 1):
                    yield where, f"{family}-{number}"


def test_each_rule_is_defined_once_and_families_count_from_one() -> None:
    assert len(DEFINED) > 50
    assert [rule for rule, times in Counter(DEFINED).items() if times > 1] == []
    families: dict[str, list[int]] = {}
    for rule in DEFINED:
        family, _, number = rule.partition("-")
        families.setdefault(family, []).append(int(number))
    for family, numbers in families.items():
        assert numbers == list(range(1, len(numbers) + 1)), family


def test_every_rule_without_a_vector_or_golden_topic_says_why() -> None:
    assert set(DEFINED) - _cited_by_cases() == set(WITHOUT_VECTOR)
    assert all(len(reason) > 20 for reason in WITHOUT_VECTOR.values())


def test_no_vector_and_no_golden_topic_cites_an_unknown_rule() -> None:
    assert _cited_by_cases() - set(DEFINED) == set()


def test_no_code_cites_an_unknown_rule() -> None:
    unknown = {(where, rule) for where, rule in _cited_by_code() if rule not in DEFINED}
    assert unknown == set()


def test_every_rule_is_cited_in_the_library() -> None:
    """`grep -rn "LOG-3" pylogtable` finds where a rule is enforced, as the README promises."""
    cited = {rule for where, rule in _cited_by_code() if where.startswith("pylogtable/")}
    assert set(DEFINED) - cited == set()


def test_every_test_named_by_the_specification_exists() -> None:
    named = [
        name
        for path in SPEC_FOLDER.glob("*.md")
        for name in re.findall(r"`(tests/[\w./]+)`", path.read_text(encoding="utf-8"))
    ]
    assert named
    assert [name for name in named if not (REPOSITORY / name).exists()] == []


def test_the_specification_refers_to_defined_rules_only() -> None:
    for path in SPEC_FOLDER.rglob("*.md"):
        assert set(RULE.findall(path.read_text(encoding="utf-8"))) <= set(DEFINED)


def test_the_pseudocode_has_every_rule_that_decoding_and_replay_enforce() -> None:
    named = {
        rule
        for path in (REPOSITORY / "pylogtable" / "format").glob("*.py")
        for rule in re.findall(r'"([A-Z]{3,}-\d+)"', path.read_text(encoding="utf-8"))
    }
    text = (SPEC_FOLDER / "pseudocode.md").read_text(encoding="utf-8")
    missing = named - set(rules_in(text))
    assert not missing, f"format_spec/pseudocode.md does not say where {sorted(missing)} is checked"


def test_every_kind_of_object_has_an_example() -> None:
    kinds = [kind for kind, _ in BLOCKS]
    assert "" not in kinds
    assert set(kinds) == {
        "commit",
        "root",
        "hint",
        "topic",
        "type",
        "group",
        "group_offer",
        "offer",
    }
    operations = {json.loads(text)["operation"] for kind, text in BLOCKS if kind == "commit"}
    assert operations >= {"create", "append", "delete_records", "delete_topic"}


@pytest.mark.parametrize(("kind", "text"), BLOCKS)
def test_every_field_of_an_example_in_the_specification_is_decoded(kind: str, text: str) -> None:
    body, data = json.loads(text), text.strip().encode()
    if kind == "type":
        to_arrow(body)
        return
    stored: model.StoredObject | None
    if kind == "commit":
        stored = json_codec.decode_commit(data, body["version"])
    elif kind == "root":
        stored = json_codec.decode_root(data, body["version"])
    elif kind == "group":
        stored = json_codec.decode_group(data, "g", body["number"])
    elif kind == "group_offer":
        stored = msgspec.json.decode(data, type=GroupOffer)
    elif kind == "hint":
        stored = json_codec.decode_hint(data)
    elif kind == "offer":
        stored = msgspec.json.decode(data, type=offers.Offer)
    else:
        stored = msgspec.json.decode(data, type=model.TopicInfo)
    body.pop("checksum", None)
    assert json.loads(msgspec.json.encode(stored)) == body


def test_every_object_on_the_wire_has_a_field_table() -> None:
    never_written = {"StoredObject", "Change", "SegmentFacts", "StagedSegment", "GroupChange"}
    assert {name for name, _ in TABLES} == STORED_OBJECTS.keys() - never_written


@pytest.mark.parametrize(("name", "table"), TABLES, ids=[name for name, _ in TABLES])
def test_a_field_table_has_the_fields_that_are_written(name: str, table: str) -> None:
    described: dict[str, tuple[bool, bool]] = {}
    for line in table.splitlines()[2:]:
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        for field in re.findall(r"`(\w+)`", cells[0]):
            takes_null = cells[1].endswith("or null") and not cells[1].startswith("array")
            described[field] = (cells[2] == "yes", takes_null)
    written = {
        field.encode_name: (field.required, _takes_null(field.type))
        for field in msgspec.structs.fields(STORED_OBJECTS[name])
    }
    bytes_only = dict.fromkeys(in_bytes_only(name), (False, False))
    assert described == {**written, **bytes_only}


def _takes_null(kind: object) -> bool:
    """True if `null` decodes as this type [JSON-2]."""
    return type(None) in get_args(kind)


def test_a_leaf_has_the_columns_of_a_segment_entry() -> None:
    assert sorted(LEAF_SCHEMA.names) == sorted(model.Segment.__struct_fields__)


def test_the_settings_table_has_the_keys_and_defaults_of_the_library() -> None:
    section = TEXT.partition("## 6. Settings")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| `([a-z.]+)` \| `?([^ |`]+)`? \| ", section, re.MULTILINE)
    assert dict(rows) == config.describe_config({})


def test_the_numbers_in_the_rules_are_those_of_the_library() -> None:
    rules = dict(re.findall(r"^- \*\*\[([A-Z]+-\d+)\]\*\* (.+?)(?=\n\n|\n- )", TEXT, re.M | re.S))
    assert f"about every {LIMITS.root_interval} versions" in rules["ROOT-2"]
    half = config.MANIFEST_RETENTION_MS / 2 / config.DAY_MS
    assert f"{half} days" in " ".join(rules["COMMIT-8"].split())
    cleaning = " ".join(rules["GRP-7"].split())
    assert f"more than {LIMITS.group_states_kept} below the newest" in cleaning
    assert f"The newest {LIMITS.group_states_kept} MUST stay" in cleaning
    assert f"a number of {LIMITS.group_states_kept} or more" in " ".join(rules["GRP-6"].split())
    assert f"at least {LIMITS.group_kept_ms // 60_000} minutes before the newest" in cleaning
    for rule in ("GRP-5", "GRP-6", "COMMIT-9"):
        assert f"less than {clock_skew.FRESH_MS // 1000} seconds" in " ".join(rules[rule].split())
    assert f"`format` is {model.FORMAT_VERSION}." in rules["PROTO-1"]


def test_the_numbers_in_the_advice_are_those_of_the_library() -> None:
    text = (SPEC_FOLDER / "advice.md").read_text(encoding="utf-8")
    advice = {part.partition("\n")[0]: " ".join(part.split()) for part in text.split("\n## ")}
    roots = advice["When to write roots"]
    assert f"a multiple of {LIMITS.root_interval}," in roots
    assert f"is {LIMITS.root_interval + LIMITS.root_grace} or more versions behind" in roots
    assert f"{LIMITS.root_grace} commits later" in roots
    for number in (LIMITS.tail_max, LIMITS.leaf_max, LIMITS.runs_max):
        assert f" {number:,} " in advice["Leaves"]
    assert f"{LIMITS.row_group_rows:,} rows" in advice["Files"]
    assert f"batches of about {LIMITS.batch_bytes >> 20} MiB" in advice["Files"]
    assert (
        f"{commit_loop.LONGEST_PAUSE_AFTER_LOST_RACE * 1000:.0f} milliseconds"
        in advice["Lost races"]
    )
    ahead_of = advice["Round trips"]
    ahead, ahead_bytes = LIMITS.prefetch_objects, LIMITS.prefetch_bytes
    assert f"the next {ahead} of them, up to {ahead_bytes >> 20} MiB" in ahead_of
    assert f"at most {remote.WHOLE_BYTES >> 10} KiB is fetched whole" in ahead_of
    assert f"the first {LIMITS.cold_wave} commits" in ahead_of
    cleaning = advice["Why states of a group are removed in order"]
    assert f"a multiple of {LIMITS.group_clean_every}:" in cleaning
    assert f"more than {LIMITS.group_states_kept} below the newest" in cleaning


def test_the_listings_in_the_readme_show_the_real_topics() -> None:
    text = (SPEC_FOLDER / "README.md").read_text(encoding="utf-8")
    listed = re.findall(r"^ +(\d+)  (\S+\.(?:json|parquet))\b", text, re.MULTILINE)
    assert len(listed) >= 15
    real = {
        path.name: path.stat().st_size
        for path in (TOPICS / "indexed" / "topic").rglob("*")
        if path.is_file()
    }
    grouped = TOPICS / "grouped" / "topic"
    for path in grouped.rglob("_groups/*/*.json"):
        real[str(path.relative_to(grouped))] = path.stat().st_size
    assert {name: int(size) for size, name in listed}.items() <= real.items()
