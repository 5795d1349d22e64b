"""Staging in one place and committing in another, as jobs on many machines do."""

from __future__ import annotations

import pickle
import resource
from pathlib import Path

import pyarrow as pa
import pytest

import pylogtable
from pylogtable import InvalidRequestError, SchemaMismatchError
from pylogtable.engine import plan_append
from pylogtable.format.model import Change
from pylogtable.storage.memory import MemoryStore
from pylogtable.store import Store
from tests.builders import IN_FILES, data_files, ints, kafka, make_store, rows
from tests.faults.support import FakeTime
from tests.stores import Fault, FaultyStore

pytestmark = pytest.mark.records_in("files")


def test_repeated_commit_keeps_the_files_of_the_first(store: Store) -> None:
    topic = store.create_topic("t")
    staged = plan_append(topic).stage(kafka(["a"]))
    first = plan_append(topic).commit([staged], txn=("job", 1))
    again = plan_append(topic).commit([staged], txn=("job", 1))
    assert again.repeated
    assert again.offsets == first.offsets
    assert rows(topic.read(), "key") == [b"a"]
    assert topic.verify(data=True)


def test_stale_driver_commits_files_staged_by_newer_handles(store: Store) -> None:
    driver = store.create_topic("t")
    worker = store.topic("t")
    worker.append(kafka(["a"]))
    worker.alter(partitions=4)
    staged = plan_append(worker).stage(kafka(["b", "c"], partition=ints(0, 3)))
    assert plan_append(driver).commit([staged]).offsets == {0: (1, 2), 3: (0, 1)}
    assert driver.verify(data=True)


def test_files_staged_for_another_topic_are_refused(store: Store) -> None:
    one, other = store.create_topic("one"), store.create_topic("other")
    staged = plan_append(one).stage(kafka(["a"]))
    with pytest.raises(InvalidRequestError, match=f"staged for topic id {one.topic_id}"):
        plan_append(other).commit([staged])
    store.delete_topic("one")
    with pytest.raises(InvalidRequestError, match="created again"):
        plan_append(store.create_topic("one")).commit([staged])


def test_committing_the_same_file_twice_is_refused(store: Store) -> None:
    topic = store.create_topic("t")
    staged = plan_append(topic).stage(kafka(["a"]))
    with pytest.raises(InvalidRequestError, match="given twice"):
        plan_append(topic).commit([staged, staged], keep_files=True)
    assert topic.version == 0
    assert plan_append(topic).commit([staged]).records == 1


@pytest.mark.parametrize("keep_files", [True, False])
def test_files_that_are_live_are_not_committed_again_and_stay(
    store: Store, keep_files: bool
) -> None:
    topic = store.create_topic("t", partitions=2)
    staged = plan_append(topic).stage(kafka(["a", "b", "c"]))
    plan_append(topic).commit([staged])
    other = plan_append(store.topic("t")).stage(kafka(["d"]))
    with pytest.raises(InvalidRequestError, match="committed already, as offsets"):
        plan_append(store.topic("t")).commit([other, staged], keep_files=keep_files)
    assert topic.count() == 3
    assert sorted(rows(topic.read(), "key")) == [b"a", b"b", b"c"]
    assert topic.verify(data=True)


def test_staged_files_can_be_discarded(store: Store, objects: MemoryStore) -> None:
    topic = store.create_topic("t")
    plan_append(topic).discard([plan_append(topic).stage(kafka(["a", "b"]))])
    assert data_files(objects) == []


def test_verify_names_a_file_that_two_segments_claim(store: Store) -> None:
    topic = store.create_topic("t")
    staged = plan_append(topic).stage(kafka(["a"]))
    plan_append(topic).commit([staged])
    (file,) = staged.files
    topic._log.change(lambda _: Change(operation="append", ends={0: 2}, add=(file.placed_at(1),)))
    (problem,) = topic.verify().problems
    assert (problem.rule, problem.path) == ("SEG-1", staged.files[0].path)


def test_topics_and_staged_files_can_be_sent_between_processes(tmp_path: Path) -> None:
    topic = pylogtable.open(tmp_path).create_topic("t")
    there = pickle.loads(pickle.dumps(topic))
    staged = pickle.loads(pickle.dumps(plan_append(there).stage(kafka(["a"]))))
    assert plan_append(topic).commit([staged]).records == 1
    assert there.count() == 1


def test_append_works_with_more_partitions_than_open_files(tmp_path: Path) -> None:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    topic = pylogtable.open(tmp_path).create_topic("t", partitions=700)
    partitions = [n % 700 for n in range(1400)]
    table = kafka([f"{n}" for n in range(1400)], partition=ints(*partitions))
    resource.setrlimit(resource.RLIMIT_NOFILE, (400, before[1]))
    try:
        result = topic.append(table)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
    assert result.offsets == dict.fromkeys(range(700), (0, 2))


def test_clock_that_gives_floats_cannot_damage_a_topic() -> None:
    objects = MemoryStore()
    with pytest.raises(InvalidRequestError, match=r"committed_at_ms|created_at_ms"):
        make_store(objects, lambda: 1.5).create_topic("t")  # type: ignore[arg-type, return-value]
    assert make_store(objects).topics() == []


@pytest.mark.parametrize("offset", [True, 0.5, "1"])
def test_bad_offset_cannot_damage_a_topic(store: Store, offset: object) -> None:
    topic = store.create_topic("t")
    topic.append(kafka(["a", "b"]))
    with pytest.raises(InvalidRequestError, match="is not an offset of partition 0"):
        topic.delete_records({0: offset})  # type: ignore[dict-item]
    assert store.topic("t").count() == 2


def test_a_damaged_topic_does_not_hide_the_others(store: Store, objects: MemoryStore) -> None:
    store.create_topic("sound")
    store.create_topic("bad")
    objects.write(f"bad/_manifest/{0:020d}.json", b"{")
    assert store.topics() == ["bad", "sound"]


@pytest.mark.parametrize("name", ["row", "rank", "k0"])
def test_latest_works_with_any_column_name(store: Store, name: str) -> None:
    topic = store.create_topic("t", schema={"id": pa.int64(), name: pa.int64()}, key="id")
    topic.append(pa.table({"id": [1, 1], name: [1, 2]}))
    assert rows(topic.latest(), name) == rows(topic.latest(keys=[1]), name) == [2]


def test_keys_beyond_the_range_of_python_dates_are_found(store: Store) -> None:
    topic = store.create_topic("t", schema={"day": pa.date32(), "v": pa.int64()}, key="day")
    days = pa.array([4_000_000, 1], pa.int32()).cast(pa.date32())
    topic.append(pa.table({"day": days, "v": [1, 2]}))
    assert sorted(rows(topic.latest(keys=days), "v")) == [1, 2]


def test_history_and_find_commit_end_where_the_topic_began(store: Store) -> None:
    old = store.create_topic("t")
    old.append(kafka(["a"]))
    (commit_id,) = rows(old.history(1), "commit_id")
    store.delete_topic("t")
    new = store.create_topic("t")
    assert rows(new.history(), "operation") == ["create"]
    assert new.find_commit(commit_id) is None
    assert new.verify()


@pytest.mark.parametrize(
    ("unit", "given", "stored"),
    [("ns", -1, -1), ("ns", -1500, -2), ("ns", 1999, 1), ("s", 2, 2_000_000)],
)
def test_times_are_rounded_down_to_microseconds(
    store: Store, unit: str, given: int, stored: int
) -> None:
    topic = store.create_topic("t")
    when = pa.array([given], pa.timestamp(unit, tz="UTC"))
    topic.append(pa.table({"value": [b"x"], "timestamp": when}))
    assert topic.read().read_all()["timestamp"].cast(pa.int64()).to_pylist() == [stored]


def test_decimal_with_a_negative_scale_is_refused(store: Store) -> None:
    with pytest.raises(pylogtable.SchemaMismatchError, match="cannot have a column of Arrow type"):
        store.create_topic("t", schema={"a": pa.decimal128(5, -2)})


def test_a_time_that_does_not_fit_is_refused(store: Store) -> None:
    topic = store.create_topic("t")
    when = pa.array([2**62], pa.timestamp("s", tz="UTC"))
    with pytest.raises(pylogtable.SchemaMismatchError, match="column 'timestamp'"):
        topic.append(pa.table({"value": [b"x"], "timestamp": when}))
    assert topic.version == 0


def test_repeat_by_the_same_origin_is_recognised(store: Store) -> None:
    topic = store.create_topic("t")
    first = plan_append(topic).commit(
        [plan_append(topic).stage(kafka(["a"]))], txn=("job", 0), origin="run 1"
    )
    again = plan_append(topic).commit(
        [plan_append(topic).stage(kafka(["a"]))], txn=("job", 0), origin="run 1"
    )
    assert (first.origin, first.repeated) == ("run 1", False)
    assert (again.origin, again.repeated, again.offsets) == ("run 1", True, first.offsets)
    assert rows(topic.read(), "key") == [b"a"]


@pytest.mark.parametrize("version", [3, 5])
def test_txn_of_another_origin_is_refused(store: Store, objects: MemoryStore, version: int) -> None:
    """[TXN-4], for the last txn of the app id and for an earlier one."""
    topic = store.create_topic("t")
    for number in (3, 5):
        plan_append(topic).commit(
            [plan_append(topic).stage(kafka(["a"]))], txn=("job", number), origin="run 1"
        )
    before = data_files(objects)
    mine = ("job", version)
    with pytest.raises(InvalidRequestError, match=f"txn {version} of app id 'job' was applied by"):
        plan_append(topic).commit(
            [plan_append(topic).stage(kafka(["b"]))], txn=mine, origin="run 2"
        )
    with pytest.raises(InvalidRequestError, match="'run 1'"):
        plan_append(topic).find_txn(*mine, origin="run 2")
    assert data_files(objects) == before
    assert topic.count() == 2
    # Greater numbers of the same app id are new, whoever counts them.
    assert not plan_append(topic).commit([], txn=("job", 6), origin="run 2").repeated


@pytest.mark.parametrize(("first", "then"), [(None, "run 2"), ("run 1", None)])
def test_without_an_origin_a_repeated_txn_is_a_repeat(
    store: Store, first: str | None, then: str | None
) -> None:
    topic = store.create_topic("t")
    plan_append(topic).commit(
        [plan_append(topic).stage(kafka(["a"]))], txn=("job", 1), origin=first
    )
    again = plan_append(topic).commit(
        [plan_append(topic).stage(kafka(["a"]))], txn=("job", 1), origin=then
    )
    assert again.repeated
    assert again.origin == first
    assert topic.count() == 1


def test_txn_version_that_was_skipped_is_refused(store: Store) -> None:
    topic = store.create_topic("t")
    plan_append(topic).commit(
        [plan_append(topic).stage(kafka(["a"]))], txn=("job", 7), origin="run 1"
    )
    with pytest.raises(InvalidRequestError, match="txn 4 of app id 'job' was never applied"):
        plan_append(topic).commit(
            [plan_append(topic).stage(kafka(["b"]))], txn=("job", 4), origin="run 1"
        )
    assert topic.count() == 1


def test_origin_without_a_txn_is_refused(store: Store) -> None:
    topic = store.create_topic("t")
    with pytest.raises(InvalidRequestError, match="is given without a txn"):
        plan_append(topic).commit([], origin="run 1")
    with pytest.raises(InvalidRequestError, match="the origin of a txn is empty"):
        plan_append(topic).commit([], txn=("job", 1), origin="")


def test_files_of_a_commit_with_an_unknown_outcome_are_left_alone() -> None:
    def refuse_commits(verb: str, key: str) -> Fault | None:
        return Fault.REFUSE if verb == "create" and key.endswith(f"{1:020d}.json") else None

    objects = MemoryStore()
    store = Store(FaultyStore(objects, refuse_commits), FakeTime().runtime(patience_seconds=1))
    writer = store.create_topic("t", config=IN_FILES)
    with pytest.raises(pylogtable.CommitUnknownError):
        plan_append(writer).commit([plan_append(writer).stage(kafka(["a"]))])
    assert len(data_files(objects)) == 1


def test_repeating_a_commit_with_the_same_files_keeps_them(store: Store) -> None:
    topic = store.create_topic("t")
    staged = plan_append(topic).stage(kafka(["a"]))
    first = plan_append(topic).commit([staged], txn=("job", 1))
    again = plan_append(topic).commit([staged], txn=("job", 1))
    assert (again.repeated, again.offsets) == (True, first.offsets)
    assert rows(topic.read(), "key") == [b"a"]


def test_column_that_was_dropped_meanwhile_is_told_and_its_values_are_not_lost(
    store: Store,
) -> None:
    topic = store.create_topic(
        "columns", schema={"k": "string", "n": "int", "z": "string"}, key="k"
    )
    plan = plan_append(topic)
    staged = plan.stage(pa.table({"k": ["a"], "z": ["value"]}))
    topic.alter(drop_columns=["z"])
    topic.alter(add_columns={"z": "string"})
    with pytest.raises(SchemaMismatchError, match="'z' of the topic were dropped while"):
        plan.commit([staged])
    assert topic.count() == 0


def test_column_that_was_renamed_meanwhile_gets_its_values(store: Store) -> None:
    topic = store.create_topic("columns", schema={"k": "string", "z": "string"}, key="k")
    plan = plan_append(topic)
    staged = plan.stage(pa.table({"k": ["a"], "z": ["value"]}))
    topic.alter(rename_columns={"z": "new"})
    plan.commit([staged])
    assert topic.read(columns=["new"]).read_all().to_pylist() == [{"new": "value"}]


@pytest.mark.parametrize("keep_files", [True, False])
def test_repeat_is_recognised_although_a_column_was_dropped_since(
    store: Store, keep_files: bool
) -> None:
    topic = store.create_topic(
        "columns", schema={"k": "string", "n": "int", "z": "string"}, key="k"
    )
    plan = plan_append(topic)
    staged = plan.stage(pa.table({"k": ["a"], "z": ["value"]}))
    first = plan.commit([staged], txn=("job", 1))
    topic.alter(drop_columns=["z"])
    again = plan.commit([staged], txn=("job", 1), keep_files=keep_files)
    assert again.repeated
    assert again.offsets == first.offsets
    assert topic.count() == 1
    assert topic.verify(data=True)
