"""The two readers of `format_spec` against the golden topics and the vectors of their levels."""

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
from tests.conformance.corpus import TOPICS, golden, golden_cases, int_keys
from tests.conformance.reader_trials import (
    CODEC,
    LEVELS,
    REPLAY,
    Trial,
    decoded,
    replayed,
    topic_trials,
    vector_trials,
)
from tests.reference import LIGHT_READER, REFERENCE_READER, light_reader, reference_reader

light, full = light_reader(), reference_reader()
READERS = {"light reader": light.LightReader, "reader": full.Reader}

READABLE = [case for case in golden_cases() if golden(case, "expected.json") is not None]
TRIALS = [
    pytest.param(level, trial, id=f"{level}: {trial.name}")
    for level in READERS
    for trial in (*topic_trials(level), *(vector_trials() if level == "reader" else ()))
]


def _imports(path: Path) -> set[str]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return {
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


def test_they_import_nothing_but_json_pyarrow_and_the_standard_library() -> None:
    assert _imports(LIGHT_READER) - set(sys.stdlib_module_names) == {"pyarrow"}
    assert _imports(REFERENCE_READER) - set(sys.stdlib_module_names) == {"light_reader", "pyarrow"}


def test_the_light_reader_is_short() -> None:
    assert len(LIGHT_READER.read_text(encoding="utf-8").splitlines()) <= 450


@pytest.mark.parametrize("level", READERS)
@pytest.mark.parametrize("case", READABLE)
def test_it_finds_the_rows_of_a_golden_topic(case: str, level: str) -> None:
    reader = READERS[level](TOPICS / case / "topic")
    versions = golden(case, "expected.json")["versions"]
    for text, expected in versions.items():
        state = reader.open(int(text))
        assert list(reader.rows(state)) == expected["rows"]
        starts, ends = int_keys(expected["start_offsets"]), int_keys(expected["end_offsets"])
        bounds = [(part["log_start"], part["end"]) for part in state["partitions"]]
        assert bounds == [(starts[number], ends[number]) for number in sorted(ends)]
    assert reader.open()["version"] == max(map(int, versions))


@pytest.mark.parametrize("case", READABLE)
def test_it_counts_the_records_of_a_golden_topic(case: str) -> None:
    reader = full.Reader(TOPICS / case / "topic")
    for text, expected in golden(case, "expected.json")["versions"].items():
        state = reader.open(int(text))
        assert reader.count(state) == len(expected["rows"])
        if "clean_ends" in expected:
            found = {number: part["clean_end"] for number, part in enumerate(state["partitions"])}
            assert found == int_keys(expected["clean_ends"])


@pytest.mark.parametrize("case", READABLE)
def test_it_answers_the_lookups_of_a_golden_topic(case: str) -> None:
    reader = full.Reader(TOPICS / case / "topic")
    expected, state = golden(case, "expected.json"), reader.open()
    for question in expected.get("offsets_for_time", []):
        for partition, offset in int_keys(question["offsets"]).items():
            at = question["timestamp_us"]
            assert reader.offset_for_time(state, partition, at) == offset
    for question in expected.get("reads", []):
        then = reader.open(question["version"])
        starts, ends = int_keys(question["start"]), int_keys(question["end"])
        for partition, offsets in int_keys(question["offsets"]).items():
            tables = reader.read(then, partition, starts[partition], ends[partition])
            assert [o for table in tables for o in table["offset"].to_pylist()] == offsets
    for name, group in expected.get("groups", {}).items():
        found = reader.group_state(name, state["topic_id"])
        positions = {p: [at["offset"], at["metadata"]] for p, at in found["positions"].items()}
        assert (found["number"], positions) == (group["number"], int_keys(group["positions"]))


@pytest.mark.parametrize(("level", "trial"), TRIALS)
def test_it_refuses_what_its_level_must_refuse_by_the_named_rule(level: str, trial: Trial) -> None:
    with pytest.raises(light.Refusal) as caught:
        trial.run(READERS[level])
    assert type(caught.value).__name__ == trial.kind
    assert trial.rule in (None, getattr(caught.value, "rule", None))


def test_a_light_reader_must_refuse_nothing_that_a_reader_may_take() -> None:
    for case, levels in LEVELS.items():
        assert "reader" in levels or "light reader" not in levels, case


@pytest.mark.parametrize("vector", [pytest.param(v, id=v["name"]) for v in CODEC])
def test_it_decodes_the_objects_of_the_vectors(vector: dict[str, Any]) -> None:
    if "error" not in vector:
        assert decoded(full.Reader, vector)


@pytest.mark.parametrize("vector", [pytest.param(v, id=v["name"]) for v in REPLAY])
def test_it_agrees_with_the_vectors_of_replay(vector: dict[str, Any]) -> None:
    if "error" in vector:
        return
    state, expected = replayed(full.Reader, vector), vector["expected"]
    assert (state is None) == (expected is None)
    if state is None:
        return
    assert (state["version"], state["topic_id"]) == (expected["version"], expected["topic_id"])
    assert (state["topic"] is None) == expected.get("deleted", False)
    found = [
        {
            "log_start": part["log_start"],
            "end": part["end"],
            "live": full.totals(part["segments"]),
            "inline": full.totals(part["segments"], inline=True),
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


@pytest.mark.parametrize("level", READERS.values())
def test_a_topic_whose_first_commits_are_gone_is_read_from_its_root(
    level: Any, tmp_path: Path
) -> None:
    source, folder = TOPICS / "indexed" / "topic", tmp_path / "topic"
    for path in source.rglob("*"):
        if path.is_file() and not (path.suffix == ".json" and path.stem < f"{60:020d}"):
            target = folder / path.relative_to(source)
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(path.read_bytes())
    whole, left = full.Reader(source), level(folder)
    assert list(left.rows(left.open())) == list(whole.rows(whole.open()))
    with pytest.raises(light.InvalidRequest, match="version 3"):
        left.open(3)
    for path in (folder / "_manifest").glob("*.root.json"):
        path.write_bytes(b"{}")
    with pytest.raises(light.Corrupt, match="COMMIT-3"):
        left.open()


@pytest.mark.parametrize("level", READERS.values())
def test_what_is_absent_is_refused_with_the_kind_that_the_table_of_errors_gives(
    level: Any, tmp_path: Path
) -> None:
    with pytest.raises(light.NoTopic):
        level(tmp_path).open()
    folder = tmp_path / "topic"
    shutil.copytree(TOPICS / "shifted" / "topic", folder)
    reader = level(folder)
    with pytest.raises(light.InvalidRequest, match="version 99"):
        reader.open(99)
    missing = next(folder.glob("partition=*/*.parquet"))
    missing.unlink()
    with pytest.raises(light.FileGone, match=missing.name):
        list(reader.rows(reader.open()))


@pytest.mark.parametrize("level", READERS.values())
def test_a_missing_commit_is_not_taken_for_the_end(level: Any, tmp_path: Path) -> None:
    folder = tmp_path / "topic"
    shutil.copytree(TOPICS / "shifted" / "topic", folder)
    reader = level(folder)
    last = reader.open()["version"]
    (folder / light.commit_name(last - 1)).unlink()
    with pytest.raises(light.Corrupt, match=f"{last} is beyond it") as caught:
        reader.open()
    assert (caught.value.path, caught.value.rule) == (light.commit_name(last - 1), "COMMIT-3")
    assert reader.open(last - 2)["version"] == last - 2


@pytest.mark.parametrize("program", [LIGHT_READER, REFERENCE_READER])
def test_the_command_line_prints_rows_and_says_what_is_wrong(program: Path) -> None:
    def run(case: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, str(program), str(TOPICS / case / "topic"), *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=False)

    printed = run("shifted", "1")
    rows = [json.loads(line) for line in printed.stdout.splitlines()]
    assert rows == golden("shifted", "expected.json")["versions"]["1"]["rows"]
    refused = run("corrupt-overlap")
    assert (refused.returncode, refused.stdout) == (1, "")
    assert "breaks [LOG-2]" in refused.stderr


@pytest.mark.parametrize("level", READERS.values())
@pytest.mark.parametrize(
    ("case", "damaged", "rule"),
    [
        ("two-leaves", "_manifest/leaf-*.parquet", "SUM-2"),  # before anything parses it
        ("map-column", "partition=*/*.parquet", "SEG-2"),  # there is no footer to compare
    ],
)
def test_a_file_with_a_checksum_is_cut_short(
    level: Any, case: str, damaged: str, rule: str, tmp_path: Path
) -> None:
    folder = tmp_path / "topic"
    shutil.copytree(TOPICS / case / "topic", folder)
    for path in folder.glob(damaged):
        path.write_bytes(path.read_bytes()[:-20])
    if rule == "SUM-2":  # both readers must need the leaves
        (folder / light.commit_name(0)).unlink()
    with pytest.raises(pylogtable.CorruptTopicError) as caught:
        pylogtable.open_topic(str(folder)).read().read_all()
    assert caught.value.rule == rule
    reader = level(folder)
    with pytest.raises(light.Corrupt) as refused:
        list(reader.rows(reader.open()))
    assert refused.value.rule == rule
