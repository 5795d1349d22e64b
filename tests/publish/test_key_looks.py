"""Looks at all keys of a topic: one at a time in a process, and once for all tables."""

from __future__ import annotations

import os
import signal
import sys
import warnings
from collections.abc import Callable
from threading import Thread

import pyarrow as pa
import pytest

from pylogtable import Topic
from pylogtable.publish.key_looks import KeyLooks
from pylogtable.publish.roaring import Numbers
from pylogtable.storage.memory import MemoryStore
from tests.builders import IN_FILES, make_store
from tests.stores import CountingStore, FaultyStore

Meanwhile = tuple[Callable[[Callable[[], object]], None], Topic]
LATEST = {"cleanup.policy": "compact", "publish.view": "latest", **IN_FILES}


def make_topic(objects: object, name: str = "t") -> Topic:
    columns = {"id": pa.int64(), "v": pa.float64()}
    topic = make_store(objects).create_topic(name, 1, columns, "id", config=LATEST)
    for _ in range(3):
        topic.append(pa.table({"id": list(range(5000)), "v": [1.0] * 5000}))
    return topic


def look(topic: Topic) -> dict[int, Numbers]:
    looks = KeyLooks(topic._store, topic._store)
    return {**looks.newest(topic._log.manifest.state(topic.at().snapshot))}


@pytest.fixture
def meanwhile() -> Meanwhile:
    """A topic, and how to say what happens in the middle of a look at it."""
    planned: list[Callable[[], object]] = []

    def meet(verb: str, key: str) -> None:
        if planned and verb == "open_input":
            planned.pop()()

    return planned.append, make_topic(FaultyStore(MemoryStore(), meet))


def test_one_look_at_a_time(
    meanwhile: Meanwhile,
) -> None:
    """The loop works on 16 topics side by side, each in the memory of `latest`."""
    during, topic = meanwhile
    other = make_topic(MemoryStore())
    found: list[dict[int, Numbers]] = []
    beside = Thread(target=lambda: found.append(look(other)))

    def begin() -> None:
        beside.start()
        beside.join(timeout=0.5)
        assert not found

    during(begin)
    assert len(look(topic)[0]) == 5000
    beside.join()
    assert [len(one[0]) for one in found] == [5000]


@pytest.mark.skipif(sys.platform == "win32", reason="needs fork")
def test_a_fork_in_the_middle_of_a_look_can_look(
    meanwhile: Meanwhile,
) -> None:
    during, topic = meanwhile
    other = make_topic(MemoryStore())
    codes = []

    def fork() -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # threads beside a fork
            child = os.fork()
        if child == 0:
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
            signal.alarm(30)
            os._exit(7 if len(look(other)[0]) == 5000 else 1)
        codes.append(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))

    during(fork)
    look(topic)
    assert codes == [7]


def test_tables_of_one_publication_share_a_look() -> None:
    counting = CountingStore(MemoryStore())
    topic = make_topic(counting)
    read = []
    for formats in (["delta"], ["delta", "iceberg"]):
        topic.unpublish()
        counting.reset()
        topic.publish(formats)
        read.append(sum(counting.bytes_read.values()))
    assert read[1] < read[0] * 1.5  # each reads the footers
