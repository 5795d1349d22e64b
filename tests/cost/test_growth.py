"""The cost of opening, appending and looking up must not depend on the size of the topic.

A topic of 100,800 segments made by 10,080 commits (ten times as many in a deep run) is held against
one of 96 commits. Both have the same number of commits after their last root, so that requests can
be compared one for one. What is counted is requests, bytes and calls: seconds are measured in
`benchmarks/growth.py`.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from benchmarks.generate import RECORDS, STEP_US, grow
from pylogtable.format.paths import HINT_PATH, commit_path, parse_commit_path
from pylogtable.limits import DEFAULT_LIMITS
from pylogtable.report.report_html import report_html
from pylogtable.runtime import Runtime
from pylogtable.store import Store
from pylogtable.topic import Topic
from pyspark_pylogtable.columns import spark_schema
from pyspark_pylogtable.request.parsing import parse_options
from pyspark_pylogtable.stream.source import StreamReader
from pyspark_pylogtable.stream.topics import StreamTopics
from tests.builders import IN_FILES
from tests.cost.calls import calls_of
from tests.depth import rounds
from tests.stores import CountingStore, FarStore

PARTITIONS = 6
SEGMENTS_PER_COMMIT = 10
ROOT_INTERVAL, COLD_WAVE = DEFAULT_LIMITS.root_interval, DEFAULT_LIMITS.cold_wave
SMALL_COMMITS = ROOT_INTERVAL + 32
LARGE_COMMITS = rounds(10_080, deep=100_000)


@dataclass
class Grown:
    inner: FarStore
    counting: CountingStore
    commits: int

    def open(self) -> Topic:
        return Topic("t", self.counting.below("t"), Runtime())

    def requests(self, action: Callable[[], object]) -> dict[str, int]:
        self.counting.reset()
        action()
        return dict(self.counting.counts)


def _grown(commits: int) -> Grown:
    inner = FarStore(lambda: 0)
    topic = Store(inner, Runtime()).create_topic("t", partitions=PARTITIONS, config=IN_FILES)
    topic.append(_records(600))
    grow(topic, commits - 1, SEGMENTS_PER_COMMIT)
    return Grown(inner, CountingStore(inner), commits)


def _records(count: int) -> pa.Table:
    return pa.table(
        {
            "key": [b"%d" % n for n in range(count)],
            "value": [b"v" * 80] * count,
            "timestamp": pa.array([0] * count, pa.timestamp("us", tz="UTC")),
        }
    )


@pytest.fixture(scope="module")
def small() -> Grown:
    return _grown(SMALL_COMMITS)


@pytest.fixture(scope="module")
def large() -> Grown:
    assert (LARGE_COMMITS - SMALL_COMMITS) % ROOT_INTERVAL == 0
    return _grown(LARGE_COMMITS)


def _middle_offset(topic: Topic) -> int:
    return topic.end_offsets()[3] // 2


def _lookup(topic: Topic, offset: int) -> object:
    return topic.at().snapshot, topic.read(3, offset, offset + 1, columns=["offset"]).read_all()


def test_the_large_topic_has_the_promised_size(large: Grown) -> None:
    described = large.open().describe()
    segments = sum(p.segments for p in described.partitions)
    assert segments > 0.99 * LARGE_COMMITS * SEGMENTS_PER_COMMIT
    assert described.version == LARGE_COMMITS


def test_opening_takes_the_same_requests_at_any_size(small: Grown, large: Grown) -> None:
    asked = large.requests(large.open)
    assert asked == small.requests(small.open)
    assert set(asked) == {"read"}
    assert asked["read"] <= 2 + ROOT_INTERVAL + COLD_WAVE


def test_an_append_takes_the_same_requests_at_any_size(small: Grown, large: Grown) -> None:
    topics = [small.open(), large.open()]
    asked = [
        grown.requests(lambda topic=topic: topic.append(_records(60)))
        for grown, topic in zip([small, large], topics, strict=True)
    ]
    assert asked[0] == asked[1]
    assert asked[0] == {"create": 1, "open_output": PARTITIONS}


def test_a_lookup_by_offset_takes_the_same_requests_at_any_size(small: Grown, large: Grown) -> None:
    asked = []
    for grown in (small, large):
        topic = grown.open()
        offset = _middle_offset(topic)
        asked.append(grown.requests(lambda topic=topic, offset=offset: _lookup(topic, offset)))
    assert asked[0] == asked[1]
    assert asked[0]["read"] <= 3


def test_a_lookup_by_time_loads_one_leaf_per_partition_at_any_size(
    small: Grown, large: Grown
) -> None:
    """The segments are without files, so that what is asked for is the manifest alone."""
    asked = []
    for grown in (small, large):
        topic = grown.open()
        view = topic.at()
        segments = grown.commits * SEGMENTS_PER_COMMIT
        when_us = (segments // 2) * RECORDS * STEP_US
        grown.counting.reset()
        for number in range(PARTITIONS):
            found = next(view.state.segments_reaching_time(number, when_us))
            assert found.min_timestamp_us <= when_us + PARTITIONS * RECORDS * STEP_US
            assert found.max_timestamp_us >= when_us
        asked.append(dict(grown.counting.counts))
    assert asked[0] == asked[1]
    assert asked[0] == {"read": 1}


def test_a_cold_read_of_one_record_costs_at_most_six_gets_besides_the_tail(large: Grown) -> None:
    """The first commit's records have real files, and lie under all the others."""
    found = []

    def cold_read() -> None:
        found.append(large.open().read(2, 7, 8).read_all())

    large.requests(cold_read)
    gets = {
        key: count
        for (verb, key), count in large.counting.by_key.items()
        if verb in ("read", "get") and parse_commit_path(key.removeprefix("t/")) is None
    }
    assert found[0]["offset"].to_pylist() == [7]
    assert found[0]["partition"].to_pylist() == [2]
    assert sum(gets.values()) <= 6, gets


def test_opening_appending_and_looking_up_take_the_same_calls_at_any_size(
    small: Grown, large: Grown
) -> None:
    """The requests are as many; here it is what is done with the answers, in calls of functions."""
    opened = {id(grown): grown.open() for grown in (small, large)}
    offsets = {id(grown): _middle_offset(opened[id(grown)]) for grown in (small, large)}
    actions: dict[str, Callable[[Grown], object]] = {
        "open": lambda grown: grown.open(),
        "append": lambda grown: opened[id(grown)].append(_records(60)),
        "lookup": lambda grown: _lookup(grown.open(), offsets[id(grown)]),
    }
    for name, action in actions.items():
        few, many = (calls_of(partial(action, grown)) for grown in (small, large))
        assert many <= 1.5 * few, f"{name}: {many} calls on the large topic, {few} on the small one"


_COLD_LOOKUP = """
import json, sys
import pyarrow as pa, pyarrow.parquet
import pylogtable
from tests.memory import peak_bytes as peak

before = peak()
topic = pylogtable.open_topic(sys.argv[1])
rows = topic.read(2, 7, 8).read_all()
print(json.dumps({"offset": rows["offset"][0].as_py(), "bytes": peak() - before}))
"""


def test_a_cold_lookup_in_the_large_topic_stays_below_200_mib(large: Grown, tmp_path: Path) -> None:
    topic = large.open()
    newest = topic.version
    wanted = {f"t/{commit_path(v)}" for v in range(newest - 2 * ROOT_INTERVAL, newest + 1)}
    for entry in large.inner.list("t/"):
        keep = (
            entry.key in wanted
            or "/leaf-" in entry.key
            or entry.key.endswith(".root.json")
            or entry.key == f"t/{HINT_PATH}"
            or entry.key.startswith("t/partition=")
        )
        if keep:
            target = tmp_path / entry.key
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(large.inner.read(entry.key) or b"")
    done = subprocess.run(
        [sys.executable, "-c", _COLD_LOOKUP, str(tmp_path / "t")],
        capture_output=True,
        text=True,
        check=True,
        cwd=Path(__file__).parents[2],
    )
    answer = json.loads(done.stdout)
    assert answer["offset"] == 7
    assert answer["bytes"] < 200 * 2**20


def test_a_report_of_the_large_topic_is_small_and_handles_segments_as_columns(
    large: Grown,
) -> None:
    """Every leaf is read once, of the commits only the newest, and no data."""
    store = Store(large.counting, Runtime())
    large.counting.reset()
    page = report_html(store)
    asked = dict(large.counting.by_key)
    segments = sum(part.segments for part in large.open().describe().partitions)
    assert f"{segments:,} of {segments:,} segments" in page
    assert len(page) < 2**20
    assert calls_of(lambda: report_html(store)) < segments
    assert not [key for (verb, key) in asked if verb in ("open_input", "get")]
    assert {count for (_, key), count in asked.items() if "/leaf-" in key} == {1}
    assert len({key for _, key in asked if parse_commit_path(key[2:]) is not None}) < 700


def test_the_root_stays_small(large: Grown) -> None:
    roots = [e.size_bytes for e in large.inner.list("t/") if e.key.endswith(".root.json")]
    assert len(roots) == LARGE_COMMITS // ROOT_INTERVAL
    assert max(roots) < 2**20


@pytest.mark.parametrize("limits", [{}, {"maxOffsetsPerTrigger": "25"}, {"group": "g"}])
def test_a_trigger_of_a_stream_reads_only_new_commits(
    small: Grown, large: Grown, limits: dict[str, str]
) -> None:
    asked = []
    for grown in (small, large):
        reader, writer = _stream(grown, limits), grown.open()
        offset = reader.latestOffset(reader.initialOffset(), None)
        reader.latestOffset(offset, None)  # a batch has ended: its positions go to the group
        idle = grown.requests(lambda reader=reader, at=offset: reader.latestOffset(at, None))
        assert idle == {"read": 1}
        for _ in range(3):
            writer.append(_records(60))
        asked.append(grown.requests(lambda reader=reader, at=offset: _trigger(reader, at)))
        keys = {key for _, key in grown.counting.by_key}
        assert all(parse_commit_path(key.removeprefix("t/")) is not None for key in keys)
    assert asked[0] == asked[1]
    assert set(asked[0]) == {"read"}
    assert asked[0]["read"] <= 1 + 2 + 4  # waves, of which the last finds nothing


def test_a_trigger_takes_the_same_calls_at_any_size(small: Grown, large: Grown) -> None:
    taken = []
    for grown in (small, large):
        reader, writer = _stream(grown, {}), grown.open()
        at = reader.latestOffset(reader.initialOffset(), None)
        writer.append(_records(60))
        at = _trigger(reader, at)
        writer.append(_records(60))
        taken.append(calls_of(lambda reader=reader, at=at: _trigger(reader, at)))
    few, many = taken
    assert many <= 1.5 * few


def _stream(grown: Grown, limits: dict[str, str]) -> StreamReader:
    options = parse_options({"path": "/nowhere/t", **limits})
    schema = spark_schema(grown.open().schema)
    reader = StreamReader(options, schema, {})
    reader._opened = StreamTopics(options, schema, {})
    reader._opened._store = Store(grown.counting, Runtime())
    return reader


def _trigger(reader: StreamReader, start: dict[str, Any]) -> dict[str, Any]:
    end = reader.latestOffset(start, None)
    assert end != start
    assert reader.partitions(start, end)
    return end
