"""Erase: chosen records go, all others stay as they are, whatever runs beside it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from pylogtable import CommitConflictError, EraseReport, InvalidRequestError, Topic
from pylogtable.engine import (
    Compaction,
    Erasure,
    Merge,
    Rewritten,
    RunUnits,
    Worker,
    plan_append,
    run_job,
)
from pylogtable.format.leaf import segments_of
from pylogtable.format.model import Segment
from pylogtable.limits import Limits
from pylogtable.storage.memory import MemoryStore
from tests.builders import (
    IN_FILES,
    Clock,
    data_files,
    fill,
    ints,
    kafka,
    limited,
    make_store,
    rows,
    times,
)
from tests.stores import CountingStore, Fault, FaultyStore

pytestmark = pytest.mark.records_in("commits", "files")

DAY_MS = 86_400_000


@pytest.fixture
def inner() -> MemoryStore:
    return MemoryStore()


@pytest.fixture
def topic(inner: MemoryStore, clock: Clock, in_files: bool) -> Topic:
    """Four segments in each of two partitions: a, b and a key of its own."""
    topic = make_store(inner, clock, in_files=in_files).create_topic("t", partitions=2)
    for number in range(4):
        for partition in (0, 1):
            add(topic, ["a", "b", f"own-{number}"], partition, number)
    return topic


def add(topic: Topic, keys: Sequence[str], partition: int, number: int = 0) -> None:
    table = kafka(keys, [f"{number}"] * len(keys), timestamp=times(*[number] * len(keys)))
    topic.append(table.append_column("partition", ints(*[partition] * len(keys))))


def all_rows(topic: Topic, version: int | None = None) -> list[dict[str, Any]]:
    return rows(topic.read(version=version))


def live(topic: Topic) -> list[Segment]:
    return segments_of(topic.segments())


class TestWhatIsErased:
    def test_all_records_of_a_key_go_and_others_keep_everything(self, topic: Topic) -> None:
        before = all_rows(topic)
        report = topic.erase(keys=["a"])
        assert all_rows(topic) == [row for row in before if row["key"] != b"a"]
        assert topic.latest(keys=["a", "b"]).num_rows == 1
        assert (report.records_erased, report.partitions) == (8, {0: 4, 1: 4})
        assert (report.segments_in, report.segments_out) == (8, 8)
        assert topic.count() == 16
        assert topic.verify(data=True)

    def test_offsets_log_starts_and_ends_stay(self, topic: Topic) -> None:
        topic.delete_records({0: 2})
        before = topic.start_offsets(), topic.end_offsets()
        topic.erase(keys=["a", "b"])
        assert (topic.start_offsets(), topic.end_offsets()) == before
        assert rows(topic.read(), "partition", "offset")[:2] == [(0, 2), (0, 5)]

    def test_a_condition_selects_by_any_column(self, topic: Topic) -> None:
        before = all_rows(topic)
        in_time = pa.scalar(before[6]["timestamp"])
        where = (pc.field("partition") == 1) & (pc.field("timestamp") >= in_time)
        report = topic.erase(where=where & (pc.field("offset") < 9))
        gone = [
            row
            for row in before
            if row["partition"] == 1
            and row["timestamp"] >= before[6]["timestamp"]
            and row["offset"] < 9
        ]
        assert len(gone) == 3
        assert report.records_erased == 3
        assert all_rows(topic) == [row for row in before if row not in gone]
        assert topic.verify(data=True)

    def test_null_is_not_true(self, clock: Clock) -> None:
        topic = make_store(clock=clock).create_topic("t", schema={"n": pa.int64()})
        topic.append(pa.table({"n": pa.array([1, None, 3], pa.int64())}))
        assert topic.erase(where=pc.field("n") != 3).records_erased == 1
        assert rows(topic.read(), "n") == [None, 3]

    def test_columns_named_by_position_are_those_of_a_read(self, topic: Topic) -> None:
        assert topic.schema.names[1] == "offset"
        report = topic.erase(where=pc.field(1) == 4)
        assert report.partitions == {0: 1, 1: 1}
        assert topic.erase(where=pc.field("offset") == 4).records_erased == 0

    def test_a_renamed_column_is_meant_by_its_name_now(self, clock: Clock) -> None:
        schema = {"n": pa.int64(), "m": pa.int64()}
        topic = make_store(clock=clock).create_topic("t", schema=schema)
        topic.append(pa.table({"n": [1, 2], "m": [2, 1]}))
        topic.alter(rename_columns={"n": "m", "m": "n"})
        topic.erase(where=pc.field("n") == 1)
        assert rows(topic.read(), "offset", "n", "m") == [(0, 2, 1)]

    def test_an_older_record_of_a_key_may_be_the_newest_after_a_condition(
        self, topic: Topic
    ) -> None:
        topic.erase(where=(pc.field("key") == b"a") & (pc.field("offset") == 9))
        newest = topic.latest(keys=["a"]).to_pylist()[0]
        assert (newest["partition"], newest["offset"]) in {(0, 6), (1, 6)}

    def test_a_partition_that_loses_all_records_keeps_its_offsets(self, topic: Topic) -> None:
        topic.erase(where=pc.field("partition") == 0)
        assert rows(topic.read(0)) == []
        assert topic.end_offsets() == {0: 12, 1: 12}
        add(topic, ["new"], 0)
        assert rows(topic.read(0), "offset") == [12]
        topic.merge()
        assert rows(topic.read(0), "offset") == [12]
        assert topic.verify(data=True)

    @pytest.mark.records_in("files")
    def test_records_below_the_log_start_go_from_live_files_too(
        self, topic: Topic, inner: MemoryStore
    ) -> None:
        """Nobody can read them, so they do not count. But their file would keep them for years."""
        topic.delete_records({0: 1})  # the record at 0 has the key a
        (cut, *_) = live(topic)
        assert (cut.partition, cut.records) == (0, 3)
        report = topic.erase(where=(pc.field("partition") == 0) & (pc.field("offset") == 0))
        assert (report.records_erased, report.segments_in) == (0, 1)
        assert report.old_files == (cut.path,)
        assert topic.count() == 23
        assert live(topic)[0].records == 2
        assert topic.verify(data=True)

    def test_a_large_segment_that_the_log_start_cuts_is_split_above_it(self, clock: Clock) -> None:
        store = make_store(clock=clock, limits=Limits(row_group_rows=3))
        topic = store.create_topic("t")
        topic.append(kafka([f"{n}" for n in range(30)]))
        topic.alter(config={"segment.bytes": 14})
        topic.delete_records({0: 11})
        report = topic.erase(keys=["2", "20"])
        assert report.segments_out > 1
        assert rows(topic.read(), "offset") == [n for n in range(11, 30) if n != 20]
        assert topic.verify(data=True)

    def test_nothing_is_written_where_nothing_matches(self, topic: Topic) -> None:
        version = topic.version
        report = topic.erase(keys=["nobody"])
        assert (report.records_erased, report.old_files, report.held_to) == (0, (), None)
        assert topic.erase(keys=[]).segments_searched == 0
        assert topic.version == version

    def test_a_dry_run_finds_the_same_and_changes_nothing(
        self, topic: Topic, inner: MemoryStore
    ) -> None:
        before = data_files(inner), topic.version
        dry = topic.erase(keys=["a"], dry_run=True)
        assert (data_files(inner), topic.version) == before
        assert dry.dry_run
        done = topic.erase(keys=["a"])
        assert (dry.records_erased, dry.partitions) == (done.records_erased, done.partitions)
        assert (dry.segments_in, dry.bytes_in) == (done.segments_in, done.bytes_in)
        assert dry.old_files == done.old_files

    def test_the_log_says_erase(self, topic: Topic) -> None:
        topic.erase(keys=["own-1"])
        newest = topic.history(1).to_pylist()[0]
        assert newest["operation"] == "erase"
        assert dict(newest["summary"]) == {"records_removed": 1}


class TestReadersGoOn:
    def test_a_group_goes_on_at_its_position_over_the_holes(self, topic: Topic) -> None:
        with topic.consumer("g", max_records=4) as consumer:
            consumer.poll()
            consumer.commit()
        positions = topic.group("g").positions()
        topic.erase(keys=["a"])
        assert topic.group("g").positions() == positions
        left = rows(topic.read(start=positions), "partition", "offset")
        assert topic.group("g").lag().records == len(left)
        with topic.consumer("g") as consumer:
            found = [row for batch in consumer for row in rows(batch, "partition", "offset")]
        assert sorted(found) == sorted(left)

    def test_an_open_read_and_an_older_version_finish_what_they_began(self, topic: Topic) -> None:
        view, reader = topic.at(), topic.read()
        before = all_rows(topic)
        topic.erase(keys=["a"])
        assert rows(reader) == before
        assert rows(view.read()) == before
        assert all_rows(topic, view.version) == before

    def test_offsets_for_a_time_are_those_of_records_that_are_left(self, topic: Topic) -> None:
        when = rows(topic.read(0, start=6, end=7), "timestamp")[0]
        assert topic.offsets_for_time(when) == {0: 6, 1: 6}
        topic.erase(keys=["a"])
        assert topic.offsets_for_time(when) == {0: 7, 1: 7}


class TestSegmentsKeepTheirMarks:
    def test_promises_and_timestamp_types_stay(self, clock: Clock) -> None:
        config = {"message.timestamp.type": "LogAppendTime"}
        topic = make_store(clock=clock).create_topic("t", partitions=3, config=config)
        fill(topic)
        topic.erase(keys=["c1", "a"])
        assert {segment.hashed_over for segment in live(topic)} == {3}
        assert all(segment.append_time for segment in live(topic))
        assert topic.verify(data=True)

    @pytest.mark.records_in("files")
    def test_shifted_segments_become_sealed_at_their_offsets(self, topic: Topic) -> None:
        parts = [
            plan_append(topic).stage(kafka(["a", key], partition=ints(0, 0))) for key in ("z", "y")
        ]
        plan_append(topic).commit(parts)
        assert any(segment.shift for segment in live(topic))
        topic.erase(keys=["a"])
        assert not any(s.shift for s in live(topic) if s.partition == 0)
        assert rows(topic.read(0, start=12), "offset", "key") == [(13, b"z"), (15, b"y")]

    def test_clean_parts_stay_clean_and_dirty_ones_dirty(self, clock: Clock) -> None:
        config = {"cleanup.policy": "compact"}
        topic = make_store(clock=clock).create_topic("t", config=config)
        fill(topic)
        topic.compact(force=True)
        topic.append(kafka(["a", "c0", "c0"]))
        topic.erase(keys=["b"])
        assert topic.at().snapshot.partitions[0].clean_end == 12
        assert topic.compact(force=True).records_removed == 3
        assert rows(topic.latest(), "key") == rows(topic.read(), "key")
        assert topic.verify(data=True)

    def test_tombstones_that_stay_keep_their_time(self, clock: Clock) -> None:
        config = {"cleanup.policy": "compact", "delete.retention.ms": 1000}
        topic = make_store(clock=clock).create_topic("t", config=config)
        topic.append(kafka(["a", "b", "c"], [None, None, "1"]))
        topic.compact(force=True)
        horizon = clock() + 1000
        clock.tick(500)
        topic.erase(keys=["a"])
        assert [(s.tombstones, s.delete_horizon_ms) for s in live(topic)] == [(1, horizon)]
        topic.erase(keys=["b"])
        assert [(s.tombstones, s.delete_horizon_ms) for s in live(topic)] == [(0, None)]
        assert topic.verify(data=True)

    def test_columns_of_all_times_are_kept(self, clock: Clock) -> None:
        topic = make_store(clock=clock).create_topic(
            "t", schema={"k": pa.string(), "n": pa.int32(), "gone": pa.string()}, key=["k"]
        )
        topic.append(pa.table({"k": ["x", "y"], "n": ints(1, 2), "gone": ["g", "g"]}))
        topic.alter(widen_columns={"n": pa.int64()}, add_columns={"note": pa.string()})
        topic.append(pa.table({"k": ["x", "y"], "n": [2**40, 3], "note": ["p", "q"]}))
        topic.alter(drop_columns=["gone"], rename_columns={"note": "remark"})
        topic.erase(keys=["x"])
        assert rows(topic.read(), "k", "n", "remark") == [("y", 2, None), ("y", 3, "q")]
        assert topic.verify(data=True)


class TestOnlyWhatIsNeededIsRead:
    def test_only_files_that_may_have_the_key_are_opened(self, clock: Clock) -> None:
        """Partitions by the promise of their segments, row groups by Bloom filters."""
        counting = CountingStore(MemoryStore())
        topic = make_store(counting, clock).create_topic("t", partitions=4, config=IN_FILES)
        for number in range(6):
            topic.append(kafka([f"k{number}-{n}" for n in range(200)]))
        counting.reset()
        report = topic.erase(keys=["k3-7"])
        assert report.records_erased == 1
        # One partition, and of its six files the values of one.
        assert report.segments_searched == 6
        assert len(counting.opened) == 6
        (rewritten,) = report.old_files
        others = [path for path in counting.opened if not path.endswith(rewritten)]
        assert all(counting.by_key["get", path] <= 2 for path in others)

    def test_conditions_on_the_logs_columns_are_decided_by_the_manifest(self, clock: Clock) -> None:
        counting = CountingStore(MemoryStore())
        topic = make_store(counting, clock).create_topic("t", partitions=4, config=IN_FILES)
        for number in range(5):
            add(topic, ["a", "b"], number % 4, number)
        counting.reset()
        where = (pc.field("partition") == 0) & (pc.field("offset") < 2) & (pc.field("key") == b"a")
        assert topic.erase(where=where).segments_searched == 1
        assert len(counting.opened) == 1
        counting.reset()
        late = pa.scalar(rows(topic.read(), "timestamp")[-1])
        assert topic.erase(where=pc.field("timestamp") > late, dry_run=True).segments_searched == 1

    def test_a_condition_reads_only_its_columns(self, clock: Clock) -> None:
        counting = CountingStore(MemoryStore())
        schema = {"n": pa.int64(), "large": pa.binary()}
        topic = make_store(counting, clock).create_topic("t", schema=schema)
        topic.append(pa.table({"n": [1, 2], "large": [bytes(range(256)) * 4000] * 2}))
        counting.reset()
        assert topic.erase(where=pc.field("n") == 3).records_erased == 0
        assert sum(counting.bytes_read.values()) < 10_000


class TestWrongRequests:
    def test_keys_or_a_condition(self, topic: Topic) -> None:
        for asked in ({}, {"keys": ["a"], "where": pc.field("key") == b"a"}):
            with pytest.raises(InvalidRequestError, match="exactly one"):
                topic.erase(**asked)

    def test_topic_without_a_key_has_no_keys(self, clock: Clock) -> None:
        topic = make_store(clock=clock).create_topic("t", schema={"n": pa.int64()})
        with pytest.raises(InvalidRequestError, match="no key columns"):
            topic.erase(keys=[1])

    def test_keys_of_another_type(self, topic: Topic) -> None:
        with pytest.raises(InvalidRequestError, match="do not fit key column"):
            topic.erase(keys=[7])
        with pytest.raises(InvalidRequestError, match="null key"):
            topic.erase(keys=[None])

    @pytest.mark.parametrize(
        ("where", "message"),
        [
            ("offset = 1", "pyarrow expression"),
            (True, "pyarrow expression"),
            (pc.field("nothing") == 1, "nothing"),
            (pc.field("offset"), "must evaluate to bool"),
            (pc.field("offset") == "x", "is not a condition"),
            (pc.field("timestamp") < pa.scalar(0, pa.timestamp("us")), "is not a condition"),
        ],
    )
    def test_what_is_no_condition(self, topic: Topic, where: Any, message: str) -> None:
        version = topic.version
        with pytest.raises(InvalidRequestError, match=message):
            topic.erase(where=where)
        assert topic.version == version

    def test_a_decimal_column_is_compared_with_a_decimal(self, clock: Clock) -> None:
        topic = make_store(clock=clock).create_topic("t", schema={"price": "decimal(10,2)"})
        topic.append(pa.table({"price": pa.array([1, 2], pa.decimal128(10, 2))}))
        with pytest.raises(InvalidRequestError, match=r"with a decimal\.Decimal"):
            topic.erase(where=pc.field("price") == 2)
        where = pc.field("price") == Decimal("2")
        if int(pa.__version__.partition(".")[0]) < 22:  # it would take 2 for 0.02
            with pytest.raises(InvalidRequestError, match="use pyarrow 22 or newer"):
                topic.erase(where=where)
        else:
            assert topic.erase(where=where, dry_run=True).records_erased == 1
        where = pc.field("price") == Decimal("2.00")
        assert topic.erase(where=where).records_erased == 1

    @pytest.mark.records_in("files")
    def test_a_condition_that_fails_on_some_record_names_its_file(
        self, topic: Topic, inner: MemoryStore
    ) -> None:
        before = data_files(inner)
        value = pc.field("value").cast(pa.string()).cast(pa.int64())
        add(topic, ["a"], 0, number=5)
        topic.append(kafka(["x"], ["no number"], partition=ints(1)))
        with pytest.raises(InvalidRequestError, match=r"fails on records of partition=1/"):
            topic.erase(where=value == 0)
        assert len(data_files(inner)) == len(before) + 2


def beside(meanwhile: Callable[[], object], times: int = 1) -> RunUnits:
    """Run all units, then let others do something before the results are committed."""
    left = times

    def run_units(worker: Worker, units: Sequence[Any]) -> list[Rewritten]:
        nonlocal left
        done = [worker(unit) for unit in units]
        if left:
            left -= 1
            meanwhile()
        return done

    return run_units


def erase(topic: Topic, run_units: RunUnits) -> EraseReport:
    return run_job(topic, Erasure(keys=["a"]), run_units)


class TestBesideOthers:
    def test_a_merge_that_was_faster_is_searched_again(
        self, topic: Topic, inner: MemoryStore
    ) -> None:
        report = erase(topic, beside(topic.merge))
        assert report.records_erased == 8
        assert topic.latest(keys=["a"]).num_rows == 0
        assert topic.verify(data=True)
        assert not_named(topic, inner) == set()

    def test_only_what_was_replaced_is_searched_again(self, topic: Topic) -> None:
        def merge_two() -> None:
            units = Merge().plan(topic._maintained)
            run_job(topic, Merge(), lambda worker, _: [worker(units[0])])

        report = erase(topic, beside(merge_two))
        # Eight segments; then the one that took the place of the four in partition 0.
        assert report.segments_searched == 9
        assert report.records_erased == 8
        assert topic.latest(keys=["a"]).num_rows == 0

    def test_a_segment_that_stays_is_erased_at_once(self, topic: Topic, inner: MemoryStore) -> None:
        """One conflict does not undo the work on the other segments of the partition."""

        def merge_first_two() -> None:
            (first, *_) = Merge().plan(topic._maintained)
            unit = type(first)(first.topic, first.log_start, first.inputs[:2])
            run_job(topic, Merge(), lambda worker, _: [worker(unit)])

        report = erase(topic, beside(merge_first_two))
        assert report.segments_searched == 8 + 1
        assert report.segments_in == 7
        assert report.records_erased == 8
        assert topic.latest(keys=["a"]).num_rows == 0
        assert topic.verify(data=True)
        assert not_named(topic, inner) == set()

    @pytest.mark.parametrize("job", [Merge(), Compaction(force=True)])
    def test_a_job_that_read_the_records_before_does_not_bring_them_back(
        self, topic: Topic, job: Any
    ) -> None:
        topic.alter(config={"cleanup.policy": "compact"})
        report = run_job(topic, job, beside(lambda: topic.erase(keys=["a"])))
        assert report.skipped
        assert topic.latest(keys=["a"]).num_rows == 0
        assert topic.verify(data=True)

    def test_a_compaction_over_a_merge_and_an_erase_does_not_bring_them_back(
        self, topic: Topic
    ) -> None:
        """Its work can be carried over a merge, but not over an erase."""
        topic.alter(config={"cleanup.policy": "compact"})

        def both() -> None:
            topic.merge()
            topic.erase(keys=["a"])

        run_job(topic, Compaction(force=True), beside(both))
        assert topic.latest(keys=["a"]).num_rows == 0
        assert topic.compact(force=True).skipped == 0
        assert topic.latest(keys=["a", "b"]).num_rows == 1
        assert topic.verify(data=True)

    def test_records_that_are_appended_meanwhile_are_not_covered(self, topic: Topic) -> None:
        report = erase(topic, beside(lambda: add(topic, ["a", "z"], 0)))
        assert report.records_erased == 8
        assert rows(topic.latest(keys=["a"]), "offset") == [12]

    def test_what_retention_removed_meanwhile_needs_no_erase(self, topic: Topic) -> None:
        report = erase(topic, beside(lambda: topic.delete_records({0: None, 1: 5})))
        assert topic.latest(keys=["a"]).num_rows == 0
        assert set(report.partitions) == {1}
        assert topic.verify(data=True)

    def test_a_log_start_that_passes_a_new_segment_lets_it_begin_again(self, clock: Clock) -> None:
        """The segment that it read is still live, and has records that match."""
        store = make_store(clock=clock, limits=Limits(row_group_rows=3))
        topic = store.create_topic("t")
        topic.append(kafka([*["b"] * 20, *["a"] * 10]))
        topic.alter(config={"segment.bytes": 14})
        report = erase(topic, beside(lambda: topic.delete_records({0: 11})))
        assert report.records_erased == 10
        assert rows(topic.read(), "offset") == list(range(11, 20))
        assert topic.verify(data=True)

    @pytest.mark.records_in("files")
    def test_a_vacuum_that_removes_replaced_files_is_survived(
        self, topic: Topic, inner: MemoryStore, clock: Clock
    ) -> None:
        """The files that an erase is about to read are merged, and removed at once."""
        done = False

        def decide(verb: str, key: str) -> Fault | None:
            nonlocal done
            if verb == "open_input" and not done:
                done = True
                topic.merge()
                topic.vacuum(dry_run=False, retention_ms=0, force=True)
            return None

        other = make_store(FaultyStore(inner, decide), clock).topic("t")
        assert other.erase(keys=["a"], threads=1).records_erased == 8
        assert done
        assert topic.latest(keys=["a"]).num_rows == 0
        assert topic.verify(data=True)

    def test_a_column_that_was_renamed_meanwhile_is_refused(self, topic: Topic) -> None:
        topic.alter(add_columns={"n": pa.int64(), "m": pa.int64()})

        def swap_names() -> None:
            topic.merge()
            topic.alter(rename_columns={"n": "m", "m": "n"})

        job = Erasure(where=(pc.field("n") == 1) | (pc.field("offset") == 0))
        with pytest.raises(InvalidRequestError, match="renamed or dropped"):
            run_job(topic, job, beside(swap_names))

    def test_an_erase_that_is_always_too_late_gives_up_with_an_error(self, topic: Topic) -> None:
        topic = limited(topic, erase_rounds=3)
        topic.alter(config={"segment.bytes": 10_000})
        added = 0

        def rewrite_all() -> None:
            nonlocal added
            added += 1
            add(topic, [f"new-{added}"], 0)
            add(topic, [f"new-{added}"], 1)
            assert topic.merge().units == 2

        with pytest.raises(CommitConflictError, match="Erase again while no merge"):
            erase(topic, beside(rewrite_all, times=99))
        assert added == 3
        assert topic.erase(keys=["a"]).records_erased == 8


def not_named(topic: Topic, inner: MemoryStore) -> set[str]:
    """The data files that no version has."""
    versions = range(topic.version + 1)
    named = {f"t/{path}" for v in versions for path in rows(topic.segments(v), "path")}
    return set(data_files(inner)) - named
