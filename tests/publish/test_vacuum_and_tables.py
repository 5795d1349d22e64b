"""Vacuum and published tables know each other [PUB-7]."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

import pylogtable
from pylogtable import InvalidRequestError, Store, Topic
from pylogtable.storage.local import LocalStore
from tests.builders import Clock, make_store
from tests.publish.plain_delta import check_table, entries, files_at, places
from tests.stores import AgingDisk

DAY = 86_400_000


@pytest.fixture
def disk(tmp_path: Path, clock: Clock) -> Store:
    return make_store(AgingDisk(tmp_path, clock), clock, in_files=True)


@pytest.fixture
def topic(disk: Store) -> Topic:
    topic = disk.create_topic("t", schema={"n": pa.int64()}, config={"retention.ms": -1})
    append(topic)
    append(topic)
    topic.publish()
    return topic


@pytest.fixture
def folder(tmp_path: Path) -> LocalStore:
    return LocalStore(tmp_path / "t")


def append(topic: Topic) -> None:
    topic.append(pa.table({"n": [1, 2, 3]}))


def shown(folder: LocalStore) -> set[str]:
    return set(files_at(entries(folder)))


def there(folder: LocalStore) -> set[str]:
    return {info.key for info in folder.list() if info.key.startswith("partition=")}


@pytest.mark.parametrize("retention_ms", [None, 0])
def test_files_that_the_table_shows_stay_although_the_topic_has_replaced_them(
    topic: Topic, folder: LocalStore, clock: Clock, retention_ms: int | None
) -> None:
    old = shown(folder)
    topic.merge()
    clock.tick(8 * DAY)
    topic.vacuum(dry_run=False, retention_ms=retention_ms, force=True)
    assert old <= there(folder)
    assert len(places(folder, list(old))) == 6
    topic.publish()
    clock.tick(8 * DAY)
    topic.vacuum(dry_run=False, retention_ms=retention_ms, force=True)
    assert not old & there(folder)
    assert len(places(folder, list(shown(folder)))) == 6


def test_files_of_older_versions_stay_for_the_window(
    topic: Topic, folder: LocalStore, clock: Clock
) -> None:
    old = shown(folder)
    topic.merge()
    topic.publish()
    clock.tick(6 * DAY)
    topic.vacuum(dry_run=False)
    assert old <= there(folder)
    check_table(topic, folder)


@pytest.mark.parametrize("retention_ms", [None, 0])
def test_versions_whose_files_a_vacuum_has_removed_are_passed_over(
    topic: Topic, folder: LocalStore, clock: Clock, retention_ms: int | None
) -> None:
    append(topic)
    append(topic)
    topic.delete_records({0: 10})
    clock.tick(9 * DAY)
    append(topic)
    topic.vacuum(dry_run=False, retention_ms=retention_ms, force=True)
    newest = topic.version
    (table,) = topic.publish(["delta"]).tables
    assert (table.steps, table.version) == (1, newest)
    expected = [(0, offset) for offset in range(10, 15)]
    assert places(folder, list(shown(folder))) == expected


def test_entries_below_an_old_checkpoint_are_removed(
    topic: Topic, folder: LocalStore, clock: Clock
) -> None:
    for _ in range(12):
        append(topic)
        topic.publish()
    clock.tick(8 * DAY)
    append(topic)
    topic.publish()
    report = topic.vacuum(dry_run=False)
    assert report.table_files == 11  # entries 0 to 9, and the checkpoint of 0
    assert len(entries(folder)) == 4
    append(topic)
    (table,) = topic.publish().tables
    assert (table.table_version, table.version) == (14, topic.version)


def test_files_of_refused_writers_are_reported_and_stay(topic: Topic, tmp_path: Path) -> None:
    stray = tmp_path / "t" / "partition=0" / "part-00000-1234.c000.snappy.parquet"
    stray.write_bytes(b"not ours")
    report = topic.vacuum(dry_run=False, retention_ms=0, force=True)
    assert report.strangers == ("partition=0/part-00000-1234.c000.snappy.parquet",)
    assert stray.exists()


def test_vacuum_beside_a_foreign_table_removes_nothing(topic: Topic, tmp_path: Path) -> None:
    topic.merge()
    log = tmp_path / "t" / "_delta_log"
    (log / f"{1:020d}.json").write_text('{"commitInfo":{"operation":"WRITE"}}\n')
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(InvalidRequestError, match="move it away"):
        topic.vacuum(dry_run=False, retention_ms=0, force=True)
    assert sorted(tmp_path.rglob("*")) == before


def test_version_that_was_replaced_long_ago_is_shown_by_copies(
    disk: Store, tmp_path: Path, clock: Clock
) -> None:
    """A vacuum that is under way may be about to remove its files [PUB-4]."""
    config = {"cleanup.policy": "compact"}
    topic = disk.create_topic("c", schema={"k": pa.string()}, key="k", config=config)
    folder = LocalStore(tmp_path / "c")
    topic.append(pa.table({"k": ["a"]}))
    topic.publish()
    topic.append(pa.table({"k": ["b", "a"]}))
    passing = set(topic.segments()["path"].to_pylist()) - shown(folder)
    topic.append(pa.table({"k": ["b"]}))
    topic.compact(force=True)
    clock.tick(4 * DAY)
    topic.publish()
    log = check_table(topic, folder)
    assert len(log) == 3
    assert len(passing) == 1
    assert not passing & set(files_at(log[:2]))


def test_no_folder_of_a_table_is_left_after_unpublish(tmp_path: Path) -> None:
    topic = pylogtable.open(tmp_path).create_topic("t", schema={"n": pa.int64()})
    append(topic)
    for _ in range(2):
        topic.publish(["delta", "iceberg"])
        assert {"_delta_log", "metadata"} <= {path.name for path in (tmp_path / "t").iterdir()}
        topic.unpublish()
        left = {path.name for path in (tmp_path / "t").iterdir()}
        assert left == {"_manifest", "partition=0"}
