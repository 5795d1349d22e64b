"""`pylogtable merge`, `compact`, `retain`, `vacuum`, `maintain` and `delete-records`."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

import pylogtable
from tests.builders import IN_FILES, T0, Clock, kafka, times
from tests.cli.conftest import Run


def test_merge_compact_retain(run: Run, store_dir: Path) -> None:
    store = pylogtable.open(store_dir, clock=Clock())
    topic = store.create_topic("t", config={"retention.ms": -1})
    for number in range(3):
        topic.append(kafka(["a", "b"], timestamp=times(number, number)))
    assert run("merge", "t").out.startswith("t: merged 3 segments into 1; ")
    topic.alter(config={"cleanup.policy": "compact"})
    compacted = run("compact", "t", "--force", "--budget-bytes", 1 << 20, "--output", "json").json
    assert (compacted["topic"], compacted["records_removed"]) == ("t", 4)
    topic.alter(config={"cleanup.policy": "delete", "retention.ms": 1000})
    run("compact", "t").failed("pylogtable topics alter t --config cleanup.policy=compact")
    topic.group("g").commit({0: 0})
    kept = run("retain", "t", "--protect-group", "g")
    assert kept.out.startswith("t: removed 0 records in 0 segments; ")
    run("retain", "t", "--protect-group", "h").failed("'h'")
    would = "t: would remove 2 records in 1 segment, log start would be 0:6; "
    assert run("retain", "t", "--dry-run").out.startswith(would)
    assert run("maintain", "--dry-run").out.startswith(
        "t: nothing was changed, retention would remove 2 records, would merge 0 segments in 0 "
        "partitions, vacuum would remove 0 files; "
    )
    assert run("retain", "t").out.startswith(
        "t: removed 2 records in 1 segment, log start is now 0:6; "
    )


def test_maintain_protects_groups(run: Run, store_dir: Path) -> None:
    store = pylogtable.open(store_dir, clock=Clock())
    for name in ("a", "b"):
        store.create_topic(name, config={"retention.ms": 1000}).append(kafka(["x"]))
    store.topic("a").group("g").commit({0: 0})
    run("maintain", "--protect-group", "nope").failed("'nope'", "existing groups: g")
    done = run("maintain", "--protect-group", "g", "--output", "json")
    assert done.status == 0
    assert [r["retention"]["records_removed"] for r in done.json] == [0, 1]


def test_vacuum_deletes_nothing_without_yes(run: Run, store_dir: Path) -> None:
    clock = Clock()
    topic = pylogtable.open(store_dir, clock=clock).create_topic("t", config=IN_FILES)
    for _ in range(3):
        topic.append(kafka(["a"]))
        clock.tick()
    topic.merge()
    old = list((store_dir / "t" / "partition=0").glob("*.parquet"))
    for file in old:
        os.utime(file, (T0 / 1000, T0 / 1000))
    looked = run("vacuum", "t")
    assert looked.status == 0
    assert "would remove 3 files" in looked.lines[-1]
    assert "add --yes" in looked.lines[-1]
    assert len(looked.lines) == 4
    report = run("vacuum", "t", "--keep", "10d", "--output", "json").json
    assert report["dry_run"]
    assert len(list((store_dir / "t" / "partition=0").glob("*.parquet"))) == len(old)
    done = run("vacuum", "t", "--yes")
    assert done.lines[-1].startswith("t: removed 3 files")
    assert len(list((store_dir / "t" / "partition=0").glob("*.parquet"))) == 1
    run("vacuum", "t", "--keep", "long").failed("--keep", status=2)
    run("vacuum", "t", "--keep", "6d", "--yes").failed("last 7 days", "--force")
    assert run("vacuum", "t", "--keep", "6d").status == 0
    assert run("vacuum", "t", "--keep", "6d", "--yes", "--force").status == 0


def test_delete_records(run: Run, clicks: pylogtable.Topic) -> None:
    ask = ("delete-records", "clicks", "--offset", "0:2", "--offset", "1:latest")
    run(*ask).failed("make up to 3 records unreadable", "--yes")
    looked = run(*ask, "--dry-run")
    assert looked.lines[0] == "partition: clicks-0\tlow_watermark: 2 (dry run)"
    timed = ("--offset", "0:7d", "--offset", "1:2100-01-01T00:00:00Z", "--dry-run")
    rows = run("delete-records", "clicks", *timed, "--output", "json").json["partitions"]
    assert [row["low_watermark"] for row in rows] == [0, 1]
    assert clicks.start_offsets() == {0: 0, 1: 0}
    done = run(*ask, "--yes")
    assert done.lines == [
        "partition: clicks-0\tlow_watermark: 2",
        "partition: clicks-1\tlow_watermark: 1",
    ]
    assert clicks.start_offsets() == {0: 2, 1: 1}


def test_delete_records_from_a_file_of_kafkas_tool(
    run: Run, clicks: pylogtable.Topic, store_dir: Path, tmp_path: Path
) -> None:
    views = pylogtable.open(store_dir).create_topic("views")
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
def test_delete_records_refuses_wrong_usage(
    run: Run, clicks: pylogtable.Topic, options: list[str]
) -> None:
    run("delete-records", *options, "--yes").failed(status=2)
