"""How much of a topic is inline is told by its roots and commits: no leaf is loaded for it [INL-7].

Older writers did not tell it. Their topics are counted, until somebody writes the next root.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

from pylogtable import Topic
from pylogtable.format.paths import root_path
from pylogtable.limits import Limits
from pylogtable.read.view import View
from pylogtable.storage.memory import MemoryStore
from tests.builders import Clock, make_store
from tests.stores import CountingStore
from tests.tamper import edited

PARTITIONS = 3
LIMITS = Limits(root_interval=16, root_grace=2, tail_max=10)
APPENDS = 2 * LIMITS.root_interval + 1


def rows(number: int, size: int = 4) -> pa.Table:
    """A record for each partition."""
    keys = [b"%d" % partition for partition in range(PARTITIONS)]
    values = [(b"%d" % number).ljust(size, b"x") for _ in keys]
    return pa.table({"partition": pa.array(range(PARTITIONS)), "key": keys, "value": values})


@pytest.fixture
def objects() -> MemoryStore:
    return MemoryStore().with_limits(LIMITS)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def topic(objects: MemoryStore, clock: Clock) -> Topic:
    settings = {"inline.max.bytes": 16384, "cleanup.policy": "compact,delete", "retention.ms": -1}
    topic = make_store(objects, clock=clock).create_topic("t", PARTITIONS, config=settings)
    for number in range(APPENDS):
        topic.append(rows(number))
    assert any("/leaf-" in entry.key for entry in objects.list("t/"))
    return topic


def reopened(objects: MemoryStore) -> tuple[Topic, CountingStore]:
    counting = CountingStore(objects)
    return make_store(counting).topic("t"), counting


def told(view: View) -> tuple[int, int]:
    described = view.describe()
    return described.inline_segments, described.inline_records


def counted(view: View) -> tuple[int, int]:
    inline = [entry for entry in view.segments().to_pylist() if "@" in entry["path"]]
    return len(inline), sum(entry["records"] for entry in inline)


def leaves_read(store: CountingStore) -> int:
    return sum(count for (_, key), count in store.by_key.items() if "/leaf-" in key)


def by_an_older_writer(objects: MemoryStore) -> None:
    """Take out of all roots and commits what older writers did not tell."""

    def leave_out(body: dict[str, Any]) -> None:
        for partition in body.get("partitions", []):
            partition.pop("inline", None)
        for change in [*body.get("log_starts", []), *body.get("replaced", [])]:
            change.pop("dropped_inline", None)

    for entry in list(objects.list("t/_manifest/")):
        data = objects.read(entry.key) or b""
        if entry.key.endswith(".json") and b'inline":{' in data:
            objects.write(entry.key, edited(data, leave_out))


JOBS: dict[str, Callable[[Topic], object]] = {
    "merge": lambda topic: topic.merge(),
    "compact": lambda topic: topic.compact(force=True),
    "erase": lambda topic: topic.erase([b"1"]),
    "delete_records": lambda topic: topic.delete_records({0: 5, 2: APPENDS - 1}),
    "delete all of a partition": lambda topic: topic.delete_records({0: None}),
    "append": lambda topic: topic.append(rows(0)),
    "append a file": lambda topic: topic.append(rows(0, size=1 << 20)),
    "alter": lambda topic: topic.alter(partitions=PARTITIONS + 1),
}


@pytest.mark.parametrize("job", JOBS)
def test_a_description_loads_no_leaf_whatever_was_done_before(
    topic: Topic, objects: MemoryStore, job: str
) -> None:
    JOBS[job](topic)
    topic.append(rows(1))
    topic.delete_records({1: 20})
    for version in (None, topic.version - 1, topic.version - 2, APPENDS, 20):
        fresh, store = reopened(objects)
        found = told(fresh.at(version))
        assert leaves_read(store) == 0
        assert found == counted(fresh.at(version))
    assert topic.verify()


def test_retention_tells_what_it_drops(topic: Topic, objects: MemoryStore, clock: Clock) -> None:
    clock.tick(10_000)
    topic.append(rows(0))
    topic.alter(config={"retention.ms": 5_000})
    assert topic.apply_retention().segments_removed == APPENDS * PARTITIONS
    fresh, store = reopened(objects)
    assert told(fresh.at()) == (PARTITIONS, PARTITIONS)
    assert leaves_read(store) == 0
    assert topic.verify()


@pytest.mark.parametrize("job", JOBS)
def test_a_topic_of_older_writers_is_counted_until_the_next_root(
    topic: Topic, objects: MemoryStore, job: str
) -> None:
    JOBS[job](topic)
    expected = counted(topic.at())
    by_an_older_writer(objects)
    fresh, _ = reopened(objects)
    assert told(fresh.at()) == expected
    assert fresh.verify()
    for number in range(LIMITS.root_interval + LIMITS.root_grace):
        fresh.append(rows(number))
    fresh, store = reopened(objects)
    found = told(fresh.at())
    assert leaves_read(store) == 0
    assert found == counted(fresh.at())
    assert fresh.verify()


def test_a_topic_of_older_writers_loads_its_leaves_once_to_be_described(
    topic: Topic, objects: MemoryStore
) -> None:
    by_an_older_writer(objects)
    fresh, store = reopened(objects)
    assert told(fresh.at()) == (APPENDS * PARTITIONS, APPENDS * PARTITIONS)
    assert leaves_read(store) == len(fresh.at().snapshot.leaves) == 2
    store.reset()
    fresh.at().partitions()
    assert fresh.count() == APPENDS * PARTITIONS
    assert leaves_read(store) == 0


def test_verify_reports_a_root_with_other_inline_totals(topic: Topic, objects: MemoryStore) -> None:
    def lie(body: dict[str, Any]) -> None:
        body["partitions"][1]["inline"]["records"] -= 1

    path = root_path(2 * LIMITS.root_interval)
    objects.write(f"t/{path}", edited(objects.read(f"t/{path}"), lie))
    fresh, _ = reopened(objects)
    problems = fresh.verify().problems
    assert {problem.rule for problem in problems} == {"ROOT-5"}
    assert path in {problem.path for problem in problems}


def test_a_root_whose_inline_totals_contradict_themselves_is_not_used(
    topic: Topic, objects: MemoryStore
) -> None:
    def lie(body: dict[str, Any]) -> None:
        body["partitions"][1]["inline"]["records"] += 1

    path = f"t/{root_path(2 * LIMITS.root_interval)}"
    objects.write(path, edited(objects.read(path), lie))
    fresh, _ = reopened(objects)
    assert told(fresh.at()) == counted(fresh.at()) == (APPENDS * PARTITIONS, APPENDS * PARTITIONS)
    assert [problem.rule for problem in fresh.verify().problems] == ["ROOT-6"]
