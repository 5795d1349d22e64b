"""What a scrape costs on a store that is far away. The numbers are in the guide of metrics."""

from __future__ import annotations

import pytest

from pylogtable.metrics.store_watch import AROUND_MS, LOOK_MS, StoreWatch
from pylogtable.metrics.table_lag import COMMITS_READ
from pylogtable.runtime import Runtime
from pylogtable.store import Store
from tests.builders import Clock, kafka
from tests.cost.round_trips import Cost, WiredStore

TOPICS, GROUPS = 5, 3


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def far(clock: Clock) -> WiredStore:
    return WiredStore(clock)


@pytest.fixture
def store(far: WiredStore, clock: Clock) -> Store:
    store = Store(far, Runtime(clock=clock, later=lambda work: work()))
    for number in range(TOPICS):
        store.create_topic(f"t{number}", 6).append(kafka([str(n) for n in range(20)]))
    return store


def scrape(far: WiredStore, watch: StoreWatch) -> Cost:
    return far.cost_of(watch.samples)


def test_a_quiet_topic_costs_one_request(far: WiredStore, store: Store, clock: Clock) -> None:
    watch = StoreWatch(store)
    watch.samples()
    for _ in range(2):
        clock.tick(LOOK_MS)
        cost = scrape(far, watch)
        assert cost.requests == {"read": TOPICS}
        assert cost.round_trips == 1


def test_scrapes_in_quick_succession_cost_nothing(
    far: WiredStore, store: Store, clock: Clock
) -> None:
    watch = StoreWatch(store)
    watch.samples()
    clock.tick(LOOK_MS - 1)
    assert not scrape(far, watch).requests


def test_new_commits_cost_two_requests_each_at_most(
    far: WiredStore, store: Store, clock: Clock
) -> None:
    watch = StoreWatch(store)
    watch.samples()
    for _ in range(3):
        store.topic("t0").append(kafka(["a"]))
    clock.tick(LOOK_MS)
    cost = scrape(far, watch)
    assert set(cost.requests) == {"read"}
    assert cost.requests["read"] <= TOPICS + 2 * 3


def test_groups_cost_a_listing_for_each_topic_and_a_request_for_each_group(
    far: WiredStore, store: Store, clock: Clock
) -> None:
    """Every half minute, and no record is read."""
    for number in range(GROUPS):
        store.topic("t0").group(f"g{number}").commit({0: 1})
    watch = StoreWatch(store)
    watch.samples()
    clock.tick(AROUND_MS)
    cost = scrape(far, watch)
    assert set(cost.requests) == {"read", "list"}
    assert cost.requests["read"] == TOPICS + GROUPS
    assert cost.requests["list"] <= TOPICS + 1  # where there are groups, it may be listed twice
    assert cost.round_trips <= 5


@pytest.mark.parametrize("format", ["delta", "iceberg"])
def test_a_published_table_costs_a_few_requests(
    far: WiredStore, store: Store, clock: Clock, format: str
) -> None:
    topic = store.create_topic("published", config={"publish.formats": format})
    topic.append(kafka(["a"]))
    topic.publish()
    watch = StoreWatch(store, ["published"])
    watch.samples()
    clock.tick(AROUND_MS)
    quiet = scrape(far, watch).requests
    assert quiet["read"] <= 7
    assert quiet["list"] <= 2
    topic.append(kafka(["b"]))
    clock.tick(AROUND_MS)
    behind = scrape(far, watch).requests
    assert behind["read"] <= 11
    assert behind["list"] == quiet["list"]


def test_a_late_table_costs_its_next_commits_at_most(
    far: WiredStore, store: Store, clock: Clock
) -> None:
    """However late it is: the first append that it does not show is looked for in a few commits."""
    topic = store.create_topic("late", config={"publish.formats": "delta"})
    topic.append(kafka(["a"]))
    topic.publish()
    watch = StoreWatch(store, ["late"])
    watch.samples()
    for number in range(2 * COMMITS_READ):
        topic.alter(config={"retention.bytes": 10_000_000 + number})
    topic.append(kafka(["b"]))
    for _ in range(2):  # the new commits are read once, or twice
        clock.tick(AROUND_MS)
        watch.samples()
    clock.tick(AROUND_MS)
    late = scrape(far, watch).requests["read"]
    topic.publish()
    for _ in range(2):
        clock.tick(AROUND_MS)
        quiet = scrape(far, watch).requests["read"]
    assert late - quiet <= COMMITS_READ + 1


@pytest.mark.parametrize("appends", [10, 500])
def test_a_scrape_costs_the_same_for_larger_topics(
    far: WiredStore, store: Store, clock: Clock, appends: int
) -> None:
    topic = store.create_topic("large", 6)
    for _ in range(appends):
        topic.append(kafka(["a", "b"]))
    topic.group("g").commit({0: 1})
    watch = StoreWatch(store, ["large"])
    watch.samples()
    clock.tick(AROUND_MS)
    assert scrape(far, watch).requests in ({"read": 2, "list": 1}, {"read": 2, "list": 2})
