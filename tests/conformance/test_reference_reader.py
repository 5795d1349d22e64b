"""The reference reader of `format_spec` against the golden topics and the vectors of replay."""

from __future__ import annotations

import ast
import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import pylogtable
from tests.conformance.corpus import TOPICS, as_stored, golden, golden_cases, int_keys, vectors
from tests.reference import REFERENCE_READER, reference_reader

reader = reference_reader()

CASES = golden_cases()
READABLE = [case for case in CASES if golden(case, "expected.json") is not None]
FAILING = [
    case
    for case in CASES
    if golden(case, "case.json").get("when")
    in ("open", "read")  # the rest is for checkers, writers
]
ERRORS = {"CorruptTopicError": reader.Corrupt, "UnsupportedFormatError": reader.Unsupported}


def test_it_imports_nothing_but_json_pyarrow_and_the_standard_library() -> None:
    tree = ast.parse(REFERENCE_READER.read_text(encoding="utf-8"))
    modules = {
        name.split(".")[0]
        for node in ast.walk(tree)
        for name in (
            [alias.name for alias in node.names]
            if isinstance(node, ast.Import)
            else [str(node.module)]
            if isinstance(node, ast.ImportFrom)
            else []
        )
    }
    assert modules - set(sys.stdlib_module_names) == {"pyarrow"}


@pytest.mark.parametrize("case", READABLE)
def test_it_finds_the_rows_of_a_golden_topic(case: str) -> None:
    folder = TOPICS / case / "topic"
    versions = golden(case, "expected.json")["versions"]
    for text, expected in versions.items():
        state = reader.open_topic(folder, int(text))
        assert list(reader.rows(folder, state)) == expected["rows"]
        assert reader.count(folder, state) == len(expected["rows"])
        starts, ends = int_keys(expected["start_offsets"]), int_keys(expected["end_offsets"])
        assert reader.bounds(state) == {number: (starts[number], ends[number]) for number in ends}
        if "clean_ends" in expected:
            found = {number: part["clean_end"] for number, part in enumerate(state["partitions"])}
            assert found == int_keys(expected["clean_ends"])
    assert reader.open_topic(folder)["version"] == max(map(int, versions))


@pytest.mark.parametrize("case", READABLE)
def test_it_answers_the_lookups_of_a_golden_topic(case: str) -> None:
    folder = TOPICS / case / "topic"
    expected, state = golden(case, "expected.json"), reader.open_topic(folder)
    for question in expected.get("offsets_for_time", []):
        for partition, offset in int_keys(question["offsets"]).items():
            at = question["timestamp_us"]
            assert reader.offset_for_time(folder, state, partition, at) == offset
    for question in expected.get("reads", []):
        then = reader.open_topic(folder, question["version"])
        starts, ends = int_keys(question["start"]), int_keys(question["end"])
        for partition, offsets in int_keys(question["offsets"]).items():
            tables = reader.read(folder, then, partition, starts[partition], ends[partition])
            assert [o for table in tables for o in table["offset"].to_pylist()] == offsets
    for name, group in expected.get("groups", {}).items():
        found = reader.group_state(folder, name, state["topic_id"])
        positions = {p: [at["offset"], at["metadata"]] for p, at in found["positions"].items()}
        assert (found["number"], positions) == (group["number"], int_keys(group["positions"]))


@pytest.mark.parametrize("case", FAILING)
def test_it_refuses_a_damaged_golden_topic_by_the_named_rule(case: str) -> None:
    folder, error = TOPICS / case / "topic", golden(case, "case.json")["error"]
    with pytest.raises(ERRORS[error["class"]]) as caught:
        list(reader.rows(folder, reader.open_topic(folder)))
    assert getattr(caught.value, "rule", None) == error.get("rule")


# The reader already has [COMMIT-11]: such a commit is void.
REPLAY = [v for v in vectors("replay") if v["name"] != "a commit of another topic id"]


@pytest.mark.parametrize("vector", [pytest.param(v, id=v["name"]) for v in REPLAY])
def test_it_agrees_with_the_vectors_of_replay(vector: dict[str, Any]) -> None:
    if "error" in vector:
        with pytest.raises(ERRORS[vector["error"]["class"]]) as caught:
            _replayed(vector["input"]["commits"])
        assert getattr(caught.value, "rule", None) == vector["error"].get("rule")
        return
    state, expected = _replayed(vector["input"]["commits"]), vector["expected"]
    assert (state is None) == (expected is None)
    if state is None:
        return
    assert (state["version"], state["topic_id"]) == (expected["version"], expected["topic_id"])
    assert (state["topic"] is None) == expected.get("deleted", False)
    found = [
        {
            "log_start": part["log_start"],
            "end": part["end"],
            "live": reader.totals(part["segments"]),
            "inline": reader.totals(part["segments"], inline=True),
            "segments": [segment["path"] for segment in part["segments"]],
            "clean_end": part["clean_end"],
        }
        for part in state["partitions"]
    ]
    zeros = {"segments": 0, "records": 0, "size_bytes": 0}
    wanted = [
        {"inline": zeros, "clean_end": 0, **part, "live": {**zeros, **part["live"]}}
        for part in expected["partitions"]
    ]
    assert found == wanted
    assert state["txns"] == expected["txns"]
    unset = {"source": "", "version": None, "seen": None, "commit_id": None, "own_retention": False}
    unset |= {"partial": False, "new_names": False, "ended": None}
    assert state["mirror"] == ({**unset, **expected["mirror"]} if "mirror" in expected else None)


def _replayed(commits: list[dict[str, Any]]) -> Any:
    state = None
    for commit in commits:
        decoded = reader.decode_commit(as_stored(commit), commit["version"])
        state = reader.apply(state, decoded)
    return state


def test_a_topic_whose_first_commits_are_gone_is_read_from_its_root(tmp_path: Path) -> None:
    source, folder = TOPICS / "indexed" / "topic", tmp_path / "topic"
    for path in source.rglob("*"):
        if path.is_file() and not (path.suffix == ".json" and path.stem < f"{60:020d}"):
            target = folder / path.relative_to(source)
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(path.read_bytes())
    whole, left = reader.open_topic(source), reader.open_topic(folder)
    assert list(reader.rows(folder, left)) == list(reader.rows(source, whole))
    with pytest.raises(reader.InvalidRequest, match="version 3"):
        reader.open_topic(folder, 3)
    for path in (folder / "_manifest").glob("*.root.json"):
        path.write_bytes(b"{}")
    with pytest.raises(reader.Corrupt, match="COMMIT-3"):
        reader.open_topic(folder)


def test_what_is_absent_is_refused_with_the_kind_that_the_table_of_errors_gives(
    tmp_path: Path,
) -> None:
    with pytest.raises(reader.NoTopic):
        reader.open_topic(tmp_path)
    folder = tmp_path / "topic"
    shutil.copytree(TOPICS / "shifted" / "topic", folder)
    with pytest.raises(reader.InvalidRequest, match="version 99"):
        reader.open_topic(folder, 99)
    missing = next(folder.glob("partition=*/*.parquet"))
    missing.unlink()
    with pytest.raises(reader.FileGone, match=missing.name):
        list(reader.rows(folder, reader.open_topic(folder)))


def test_a_missing_commit_is_not_taken_for_the_end(tmp_path: Path) -> None:
    source, folder = TOPICS / "shifted" / "topic", tmp_path / "topic"
    shutil.copytree(source, folder)
    last = reader.open_topic(folder)["version"]
    (folder / reader.commit_name(last - 1)).unlink()
    with pytest.raises(reader.Corrupt, match=f"{last} is beyond it") as caught:
        reader.open_topic(folder)
    assert (caught.value.path, caught.value.rule) == (reader.commit_name(last - 1), "COMMIT-3")
    assert reader.open_topic(folder, last - 2)["version"] == last - 2


def test_the_command_line_prints_rows_and_says_what_is_wrong() -> None:
    def run(case: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, str(REFERENCE_READER), str(TOPICS / case / "topic"), *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=False)

    printed = run("shifted", "1")
    rows = [json.loads(line) for line in printed.stdout.splitlines()]
    assert rows == golden("shifted", "expected.json")["versions"]["1"]["rows"]
    refused = run("corrupt-overlap")
    assert (refused.returncode, refused.stdout) == (1, "")
    assert "breaks [LOG-2]" in refused.stderr


@pytest.mark.parametrize(
    ("case", "damaged", "rule"),
    [
        ("two-leaves", "_manifest/leaf-*.parquet", "SUM-2"),  # before anything parses it
        ("map-column", "partition=*/*.parquet", "SEG-2"),  # there is no footer to compare
    ],
)
def test_a_file_with_a_checksum_is_cut_short(
    case: str, damaged: str, rule: str, tmp_path: Path
) -> None:
    folder = tmp_path / "topic"
    shutil.copytree(TOPICS / case / "topic", folder)
    for path in folder.glob(damaged):
        path.write_bytes(path.read_bytes()[:-20])
    if rule == "SUM-2":  # both readers must need the leaves
        (folder / reader.commit_name(0)).unlink()
    with pytest.raises(pylogtable.CorruptTopicError) as caught:
        pylogtable.open_topic(str(folder)).read().read_all()
    assert caught.value.rule == rule
    with pytest.raises(reader.Corrupt) as refused:
        list(reader.rows(folder, reader.open_topic(folder)))
    assert refused.value.rule == rule


DECODED = [
    v
    for v in vectors("codec")
    if v["input"]["object"] in ("commit", "group") and "use" not in v["input"]
]


@pytest.mark.parametrize("vector", [pytest.param(v, id=v["name"]) for v in DECODED])
def test_it_agrees_with_the_vectors_of_the_codec(vector: dict[str, Any], tmp_path: Path) -> None:
    given = vector["input"]
    text = given["text"] if "text" in given else json.dumps(given.get("json"))
    data = bytes.fromhex(given["hex"]) if "hex" in given else text.encode()

    def decode() -> None:
        if given["object"] == "commit":
            reader.decode_commit(data, given["version"])
            return
        path = tmp_path / "_groups" / "g" / f"{given['number']:020d}.json"
        path.parent.mkdir(parents=True)
        path.write_bytes(data)
        reader.group_state(tmp_path, "g", "t1")

    if "error" not in vector:
        decode()
        return
    with pytest.raises(ERRORS[vector["error"]["class"]]) as caught:
        decode()
    assert getattr(caught.value, "rule", None) == vector["error"].get("rule")
