"""The history, finding commits, and time travel."""

from __future__ import annotations

import pickle
from dataclasses import replace
from pathlib import Path

import pytest

from pylogtable import (
    HISTORY_SCHEMA,
    CommitUnknownError,
    InvalidRequestError,
    SegmentGoneError,
    Topic,
)
from pylogtable.engine import Scan
from pylogtable.storage.local import LocalStore
from pylogtable.storage.memory import MemoryStore
from pylogtable.store import Store
from tests import documents
from tests.builders import IN_FILES, T0, Clock, at, contents, kafka, make_store, rows
from tests.documents import quoted, section, table
from tests.faults.support import FakeTime
from tests.stores import CountingStore

COMMITS = 150


@pytest.fixture(scope="module")
def committed() -> MemoryStore:
    clock, objects = Clock(), MemoryStore()
    topic = make_store(objects, clock).create_topic("t")
    for number in range(COMMITS):
        clock.tick(10)
        topic.append(kafka(["a"], [str(number)]))
    return objects


@pytest.fixture
def long(committed: MemoryStore, store: Store, objects: MemoryStore, clock: Clock) -> Topic:
    """Version n has n records and was committed 10·n ms after T0."""
    clock.tick(10 * COMMITS)
    for key, data in contents(committed).items():
        objects.write(key, data or b"")
    return store.topic("t")


def test_every_version_reads_the_same_later(long: Topic, objects: MemoryStore) -> None:
    assert sum(".root." in key for key in contents(objects)) == COMMITS // 64
    for version in (0, 1, 63, 64, 65, 127, 128, 129, COMMITS):
        assert rows(long.read(version=version), "value") == [
            str(n).encode() for n in range(version)
        ]
        assert long.count(version) == version
        assert long.segments(version).num_rows == version


@pytest.mark.parametrize(
    ("ms", "version"),
    [(0, 0), (9, 0), (10, 1), (645, 64), (10 * COMMITS, COMMITS), (10**9, COMMITS)],
)
def test_time_selects_the_newest_version_at_that_time(long: Topic, ms: int, version: int) -> None:
    assert long.version_at(at(ms)) == long.version_at(T0 + ms) == version
    assert long.count(at(ms)) == version
    assert len(rows(long.read(version=at(ms)))) == version


def test_time_before_the_first_version_is_refused(long: Topic) -> None:
    with pytest.raises(InvalidRequestError, match="no version as old as"):
        long.version_at(at(-1))
    with pytest.raises(InvalidRequestError, match="no version as old as"):
        long.read(version=at(-1))


def test_versions_are_found_without_roots_and_hint(long: Topic, objects: MemoryStore) -> None:
    for key in contents(objects):
        if ".root." in key or "_head" in key:
            objects.delete(key)
    assert long.count(100) == 100
    assert make_store(objects).topic("t").count() == COMMITS


def test_vacuumed_versions_are_refused(long: Topic, objects: MemoryStore) -> None:
    for version in range(70):
        objects.delete(f"t/_manifest/{version:020d}.json")
    assert long.count(64) == 64
    assert long.count(130) == 130
    with pytest.raises(InvalidRequestError, match="version 40 of topic 't' is no longer kept"):
        long.count(40)
    assert rows(long.history(), "version") == list(range(COMMITS, 69, -1))
    assert make_store(objects).topic("t").count() == COMMITS


def test_history_shows_what_each_commit_did(store: Store, clock: Clock) -> None:
    topic = store.create_topic("t", partitions=2)
    clock.tick(7)
    result = topic.append(kafka(["a", "b", "c"]), txn=("app", 4))
    topic.delete_records(dict.fromkeys(result.offsets))
    deleted, appended, created = rows(topic.history())
    assert created["operation"] == "create"
    assert created["version"] == 0
    assert (appended["operation"], appended["version"]) == ("append", 1)
    assert appended["committed_at"] == at(7)
    assert (appended["txn_app_id"], appended["txn_version"]) == ("app", 4)
    assert (appended["segments_added"], appended["records_added"]) == (result.segments, 3)
    assert appended["bytes_added"] == result.size_bytes
    assert dict(appended["end_offsets"]) == {p: end for p, (_, end) in result.offsets.items()}
    assert (deleted["operation"], deleted["records_removed"]) == ("delete_records", 3)
    assert deleted["segments_removed"] == result.segments
    assert deleted["txn_app_id"] is None


@pytest.mark.records_in("commits", "files")
@pytest.mark.parametrize("limit", [0, 1, 3])
def test_limited_history_reads_only_the_commits_it_needs(limit: int, in_files: bool) -> None:
    measured = CountingStore(MemoryStore())
    topic = make_store(measured, in_files=in_files).create_topic("t")
    for _ in range(20):
        topic.append(kafka(["a"]))
    measured.reset()
    assert rows(topic.history(limit), "version") == [20, 19, 18][:limit]
    # A vacuum keeps a commit that has records: that the last one stands is not enough [VAC-3].
    assert measured.counts["read"] <= limit + (2 if in_files else 3)


def test_commit_is_found_by_its_id(long: Topic) -> None:
    (entry,) = [row for row in rows(long.history()) if row["version"] == 33]
    commit_id = entry["commit_id"]
    assert long.find_commit(commit_id) == 33
    assert long.find_commit(commit_id, 33) == 33
    assert long.find_commit(commit_id, 34) is None
    assert long.find_commit("nobody") is None


def test_find_commit_raises_while_the_version_is_still_free(long: Topic) -> None:
    """A put that timed out may still succeed."""
    with pytest.raises(CommitUnknownError):
        long.find_commit("mine", long.version + 1)


def test_commit_times_rise_even_if_the_clock_goes_back(store: Store, clock: Clock) -> None:
    topic = store.create_topic("t")
    topic.append(kafka(["a"]))
    clock.tick(-5000)
    topic.append(kafka(["a"]))
    topic.append(kafka(["a"]))
    assert rows(topic.history(), "committed_at") == [at(3), at(2), at(1), at(0)]
    assert topic.verify()


def test_version_is_read_from_an_early_root_if_the_first_commits_are_gone(
    store: Store, objects: MemoryStore
) -> None:
    """A topic that was deleted has a root, and a vacuum may remove what is below it."""
    store.create_topic("t").append(kafka(["old"]))
    store.delete_topic("t")
    topic = store.create_topic("t")
    for key in ("a", "b"):
        topic.append(kafka([key]))
    for version in (0, 1):
        objects.delete(f"t/_manifest/{version:020d}.json")
    again = store.topic("t")
    assert rows(again.read(version=4), "key") == [b"a"]
    with pytest.raises(InvalidRequestError, match="no longer kept"):
        again.read(version=1)


# --- versions that a vacuum has removed ------------------------------------------------------


@pytest.fixture
def vacuumed(store: Store, clock: Clock) -> Topic:
    """Versions 0 to 5 need files that are gone; version 6, a merge, and later ones do not."""
    topic = store.create_topic("t", config={"retention.ms": -1, **IN_FILES})
    for number in range(5):
        clock.tick()
        topic.append(kafka(["a", "b"], [str(number)] * 2))
    clock.tick()
    topic.merge()
    clock.tick()
    topic.append(kafka(["c"], ["new"]))
    clock.tick()
    topic.vacuum(dry_run=False, retention_ms=1, force=True)
    return topic


def test_read_of_a_vacuumed_version_names_the_oldest_that_can_be_read(vacuumed: Topic) -> None:
    for read in (
        lambda: vacuumed.read(version=3).read_all(),
        lambda: vacuumed.latest(version=5),
        lambda: [*Scan(vacuumed.at(2)).reader().read(Scan(vacuumed.at(2)).parts()[0])],
    ):
        with pytest.raises(SegmentGoneError, match=r"A vacuum has removed it: .* version 6 ") as e:
            read()
        assert e.value.oldest_version == 6
        assert pickle.loads(pickle.dumps(e.value)).oldest_version == 6
    assert len(rows(vacuumed.read(version=6))) == 10
    assert len(rows(vacuumed.read())) == 11


def test_records_in_commits_do_not_hide_the_oldest_version(vacuumed: Topic) -> None:
    vacuumed.alter(config={"inline.max.bytes": 16384})
    vacuumed.append(kafka(["d"], ["in its commit"]))
    assert vacuumed.describe().inline_records == 1
    with pytest.raises(SegmentGoneError, match=r"A vacuum has removed it: .* version 6 "):
        vacuumed.read(version=3).read_all()


def test_gone_version_names_a_later_one_although_commits_with_records_stay(
    store: Store, clock: Clock
) -> None:
    topic = store.create_topic("small", config={"cleanup.policy": "compact"})
    for value in ("a", "b", "c"):
        topic.append(kafka(["k"], [value]))
    topic.merge()
    merged = topic.at().version
    clock.tick()
    topic.compact(force=True)
    clock.tick(10)
    topic.vacuum(retention_ms=1, dry_run=False, force=True)
    assert topic.read(version=1).read_all().num_rows == 1  # in its commit
    with pytest.raises(SegmentGoneError, match=rf"version {merged + 1} and later ones"):
        topic.read(version=merged).read_all()


@pytest.mark.records_in("files")
def test_read_of_a_deleted_topic_says_that_it_was_deleted(store: Store) -> None:
    topic = store.create_topic("t")
    topic.append(kafka(["a"]))
    view = topic.at()
    store.delete_topic("t")
    with pytest.raises(SegmentGoneError, match="the topic was deleted") as caught:
        view.read().read_all()
    assert pickle.loads(pickle.dumps(caught.value)).is_deleted


def test_no_vacuum_is_blamed_for_a_file_that_the_newest_version_needs(
    vacuumed: Topic, objects: MemoryStore
) -> None:
    objects.below("t").delete(vacuumed.segments()["path"][0].as_py())
    for version in (3, None):
        with pytest.raises(SegmentGoneError, match=r"topic.verify\(\) lists what is missing") as e:
            vacuumed.read(version=version).read_all()
        assert e.value.oldest_version is None


def test_version_that_is_not_kept_names_the_oldest_that_is(long: Topic, clock: Clock) -> None:
    clock.tick(8 * 86_400_000)
    long.append(kafka(["a"]))
    long.vacuum(dry_run=False)
    oldest = "oldest version that can be read is 128, the newest 152"
    for version in (40, at(400)):
        with pytest.raises(InvalidRequestError, match=f"a vacuum has removed .*{oldest}"):
            long.read(version=version)


def test_the_guides_name_every_column_of_the_history() -> None:
    described = list(table(section(documents.read("pylogtable/README.md"), "## Versions")))
    assert [name for cells in described for name in quoted(cells[0])] == HISTORY_SCHEMA.names
    types = {name: cells[1] for cells in described for name in quoted(cells[0])}
    assert types["records_added"] == str(HISTORY_SCHEMA.field("records_added").type)
    _, _, listed = documents.read("spark_ext/README.md").partition(
        "`LogTable.history()`, have the columns "
    )
    assert quoted(listed.partition(";")[0]) == HISTORY_SCHEMA.names


def test_wait_for_the_next_version(tmp_path: Path) -> None:
    """On a local disk it is seen at once. The clock of the test moves only while it waits."""
    time = FakeTime()
    topic = make_store(LocalStore(tmp_path)).create_topic("t")

    def pause(seconds: float) -> None:
        time.pause(seconds)
        if time.seconds > 5.0 and not topic.version:
            topic.append(kafka(["k"]))

    waiting = Store(LocalStore(tmp_path), replace(time.runtime(), pause=pause)).topic("t")
    assert waiting.wait_for(0, 60.0).version == 0
    assert time.seconds == 0
    assert waiting.wait_for(1, 60.0).version == 1
    assert 5.0 < time.seconds < 5.05
    assert waiting.wait_for(2, 1.0).version == 1
    assert time.seconds < 6.1
