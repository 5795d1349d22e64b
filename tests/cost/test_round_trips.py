"""What the usual operations cost on a store that is far away: requests, and how many of them have
to wait for each other. The numbers are in `benchmarks/README.md`."""

from __future__ import annotations

import pyarrow as pa
import pytest

from pylogtable.runtime import Runtime
from pylogtable.store import Store
from tests.builders import Clock
from tests.cost.round_trips import WiredStore

PARTITIONS = 6
COMMITS = 40


def records(count: int) -> pa.Table:
    return pa.table({"key": [b"%d" % n for n in range(count)], "value": [b"v" * 100] * count})


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def store(clock: Clock) -> WiredStore:
    return WiredStore(clock)


def opened(store: WiredStore, clock: Clock) -> Store:
    """The store as another process sees it, which has had no reply yet."""
    anew = WiredStore(clock, store._name)
    anew._line = store._line
    return Store(anew, Runtime(clock=clock))


class TestAppend:
    def test_a_warm_topic_is_not_asked_before_an_append(
        self, store: WiredStore, clock: Clock
    ) -> None:
        topic = opened(store, clock).create_topic("t", PARTITIONS)
        for _ in range(3):
            clock.tick(59_999)
            cost = store.cost_of(lambda: topic.append(records(100)))
            assert cost.requests == {"write": PARTITIONS, "create": 1}
            assert cost.round_trips == 2
