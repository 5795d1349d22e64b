"""Processes that append to one topic, or create one, at the same time."""

from __future__ import annotations

import sys
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow.compute as pc
import pytest

import pylogtable
from pylogtable.topic import Topic
from tests.builders import appends_in
from tests.depth import rounds
from tests.faults.worker import PARTITIONS, SCHEMA, WHERE, batch_rows, crew

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="needs fork")


def check_acks(topic: Topic, acks: list[dict[str, Any]], starts: dict[int, int]) -> None:
    """Every batch is in the log once, at the offsets that its writer was told."""
    report = topic.verify(data=True)
    assert report, str(report)
    found = topic.read(columns=["partition", "offset", "n", "batch"]).read_all()
    for number, end in topic.end_offsets().items():
        mine = found.filter(pc.equal(found["partition"], number))
        assert mine["offset"].to_pylist() == list(range(starts.get(number, 0), end))
    at = {
        (partition, offset): (batch, n)
        for partition, offset, batch, n in zip(
            *(found[name].to_pylist() for name in ("partition", "offset", "batch", "n")),
            strict=True,
        )
    }
    told = 0
    for ack in acks:
        rows = batch_rows(ack["batch"])
        for partition, (first, end) in ack["offsets"].items():
            wanted = rows.filter(pc.equal(rows["partition"], int(partition)))["n"].to_pylist()
            assert end - first == len(wanted)
            told += len(wanted)
            for offset, n in zip(range(first, end), wanted, strict=True):
                if offset >= starts.get(int(partition), 0):
                    assert at[int(partition), offset] == (ack["batch"], n)
    assert told == sum(topic.end_offsets().values())


@pytest.mark.parametrize("where", WHERE)
def test_eight_processes_append_at_once(tmp_path: Path, where: str) -> None:
    url = str(tmp_path)
    pylogtable.open(url).create_topic("t", PARTITIONS, SCHEMA, config=WHERE[where])
    each = rounds(10, deep=100)
    with crew() as workers:
        workers.order(*(("append_many", [url, 1000 * n, each]) for n in range(8)))
        acks, statuses = workers.until_end()
    assert statuses == [0] * 8
    topic = pylogtable.open(url).topic("t")
    assert appends_in(topic) == len(acks) == 8 * each
    check_acks(topic, acks, {})
    expected = sorted(n for ack in acks for n in batch_rows(ack["batch"])["n"].to_pylist())
    assert sorted(topic.read(columns=["n"]).read_all()["n"].to_pylist()) == expected
    assert bool(list(tmp_path.rglob("*.parquet"))) == (where == "files")


def test_process_that_does_not_know_records_in_commits_writes_nothing_after_them(
    tmp_path: Path,
) -> None:
    """One process appends, as an older release would, until another puts records into a commit."""
    url = str(tmp_path)
    # An older release offers nothing.
    config = {**WHERE["files"], "combined.appends": "false"}
    topic = pylogtable.open(url).create_topic("t", PARTITIONS, SCHEMA, config=config)
    with crew() as workers:
        workers.order(("append_as_an_older_release", [url, 1]))
        acks = [workers.answer()]
        topic.alter(config=WHERE["commits"])
        version = topic.append(batch_rows(0)).version
        answers, statuses = workers.until_end()
    assert statuses == [0]
    acks += [answer for answer in answers if "batch" in answer]
    refusals = [answer["refused"] for answer in answers if "refused" in answer]
    assert len(refusals) == 4  # to append, to read, to merge, to alter
    assert all("inline-batches" in refusal for refusal in refusals)
    assert topic.version == version
    assert max(ack["version"] for ack in acks) < version
    operations = Counter(topic.history()["operation"].to_pylist())
    assert operations == {"create": 1, "alter": 1, "append": len(acks) + 1}
    named = {path for path in topic.segments()["path"].to_pylist() if "@" not in path}
    files = {str(path.relative_to(tmp_path / "t")) for path in tmp_path.rglob("*.parquet")}
    assert files == named
    assert topic.verify(data=True)


def test_threads_append_through_one_topic_object(tmp_path: Path) -> None:
    count = rounds(40, deep=400)
    topic = pylogtable.open(tmp_path).create_topic("t", PARTITIONS, SCHEMA)

    def append(batch: int) -> dict[str, Any]:
        result = topic.append(batch_rows(batch), txn=(f"app{batch % 4}", batch))
        return {"batch": batch, "version": result.version, "offsets": result.offsets}

    def work(first: int) -> list[dict[str, Any]]:
        return [append(batch) for batch in range(first, first + count, 4)]

    with ThreadPoolExecutor(4) as pool:
        acks = [ack for done in pool.map(work, range(4)) for ack in done]
    assert appends_in(topic) == len(acks) == count
    check_acks(topic, acks, {})
    check_acks(pylogtable.open(tmp_path).topic("t"), acks, {})


def test_two_processes_create_the_same_topics(tmp_path: Path) -> None:
    url, count = str(tmp_path), rounds(20, deep=200)
    with crew() as workers:
        workers.order(*(("create_many", [url, me, count]) for me in (2, 3)))
        wins, statuses = workers.until_end()
    assert statuses == [0, 0]
    assert Counter(win["won"] for win in wins) == Counter(range(count))
    store = pylogtable.open(url)
    assert len(store.topics()) == count
    for win in wins:
        topic = store.topic(f"new-{win['won']}")
        assert topic.topic_id == win["topic_id"]
        assert topic.version == 0
        assert len(topic.end_offsets()) == win["me"]


@pytest.mark.parametrize("where", WHERE)
def test_appends_race_with_more_partitions_and_moving_log_starts(
    tmp_path: Path, where: str
) -> None:
    url, each, up_to = str(tmp_path), rounds(15, deep=90), PARTITIONS + 12
    pylogtable.open(url).create_topic("t", PARTITIONS, SCHEMA, config=WHERE[where])
    with crew() as workers:
        workers.order(
            *(("append_many", [url, first, each]) for first in (0, 1000, 2000)),
            ("administer", [url, up_to]),
            ("administer", [url, up_to]),
        )
        answers, statuses = workers.until_end()
    assert statuses == [0] * 5
    acks = [answer for answer in answers if "batch" in answer]
    moves = [answer for answer in answers if "starts" in answer]
    assert len(acks) == 3 * each
    assert len(moves) == 24
    topic = pylogtable.open(url).topic("t")
    assert len(topic.end_offsets()) == up_to
    starts = topic.start_offsets()
    for move in moves:
        for number, (wanted, told) in enumerate(zip(move["wanted"], move["starts"], strict=True)):
            assert wanted <= told <= starts[number]
    operations = Counter(topic.history()["operation"].to_pylist())
    assert appends_in(topic) == 3 * each
    assert operations["alter"] <= 12
    check_acks(topic, acks, starts)
