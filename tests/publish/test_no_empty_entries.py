"""A publication writes an entry only if the table changes by it. What it seals is in the entry, and
nothing is left for the next one."""

from __future__ import annotations

from pathlib import Path
from threading import Event, Thread

import pyarrow as pa
import pytest

from pylogtable import Store, Topic
from pylogtable.engine import plan_append
from pylogtable.publish.report import PublishedTable
from tests.builders import Clock, make_store
from tests.publish import plain_delta, plain_iceberg
from tests.stores import AgingDisk, FaultyStore

DAY = 86_400_000
BOTH = ["delta", "iceberg"]


@pytest.fixture
def disk(tmp_path: Path, clock: Clock) -> AgingDisk:
    return AgingDisk(tmp_path, clock)


@pytest.fixture
def store(disk: AgingDisk, clock: Clock, in_files: bool) -> Store:
    return make_store(disk, clock, in_files=in_files)


@pytest.fixture
def topic(store: Store) -> Topic:
    config = {"publish.formats": "delta,iceberg"}
    topic = store.create_topic("t", 2, {"k": pa.string(), "v": pa.int64()}, "k", config=config)
    append(topic)
    return topic


def append(topic: Topic) -> None:
    topic.append(pa.table({"k": list("abcdef"), "v": [1, 2, 3, 4, 5, 6]}))


def race(topic: Topic) -> None:
    """Two appends that were staged at the same end: the files of the second are shifted."""
    rows = pa.table({"k": list("abcdef"), "v": [1, 2, 3, 4, 5, 6]})
    for staged in [plan_append(topic).stage(rows), plan_append(topic).stage(rows)]:
        plan_append(topic).commit([staged])


def steps(tables: tuple[PublishedTable, ...]) -> list[int]:
    return [table.steps for table in tables]


def check(topic: Topic, tmp_path: Path) -> None:
    """Both tables show what the topic has, and `describe` says so."""
    folder = tmp_path / "t"
    log = plain_delta.entries(topic._store)
    expected = topic.read().read_all().sort_by(plain_iceberg.ORDER)
    assert plain_delta.rows(topic._store, log, expected.schema) == expected.to_pylist()
    plain_iceberg.check_newest(topic, folder)
    for status in topic.describe().published:
        assert (status.lag_records, status.lag_ms) == (0, 0)
        assert str(status).endswith("up to date")


def check_nothing_is_left(topic: Topic, store: Store, tmp_path: Path) -> None:
    check(topic, tmp_path)
    before = sorted(tmp_path.rglob("*"))
    for again in (topic, store.topic("t")):
        tables = again.publish().tables
        assert steps(tables) == [0, 0]
        assert [table.version for table in tables] == [topic.version] * 2
    assert sorted(tmp_path.rglob("*")) == before


def test_one_publication_is_enough_after_small_appends_and_races(
    topic: Topic, store: Store, tmp_path: Path
) -> None:
    assert steps(topic.publish().tables) == [1, 1]
    check_nothing_is_left(topic, store, tmp_path)
    for change in (append, race, append):
        change(topic)
        delta, iceberg = topic.publish().tables
        assert (delta.steps, iceberg.steps) == (1, 1)
        assert delta.version == topic.version
        log = plain_delta.entries(topic._store)
        assert plain_delta.shown_version(log[-1]) == topic.version
        assert plain_delta.action(log[-1], "commitInfo")["pylogtable"].get("copies", {}) == {}
        check_nothing_is_left(topic, store, tmp_path)


@pytest.mark.records_in("commits")
def test_append_that_comes_before_the_sealed_copies_is_for_next_time(
    topic: Topic, store: Store, disk: AgingDisk, clock: Clock, tmp_path: Path
) -> None:
    """The usual race of a process that publishes each second: somebody appends between its look and
    the commit of its copies."""
    topic.publish()
    armed: list[bool] = []

    def meet(verb: str, key: str) -> None:
        if armed and verb == "create" and "_manifest/" in key:
            armed.clear()
            append(topic)

    mine = make_store(FaultyStore(disk, meet), clock).topic("t")
    for number in range(3):
        append(topic)
        shown = topic.version
        armed.append(True)
        tables = mine.publish().tables
        assert not armed
        assert steps(tables) == [1, 1]
        assert [table.version for table in tables] == [shown] * 2
        # Of the appends that are new to the table, each is sealed once.
        assert tables[0].segments_sealed == (2 if number == 0 else 4)
        assert topic.version == shown + 2
    (table, _) = topic.publish().tables
    assert (table.steps, table.files_added, table.files_removed) == (1, 2, 0)
    check_nothing_is_left(topic, store, tmp_path)
    plain_delta.check_table(topic, topic._store)
    assert topic.verify(data=True)


def test_commits_that_change_no_table_get_no_entry(
    topic: Topic, store: Store, clock: Clock, tmp_path: Path
) -> None:
    topic.publish()
    topic.alter(config={"retention.ms": -1})
    topic.alter(partitions=3)
    topic.delete_records({0: 0})
    check_nothing_is_left(topic, store, tmp_path)
    topic.alter(add_columns={"more": pa.string()})
    assert topic.describe().published[0].lag_ms > 0
    assert steps(topic.publish().tables) == [1, 1]
    check_nothing_is_left(topic, store, tmp_path)
    clock.tick(8 * DAY)
    before = topic.version
    topic.vacuum(dry_run=False)
    assert topic.version > before
    check_nothing_is_left(topic, store, tmp_path)


def test_entry_is_written_before_the_commits_after_it_are_forgotten(
    topic: Topic, store: Store, clock: Clock, tmp_path: Path
) -> None:
    topic.publish()
    topic.alter(config={"retention.ms": -1})
    clock.tick(3 * DAY)
    assert steps(topic.publish().tables) == [0, 0]
    clock.tick(DAY)
    assert steps(topic.publish().tables) == [1, 1]
    check_nothing_is_left(topic, store, tmp_path)
    assert topic.verify()


def test_segment_that_the_log_start_cuts_is_sealed_once(
    topic: Topic, store: Store, tmp_path: Path
) -> None:
    topic.publish()
    append(topic)
    topic.delete_records({0: 1, 1: 1})
    append(topic)
    topic.publish()
    check_nothing_is_left(topic, store, tmp_path)
    plain_delta.check_table(topic, topic._store)


def test_table_that_was_removed_meanwhile_is_made_again_although_nothing_is_new(
    topic: Topic, store: Store, tmp_path: Path
) -> None:
    topic.publish()
    topic.alter(config={"retention.ms": -1})
    store.topic("t").unpublish()
    assert steps(topic.publish().tables) == [1, 1]
    check_nothing_is_left(topic, store, tmp_path)


def test_table_that_another_process_publishes_is_followed(
    topic: Topic, store: Store, tmp_path: Path
) -> None:
    other = store.topic("t")
    for number in range(6):
        append(topic)
        (topic, other)[number % 2].publish()
        check(topic, tmp_path)
    plain_delta.check_table(topic, topic._store)


@pytest.mark.records_in("commits")
def test_merge_of_shown_files_and_new_appends_are_one_publication(
    topic: Topic, store: Store, tmp_path: Path
) -> None:
    """A merge that runs beside publications joins the small files that these have sealed."""
    for _ in range(3):
        append(topic)
        topic.publish()
    topic.merge()
    append(topic)
    delta, iceberg = topic.publish().tables
    assert (delta.steps, iceberg.steps) == (1, 1)
    assert (delta.files_added, delta.files_removed) == (4, 6)
    entry = plain_delta.entries(topic._store)[-1]
    assert {gone["dataChange"] for gone in plain_delta.actions(entry, "remove")} == {False}
    assert [new["dataChange"] for new in plain_delta.actions(entry, "add")].count(True) == 2
    snapshots = plain_iceberg.open_table(tmp_path / "t").snapshots()[-2:]
    assert [s.summary.operation.value for s in snapshots if s.summary] == ["replace", "append"]
    check_nothing_is_left(topic, store, tmp_path)
    plain_delta.check_table(topic, topic._store)


@pytest.mark.parametrize("name", BOTH)
def test_two_publications_that_copy_the_same_appends(
    disk: AgingDisk, clock: Clock, tmp_path: Path, name: str
) -> None:
    """One shows two appends by a copy of its own, the other has sealed these two and a third. The
    second must not count on its copy: the table has the first one's."""
    store = make_store(disk, clock)
    topic = store.create_topic("t", 1, {"k": pa.string(), "v": pa.int64()}, "k")
    append(topic)
    topic.publish([name])
    reached, may_go_on = Event(), Event()

    def stop_first(verb: str, key: str) -> None:
        if verb == "create" and "_manifest/" in key and not reached.is_set():
            reached.set()
            assert may_go_on.wait(60)

    def let_first_end(verb: str, key: str) -> None:
        if verb == "create" and "_manifest/" in key and not may_go_on.is_set():
            may_go_on.set()
            thread.join()

    first = make_store(FaultyStore(disk, stop_first), clock).topic("t")
    second = make_store(FaultyStore(disk, let_first_end), clock).topic("t")
    append(topic)
    append(topic)
    thread = Thread(target=first.publish, args=([name],))
    thread.start()
    assert reached.wait(60)
    append(topic)
    second.publish([name])
    assert may_go_on.is_set()
    for _ in range(2):
        append(topic)
        topic.publish([name])
    expected = topic.read().read_all().sort_by(plain_iceberg.ORDER)
    if name == "delta":
        plain_delta.check_table(topic, topic._store)
    else:
        table = plain_iceberg.open_table(tmp_path / "t")
        found = plain_iceberg.rows(table.scan().to_arrow(), expected.schema)
        assert found == expected.to_pylist()
