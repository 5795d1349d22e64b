"""What an erase says about the records that it removed: where they still are, and until when."""

from __future__ import annotations

import pyarrow.compute as pc
import pytest

from pylogtable import InvalidRequestError, SegmentGoneError, Topic
from pylogtable.format.paths import commit_path, root_path
from pylogtable.limits import Limits
from pylogtable.storage.memory import MemoryStore
from tests.builders import IN_FILES, Clock, kafka, make_store, rows
from tests.stores import CountingStore

DAY_MS = 86_400_000
WEEK_MS = 7 * DAY_MS


@pytest.fixture
def inner(clock: Clock) -> MemoryStore:
    return MemoryStore(clock=clock)


@pytest.fixture
def topic(inner: MemoryStore, clock: Clock) -> Topic:
    topic = make_store(inner, clock).create_topic("t", config={"retention.ms": -1, **IN_FILES})
    for _ in range(3):
        topic.append(kafka(["a", "b"]))
        clock.tick(DAY_MS)
    return topic


def test_the_versions_that_hold_the_records_can_be_read_and_have_them(topic: Topic) -> None:
    report = topic.erase(keys=["a"])
    assert (report.version, report.held_from, report.held_to) == (4, 0, 3)
    assert b"a" not in rows(topic.read(version=report.version), "key")
    assert b"a" in rows(topic.read(version=report.held_to), "key")
    topic.at(report.held_from)


def test_a_vacuum_removes_the_old_files_from_the_time_that_it_says(
    topic: Topic, inner: MemoryStore, clock: Clock
) -> None:
    report = topic.erase(keys=["a"])
    assert report.vacuumed_from_ms == clock() + WEEK_MS
    assert len(report.old_files) == 3
    clock.now_ms = report.vacuumed_from_ms - 1
    topic.vacuum(dry_run=False)
    assert {f"t/{path}" for path in report.old_files} <= {info.key for info in inner.list()}
    clock.now_ms = report.vacuumed_from_ms
    topic.vacuum(dry_run=False)
    assert not {f"t/{path}" for path in report.old_files} & {info.key for info in inner.list()}
    with pytest.raises((SegmentGoneError, InvalidRequestError)):
        topic.read(version=report.held_to).read_all()
    assert topic.verify(data=True)


def test_the_oldest_version_is_that_of_the_oldest_root_after_a_vacuum(
    inner: MemoryStore, clock: Clock
) -> None:
    store = make_store(inner, clock, Limits(root_interval=4))
    topic = store.create_topic("t", config={"retention.ms": -1})
    for _ in range(30):
        topic.append(kafka(["a"]))
        clock.tick(DAY_MS)
    topic.merge()
    clock.tick(DAY_MS)
    topic.vacuum(dry_run=False)
    topic = store.topic("t")
    report = topic.erase(keys=["a"])
    assert report.held_from is not None
    assert report.held_from > 0
    assert inner.read(f"t/{root_path(report.held_from)}") is not None
    assert b"a" in rows(topic.read(version=report.held_from), "key")
    with pytest.raises(InvalidRequestError, match="no longer kept"):
        topic.at(report.held_from - 1)


def test_versions_of_a_deleted_topic_do_not_count(inner: MemoryStore, clock: Clock) -> None:
    store = make_store(inner, clock)
    store.create_topic("t").append(kafka(["a"]))
    store.delete_topic("t")
    topic = store.create_topic("t")
    topic.append(kafka(["a"]))
    report = topic.erase(keys=["a"])
    assert report.held_from == topic.version - 2
    topic.at(report.held_from)
    with pytest.raises(InvalidRequestError):
        topic.at(report.held_from - 1)


def test_the_oldest_version_costs_one_listing_and_one_read(topic: Topic, clock: Clock) -> None:
    for _ in range(30):
        topic.append(kafka(["b"]))
    counting = CountingStore(topic._store)
    manifest = type(topic._log.manifest)(counting)
    assert manifest.oldest_version(topic.at().snapshot) == 0
    assert counting.counts == {"list": 1, "read": 1}


def test_a_published_table_shows_the_records_until_the_next_publication(
    topic: Topic, clock: Clock
) -> None:
    topic.publish(["delta"])
    report = topic.erase(keys=["a"])
    assert (report.published, report.vacuumed_from_ms) == (("delta",), None)
    assert "the published delta table shows them until the next publication" in str(report)
    topic.publish(["delta"])
    assert topic.erase(where=pc.field("offset") == 1).published == ("delta",)
    topic.publish(["delta"])
    topic.unpublish()
    assert topic.erase(where=pc.field("offset") == 3).published == ()


def test_a_table_that_cannot_be_read_may_show_them(topic: Topic) -> None:
    topic.publish(["delta"])
    for info in list(topic._store.list("_delta_log/")):
        topic._store.write(info.key, b"{")
    assert topic.erase(keys=["a"]).published == ("delta",)


def test_commits_with_the_records_are_named_and_those_that_a_txn_keeps(
    topic: Topic, inner: MemoryStore, clock: Clock
) -> None:
    topic.alter(config={"inline.max.bytes": 16384})
    first = topic.append(kafka(["a", "c"]))
    last = topic.append(kafka(["a"]), txn=("etl", 1))
    report = topic.erase(keys=["a"])
    commits = [commit_path(first.version), commit_path(last.version)]
    assert [name for name in report.old_files if name.startswith("_manifest")] == commits
    assert report.kept_for_txns == ("etl",)
    removed = "removes 3 old files, 2 old commits and what earlier jobs have replaced from"
    assert removed in str(report)
    assert "but it keeps commits with the last txn of 'etl' until the next one" in str(report)
    assert report.vacuumed_from_ms is not None
    clock.now_ms = report.vacuumed_from_ms + 1
    topic.vacuum(dry_run=False)
    left = {info.key for info in inner.list()}
    assert f"t/{commits[0]}" not in left  # as the report says
    assert f"t/{commits[1]}" in left
    topic.append(kafka(["b"]), txn=("etl", 2))
    clock.tick(8 * DAY_MS)
    topic.vacuum(dry_run=False)
    assert f"t/{commits[1]}" not in {info.key for info in inner.list()}


def test_a_dry_run_says_which_versions_hold_them(topic: Topic) -> None:
    report = topic.erase(keys=["a"], dry_run=True)
    assert (report.held_from, report.held_to, report.vacuumed_from_ms) == (0, 3, None)
    assert str(report).startswith("would erase 3 records from 3 segments")


def test_the_report_in_words(topic: Topic, clock: Clock) -> None:
    text = str(topic.erase(keys=["a"]))
    assert "erased 3 records from 3 segments" in text
    assert "versions 0 to 3 may still have them" in text
    assert (
        "a vacuum removes 3 old files and what earlier jobs have replaced from 2023-11-24" in text
    )
    assert "no record matches in version 4" in str(topic.erase(keys=["a"]))


def test_a_table_that_is_published_again_loses_the_records(topic: Topic) -> None:
    """A Delta table, read by its own log: the old files are removed from it as changed data."""
    topic.publish(["delta"])
    topic.erase(keys=["a"])
    report = topic.publish(["delta"])
    (table,) = report.tables
    assert (table.version, table.files_added, table.files_removed) == (topic.version, 3, 3)


def test_commit_that_a_txn_keeps_is_named_after_a_merge_too(
    topic: Topic, inner: MemoryStore, clock: Clock
) -> None:
    """The records are in a file by then, and still in the commit."""
    topic.alter(config={"inline.max.bytes": 16384})
    kept = topic.append(kafka(["a", "c"]), txn=("etl", 1)).version
    topic.append(kafka(["d"]), txn=("other", 1))
    topic.merge()
    assert topic.erase(keys=["c"], dry_run=True).kept_for_txns == ("etl",)
    report = topic.erase(keys=["c"])
    assert report.kept_for_txns == ("etl",)
    assert topic.erase(keys=["b"]).kept_for_txns == ()
    clock.tick(8 * DAY_MS)
    topic.vacuum(dry_run=False)
    assert f"t/{commit_path(kept)}" in {info.key for info in inner.list()}
    topic.append(kafka(["e"]), txn=("etl", 2))
    clock.tick(8 * DAY_MS)
    topic.vacuum(dry_run=False)
    assert f"t/{commit_path(kept)}" not in {info.key for info in inner.list()}
