"""What an append to a topic of many partitions, and a read of it, cost for each file."""

from __future__ import annotations

import itertools
import sys
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any

import pyarrow as pa
import pytest

from pylogtable.storage.memory import MemoryStore
from pylogtable.topic import Topic
from tests.builders import make_store
from tests.depth import rounds
from tests.stores import CountingStore

FEW, MANY = 250, rounds(600, deep=1_000)


def rows(count: int) -> pa.Table:
    keys = [f"k{number}".encode() for number in range(count)]
    return pa.table({"key": keys, "value": [b"v" * 20] * count})


def calls_in_all_threads(action: Callable[[], object]) -> int:
    """How many functions an action calls, in this thread and in those it starts."""
    calls = itertools.count()  # safe in threads, and much faster than a lock

    def count(frame: FrameType, event: str, argument: Any) -> None:
        if event in ("call", "c_call"):
            next(calls)

    before = sys.getprofile()
    threading.setprofile(count)
    sys.setprofile(count)
    try:
        action()
    finally:
        sys.setprofile(before)
        threading.setprofile(before)  # type: ignore[arg-type]
    return next(calls)


@pytest.fixture(scope="module", params=[FEW, MANY])
def grown(request: pytest.FixtureRequest) -> tuple[int, CountingStore, Topic]:
    """A topic with about two records for each partition, and how many of them have some."""
    store = CountingStore(MemoryStore())
    topic = make_store(store, in_files=True).create_topic("t", partitions=request.param)
    topic.append(rows(2 * request.param))
    return len(topic.segments()), store, topic


def test_an_append_writes_one_file_for_each_partition_and_one_commit(
    grown: tuple[int, CountingStore, Topic],
) -> None:
    files, store, topic = grown
    store.reset()
    topic.append(rows(2 * topic.at().partition_count))
    assert store.counts["open_output"] == files
    assert store.counts["create"] == 1
    assert store.counts["list"] == 0


def test_the_calls_of_an_append_grow_with_the_files_and_are_few(
    grown: tuple[int, CountingStore, Topic],
) -> None:
    """Schema, settings and encodings of the files are found out once, not for each file. A commit
    is decoded once, although the next append looks at it twice. Files are closed by a few tasks,
    not by one for each file. Without the last two it was 427 calls."""
    files, _, topic = grown
    data = rows(2 * topic.at().partition_count)
    assert calls_in_all_threads(lambda: topic.append(data)) / files < 375


def test_the_calls_of_a_read_grow_with_the_files_and_are_few(
    grown: tuple[int, CountingStore, Topic],
) -> None:
    _, store, topic = grown
    view = topic.at()
    segments = len(topic.segments())
    assert calls_in_all_threads(lambda: view.read().read_all()) / segments < 275
    store.reset()
    view.read().read_all()
    assert store.counts["open_input"] == segments
    assert store.counts["list"] == store.counts["read"] == 0
