"""`pylogtable segments`, `history`, `verify`, `report` and `doctor`."""

from __future__ import annotations

import html
import json
import os
import re
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import pylogtable
from pylogtable.cli.app import app
from pylogtable.storage.open import open_store
from tests.builders import kafka, times
from tests.cli.conftest import Run, parse
from tests.stores import FailingStore


@pytest.mark.records_in("files")
def test_segments(run: Run, clicks: pylogtable.Topic) -> None:
    clicks.append(kafka(["k1"], [None], partition=pa.array([0], pa.int32())))
    head, *lines = (line.split() for line in run("segments", "clicks").lines)
    assert head == ["PARTITION", "BASE-OFFSET", "LAST-OFFSET", "COUNT", "SIZE", "MIN-TIME",
                    "MAX-TIME", "SHIFT", "TOMBSTONES", "PATH"]  # fmt: skip
    assert [line[:4] for line in lines] == [
        ["0", "0", "2", "3"],
        ["0", "3", "3", "1"],
        ["1", "0", "0", "1"],
    ]
    assert [line[-2] for line in lines] == ["0", "1", "0"]
    rows = run("segments", "clicks", "--partition", 0, "--limit", 1, "--output", "json").json
    assert len(rows) == 1
    assert (rows[0]["base_offset"], rows[0]["end_offset"], rows[0]["sealed"]) == (0, 3, True)
    assert len(run("segments", "clicks", "--version", 1, "--output", "json").json) == 2
    run("segments", "clicks", "--version", 9).failed("no version 9")
    run("segments", "clicks", "--partition", 9).failed("no partition 9")


def test_records_in_commits_are_shown_as_such(run: Run, store_dir: Path) -> None:
    made = run(
        "topics", "create", "small", "--config", "inline.max.bytes=16384", "--output", "json"
    )
    assert made.json["config"]["inline.max.bytes"] == "16384"
    topic = pylogtable.open(store_dir).topic("small")
    topic.append(kafka(["a", "b"]))
    (row,) = run("segments", "small", "--output", "json").json
    assert (row["inline"], row["sealed"], row["records"]) == (True, False, 2)
    assert run("segments", "small").lines[1].split()[-1] == f"_manifest/{1:020d}.json@0"
    assert "InCommits: 2 records in 1 segment" in run("topics", "describe", "small").out
    (told,) = run("topics", "describe", "small", "--output", "json").json
    assert (told["inline_segments"], told["inline_records"]) == (1, 2)
    merged = run("merge", "small")
    assert merged.status == 0
    (row,) = run("segments", "small", "--output", "json").json
    assert (row["inline"], row["sealed"]) == (False, True)
    assert "InCommits" not in run("topics", "describe", "small").out


def test_history(run: Run, clicks: pylogtable.Topic) -> None:
    clicks.append(kafka(["x"]), txn=("etl", 7))
    head, first, *_ = (line.split() for line in run("history", "clicks").lines)
    assert (head[0], head[-1]) == ("VERSION", "NOTE")
    assert (first[0], first[2], first[-2]) == ("2", "append", "etl:7")
    rows = run("history", "clicks", "--limit", 2, "--output", "json").json
    assert [row["version"] for row in rows] == [2, 1]
    assert rows[1]["end_offsets"] == {"0": 3, "1": 1}


def test_history_shows_notes(run: Run, clicks: pylogtable.Topic) -> None:
    note = {"read_to": {"0": 12}, "why": "é" * 50}
    clicks.append(kafka(["x"]), txn=("etl", 7), note=note)
    _, first, *_ = run("history", "clicks").lines
    assert first.endswith('etl:7  {"read_to": {"0": 12}, "why": "ééééééééé…')
    newest, before, *_ = run("history", "clicks", "--output", "json").json
    assert (newest["notes"], before["notes"]) == ({"etl": note}, {})


@pytest.mark.records_in("files")
def test_verify(run: Run, clicks: pylogtable.Topic, store_dir: Path) -> None:
    pylogtable.open(store_dir).create_topic("other")
    sound = run("verify", "--data")
    assert sound.status == 0
    assert [line.split(":")[0] for line in sound.lines] == ["clicks", "other"]
    victim = next((store_dir / "clicks" / "partition=0").glob("*.parquet"))
    victim.write_bytes(victim.read_bytes()[:-1])
    broken = run("verify", "clicks")
    assert broken.status == 1
    assert victim.name in broken.out
    told = run("verify", "--output", "json")
    assert told.status == 1
    assert [report["sound"] for report in told.json] == [False, True]
    assert told.json[0]["problems"][0]["path"].endswith(victim.name)


def test_verify_continues_after_a_broken_topic(
    run: Run, clicks: pylogtable.Topic, store_dir: Path
) -> None:
    pylogtable.open(store_dir).create_topic("broken")
    (store_dir / "broken" / "_manifest" / f"{0:020}.json").write_text("{}")
    ran = run("verify")
    ran.failed("broken: ")
    assert ran.out.startswith("clicks: sound")


@pytest.fixture
def fail(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Lets the store of the program fail to read all objects with these words in their key."""

    def begin(words: str) -> None:
        def opened(*arguments: Any) -> FailingStore:
            store = FailingStore(open_store(*arguments))
            store.fails = lambda verb, key: words in key or not words
            return store

        monkeypatch.setattr("pylogtable.store.open_store", opened)

    return begin


@pytest.mark.records_in("files")
def test_verify_of_a_store_that_fails_has_its_own_status(
    run: Run, clicks: pylogtable.Topic, store_dir: Path, fail: Callable[[str], None]
) -> None:
    """A scheduler calls for help if a topic is damaged, and tries again if the store fails."""
    pylogtable.open(store_dir).create_topic("other")
    fail("partition=1")
    shown = run("verify", "--data")
    assert shown.status == 3
    assert shown.lines[0].startswith("clicks: could not look at 1 place, because the store failed")
    assert "partition=1" in shown.lines[1]
    assert "ReadTimeout" in shown.lines[1]
    assert shown.lines[2].startswith("other: sound")
    assert "breaks [" not in shown.out
    told = run("verify", "--data", "--output", "json")
    assert told.status == 3
    assert [report["sound"] for report in told.json] == [None, True]
    assert told.json[0]["problems"] == []
    (place,) = told.json[0]["unchecked"]
    assert "partition=1" in place["path"]
    assert "ReadTimeout" in place["detail"]
    victim = next((store_dir / "clicks" / "partition=0").glob("*.parquet"))
    victim.write_bytes(victim.read_bytes()[:-1])
    assert run("verify", "--data").status == 1, "damage that was seen is told first"


@pytest.mark.records_in("files")
@pytest.mark.parametrize(
    ("words", "arguments"),
    [
        ("clicks/_manifest", ("verify", "clicks")),
        ("clicks/_manifest", ("verify",)),
        ("", ("verify",)),
        ("clicks/_manifest", ("compare", "clicks", "{store}/clicks")),
        ("partition=", ("compare", "clicks", "{store}/clicks")),
    ],
)
def test_answer_that_the_store_does_not_give_is_not_known(
    run: Run,
    clicks: pylogtable.Topic,
    store_dir: Path,
    fail: Callable[[str], None],
    words: str,
    arguments: tuple[str, ...],
) -> None:
    fail(words)
    run(*(word.format(store=store_dir) for word in arguments)).failed("ReadTimeout", status=3)
    told = run(*(word.format(store=store_dir) for word in arguments), "--output", "json")
    assert told.status == 3
    assert all(row["sound"] is None for row in json.loads(told.out or "[]"))


def test_report(run: Run, store_dir: Path, tmp_path: Path) -> None:
    """The page advises commands that exist."""
    topic = pylogtable.open(store_dir).create_topic(
        "t", partitions=2, config={"retention.ms": 1000}
    )
    for _ in range(5):
        topic.append(kafka(["k"] * 2, timestamp=times(0, 1)))
    topic.group("g").commit({0: 0, 1: 0})
    file = tmp_path / "report.html"
    ran = run("report", store_dir, "-o", file)
    assert (ran.status, ran.out.startswith(f"wrote {file} (")) == (0, True)
    page = file.read_text(encoding="utf-8")
    assert page.startswith("<!DOCTYPE html>")
    advised = set(re.findall(r"<code>(pylogtable .*?)</code>", page))
    assert len(advised) >= 2
    for command in advised:
        words = html.unescape(re.sub(r"<[^>]*>", "", command))
        parse(app, shlex.split(words)[1:])
    assert run("report", "-o", "-").out.startswith("<!DOCTYPE html>")
    told = run("report", "-o", file, "--output", "json").json
    assert told == {"path": str(file), "size_bytes": file.stat().st_size}
    run("report", "-o", tmp_path).failed("Is a directory")


def test_doctor(run: Run, store_dir: Path, tmp_path: Path) -> None:
    sound = run("doctor", store_dir)
    assert sound.status == 0
    assert sound.lines[-1] == f"file://{store_dir} can hold topics"
    assert list(store_dir.iterdir()) == []
    report = run("doctor", "--output", "json").json
    assert report["sound"]
    assert {check["status"] for check in report["checks"]} == {"ok"}
    missing = run("doctor", tmp_path / "nowhere")
    assert missing.status == 1
    assert "there is no directory" in missing.out
    assert not (tmp_path / "nowhere").exists()
    wrong = run("doctor", "http://host/x")
    assert (wrong.status, "address" in wrong.out) == (1, True)


def test_a_store_below_a_file_is_refused(run: Run, tmp_path: Path) -> None:
    """Below a file not even root can make a directory."""
    (tmp_path / "file").write_text("x")
    run("topics", "create", "t", "-s", tmp_path / "file" / "logs").failed("Not a directory")
    told = run("doctor", tmp_path / "file" / "logs")
    assert (told.status, told.lines[0].split()[0]) == (1, "failed")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_missing_permissions_are_reported(
    run: Run, clicks: pylogtable.Topic, store_dir: Path
) -> None:
    store_dir.chmod(0o500)
    (store_dir / "clicks" / "_manifest").chmod(0o500)
    try:
        told = run("doctor", store_dir)
        assert told.status == 1
        assert "Permission denied" in told.out
        run("topics", "create", "x").failed("Permission denied")
        run("produce", "clicks", stdin="a\n").failed("Permission denied", "no line is appended")
    finally:
        store_dir.chmod(0o700)
        (store_dir / "clicks" / "_manifest").chmod(0o700)
