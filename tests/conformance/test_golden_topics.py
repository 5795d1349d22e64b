"""Reads the golden topics of `format_spec/topics`, always from a copy."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

import pylogtable
from pylogtable import Topic, errors
from pylogtable.format.partitioner import key_bytes
from tests.conformance.corpus import TOPICS, golden, golden_cases, int_keys

CASES = golden_cases()
READABLE = [case for case in CASES if golden(case, "expected.json") is not None]
SOUND = [case for case in CASES if not case.startswith("corrupt-")]
FAILING = [case for case in CASES if "error" in golden(case, "case.json")]

#: Checksums are of bytes that the Parquet library decides.
CHECKSUMS = frozenset({"checksum", "leaf_checksums", "footer_checksum"})
#: Members of objects that the writers of the first golden topics did not know.
NEWER_MEMBERS = frozenset({"id", "last_field_id", "parent", "inline", "dropped_inline"})

# This topic is older than the member `problems` of a case, and golden topics are never changed.
OLDER_PROBLEMS = {"corrupt-root": ["ROOT-1"]}

_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)


def _copy(case: str, folder: Path) -> Path:
    return Path(shutil.copytree(TOPICS / case / "topic", folder / "topic"))


def _open(case: str, folder: Path) -> Topic:
    return pylogtable.open_topic(_copy(case, folder))


def _rows(table: pa.Table) -> list[dict[str, Any]]:
    """Rows as `expected.json` has them: times in microseconds, bytes in hex, the rest as text."""
    columns = []
    for column in table.columns:
        if pa.types.is_timestamp(column.type):
            column = column.cast(pa.int64())
        columns.append([_neutral(value) for value in column.to_pylist()])
    return [dict(zip(table.column_names, row, strict=True)) for row in zip(*columns, strict=True)]


def _neutral(value: Any) -> Any:
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, dict):
        return {name: _neutral(part) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [_neutral(part) for part in value]
    return value if value is None or isinstance(value, str | int | float) else str(value)


def _at(timestamp_us: int) -> datetime:
    return _EPOCH + timedelta(microseconds=timestamp_us)


def _files(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }


def test_there_are_sound_and_damaged_topics() -> None:
    assert len(SOUND) >= 7
    assert len(FAILING) >= 8
    assert set(CASES) == set(READABLE) | set(FAILING)


def test_the_golden_topics_hold_no_stray_files_and_stay_small() -> None:
    files = [path for path in TOPICS.rglob("*") if path.is_file() and path.parent != TOPICS]
    files = [path for path in files if "__pycache__" not in path.parts]
    assert not [path for path in files if path.name.startswith(".")]
    assert sum(path.stat().st_size for path in files) < 1_500_000


@pytest.mark.parametrize("case", READABLE)
def test_a_golden_topic_reads_back_to_its_rows_and_offsets(case: str, tmp_path: Path) -> None:
    topic = _open(case, tmp_path)
    before = _files(tmp_path)
    versions = golden(case, "expected.json")["versions"]
    for text, expected in versions.items():
        version = int(text)
        assert _rows(topic.read(version=version).read_all()) == expected["rows"], version
        state = topic.at(version).snapshot
        assert state.start_offsets == int_keys(expected["start_offsets"])
        assert state.end_offsets == int_keys(expected["end_offsets"])
        assert topic.count(version=version) == len(expected["rows"])
        if "clean_ends" in expected:
            found = {number: part.clean_end for number, part in enumerate(state.partitions)}
            assert found == int_keys(expected["clean_ends"])
        if "inline" in expected:
            told = topic.at(version).describe()
            assert [told.inline_segments, told.inline_records] == expected["inline"]
        if "segments" in expected:
            columns = ["base_offset", "end_offset", "records", "tombstones", "delete_horizon_ms"]
            entries = topic.segments(version=version).select(columns).to_pylist()
            assert [list(entry.values()) for entry in entries] == expected["segments"]
    newest = max(int(text) for text in versions)
    assert topic.version == newest
    assert topic.start_offsets() == int_keys(versions[str(newest)]["start_offsets"])
    assert topic.end_offsets() == int_keys(versions[str(newest)]["end_offsets"])
    assert _files(tmp_path) == before, "reading wrote something"


@pytest.mark.parametrize("case", READABLE)
def test_a_readable_golden_topic_verifies_with_its_data(case: str, tmp_path: Path) -> None:
    report = _open(case, tmp_path).verify(data=True)
    expected = golden(case, "case.json").get("problems", OLDER_PROBLEMS.get(case, []))
    assert [problem.rule for problem in report.problems] == expected, str(report)
    assert report.commits > 0


def check_reads_of_keys(topic: Topic) -> None:
    """All records of a key are those that a scan and a filter find."""
    everything = topic.read().read_all()
    columns = [key_part.combine_chunks() for key_part in everything.select(topic.at().key).columns]
    keys = key_bytes(columns)
    for key in keys.drop_null().unique():
        mine = everything.filter(pc.equal(keys, key))
        assert topic.read(keys=mine).read_all().equals(mine)
    assert (
        topic.read(keys=everything.filter(keys.is_valid()))
        .read_all()
        .equals(everything.filter(keys.is_valid()))
    )


@pytest.mark.parametrize("case", READABLE)
def test_a_golden_topic_answers_lookups_as_expected(case: str, tmp_path: Path) -> None:
    topic = _open(case, tmp_path)
    expected = golden(case, "expected.json")
    if "latest" in expected:
        order = [("partition", "ascending"), ("offset", "ascending")]
        newest = topic.latest().sort_by(order)
        assert _rows(newest) == expected["latest"]
        assert topic.latest(keys=newest).sort_by(order).equals(newest)
    if topic.at().key:
        check_reads_of_keys(topic)
    for question in expected.get("offsets_for_time", []):
        found = topic.offsets_for_time(_at(question["timestamp_us"]))
        assert found == int_keys(question["offsets"])
    for question in expected.get("reads", []):
        table = topic.read(
            start=int_keys(question["start"]),
            end=int_keys(question["end"]),
            columns=["partition", "offset"],
            version=question["version"],
        ).read_all()
        for partition, offsets in int_keys(question["offsets"]).items():
            mine = [row["offset"] for row in table.to_pylist() if row["partition"] == partition]
            assert mine == offsets
    for version, records in expected.get("count", {}).items():
        assert topic.count(version=int(version)) == records
    segments = topic.segments().to_pylist()
    if "shifts" in expected:
        assert [segment["shift"] for segment in segments] == expected["shifts"]
    for partition, tombstones in int_keys(expected.get("tombstones", {})).items():
        mine = [s["tombstones"] for s in segments if s["partition"] == partition]
        assert sum(mine) == tombstones
    if "leaves" in expected:
        assert topic.verify().leaves == expected["leaves"]
    if "groups" in expected:
        _check_groups(topic, expected["groups"], expected["group_states"], tmp_path)
    for app_id, wanted in expected.get("txns", {}).items():
        last = topic.txn(app_id)
        assert last is not None
        told_of = {"version": last.number, "commit": last.version, "note": last.note}
        assert told_of == wanted
    for version in expected.get("unreadable_versions", []):
        with pytest.raises(errors.InvalidRequestError):
            topic.read(version=version)


def _check_groups(
    topic: Topic, groups: dict[str, Any], numbers: dict[str, list[int]], folder: Path
) -> None:
    assert topic.groups() == sorted(groups)
    for name, expected in groups.items():
        state = topic.group(name)._group_log.newest()
        assert state is not None
        assert state.number == expected["number"]
        found = {number: [at.offset, at.metadata] for number, at in state.positions.items()}
        assert found == int_keys(expected["positions"])
        lag = topic.group(name).lag()
        behind = {number: at.records for number, at in lag.items() if at.position is not None}
        assert behind == int_keys(expected["lag"])
    for name, kept in numbers.items():
        files = (folder / "topic" / "_groups" / name).glob("*.json")
        assert sorted(int(path.stem) for path in files) == kept


@pytest.mark.parametrize("case", FAILING)
def test_a_damaged_topic_fails_with_the_named_error(case: str, tmp_path: Path) -> None:
    about = golden(case, "case.json")
    path = _copy(case, tmp_path)
    if about["when"] == "verify":
        try:
            rules = [problem.rule for problem in pylogtable.open_topic(path).verify().problems]
        except errors.CorruptTopicError as error:  # a reader may notice it as well
            rules = [error.rule]
        assert rules == [about["error"]["rule"]]
        return
    with pytest.raises(errors.LogTableError) as caught:
        _use(path, about["when"])
    assert type(caught.value).__name__ == about["error"]["class"]
    assert getattr(caught.value, "rule", None) == about["error"].get("rule")


def _use(path: Path, when: str) -> None:
    if when == "open":
        pylogtable.open_topic(path)
        return
    topic = pylogtable.open_topic(path)  # what must fail later must open
    if when == "read":
        topic.read().read_all()
    else:
        assert when == "append"
        topic.append(pa.table({"key": [b"k"], "value": [b"v"]}))


@pytest.mark.parametrize("case", SOUND)
def test_any_parquet_reader_sees_the_offsets_of_a_sealed_segment(case: str, tmp_path: Path) -> None:
    folder = _copy(case, tmp_path)
    segments = pylogtable.open_topic(folder).segments().to_pylist()
    sealed = [s for s in segments if s["shift"] == 0 and s["records"] and "@" not in s["path"]]
    assert sealed
    for segment in sealed:
        metadata = pq.ParquetFile(folder / segment["path"]).metadata
        offset = metadata.row_group(0).column(0)
        assert offset.path_in_schema == "offset"
        assert "DELTA_BINARY_PACKED" in offset.encodings
        assert metadata.row_group(0).column(1).path_in_schema == "timestamp"
        bounds = [
            metadata.row_group(g).column(0).statistics for g in range(metadata.num_row_groups)
        ]
        firsts = [b.min - segment["base_offset"] for b in bounds]
        assert firsts == segment["row_groups"]
        assert bounds[-1].max < segment["end_offset"]


@pytest.fixture(scope="module")
def remade(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("golden")
    subprocess.run([sys.executable, TOPICS / "make.py", folder], check=True)
    return folder


@pytest.mark.parametrize("case", CASES)
def test_the_current_writer_makes_the_same_manifest(case: str, remade: Path) -> None:
    """But for ids in file names, drawn by threads, and for sizes and rows, which libraries pack.
    Golden topics stay as they are, so what writers have added to objects since is left out."""
    kept = _manifest(TOPICS / case, frozenset())
    added = NEWER_MEMBERS - _members(kept)
    assert _manifest(remade / case, added) == kept
    for file in ("case.json", "expected.json"):
        path = remade / case / file
        assert (json.loads(path.read_text()) if path.exists() else None) == golden(case, file)


def _manifest(folder: Path, without: frozenset[str]) -> dict[str, object]:
    return {
        str(path.relative_to(folder)): _plain(
            re.sub(
                r'("size_bytes":)\d+|-[0-9a-f]+(\.parquet)|("rows":)"[^"]*"',
                lambda found: f"{found[1] or found[3] or ''}0{found[2] or ''}",
                path.read_text("utf-8", "replace"),
            ),
            without,
        )
        for where in ("_manifest", "_groups")
        for path in sorted((folder / "topic" / where).rglob("*.json"))
    }


def _plain(text: str, without: frozenset[str]) -> object:
    """The object without its empty lists: a default may be left out or stand there [COMMIT-1]."""

    def members(body: dict[str, Any]) -> dict[str, Any]:
        left_out = without | CHECKSUMS
        return {k: v for k, v in body.items() if v != [] and k not in left_out}

    try:
        return json.loads(text, object_hook=members)
    except json.JSONDecodeError:
        return "does not decode, as intended"


def _members(body: object) -> frozenset[str]:
    """The names of all members, at all levels."""
    if isinstance(body, list):
        return frozenset().union(*map(_members, body))
    if isinstance(body, dict):
        return frozenset(body).union(*map(_members, body.values()))
    return frozenset()
