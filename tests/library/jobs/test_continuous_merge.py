"""The merge of a loop: it comes back every few seconds, and writes no record often."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pylogtable import Store, Topic
from pylogtable.engine import Merge, in_threads, run_job
from pylogtable.jobs.merge_plan import MergeUnit, plan_continuous_merge
from pylogtable.jobs.work import Rewritten, Worker
from pylogtable.limits import DEFAULT_LIMITS
from pylogtable.read.plan import Span
from tests.builders import IN_FILES, make_store, rows

LEAST = DEFAULT_LIMITS.merge_least
AGAIN = Merge(is_regular=True, again_and_again=True)


def append(topic: Topic, count: int, partition: int = 0) -> None:
    numbers = pa.array([partition] * count, pa.int32())
    topic.append(pa.table({"value": [b"v"] * count, "partition": numbers}))


def merged(topic: Topic) -> tuple[int, int]:
    """Merge until nothing is left to do: how many records were written, in how many rounds."""
    records = rounds = 0
    while (report := run_job(topic, AGAIN, in_threads(1))).units:
        records += report.records_in
        rounds += 1
    return records, rounds


def test_few_small_segments_wait_for_more(store: Store) -> None:
    topic = store.create_topic("t", config=IN_FILES)
    for _ in range(LEAST - 1):
        append(topic, 5)
    assert merged(topic) == (0, 0)
    append(topic, 5)
    assert merged(topic) == (5 * LEAST, 1)
    assert topic.describe().segments == 1
    assert topic.verify(data=True)


def test_one_large_segment_is_not_written_again_for_a_few_small_ones(store: Store) -> None:
    topic = store.create_topic("t", config=IN_FILES)
    append(topic, 50_000)
    for _ in range(3 * LEAST):
        append(topic, 1)
        merged(topic)
    assert rows(topic.segments().select(["records"]), "records")[0] == 50_000


@given(
    sizes=st.lists(st.sampled_from([1, 2, 5, 9, 10, 40, 99, 100, 700, 3_000]), max_size=120),
    every=st.integers(1, 13),
)
def test_segments_stay_few_and_records_are_seldom_written_again(
    sizes: list[int], every: int
) -> None:
    topic = make_store().create_topic("t", config=IN_FILES)
    written = 0
    for number, size in enumerate(sizes):
        append(topic, size)
        if number % every == 0:
            written += merged(topic)[0]
    written += merged(topic)[0]
    powers = math.log10(max(10, sum(sizes))) + 1
    assert topic.describe().segments <= 2 * LEAST * powers
    assert written <= 3 * powers * sum(sizes)
    assert topic.count() == sum(sizes)


def test_records_in_commits_wait_until_they_are_worth_a_file(store: Store) -> None:
    topic = store.create_topic("t")
    for _ in range(DEFAULT_LIMITS.worth_segments - 1):
        append(topic, 1)
    assert merged(topic) == (0, 0)
    append(topic, 1)
    assert merged(topic) == (DEFAULT_LIMITS.worth_segments, 1)
    assert topic.describe().inline_segments == 0


def test_records_in_commits_of_a_published_topic_are_left_to_the_publication(store: Store) -> None:
    topic = store.create_topic("t", config={"publish.formats": "delta"})
    for _ in range(DEFAULT_LIMITS.worth_segments):
        append(topic, 1)
    assert merged(topic) == (0, 0)


@pytest.mark.parametrize("partitions", [1, 3])
def test_each_partition_is_merged_for_itself(store: Store, partitions: int) -> None:
    topic = store.create_topic("t", partitions, config=IN_FILES)
    for _ in range(LEAST):
        for partition in range(partitions):
            append(topic, 2, partition)
    merged(topic)
    assert [part.segments for part in topic.describe().partitions] == [1] * partitions
    assert topic.verify(data=True)


def test_only_the_newest_segments_are_looked_at(store: Store) -> None:
    """So the cost of a look does not grow with the topic."""
    topic = store.create_topic("t", config=IN_FILES)
    for _ in range(40):
        append(topic, 2)
    state = topic._log.latest_state()
    assert sum(len(unit.inputs) for unit in plan_continuous_merge(state)) == 40
    topic._store.limits = limits = type(state.limits)(merge_looks_back=12)
    state = type(state)(state.snapshot, state.load_leaf, limits)
    (unit,) = plan_continuous_merge(state)
    assert [segment.base_offset for segment in unit.inputs] == [*range(56, 80, 2)]


def data_files(topic: Topic) -> set[str]:
    return {entry.key for entry in topic._store.list() if entry.key.startswith("partition=")}


def test_all_partitions_are_one_commit_without_those_that_another_job_has_changed(
    store: Store,
) -> None:
    topic = store.create_topic("t", 3, config=IN_FILES)
    for partition in (0, 1, 2) * LEAST:
        append(topic, 5, partition)
    version = topic.describe().version

    def another_is_faster(worker: Worker, units: Sequence[MergeUnit]) -> list[Rewritten]:
        done = [worker(unit) for unit in units]
        store.topic("t").delete_records({1: 5})
        return done

    report = run_job(topic, AGAIN, another_is_faster)
    assert (report.units, report.skipped, report.partitions) == (2, 1, (0, 2))
    assert (report.segments_in, report.version) == (2 * LEAST, version + 2)
    files = {0: LEAST + 1, 1: LEAST, 2: LEAST + 1}  # those of partition 1 were written for nothing
    assert Counter(path.split("/")[0] for path in data_files(topic)) == {
        f"partition={number}": count for number, count in files.items()
    }
    assert topic.count() == 5 * (3 * LEAST - 1)
    assert topic.verify(data=True)


def test_nothing_is_committed_if_another_job_has_changed_all(store: Store) -> None:
    topic = store.create_topic("t", 2, config=IN_FILES)
    for partition in (0, 1) * LEAST:
        append(topic, 5, partition)

    def another_is_faster(worker: Worker, units: Sequence[MergeUnit]) -> list[Rewritten]:
        done = [worker(unit) for unit in units]
        store.topic("t").merge()
        return done

    report = run_job(topic, AGAIN, another_is_faster)
    assert (report.units, report.skipped) == (0, 2)
    assert len(data_files(topic)) == 2 * LEAST + 2
    assert topic.verify(data=True)


@pytest.mark.parametrize("is_published", [True, False])
def test_what_tables_show_by_their_own_copies_does_not_wait(
    store: Store, is_published: bool
) -> None:
    """Neighbours become one file; others stay in their commits, and where they are."""
    topic = store.create_topic("t", 2, config={"publish.formats": "delta"} if is_published else {})
    for _ in range(6):
        append(topic, 2)
        append(topic, 1, partition=1)
    state = topic._log.latest_state()
    copied = [Span(0, 8, 10), Span(0, 2, 4), Span(0, 4, 6), Span(1, 5, 6), Span(2, 0, 9)]
    units = plan_continuous_merge(state, copied)
    found = [(u.partition, [segment.base_offset for segment in u.inputs]) for u in units]
    assert found == [(0, [2, 4]), (0, [8]), (1, [5])]
    assert plan_continuous_merge(state) == []


def test_segment_is_joined_or_replaced_for_a_table_and_not_both(store: Store) -> None:
    topic = store.create_topic("t", config=IN_FILES)
    for _ in range(LEAST):
        append(topic, 2)
    topic.delete_records({0: 1})
    units = plan_continuous_merge(topic._log.latest_state(), [Span(0, 0, 2)])
    assert [len(unit.inputs) for unit in units] == [1]
