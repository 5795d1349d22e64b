"""Log compaction, case by case as Kafka's own tests have them, and our additions."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pytest

from pylogtable import InvalidRequestError, Store, Topic
from pylogtable.engine import Compaction, Rewritten, Worker, plan_append, run_job
from pylogtable.format.model import Change
from pylogtable.storage.memory import MemoryStore
from tests.builders import Clock, data_files, kafka, make_store, rows, times
from tests.stores import CountingStore

pytestmark = pytest.mark.records_in("commits", "files")

COMPACT = {"cleanup.policy": "compact"}
HOUR = 3_600_000


def records(topic: Topic) -> list[tuple[str | None, str | None, int]]:
    """`(key, value, offset)` of all that can be read."""
    return [
        (k and k.decode(), v if v is None else v.decode(), o)
        for k, v, o in rows(
            topic.read(columns=["key", "value", "offset"]), "key", "value", "offset"
        )
    ]


def put(topic: Topic, *pairs: tuple[str | None, str | None], **columns: Any) -> None:
    topic.append(kafka([k for k, _ in pairs], [v for _, v in pairs], **columns))


@pytest.fixture
def topic(store: Store) -> Topic:
    return store.create_topic("t", config=COMPACT)


def test_newest_record_of_each_key_is_kept_at_its_offset(topic: Topic) -> None:
    topic.append(kafka(["0", "1", "0", "1", "0"]))
    report = topic.compact()
    assert records(topic) == [("1", "3", 3), ("0", "4", 4)]
    assert (report.records_in, report.records_removed) == (5, 3)
    assert topic.end_offsets() == {0: 5}
    assert rows(topic.read(start=0), "offset") == [3, 4]
    assert topic.append(kafka(["2"])).offsets == {0: (5, 6)}
    assert topic.verify(data=True)


@pytest.mark.parametrize("budget", [200, 2000, 1 << 30])
def test_a_small_budget_gives_the_same_result_in_more_passes(store: Store, budget: int) -> None:
    chance = random.Random(budget)
    topic = store.create_topic("t", partitions=2, config=COMPACT)
    last: dict[str, str] = {}
    for round_number in range(4):
        keys = [str(chance.randrange(40)) for _ in range(100)]
        values = [f"{round_number}-{n}" for n in range(100)]
        topic.append(kafka(keys, values))
        last.update(zip(keys, values, strict=True))
        topic.compact(force=True, budget_bytes=budget)
        assert {k: v for k, v, _ in records(topic)} == last
        assert len(records(topic)) == len(last)
    assert topic.verify(data=True)


def times_opened(measured: CountingStore, path: str = "") -> int:
    opened = {key: n for (verb, key), n in measured.by_key.items() if verb == "open_input"}
    return sum(many for key, many in opened.items() if key.endswith(path))


def test_budget_smaller_than_a_key_needs_a_pass_for_each_record_at_most() -> None:
    measured = CountingStore(MemoryStore())
    topic = make_store(measured).create_topic("t", config=COMPACT)
    topic.append(kafka(["a", "b", "a", "c"]))
    measured.reset()
    assert topic.compact(force=True, budget_bytes=1).records_removed == 1
    # Once for the size of a key, once for each of 4 slices, and once to read what is kept.
    assert times_opened(measured) <= 6


def test_segment_without_records_does_not_hide_how_large_keys_are() -> None:
    measured = CountingStore(MemoryStore())
    topic = make_store(measured, in_files=True).create_topic("t", config=COMPACT)
    topic.append(kafka(["a"]))
    topic.append(kafka([f"{n:01000d}" for n in range(20)]))
    topic.erase(keys=["a"])
    assert rows(topic.segments(), "records") == [0, 20]
    large = rows(topic.segments(), "path")[1]
    measured.reset()
    topic.compact(force=True, budget_bytes=11_000)  # about half of the keys
    # Once for the size of a key, and once for each of 2 slices.
    assert times_opened(measured, large) == 3


def test_segments_that_are_too_young_are_not_compacted(store: Store, clock: Clock) -> None:
    config = {**COMPACT, "min.compaction.lag.ms": HOUR}  # cases 4, 6 and 7
    topic = store.create_topic("t", config=config)
    for _ in range(3):
        put(topic, ("a", "old"), ("b", "old"))
    clock.tick(HOUR // 2)
    assert topic.compact(force=True).units == 0
    clock.tick(HOUR // 2 + 1)
    put(topic, ("a", "new"), ("b", "new"))
    before = topic.segments().to_pylist()[-1]
    topic.compact()
    assert records(topic) == [("a", "old", 4), ("b", "old", 5), ("a", "new", 6), ("b", "new", 7)]
    assert topic.segments().to_pylist()[-1] == before
    assert topic.at().snapshot.partitions[0].clean_end == 6


def test_segment_exactly_at_the_lag_is_compacted(store: Store, clock: Clock) -> None:
    topic = store.create_topic("t", config={**COMPACT, "min.compaction.lag.ms": HOUR})
    put(topic, ("a", "1"), ("a", "2"))
    clock.tick(HOUR - 1)
    assert topic.compact().units == 0
    clock.tick()
    assert topic.compact().records_removed == 1


def test_without_a_lag_records_of_the_future_are_compacted(topic: Topic) -> None:
    put(topic, ("a", "1"), ("a", "2"), timestamp=times(HOUR, HOUR))
    assert topic.compact().records_removed == 1


@pytest.mark.records_in("files")
def test_tombstone_is_kept_from_its_first_compaction_on(topic: Topic, clock: Clock) -> None:
    put(topic, ("0", "0"), timestamp=times(10**9))  # record time must not matter
    topic.compact()
    put(topic, ("0", None), timestamp=times(-(10**9)))
    topic.compact()
    assert records(topic) == [("0", None, 1)]
    put(topic, ("1", "1"))
    topic.compact(force=True)
    assert records(topic) == [("0", None, 1), ("1", "1", 2)]
    clock.tick(86_400_000 - 1)
    topic.compact(force=True)
    assert ("0", None, 1) in records(topic)
    clock.tick(1)
    report = topic.compact()
    assert records(topic) == [("1", "1", 2)]
    assert report.records_removed == 1


def test_delete_horizon_is_set_once(topic: Topic, clock: Clock) -> None:
    put(topic, ("a", "1"), ("b", "1"))
    put(topic, ("a", None))
    topic.compact()
    first = [s["delete_horizon_ms"] for s in topic.segments().to_pylist() if s["tombstones"]]
    clock.tick(HOUR)
    put(topic, ("c", None), ("b", "2"))
    topic.compact(force=True)
    topic.merge()
    horizons = [s["delete_horizon_ms"] for s in topic.segments().to_pylist() if s["tombstones"]]
    assert horizons == [*first, first[0] + HOUR]


def test_no_deleted_key_keeps_a_value(topic: Topic) -> None:
    topic.append(kafka([str(n) for n in range(20)]))
    put(topic, *[(str(n), None) for n in range(0, 20, 2)])
    topic.append(kafka(["pad"]))
    topic.compact()
    assert not [k for k, v, _ in records(topic) if k != "pad" and v and int(k or 0) % 2 == 0]


def test_an_expired_tombstone_is_not_dropped_before_what_it_deletes(
    topic: Topic, clock: Clock
) -> None:
    """A value appended after a clean is deleted by a later tombstone, however old the others."""
    put(topic, ("a", None))
    topic.compact()
    clock.tick(2 * 86_400_000)
    put(topic, ("a", "1"))
    put(topic, ("a", None))
    topic.compact()
    assert records(topic) == [("a", None, 2)]


@pytest.mark.records_in("files")
def test_clean_part_grows_past_holes(topic: Topic) -> None:
    topic.append(kafka(["a"] * 10))
    topic.compact()
    topic.append(kafka(["b"] * 10))
    topic.compact()
    assert topic.at().snapshot.partitions[0].clean_end == 20
    assert rows(topic.read(), "offset") == [9, 19]


@pytest.mark.parametrize(("ratio", "cleans"), [("0.5", False), ("0.49", True)])
def test_the_dirty_ratio_must_be_exceeded(store: Store, ratio: str, cleans: bool) -> None:
    topic = store.create_topic("t", config={**COMPACT, "min.cleanable.dirty.ratio": "0"})
    put(topic, ("a", "1"))
    topic.compact()
    put(topic, ("b", "1"))
    sizes = topic.segments()["size_bytes"].to_pylist()
    assert sizes[0] == sizes[1]
    topic.alter(config={"min.cleanable.dirty.ratio": ratio})
    assert (topic.compact().units == 1) is cleans


def test_partition_that_is_dirty_for_too_long_is_compacted(store: Store, clock: Clock) -> None:
    config = {**COMPACT, "min.cleanable.dirty.ratio": "1", "max.compaction.lag.ms": HOUR}
    topic = store.create_topic("t", config=config)
    put(topic, ("a", "1"), ("a", "2"))
    assert topic.compact().units == 0
    clock.tick(HOUR + 1)
    assert topic.compact().records_removed == 1


def test_compaction_begins_at_the_log_start(store: Store) -> None:
    topic = store.create_topic("t", config={"cleanup.policy": "compact,delete"})
    topic.append(kafka(["a", "b", "a", "c"]))
    topic.delete_records({0: 1})
    topic.compact()
    assert rows(topic.read(), "offset") == [1, 2, 3]
    assert topic.verify(data=True)


def test_records_without_a_key_are_removed_when_the_topic_becomes_compacted(store: Store) -> None:
    topic = store.create_topic("t")
    put(topic, (None, "x"), ("a", "1"), (None, "y"), ("b", "1"))
    with pytest.warns(UserWarning, match="the next compaction removes them"):
        topic.alter(config=COMPACT)
    report = topic.compact()
    assert records(topic) == [("a", "1", 1), ("b", "1", 3)]
    assert report.records_removed == 2


def test_segment_that_keeps_all_records_is_not_rewritten(
    topic: Topic, objects: MemoryStore
) -> None:
    put(topic, ("a", "1"), ("b", "1"))
    put(topic, ("c", "1"))
    before = data_files(objects)
    assert topic.compact().segments_out == 0
    assert data_files(objects) == before
    assert topic.at().snapshot.partitions[0].clean_end == 3
    assert topic.compact(force=True).units == 0


def test_partition_that_loses_all_records_keeps_its_offsets(topic: Topic, clock: Clock) -> None:
    put(topic, ("a", "1"))
    put(topic, ("a", None))
    topic.compact()
    clock.tick(86_400_000)
    topic.compact()
    assert records(topic) == []
    assert topic.end_offsets() == {0: 2}
    assert topic.start_offsets() == {0: 0}
    assert topic.append(kafka(["b"])).offsets == {0: (2, 3)}
    assert records(topic) == [("b", "0", 2)]
    assert topic.verify(data=True)


def test_compact_and_delete_drops_expired_rows_exactly(store: Store, clock: Clock) -> None:
    config = {"cleanup.policy": "compact,delete", "retention.ms": HOUR}
    topic = store.create_topic("t", config=config)
    put(topic, ("a", "1"), ("b", "1"), ("c", "1"), timestamp=times(0, 1, HOUR))
    clock.tick(HOUR + 1)
    assert topic.apply_retention().records_removed == 0
    topic.compact()
    assert records(topic) == [("b", "1", 1), ("c", "1", 2)]


def test_two_compactors_at_once_do_no_harm(store: Store) -> None:
    topic = store.create_topic("t", config=COMPACT)
    topic.append(kafka(["a", "a", "b"]))

    def run_units(worker: Worker, units: Sequence[Any]) -> list[Rewritten]:
        rewritten = [worker(unit) for unit in units]
        topic.compact()
        return rewritten

    report = run_job(store.topic("t"), Compaction(), run_units)
    assert (report.units, report.skipped) == (0, 1)
    assert records(topic) == [("a", "1", 1), ("b", "2", 2)]
    assert topic.verify(data=True)


def test_an_append_during_a_compaction_is_kept(store: Store) -> None:
    topic = store.create_topic("t", config=COMPACT)
    topic.append(kafka(["a", "a", "b"]))

    def run_units(worker: Worker, units: Sequence[Any]) -> list[Rewritten]:
        rewritten = [worker(unit) for unit in units]
        store.topic("t").append(kafka(["b"], ["later"]))
        return rewritten

    assert run_job(topic, Compaction(), run_units).units == 1
    assert records(topic) == [("a", "1", 1), ("b", "2", 2), ("b", "later", 3)]


def test_compaction_that_loses_a_race_leaves_no_file_behind(
    store: Store, objects: MemoryStore
) -> None:
    topic = store.create_topic("t", config=COMPACT)
    topic.append(kafka(["a", "a"]))
    before = set()

    def run_units(worker: Worker, units: Sequence[Any]) -> list[Rewritten]:
        store.topic("t").compact()
        before.update(data_files(objects))
        return [worker(unit) for unit in units]

    assert run_job(topic, Compaction(), run_units).skipped == 1
    assert set(data_files(objects)) == before


def test_only_compacted_topics_are_compacted(store: Store) -> None:
    with pytest.raises(InvalidRequestError, match=r"cleanup\.policy=delete"):
        store.create_topic("t").compact()


def test_several_key_columns_and_nulls_among_them(store: Store) -> None:
    schema = {"a": pa.int32(), "b": pa.string(), "v": pa.int64()}
    topic = store.create_topic("t", schema=schema, key=["a", "b"], config=COMPACT)
    topic.append(
        pa.table(
            {
                "a": pa.array([1, 1, 1, None], pa.int32()),
                "b": ["x", None, "x", "x"],
                "v": [1, 2, 3, 4],
            }
        )
    )
    topic.compact()
    assert rows(topic.read(), "v") == [2, 3, 4]


@pytest.mark.parametrize("clean_end", [0, 1, 9, 10, 11, 14, 15])
def test_segment_across_the_clean_end_replaces_older_records(topic: Topic, clean_end: int) -> None:
    """As another implementation may leave it: no key occurs twice below 15, and below 10 or above
    it a segment begins."""
    topic.append(kafka([f"k{n}" for n in range(10)]))
    topic.append(kafka([f"n{n}" for n in range(5)] + [f"k{n}" for n in range(5)]))
    if clean_end:
        topic._log.change(lambda _: Change(operation="compact", cleaned={0: clean_end}))
    assert topic.verify(data=True)
    expected = [*range(5, 20)]
    assert sorted(rows(topic.latest(), "offset")) == expected
    topic.compact(force=True)
    assert [offset for _, _, offset in records(topic)] == expected
    assert topic.at().snapshot.partitions[0].clean_end == 20
    assert topic.verify(data=True)


def test_the_newest_record_wins_over_shifted_segments(store: Store) -> None:
    topic = store.create_topic("t", config=COMPACT)
    one, two = (
        plan_append(topic).stage(kafka(["a"], ["1"])),
        plan_append(topic).stage(kafka(["a"], ["2"])),
    )
    plan_append(topic).commit([one, two])
    topic.compact()
    assert records(topic) == [("a", "2", 1)]
    assert topic.verify(data=True)


def test_the_report_is_in_the_history(topic: Topic) -> None:
    topic.append(kafka(["a", "a"]))
    topic.compact()
    newest = topic.history(1).to_pylist()[0]
    assert newest["operation"] == "compact"
    assert dict(newest["summary"]) == {"records_removed": 1}


def test_time_travel_sees_what_compaction_removed(topic: Topic) -> None:
    topic.append(kafka(["a", "a"]))
    version = topic.version
    topic.compact()
    assert topic.count(version=version) == 2
    assert topic.count() == 1


def test_compaction_that_takes_days_is_not_committed(
    store: Store, objects: MemoryStore, clock: Clock
) -> None:
    """Vacuum may have taken its files by then."""
    topic = store.create_topic("t", config=COMPACT)
    topic.append(kafka(["a", "a"]))
    before = data_files(objects)

    def run_units(worker: Worker, units: Sequence[Any]) -> list[Rewritten]:
        rewritten = [worker(unit) for unit in units]
        clock.tick(4 * 86_400_000)
        return rewritten

    report = run_job(topic, Compaction(), run_units)
    assert (report.units, report.skipped) == (0, 1)
    assert topic.count() == 2
    assert data_files(objects) == before
