"""Looking into topics and keeping them in shape: segments, history, verify, merge, compact, retain,
vacuum, maintain, delete-records, doctor."""

from __future__ import annotations

import html
import json
import os
import re
import shlex
from pathlib import Path

import pytest

import pylogtable
from pylogtable.cli.app import app
from tests.builders import T0, Clock, kafka, times
from tests.cli.conftest import Run, parse


def test_segments(run: Run, clicks: pylogtable.Topic) -> None:
    clicks.append(kafka(["k1"], [None], partition=_zero()))
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


def test_history(run: Run, clicks: pylogtable.Topic) -> None:
    clicks.append(kafka(["x"]), txn=("etl", 7))
    head, first, *_ = (line.split() for line in run("history", "clicks").lines)
    assert head[0] == "VERSION"
    assert (first[0], first[2], first[-1]) == ("2", "append", "etl:7")
    rows = run("history", "clicks", "--limit", 2, "--output", "json").json
    assert [row["version"] for row in rows] == [2, 1]
    assert rows[1]["end_offsets"] == {"0": 3, "1": 1}


def test_verify(run: Run, clicks: pylogtable.Topic, place: Path) -> None:
    pylogtable.open(place).create_topic("other")
    sound = run("verify", "--data")
    assert sound.status == 0
    assert [line.split(":")[0] for line in sound.lines] == ["clicks", "other"]
    victim = next((place / "clicks" / "partition=0").glob("*.parquet"))
    victim.write_bytes(victim.read_bytes()[:-1])
    broken = run("verify", "clicks")
    assert broken.status == 1
    assert victim.name in broken.out
    told = run("verify", "--output", "json")
    assert told.status == 1
    assert [report["sound"] for report in told.json] == [False, True]
    assert told.json[0]["problems"][0]["path"].endswith(victim.name)


def test_verify_goes_on_past_a_topic_that_cannot_be_opened(
    run: Run, clicks: pylogtable.Topic, place: Path
) -> None:
    pylogtable.open(place).create_topic("broken")
    (place / "broken" / "_manifest" / f"{0:020}.json").write_text("{}")
    ran = run("verify")
    ran.failed("broken: ")
    assert ran.out.startswith("clicks: sound")


def test_merge_compact_retain(run: Run, place: Path) -> None:
    store = pylogtable.open(place, clock=Clock())
    topic = store.create_topic("t", config={"retention.ms": -1})
    for number in range(3):
        topic.append(kafka(["a", "b"], timestamp=times(number, number)))
    assert run("merge", "t").out.startswith("t: 3 segments became 1; ")
    topic.alter(config={"cleanup.policy": "compact"})
    compacted = run("compact", "t", "--force", "--budget-bytes", 1 << 20, "--output", "json").json
    assert (compacted["topic"], compacted["records_removed"]) == ("t", 4)
    topic.alter(config={"cleanup.policy": "delete", "retention.ms": 1000})
    run("compact", "t").failed("cleanup.policy")
    topic.group("g").commit({0: 0})
    kept = run("retain", "t", "--protect-group", "g")
    assert kept.out.startswith("t: removed 0 records in 0 segments; ")
    run("retain", "t", "--protect-group", "h").failed("'h'")
    assert run("retain", "t").out.startswith(
        "t: removed 2 records in 1 segment, log start is now 0:6; "
    )


def test_maintain_protects_groups(run: Run, place: Path) -> None:
    store = pylogtable.open(place, clock=Clock())
    for name in ("a", "b"):
        store.create_topic(name, config={"retention.ms": 1000}).append(kafka(["x"]))
    store.topic("a").group("g").commit({0: 0})
    run("maintain", "--protect-group", "nope").failed("'nope'", "there is g")
    done = run("maintain", "--protect-group", "g", "--output", "json")
    assert done.status == 0
    assert [r["retention"]["records_removed"] for r in done.json] == [0, 1]


def test_vacuum_looks_unless_told(run: Run, place: Path) -> None:
    clock = Clock()
    topic = pylogtable.open(place, clock=clock).create_topic("t")
    for _ in range(3):
        topic.append(kafka(["a"]))
        clock.tick()
    topic.merge()
    old = list((place / "t" / "partition=0").glob("*.parquet"))
    for file in old:
        os.utime(file, (T0 / 1000, T0 / 1000))
    looked = run("vacuum", "t")
    assert looked.status == 0
    assert "would remove 3 files" in looked.lines[-1]
    assert "say --yes" in looked.lines[-1]
    assert len(looked.lines) == 4
    report = run("vacuum", "t", "--keep", "10d", "--output", "json").json
    assert report["dry_run"]
    assert len(list((place / "t" / "partition=0").glob("*.parquet"))) == len(old)
    done = run("vacuum", "t", "--yes")
    assert done.lines[-1].startswith("t: removed 3 files")
    assert len(list((place / "t" / "partition=0").glob("*.parquet"))) == 1
    run("vacuum", "t", "--keep", "long").failed("--keep", status=2)


def test_delete_records(run: Run, clicks: pylogtable.Topic) -> None:
    ask = ("delete-records", "clicks", "--offset", "0:2", "--offset", "1:latest")
    run(*ask).failed("make up to 3 records unreadable", "--yes")
    looked = run(*ask, "--dry-run")
    assert looked.lines[0] == "partition: clicks-0\tlow_watermark: 2 (dry run)"
    assert clicks.start_offsets() == {0: 0, 1: 0}
    done = run(*ask, "--yes")
    assert done.lines == [
        "partition: clicks-0\tlow_watermark: 2",
        "partition: clicks-1\tlow_watermark: 1",
    ]
    assert clicks.start_offsets() == {0: 2, 1: 1}


def test_delete_records_from_kafkas_file(
    run: Run, clicks: pylogtable.Topic, place: Path, tmp_path: Path
) -> None:
    views = pylogtable.open(place).create_topic("views")
    views.append(kafka(["a", "b"]))
    file = tmp_path / "offsets.json"

    def offsets(*entries: tuple[object, object, object]) -> None:
        named = [{"topic": t, "partition": p, "offset": o} for t, p, o in entries]
        file.write_text(json.dumps({"version": 1, "partitions": named}))

    ask = ("delete-records", "--offset-json-file", file, "--yes")
    for wrong, words in (
        ([("views", 0, 1), ("views", 0, 2)], "twice"),
        ([("views", "0", 1)], "wrong type"),
        ([("views", 0, 1), ("clicks", 0, 99)], "out of range"),
        ([("views", 0, 1), ("clicks", 9, 0)], "no partition 9"),
        ([("views", 0, 1), ("clickz", 0, 0)], "did you mean 'clicks'?"),
    ):
        offsets(*wrong)
        run(*ask).failed(words)
    file.write_text("{}")
    run(*ask).failed("'partitions' is missing")
    assert views.start_offsets() == {0: 0}
    offsets(("views", 0, -1), ("clicks", 0, 1))
    done = run(*ask, "--output", "json").json
    assert done["partitions"] == [
        {"topic": "views", "partition": 0, "low_watermark": 2},
        {"topic": "clicks", "partition": 0, "low_watermark": 1},
    ]


@pytest.mark.parametrize(
    "options",
    [["clicks"], ["--offset", "0:1"], ["clicks", "--offset", "0"], ["clicks", "--offset", "0:-2"],
     ["clicks", "--offset", "0:1", "--offset", "0:2"], ["clicks", "--offset-json-file", "f"]],
)  # fmt: skip
def test_delete_records_asked_wrongly(
    run: Run, clicks: pylogtable.Topic, options: list[str]
) -> None:
    run("delete-records", *options, "--yes").failed(status=2)


def test_report(run: Run, place: Path, tmp_path: Path) -> None:
    """The page, and that what it advises is what this program understands."""
    topic = pylogtable.open(place).create_topic("t", partitions=2, config={"retention.ms": 1000})
    for _ in range(5):
        topic.append(kafka(["k"] * 2, timestamp=times(0, 1)))
    topic.group("g").commit({0: 0, 1: 0})
    file = tmp_path / "report.html"
    ran = run("report", place, "-o", file)
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


def test_doctor(run: Run, place: Path, tmp_path: Path) -> None:
    sound = run("doctor", place)
    assert sound.status == 0
    assert sound.lines[-1] == f"file://{place} can carry topics"
    assert list(place.iterdir()) == []
    report = run("doctor", "--output", "json").json
    assert report["sound"]
    assert {check["status"] for check in report["checks"]} == {"ok"}
    missing = run("doctor", tmp_path / "nowhere")
    assert missing.status == 1
    assert "there is no directory" in missing.out
    assert not (tmp_path / "nowhere").exists()
    wrong = run("doctor", "http://host/x")
    assert (wrong.status, "address" in wrong.out) == (1, True)


def test_a_place_that_can_hold_nothing(run: Run, tmp_path: Path) -> None:
    """Below a file not even root can make a directory."""
    (tmp_path / "file").write_text("x")
    run("topics", "create", "t", "-s", tmp_path / "file" / "logs").failed("Not a directory")
    told = run("doctor", tmp_path / "file" / "logs")
    assert (told.status, told.lines[0].split()[0]) == (1, "failed")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_no_rights(run: Run, clicks: pylogtable.Topic, place: Path) -> None:
    place.chmod(0o500)
    (place / "clicks" / "_manifest").chmod(0o500)
    try:
        told = run("doctor", place)
        assert told.status == 1
        assert "Permission denied" in told.out
        run("topics", "create", "x").failed("Permission denied")
        run("produce", "clicks", stdin="a\n").failed("Permission denied", "no line is appended")
    finally:
        place.chmod(0o700)
        (place / "clicks" / "_manifest").chmod(0o700)


def _zero() -> object:
    import pyarrow as pa

    return pa.array([0], pa.int32())
