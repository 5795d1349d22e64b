"""`maintain`: all jobs of a topic or of a store."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import pylogtable
from pylogtable import InvalidRequestError, SegmentGoneError, Store, Topic
from pylogtable.engine import plan_append
from pylogtable.storage.local import LocalStore
from pylogtable.storage.memory import MemoryStore
from tests.builders import Clock, contents, fill, kafka, make_store, rows, times
from tests.stores import AgingDisk

pytestmark = pytest.mark.records_in("commits", "files")

DAY = 86_400_000
COMPACT = {"cleanup.policy": "compact"}
BOTH = {"cleanup.policy": "compact,delete", "retention.ms": DAY}


def state(topic: Topic) -> list[Any]:
    return rows(topic.read(), "partition", "offset", "key", "value")


def operations(topic: Topic) -> list[str]:
    """What was committed, oldest first, without the appends before it."""
    done = topic.history()["operation"].to_pylist()[::-1]
    return [operation for operation in done if operation not in {"create", "append"}]


# --- one topic -------------------------------------------------------------------------------


@pytest.mark.records_in("files")
@pytest.mark.parametrize(
    ("config", "ran", "kept"),
    [
        ({"retention.ms": DAY}, ["retention", "merge"], [3, 4, 5, 6, 7, 8]),
        (COMPACT, ["compact", "merge"], [5, 6, 7, 8]),
        (BOTH, ["retention", "compact", "merge"], [5, 6, 7, 8]),
    ],
    ids=["delete", "compact", "both"],
)
def test_maintain_runs_the_jobs_of_the_settings_in_order(
    store: Store, clock: Clock, config: dict[str, Any], ran: list[str], kept: list[int]
) -> None:
    topic = store.create_topic("t", config=config)
    fill(topic, 1)
    clock.tick(DAY + 1)
    fill(topic, 2)
    report = topic.maintain()
    assert [*dict.fromkeys(operations(topic))] == ran
    assert rows(topic.read(), "offset") == kept
    assert (report.retention is not None) == ("retention" in ran)
    assert (report.compaction is not None) == ("compact" in ran)
    assert report.merge is not None
    assert report.vacuum is not None
    assert not report.vacuum.dry_run
    assert (report.topic, report.error) == ("t", None)
    assert report.seconds >= 0
    assert topic.end_offsets() == {0: 9}
    assert topic.verify(data=True)


@pytest.mark.parametrize("config", [{"retention.ms": DAY}, COMPACT, BOTH])
def test_dry_run_changes_nothing_and_foresees_what_a_run_does(
    clock: Clock, config: dict[str, Any]
) -> None:
    objects = MemoryStore()
    topic = make_store(objects, clock, in_files=True).create_topic("t", config=config)
    fill(topic, 3)
    topic.merge()
    clock.tick(8 * DAY)
    fill(topic, 2)
    before = contents(objects)
    foreseen = topic.maintain(dry_run=True)
    assert contents(objects) == before
    assert foreseen.dry_run
    version = topic.version
    done = topic.maintain()
    assert not done.dry_run
    for said, did in ((foreseen.retention, done.retention), (foreseen.compaction, done.compaction)):
        assert (said is None) == (did is None)
        assert said is None or (said.dry_run and said.version == version)
    if done.retention is not None:
        assert done.retention.records_removed == foreseen.retention.records_removed == 9
        assert done.retention.log_starts == foreseen.retention.log_starts == {0: 9}
    if done.compaction is not None:
        known = ("units", "partitions", "records_in")
        assert [getattr(foreseen.compaction, name) for name in known] == [
            getattr(done.compaction, name) for name in known
        ]
        assert foreseen.compaction.segments_in == 2 + ("delete" not in str(config))
        assert foreseen.compaction.records_removed is None
        assert foreseen.compaction.segments_out is None
    else:
        # What retention removes, merge does not join.
        assert foreseen.merge.segments_in == done.merge.segments_in == 2
    assert foreseen.vacuum.dry_run
    assert set(foreseen.vacuum.files) <= set(done.vacuum.files)
    assert str(foreseen).startswith("t: nothing was changed, ")


def test_dry_run_of_a_store_says_which_tables_would_be_published(store: Store) -> None:
    topic = store.create_topic("t", config={"publish.formats": "delta"})
    fill(topic, 2)
    (first,) = store.maintain(dry_run=True)
    assert first.publication is not None
    assert [str(table) for table in first.publication.due] == ["delta: a new table"]
    topic.publish()
    fill(topic, 1)
    (second,) = store.maintain(dry_run=True)
    (due,) = second.publication.due
    assert due.status.lag_records == 3
    assert "would publish delta: version " in str(second)
    assert second.publication.tables == ()


@pytest.mark.records_in("files")
def test_report_tells_how_many_segments_were_shifted(store: Store) -> None:
    topic = store.create_topic("t")
    plan_append(topic).commit([plan_append(topic).stage(kafka("ab")) for _ in range(3)])
    assert "would merge 3 segments (2 shifted) in 1 partition" in str(topic.maintain(dry_run=True))
    assert "merged 3 (2 shifted) into 1" in str(topic.maintain())
    assert topic.maintain().merge.shifted_in == 0


def test_dry_run_names_what_a_group_protects(store: Store, clock: Clock) -> None:
    topic = store.create_topic("t", config={"retention.ms": DAY})
    fill(topic, 2)
    topic.group("g").commit({0: 3})
    clock.tick(2 * DAY)
    assert topic.apply_retention(dry_run=True).records_removed == 6
    assert topic.maintain(dry_run=True, protect_groups=["g"]).retention.records_removed == 3
    assert topic.apply_retention({0: 0}, dry_run=True).log_starts == {}
    assert topic.start_offsets() == {0: 0}
    with pytest.raises(InvalidRequestError, match="no group 'x'"):
        topic.maintain(dry_run=True, protect_groups=["x"])


@pytest.mark.parametrize("config", [{"retention.ms": DAY}, COMPACT, BOTH])
def test_second_maintain_changes_nothing(
    store: Store, clock: Clock, config: dict[str, Any], in_files: bool
) -> None:
    topic = store.create_topic("t", partitions=2, config=config)
    fill(topic)
    topic.append(kafka(["b"], [None]) if "compact" in str(config) else kafka([None]))
    clock.tick(DAY // 2)
    fill(topic, 2)
    topic.maintain()
    if not in_files:  # retention removes the empty segment that compaction left in front
        topic.maintain()
    version, before = topic.version, state(topic)
    again = topic.maintain()
    assert (topic.version, state(topic)) == (version, before)
    assert again.merge is not None
    assert again.merge.units == again.merge.skipped == again.merge.segments_in == 0
    assert again.compaction is None or again.compaction.units == 0
    assert again.retention is None or not again.retention.log_starts
    assert again.vacuum is not None
    assert again.vacuum.files == ()


def test_maintain_can_skip_the_vacuum(store: Store) -> None:
    topic = store.create_topic("t")
    fill(topic)
    assert topic.maintain(vacuum=False).vacuum is None


def test_vacuum_comes_last_and_removes_replaced_files(tmp_path: Path) -> None:
    clock = Clock()
    topic = make_store(AgingDisk(tmp_path, clock), clock, in_files=True).create_topic(
        "t", config=COMPACT
    )
    fill(topic)
    topic.maintain(vacuum=False)
    before = state(topic)
    clock.tick(9 * DAY)
    report = topic.maintain()
    assert report.vacuum is not None
    assert report.vacuum.data_files == 5  # four appends, and what compaction made for merge
    live = topic.segments()["path"].to_pylist()
    assert sorted(p.name for p in tmp_path.rglob("*.parquet")) == sorted(
        path.rpartition("/")[2] for path in live
    )
    assert state(topic) == before
    assert topic.verify(data=True)


def test_an_empty_topic_can_be_maintained(store: Store) -> None:
    topic = store.create_topic("t", partitions=3, config=BOTH)
    report = topic.maintain()
    assert topic.version == 0
    assert str(report).startswith("t: retention removed 0 records, compaction removed 0 records")


def test_a_table_with_a_key_of_two_columns_can_be_maintained(store: Store) -> None:
    schema = {"shop": pa.string(), "item": pa.int64(), "stock": pa.int64()}
    topic = store.create_topic("t", 2, schema, key=["shop", "item"], config=COMPACT)
    for stock in range(3):
        topic.append(pa.table({"shop": ["x", "x", "y"], "item": [1, 2, 1], "stock": [stock] * 3}))
    before = topic.latest().sort_by([("shop", "ascending"), ("item", "ascending")])
    topic.maintain()
    after = topic.read().read_all().sort_by([("shop", "ascending"), ("item", "ascending")])
    assert after == before


def test_concurrent_maintain_runs_do_no_harm(tmp_path: Path) -> None:
    """Each commits or finds out that the other did; the work is done once in the end."""
    store = pylogtable.open(tmp_path)
    for attempt in range(5):
        name = f"t{attempt}"
        topic = store.create_topic(name, partitions=3, config=COMPACT)
        for number in range(6):
            topic.append(kafka([f"k{n}" for n in range(40)], [f"{number}"] * 40))
        expected = sorted(rows(topic.latest(), "partition", "offset", "key", "value"))
        together = threading.Barrier(3)

        def run(name: str = name, together: threading.Barrier = together) -> Any:
            mine = pylogtable.open(tmp_path).topic(name)
            together.wait()
            return mine.maintain()

        with ThreadPoolExecutor(3) as pool:
            reports = [future.result() for future in [pool.submit(run) for _ in range(3)]]
        assert sorted(state(topic)) == expected
        assert topic.end_offsets() == topic.at(6).snapshot.end_offsets
        assert sum(report.compaction.records_removed for report in reports) == 200
        assert topic.verify(data=True)
        live = {
            path.rpartition("/")[2] for v in range(topic.version + 1) for path in _paths(topic, v)
        }
        # Losers took their files away: there is none that no version knows.
        assert {p.name for p in (tmp_path / name).rglob("*.parquet")} <= live


def _paths(topic: Topic, version: int) -> list[str]:
    found: list[str] = topic.segments(version)["path"].to_pylist()
    return found


def test_maintain_runs_alongside_a_writer(tmp_path: Path) -> None:
    topic = pylogtable.open(tmp_path).create_topic("t", partitions=2, config=COMPACT)
    done = threading.Event()

    def write() -> None:
        mine = pylogtable.open(tmp_path).topic("t")
        for number in range(40):
            mine.append(kafka([f"k{n}" for n in range(10)], [f"{number}"] * 10))
        done.set()

    with ThreadPoolExecutor(1) as pool:
        writing = pool.submit(write)
        while not done.is_set() and not writing.done():
            topic.maintain()
        writing.result()
    topic.compact(force=True)
    assert sorted(rows(topic.read(), "key", "value")) == [(b"k%d" % n, b"39") for n in range(10)]
    assert sum(topic.end_offsets().values()) == 400
    assert topic.verify(data=True)


# --- a store ---------------------------------------------------------------------------------


def test_failing_topic_does_not_stop_the_others(broken_store: Path) -> None:
    broken, orders, users = pylogtable.open(broken_store).maintain()
    assert (broken.topic, orders.topic, users.topic) == ("broken", "orders", "users")
    assert broken.error is not None
    assert broken.error.startswith("CorruptTopicError: ")
    assert "_manifest" in broken.error
    assert str(broken) == f"broken: FAILED: {broken.error}"
    assert orders.error is users.error is None
    assert orders.merge is not None
    assert orders.merge.segments_in == 4
    assert users.compaction is not None
    assert users.compaction.records_removed == 6


def test_only_named_topics_are_maintained(store: Store) -> None:
    for name in ("a", "b", "c"):
        fill(store.create_topic(name))
    reports = store.maintain(["c", "a", "nope"])
    assert [report.topic for report in reports] == ["c", "a", "nope"]
    assert [report.error is None for report in reports] == [True, True, False]
    assert "TopicNotFoundError: there is no topic at " in str(reports[2].error)
    assert operations(store.topic("b")) == []
    assert store.maintain([]) == []


def test_a_missing_segment_fails_its_topic_and_changes_nothing(
    tmp_path: Path, clock: Clock
) -> None:
    store = make_store(LocalStore(tmp_path), clock, in_files=True)
    topic = store.create_topic("t", config=COMPACT)
    fill(topic, timestamp=times(0, 0, 0))
    min((tmp_path / "t").rglob("*.parquet")).unlink()
    files = sorted((tmp_path / "t").rglob("*"))
    (report,) = store.maintain()
    assert report.error is not None
    assert report.error.startswith("SegmentGoneError: ")
    assert topic.version == 4
    assert sorted((tmp_path / "t").rglob("*")) == files


def test_jobs_done_before_a_failure_are_reported(tmp_path: Path, clock: Clock) -> None:
    store = make_store(LocalStore(tmp_path), clock, in_files=True)
    topic = store.create_topic("t", config={"retention.ms": 1000})
    topic.append(kafka(["a", "b"], timestamp=times(0, 0)))
    clock.tick(60_000)
    for key in ("c", "d"):
        topic.append(kafka([key]))
    max((tmp_path / "t").rglob("*.parquet")).unlink()
    (report,) = store.maintain()
    assert topic.start_offsets() == {0: 2}
    assert report.retention is not None
    assert report.retention.records_removed == 2
    assert (report.merge, report.vacuum) == (None, None)
    assert str(report).startswith("t: retention removed 2 records, FAILED: SegmentGoneError: ")
    with pytest.raises(SegmentGoneError):
        topic.maintain()
