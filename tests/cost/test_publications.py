"""What a publication costs a process that publishes again and again, on a store that is far away.
Besides, each commit of others is read once."""

from __future__ import annotations

import random
from collections.abc import Callable

import pyarrow as pa
import pytest

from pylogtable.runtime import Runtime
from pylogtable.store import Store
from pylogtable.topic import Topic
from tests.builders import Clock
from tests.cost.round_trips import Cost, WiredStore

PARTITIONS = 6
BOTH = ["delta", "iceberg"]


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


def small_append(topic: Topic, partitions: int) -> None:
    numbers = pa.array(range(partitions), pa.int32())
    topic.append(pa.table({"partition": numbers, "value": [b"v"] * partitions}))


def costs(
    store: WiredStore,
    clock: Clock,
    append: Callable[[Topic], object],
    formats: list[str],
    rounds: int = 40,
    *,
    is_fresh: bool = False,
) -> list[Cost]:
    """Of publications that come each second; without the first ones, which make the table."""
    mine = opened(store, clock).create_topic("t", PARTITIONS)
    found = []
    for _ in range(rounds + 2):
        append(mine)
        clock.tick(1000)
        publisher = opened(store, clock).topic("t") if is_fresh else mine
        found.append(store.cost_of(lambda publisher=publisher: publisher.publish(formats)))
    return found[2:]


@pytest.mark.parametrize("touched", [1, PARTITIONS])
@pytest.mark.parametrize(
    ("formats", "requests", "round_trips"),
    [(["delta"], 5, 5), (["iceberg"], 8, 7), (BOTH, 10, 7)],
)
def test_a_publication_is_a_few_requests_and_a_file_for_each_partition(
    store: WiredStore,
    clock: Clock,
    formats: list[str],
    requests: int,
    round_trips: int,
    touched: int,
) -> None:
    """The look; the files; the commit that has them; then for Delta the entry and a look at the one
    before, and for Iceberg the manifest beside its list, the metadata file, a look at the one
    before, the hint. Checkpoints, roots of the topic and merges of manifests come now and then."""
    found = costs(store, clock, lambda topic: small_append(topic, touched), formats)
    totals = sorted(sum(cost.requests.values()) for cost in found)
    assert totals[0] == requests + touched - 1
    assert totals[len(found) // 2] == totals[0]
    assert sum(totals) / len(totals) <= totals[0] + 1
    assert totals[-1] <= totals[0] + 6
    assert sorted(cost.round_trips for cost in found)[len(found) // 2] <= round_trips
    assert not any(cost.requests["list"] or cost.requests["get"] for cost in found)


def test_commits_of_others_are_read_once(store: WiredStore, clock: Clock) -> None:
    def append(topic: Topic) -> None:
        other = opened(store, clock).topic("t")
        for _ in range(10):
            small_append(other, 1)

    found = costs(store, clock, append, BOTH, rounds=3)
    assert [sum(cost.requests.values()) for cost in found] == [20, 20, 20]


@pytest.mark.parametrize(("formats", "most"), [(["delta"], 12), (["iceberg"], 13), (BOTH, 21)])
def test_a_process_that_publishes_once_finds_the_table_in_few_requests(
    store: WiredStore, clock: Clock, formats: list[str], most: int
) -> None:
    found = costs(
        store, clock, lambda topic: small_append(topic, 1), formats, rounds=12, is_fresh=True
    )
    totals = sorted(sum(cost.requests.values()) for cost in found)
    assert totals[len(totals) // 2] <= most


# --- publish.view=latest -----------------------------------------------------------------------

KEYS = 20_000


def latest_costs(
    store: WiredStore,
    clock: Clock,
    formats: list[str],
    rounds: int,
    *,
    keys: int = 3,
    merges: bool = False,
) -> list[Cost]:
    """Of publications after new records of some keys, which come each second. Each partition gets
    more and more files, and their order says nothing about keys."""
    columns = {"key": pa.int64(), "v": pa.float64()}
    config = {"cleanup.policy": "compact", "publish.view": "latest"}
    topic = opened(store, clock).create_topic("t", 4, columns, "key", config=config)
    rng = random.Random(1)
    topic.append(pa.table({"key": list(range(KEYS)), "v": [1.0] * KEYS}))
    topic.publish(formats)
    found = []
    for number in range(rounds):
        topic.append(pa.table({"key": rng.sample(range(KEYS), keys), "v": [2.0] * keys}))
        clock.tick(1000)
        found.append(store.cost_of(lambda: topic.publish(formats)))
        if merges and number % 10 == 9:
            topic.merge()
    return found


@pytest.mark.parametrize("merges", [False, True])
@pytest.mark.parametrize(("formats", "median"), [(["delta"], 7), (["iceberg"], 14), (BOTH, 16)])
def test_the_newest_records_cost_what_is_new_and_not_all_files(
    store: WiredStore, clock: Clock, formats: list[str], median: int, merges: bool
) -> None:
    """Footers, Bloom filters and small files are read once. If each publication read them, and each
    format for itself, the second half would send 43 requests for Delta, and 88 for both."""
    found = latest_costs(store, clock, formats, 40, merges=merges)
    totals = [sum(cost.requests.values()) for cost in found]
    for half in (totals[:20], totals[20:]):
        assert sorted(half)[10] <= median
    assert sorted(cost.round_trips for cost in found)[20] <= 9
    # A file that was merged is read by one publication.
    assert sum(cost.requests["get"] for cost in found) <= (60 if merges else 10)


def test_vectors_of_a_table_are_removed_side_by_side(store: WiredStore, clock: Clock) -> None:
    """Its entries go one after the other, the newest first."""
    latest_costs(store, clock, ["delta"], 20, keys=1000)
    topic = opened(store, clock).topic("t")
    cost = store.cost_of(lambda: topic.unpublish())
    entries, checkpoints, vectors = 21, 3, 21
    assert cost.requests["delete"] >= entries + checkpoints + vectors
    assert cost.round_trips < entries + checkpoints + 20
