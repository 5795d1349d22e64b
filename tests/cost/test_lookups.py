"""What it costs to find all records of a key among a thousand segments, beside a scan of them."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass

import pyarrow as pa
import pytest

from pylogtable.engine import plan_append
from pylogtable.format.partitioner import key_bytes, partition_for
from pylogtable.limits import Limits
from pylogtable.storage.memory import MemoryStore
from pylogtable.topic import Topic
from tests.builders import Clock, ints, kafka, limited, make_store, rows
from tests.cost.round_trips import WiredStore
from tests.stores import CountingStore

PARTITIONS, SEGMENTS, RECORDS = 8, 1000, 100
#: It has a record in three segments of its partition, and one where it does not belong.
STORY = b"story"


@dataclass
class Counted:
    topic: Topic
    objects: CountingStore
    home: int

    def cost_of(self, action: Callable[[], object]) -> tuple[int, int]:
        """Requests and bytes."""
        self.objects.reset()
        action()
        return self.objects.counts["get"], sum(self.objects.bytes_read.values())


@pytest.fixture(scope="module")
def counted() -> Counted:
    """1,000 segments of 100 random keys each, all of them of 8 partitions."""
    objects = CountingStore(MemoryStore())
    limits = Limits(footer_bytes=4096, row_group_rows=50)
    topic = make_store(objects, limits=limits, in_files=True).create_topic("t", PARTITIONS)
    chance = random.Random(8)
    plan = plan_append(topic)
    staged = []
    for number in range(SEGMENTS // PARTITIONS):
        keys = [chance.randbytes(12) for _ in range(PARTITIONS * RECORDS)]
        if number in (3, 50, 51):
            keys[17] = STORY
        staged.append(plan.stage(kafka(keys, [chance.randbytes(400) for _ in keys])))
    plan.commit(staged)
    home = int(partition_for(key_bytes([pa.array([STORY])]), PARTITIONS)[0])
    topic.append(kafka([STORY], ["elsewhere"], partition=ints((home + 1) % PARTITIONS)))
    assert topic.segments().num_rows == SEGMENTS + 1
    return Counted(topic, objects, home)


def test_a_key_is_found_among_a_thousand_segments_with_few_requests(counted: Counted) -> None:
    view = counted.topic.at()
    of_home = sum(partition == counted.home for partition in rows(view.segments(), "partition"))
    found: list[int] = []
    requests, size = counted.cost_of(
        lambda: found.extend(rows(view.read(keys=[STORY]), "partition"))
    )
    assert sorted(found) == sorted([counted.home] * 3 + [(counted.home + 1) % PARTITIONS])
    scan_requests, scan_size = counted.cost_of(lambda: view.read().read_all())
    print(f"{requests} requests of {size:,} bytes; a scan {scan_requests} of {scan_size:,}")
    assert of_home == SEGMENTS // PARTITIONS
    # A footer of each segment that may have it, and what these four have, a bit more by chance.
    assert of_home + 1 <= requests <= of_home + 1 + 2 * 4 + 6
    assert scan_requests >= 2 * SEGMENTS
    assert requests < scan_requests / 14
    assert size < scan_size / 40


def test_without_the_promise_of_the_partitioner_all_footers_are_read_and_little_else(
    counted: Counted,
) -> None:
    """An import of another partitioner's records: Bloom filters alone exclude segments."""
    objects = CountingStore(MemoryStore())
    limits = Limits(footer_bytes=4096, row_group_rows=50)
    topic = make_store(objects, limits=limits, in_files=True).create_topic("t", PARTITIONS)
    placed = counted.topic.read(columns=["key", "value", "partition", "timestamp"]).read_all()
    turned = placed.set_column(2, "partition", ints(*(n % 8 for n in range(placed.num_rows))))
    plan = plan_append(topic)
    plan.commit([plan.stage(turned.slice(at, 800)) for at in range(0, 48_000, 800)])
    other = Counted(topic, objects, counted.home)
    view = topic.at()
    requests, size = other.cost_of(lambda: rows(view.read(keys=[STORY])))
    assert len(rows(view.read(keys=[STORY]))) == 4
    scan_requests, scan_size = other.cost_of(lambda: view.read().read_all())
    segments = view.segments().num_rows
    assert segments <= requests <= segments + 50
    assert requests < 0.55 * scan_requests
    assert size < scan_size / 6


def test_small_segments_are_fetched_side_by_side(clock: Clock) -> None:
    store = WiredStore(clock)
    topic = make_store(store, clock, in_files=True).create_topic("t", 2)
    for number in range(80):
        topic.append(kafka([f"k{number}", "a", "b", "c"]))
    view = make_store(WiredStore(clock, store._name), clock).topic("t").at()
    own = sum(1 for _ in view.state.segments(rows(view.read(keys=["a"]), "partition")[0]))
    cost = store.cost_of(lambda: rows(topic.read(keys=["a"])))
    assert cost.requests["get"] == own
    assert cost.round_trips <= 2 + own / 8


def test_a_large_segment_is_searched_without_its_records(clock: Clock) -> None:
    """Filters that were fetched with the footer take no request of their own."""
    objects = CountingStore(MemoryStore())
    topic = make_store(objects, clock, in_files=True).create_topic("t")
    chance = random.Random(9)
    keys = [chance.randbytes(12) for _ in range(20_000)]
    topic.append(kafka(keys, [chance.randbytes(100) for _ in keys]))
    view = topic.at()
    for key, requests in ((chance.randbytes(12), 1), (keys[77], 2)):
        objects.reset()
        assert len(rows(view.read(keys=[key]))) == requests - 1
        assert objects.counts["get"] == requests
    objects.reset()
    assert rows(limited(topic, footer_bytes=8).read(keys=[keys[77]]), "key") == [keys[77]]
    assert objects.counts["get"] == 4  # the end, the footer, the filter, and the records
