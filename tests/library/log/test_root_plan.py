"""Roots, leaves and the hint: their contents, their size, and what happens without them."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator
from dataclasses import replace

import pytest

from pylogtable.errors import TopicExistsError
from pylogtable.format.json_codec import encode
from pylogtable.format.leaf import Leaf, segments_of
from pylogtable.format.log_state import LogState
from pylogtable.format.model import Commit, Protocol, Segment, TopicInfo
from pylogtable.format.partition_state import LeafRun
from pylogtable.format.paths import segment_path
from pylogtable.format.roots import from_root, to_root
from pylogtable.format.schema import KAFKA_FIELDS
from pylogtable.format.snapshot import Snapshot, apply
from pylogtable.limits import DEFAULT_LIMITS, Limits
from pylogtable.log.manifest import Manifest
from pylogtable.log.root_plan import cut_leaves, entries_to_fold, leaves_to_merge, with_leaves
from pylogtable.storage.memory import MemoryStore
from pylogtable.store import Store
from tests.builders import contents, ints, kafka, make_store, rows
from tests.stores import CountingStore, FarStore

MIB = 1 << 20


FEW = Limits(tail_max=3, leaf_max=16, merge_width=2, runs_max=4)


class Grower:
    """Grows a snapshot by commits, without a store, and writes leaves as a writer does."""

    def __init__(self, partitions: int, limits: Limits = DEFAULT_LIMITS) -> None:
        self.limits = limits
        info = TopicInfo(fields=KAFKA_FIELDS, key=("key",), partitions=partitions, created_at_ms=0)
        create = Commit(
            operation="create",
            protocol=Protocol(format=1),
            topic=info,
            version=0,
            commit_id="c",
            topic_id="t",
            committed_at_ms=0,
        )
        self.snapshot: Snapshot = apply(None, create)
        self.leaves: dict[str, Leaf] = {}
        self.ids: Iterator[str] = (f"leaf{number:x}" for number in itertools.count())
        self.read = 0

    def leaf(self, leaf_id: str, checksum: str | None) -> Leaf:
        self.read += 1
        return self.leaves[leaf_id]

    @property
    def state(self) -> LogState:
        return LogState(self.snapshot, self.leaf, self.limits)

    def commit(self, partitions: list[int]) -> None:
        before = self.snapshot
        added = []
        for number in partitions:
            base = before.partitions[number].end
            added.append(
                Segment(
                    partition=number,
                    base_offset=base,
                    end_offset=base + 10,
                    records=10,
                    size_bytes=1234,
                    min_timestamp_us=1_700_000_000_000_000 + base,
                    max_timestamp_us=1_700_000_000_000_000 + base + 9,
                    path=segment_path(number, base, f"{before.version:032x}"),
                    hashed_over=len(before.partitions),
                )
            )
        commit = Commit(
            operation="append",
            version=before.version + 1,
            commit_id="c",
            topic_id="t",
            committed_at_ms=before.version + 1,
            add=tuple(added),
            ends={s.partition: s.end_offset for s in added},
        )
        self.snapshot = apply(before, commit)

    def fold(self) -> None:
        merged = leaves_to_merge(self.snapshot, self.limits)
        new = cut_leaves(entries_to_fold(self.state, merged), self.ids, self.limits)
        for leaf in new:
            assert leaf.table.num_rows <= self.limits.leaf_max
            self.leaves[leaf.id] = leaf
        self.snapshot = with_leaves(self.snapshot, merged, new)


@pytest.mark.parametrize("partitions", [1, 3, 10])
def test_moving_entries_into_leaves_loses_none_and_roots_round_trip(partitions: int) -> None:
    grower = Grower(partitions, FEW)
    chance = random.Random(partitions)
    for _ in range(120):
        grower.commit(sorted(chance.sample(range(partitions), chance.randint(1, partitions))))
        if chance.random() < 0.4:
            before = grower.state.entries()
            grower.fold()
            assert grower.state.entries().equals(before)
            root = to_root(grower.snapshot)
            rebuilt = replace(from_root(root), root_version=grower.snapshot.root_version)
            used = {leaf.id for leaf in root.leaves}
            leaves = {k: v for k, v in grower.snapshot.leaves.items() if k in used}
            assert rebuilt == replace(grower.snapshot, leaves=leaves)
    used = {
        tile.leaf
        for state in grower.snapshot.partitions
        for tile in state.tiles
        if isinstance(tile, LeafRun)
    }
    assert len(used) < len(grower.leaves)
    entries = sum(grower.snapshot.leaves[leaf] for leaf in used)
    assert len(used) <= entries / 4


def test_every_offset_is_found_in_a_leaf_or_in_the_tail() -> None:
    grower = Grower(3, FEW)
    for number in range(90):
        grower.commit([0, 1, 2])
        if number % 5 == 0:
            grower.fold()
    for partition in range(3):
        for offset in range(0, 900, 7):
            found = grower.state.segment_at(partition, offset)
            assert found is not None
            assert (found.partition, found.base_offset) == (partition, offset // 10 * 10)
    spans = list(grower.state.segments(1, 115, 351))
    assert [s.base_offset for s in spans] == list(range(110, 351, 10))


def test_a_lookup_loads_one_leaf() -> None:
    grower = Grower(2)
    for number in range(3000):
        grower.commit([0, 1])
        if number % 64 == 63:
            grower.fold()
    assert len(grower.snapshot.leaves) > 1
    grower.read = 0
    assert grower.state.segment_at(1, 12_345) is not None
    assert grower.read == 1
    grower.read = 0
    assert grower.state.segment_at(1, 29_999) is not None
    assert grower.read <= 1


def test_the_root_of_a_large_topic_stays_small() -> None:
    """2,000 partitions and 12,000 segments; each commit adds to a few partitions."""
    grower = Grower(2000)
    chance = random.Random(11)
    largest = 0
    for number in range(1, 601):
        grower.commit(sorted(chance.sample(range(2000), 20)))
        if number % 64 == 0:
            grower.fold()
            largest = max(largest, len(encode(to_root(grower.snapshot))))
    assert grower.snapshot.live.segments == 12_000
    assert largest < 1.2 * MIB
    assert grower.state.entries().num_rows == 12_000


def test_the_root_of_a_topic_with_wide_commits_stays_small() -> None:
    """2,000 partitions, each with a segment in every one of 40 commits: 80,000 segments."""
    grower = Grower(2000)
    for number in range(1, 41):
        grower.commit(list(range(2000)))
        if number % 8 == 0:
            grower.fold()
            assert len(encode(to_root(grower.snapshot))) < 1.2 * MIB
    assert grower.snapshot.live.segments == 80_000


def test_roots_come_every_64_commits_with_leaves_once_the_tails_are_long(
    store: Store, objects: MemoryStore
) -> None:
    topic = store.create_topic("t", partitions=2)
    for _ in range(200):
        topic.append(kafka(["a", "b"], partition=ints(0, 1)))
    names = sorted(contents(objects))
    roots = [int(n.split("/")[-1].split(".")[0]) for n in names if ".root." in n]
    assert roots == [64, 128, 192]
    assert [n for n in names if "leaf-" in n]
    assert objects.read("t/_manifest/_head.json") == b'{"root_version":192}'
    again = store.topic("t")
    assert again._log.manifest.state(again._log.known).entries().num_rows == 400
    assert len(rows(again.read())) == 400
    assert again.verify()


@pytest.mark.parametrize(
    "hint", [None, b"", b"{", b'{"root_version": 777}', b'{"root_version":null}']
)
@pytest.mark.parametrize("commits", [3, 150])
def test_the_hint_may_be_missing_corrupt_or_wrong(hint: bytes | None, commits: int) -> None:
    objects = MemoryStore()
    topic = make_store(objects).create_topic("t")
    for _ in range(commits):
        topic.append(kafka(["a"]))
    if hint is None:
        objects.delete("t/_manifest/_head.json")
    else:
        objects.write("t/_manifest/_head.json", hint)
    again = make_store(objects).topic("t")
    assert (again.version, again.count()) == (commits, commits)
    again.append(kafka(["b"]))
    assert topic.count() == commits + 1


def test_a_stale_hint_does_not_hide_a_topic_whose_first_commits_are_gone() -> None:
    """The hint names no root, and the commits that a reader would start with are removed."""
    objects = MemoryStore()
    topic = make_store(objects).create_topic("t")
    for _ in range(70):
        topic.append(kafka(["a"]))
    for version in range(60):
        objects.delete(f"t/_manifest/{version:020d}.json")
    objects.write("t/_manifest/_head.json", b'{"root_version":null}')
    assert make_store(objects).topic("t").count() == 70
    with pytest.raises(TopicExistsError):
        make_store(objects).create_topic("t")


@pytest.mark.parametrize("damage", [b"", b"{}", b"not json"])
def test_an_unreadable_root_is_ignored(damage: bytes) -> None:
    objects = MemoryStore()
    topic = make_store(objects).create_topic("t")
    for _ in range(140):
        topic.append(kafka(["a"]))
    objects.write(f"t/_manifest/{128:020d}.root.json", damage)
    again = make_store(objects).topic("t")
    assert again._log.known.root_version == 64
    assert again.count() == 140


def test_opening_takes_few_requests_and_no_listing_after_any_number_of_commits() -> None:
    costs = []
    for commits in (70, 300):
        counting = CountingStore(MemoryStore())
        topic = make_store(counting).create_topic("t")
        for _ in range(commits):
            topic.append(kafka(["a"]))
        counting.reset()
        again = make_store(counting).topic("t")
        assert again.end_offsets() == {0: commits}
        assert counting.counts["list"] == counting.counts["list_folders"] == 0
        behind = commits - (commits // 64) * 64
        costs.append(counting.counts["read"] - behind)
    assert max(costs) <= 7


def test_a_refresh_reads_only_new_commits() -> None:
    counting = CountingStore(FarStore(lambda: 0))
    topic = make_store(counting).create_topic("t")
    other = make_store(counting).topic("t")
    for _ in range(5):
        topic.append(kafka(["a"]))
    counting.reset()
    assert other.end_offsets() == {0: 5}
    assert counting.counts["read"] == 1 + 2 + 4  # in waves, to the first that is missing
    other.end_offsets()  # it asks for as many as it has just found, at once
    counting.reset()
    assert other.end_offsets() == {0: 5}
    assert counting.counts["read"] == 1
    assert counting.counts["list"] == 0


def test_a_long_lived_reader_moves_on_to_newer_roots(store: Store) -> None:
    writer, reader = store.create_topic("t"), store.topic("t")
    for number in range(400):
        writer.append(kafka(["a"]))
        if number % 50 == 0:
            assert reader.count() == number + 1
    assert reader.count() == 400
    known = reader._log.known
    assert (known.root_version or 0) >= 256
    assert len(known.partitions[0].tiles) < 200
    assert len(rows(reader.read())) == 400


def test_appending_costs_the_same_at_commit_50_and_at_commit_500() -> None:
    measured = CountingStore(FarStore(lambda: 0))
    topic = make_store(measured).create_topic("t")
    costs = {}
    for number in range(1, 502):
        measured.reset()
        topic.append(kafka(["a"]))
        if number in (50, 501):
            costs[number] = dict(measured.counts)
    assert costs[50] == costs[501]
    assert costs[50] == {"create": 1}


def test_a_manifest_keeps_few_leaves_in_memory() -> None:
    objects = MemoryStore().with_limits(Limits(leaves_cached=2, leaf_max=20, tail_max=10))
    topic = make_store(objects).create_topic("t")
    for _ in range(200):
        topic.append(kafka(["a"]))
    manifest = Manifest(objects.below("t"))
    snapshot = manifest.load()
    assert snapshot is not None
    assert len(snapshot.leaves) > 2
    assert len(segments_of(manifest.state(snapshot).entries())) == 200
    assert len(manifest.leaves._cached) == 2
