"""What totals tell costs what opening the topic costs, however many segments there are, in leaves
or not, in files or in commits [ROOT-5], [INL-7]."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import pyarrow as pa
import pytest

from benchmarks.generate import RECORDS, grow
from pylogtable.errors import InvalidRequestError
from pylogtable.limits import DEFAULT_LIMITS
from pylogtable.runtime import Runtime
from pylogtable.store import Store
from pylogtable.topic import Topic
from tests.cost.calls import calls_of
from tests.stores import CountingStore, FarStore

PARTITIONS = 4
SEGMENTS_PER_COMMIT = 20


@dataclass
class Grown:
    """A topic with `rounds` times 15 commits of files and one inline append. Then a log start has
    moved into a leaf, and another inline append has come."""

    rounds: int
    inner: FarStore = field(default_factory=lambda: FarStore(lambda: 0))

    def __post_init__(self) -> None:
        self.counting = CountingStore(self.inner)
        settings = {"inline.max.bytes": 16384, "retention.ms": -1}
        topic = Store(self.inner, Runtime()).create_topic("t", PARTITIONS, config=settings)
        for _ in range(self.rounds):
            topic.append(_records())
            grow(topic, 15, SEGMENTS_PER_COMMIT)
        topic.delete_records({0: 10 * RECORDS})
        topic.append(_records())

    def open(self) -> Topic:
        return Topic("t", self.counting.below("t"), Runtime())

    def cost(self, action: Callable[[], object]) -> tuple[dict[str, int], int]:
        """The requests of an action, by verb, and the bytes that came back."""
        self.counting.reset()
        action()
        keys = self.counting.by_key.items()
        size = sum(len(self.inner.read(key) or b"") * count for (_, key), count in keys)
        return dict(self.counting.counts), size


def _records() -> pa.Table:
    numbers = list(range(PARTITIONS))
    keys = [b"k%d" % number for number in numbers]
    return pa.table({"partition": pa.array(numbers, pa.int32()), "key": keys, "value": keys})


@pytest.fixture(scope="module")
def topics() -> tuple[Grown, Grown]:
    interval = DEFAULT_LIMITS.root_interval
    return Grown(2 * interval // 16), Grown(8 * interval // 16)


ACTIONS: dict[str, Callable[[Topic], object]] = {
    "describe": lambda topic: topic.describe(),
    "html": lambda topic: topic._repr_html_(),
    "partitions": lambda topic: topic.at().partitions(),
}


@pytest.mark.parametrize("action", ACTIONS)
def test_a_description_costs_what_opening_costs_at_any_size(
    topics: tuple[Grown, Grown], action: str
) -> None:
    found, calls = [], []
    for grown in topics:
        opened = grown.open()
        warm, size = grown.cost(lambda opened=opened: ACTIONS[action](opened))
        assert (warm, size) == ({"read": 1}, 0)  # whether there is a newer commit
        cold, cold_bytes = grown.cost(lambda grown=grown: ACTIONS[action](grown.open()))
        opening, opening_bytes = grown.cost(grown.open)
        assert cold == {"read": opening["read"] + 1}
        assert cold_bytes == opening_bytes
        found.append(cold)
        calls.append(calls_of(lambda opened=opened: ACTIONS[action](opened)))
    assert found[0] == found[1]
    assert calls[1] <= 1.1 * calls[0]


def _refused(action: Callable[[], object]) -> None:
    with pytest.raises(InvalidRequestError, match=r"without a file"):
        action()


LOOKS: dict[str, Callable[[Topic], object]] = {
    "count": lambda topic: topic.count(),
    "sizes": lambda topic: topic.at().range_sizes({1: (0, topic.end_offsets()[1])}),
    "offset": lambda topic: topic.at().offset_after_records(1, 0, 10 * RECORDS),
    "newest": lambda topic: topic.at().max_timestamp_offsets(),
    "retention": lambda topic: topic.apply_retention(),
    "files": lambda topic: _refused(topic.files),
}


@pytest.mark.parametrize("look", LOOKS)
def test_other_looks_load_no_leaf_that_totals_and_runs_make_up_for(
    topics: tuple[Grown, Grown], look: str
) -> None:
    for grown in topics:
        opened = grown.open()
        grown.cost(lambda opened=opened: LOOKS[look](opened))
        leaves = {key for _, key in grown.counting.by_key if "/leaf-" in key}
        # A log start cuts a segment, and only its entry tells how many records are below.
        assert len(leaves) == (look == "count")


def test_the_numbers_are_right(topics: tuple[Grown, Grown]) -> None:
    for grown in topics:
        assert sum("/leaf-" in entry.key for entry in grown.inner.list("t/"))
        described = grown.open().describe()
        # The log start has passed one inline segment.
        assert described.inline_segments == (grown.rounds + 1) * PARTITIONS - 1
        assert described.inline_records == described.inline_segments
        paths = grown.open().segments()["path"].to_pylist()
        assert described.inline_segments == sum("@" in path for path in paths)
