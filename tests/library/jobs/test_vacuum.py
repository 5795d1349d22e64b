"""Vacuum: what nothing needs goes, what anyone may need stays."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from pylogtable import CorruptTopicError, InvalidRequestError, Store, Topic
from pylogtable.engine import plan_append
from pylogtable.storage.memory import MemoryStore
from tests.builders import IN_FILES, SMALL, Clock, data_files, kafka, make_store, rows
from tests.stores import AgingDisk, CountingStore

DAY = 86_400_000
COMPACT = {"cleanup.policy": "compact"}


@pytest.fixture
def disk(tmp_path: Path, clock: Clock) -> Store:
    return make_store(AgingDisk(tmp_path, clock), clock, in_files=True)


def age_all(folder: Path, clock: Clock) -> None:
    """Give every file the time that the test's clock says."""
    for path in folder.rglob("*"):
        if path.is_file() and path.stat().st_mtime * 1000 > clock() + 30 * DAY:
            os.utime(path, (clock() / 1000, clock() / 1000))


def files(folder: Path, pattern: str = "**/*") -> set[str]:
    return {str(p.relative_to(folder)) for p in folder.glob(pattern) if p.is_file()}


def test_replaced_files_are_removed_when_no_kept_version_needs_them(
    disk: Store, tmp_path: Path, clock: Clock
) -> None:
    topic = disk.create_topic("t", config=COMPACT)
    topic.append(kafka(["a", "a"]))
    old = files(tmp_path, "t/partition=0/*")
    topic.compact()
    age_all(tmp_path, clock)
    clock.tick(7 * DAY - 1)
    assert topic.vacuum(dry_run=False).files == ()
    clock.tick(10)
    dry = topic.vacuum()
    assert dry.dry_run
    assert {f"t/{path}" for path in dry.files} == old
    assert files(tmp_path, "t/partition=0/*") > old
    report = topic.vacuum(dry_run=False)
    assert report.data_files == 1
    assert not files(tmp_path, "t/partition=0/*") & old
    assert rows(topic.read(), "offset") == [1]
    assert topic.verify(data=True)


def test_old_files_of_failed_writes_are_removed_and_young_ones_kept(
    disk: Store, tmp_path: Path, clock: Clock
) -> None:
    topic = disk.create_topic("t")
    topic.append(kafka(["a"]))
    orphan = plan_append(topic).stage(kafka(["b"])).files[0].path
    age_all(tmp_path, clock)
    clock.tick(7 * DAY)
    young = plan_append(topic).stage(kafka(["c"]))
    age_all(tmp_path, clock)
    clock.tick(1)
    assert topic.vacuum(dry_run=False).files == (orphan,)
    plan_append(topic).commit([young])
    assert rows(topic.read(), "offset") == [0, 1]


KILLED = """
import os, sys
from pylogtable.storage.local import LocalStore

def die(*_):
    os.kill(os.getpid(), 9)

store = LocalStore(sys.argv[1])
if sys.argv[2] == "segment":
    with store.open_output("partition=0/0-a.parquet") as sink:
        sink.write(b"half of it")
        die()
os.link = die
store.create("_manifest/x.json", b"all of it")
"""


def test_leftovers_of_killed_writers_are_removed_when_old(
    disk: Store, tmp_path: Path, clock: Clock
) -> None:
    topic = disk.create_topic("t")
    topic.append(kafka(["a"]))
    for what in ("segment", "commit"):
        command = [sys.executable, "-c", KILLED, str(tmp_path / "t"), what]
        assert subprocess.run(command, check=False).returncode == -9
    dead = files(tmp_path / "t", "**/.tmp-*")
    assert {path.split("/")[0] for path in dead} == {"partition=0", "_manifest"}
    age_all(tmp_path, clock)
    clock.tick(7 * DAY)
    alive = tmp_path / "t" / "partition=0" / ".tmp-alive"
    alive.write_bytes(b"so far")
    age_all(tmp_path, clock)
    assert topic.vacuum().files == ()
    clock.tick(1)
    assert set(topic.vacuum().files) == dead
    assert files(tmp_path / "t", "**/.tmp-*") > dead
    report = topic.vacuum(dry_run=False)
    assert (set(report.files), report.data_files, report.manifest_files) == (dead, 1, 1)
    assert files(tmp_path / "t", "**/.tmp-*") == {"partition=0/.tmp-alive"}
    assert rows(topic.read(), "offset") == [0]
    assert topic.verify(data=True)


def test_time_travel_inside_the_window_still_works(
    disk: Store, tmp_path: Path, clock: Clock
) -> None:
    topic = disk.create_topic("t", config=COMPACT)
    versions = {}
    for day in range(10):
        topic.append(kafka(["a", "a"], [f"{day}a", f"{day}b"]))
        topic.compact(force=True)
        versions[topic.version] = clock(), topic.read().read_all()
        age_all(tmp_path, clock)
        clock.tick(DAY)
    topic.vacuum(dry_run=False)
    for version, (made_ms, read) in versions.items():
        if made_ms > clock() - 7 * DAY:
            assert topic.read(version=version).read_all() == read
    assert topic.verify(data=True)


def test_old_commits_roots_and_leaves_are_removed(
    disk: Store, tmp_path: Path, clock: Clock
) -> None:
    topic = disk.create_topic("t")
    for number in range(200):
        txn = {10: ("etl", 0), 3: ("old", 0), 20: ("old", 2)}.get(number)
        topic.append(kafka([str(number)]), txn=txn)
    age_all(tmp_path, clock)
    clock.tick(8 * DAY)
    before = topic.read().read_all()
    topic.vacuum(dry_run=False)
    commits = files(tmp_path, "t/_manifest/*[0-9].json")
    assert files(tmp_path, "t/_manifest/*.root.json") <= {
        f"t/_manifest/{v:020d}.root.json" for v in (192, 201)
    }
    assert f"t/_manifest/{11:020d}.json" in commits
    assert f"t/_manifest/{5:020d}.json" not in commits
    fresh = disk.topic("t")
    assert fresh.read().read_all() == before
    assert fresh.append(kafka(["x"]), txn=("etl", 0)).repeated
    assert plan_append(fresh).find_txn("old", 2) is not None
    for repeat in (
        lambda: fresh.append(kafka(["x"]), txn=("old", 0)),
        lambda: plan_append(fresh).find_txn("old", 0),
    ):
        with pytest.raises(
            InvalidRequestError, match=r"txn 0 of app id 'old'.*commit 4 .*removed by vacuum"
        ):
            repeat()
    assert fresh.append(kafka(["y"])).offsets == {0: (200, 201)}
    assert fresh.verify(data=True)


def test_a_topic_without_hint_is_found_after_its_first_commits_are_gone(
    disk: Store, tmp_path: Path, clock: Clock
) -> None:
    topic = disk.create_topic("t")
    for number in range(130):
        topic.append(kafka([str(number)]))
    age_all(tmp_path, clock)
    clock.tick(8 * DAY)
    topic.vacuum(dry_run=False)
    (tmp_path / "t/_manifest/_head.json").unlink()
    assert disk.topic("t").count() == 130


def test_vacuum_stops_at_an_unreadable_reference(disk: Store, tmp_path: Path, clock: Clock) -> None:
    topic = disk.create_topic("t")
    for number in range(130):
        topic.append(kafka([str(number)]))
    age_all(tmp_path, clock)
    clock.tick(8 * DAY)
    topic.append(kafka(["late"]))
    (tmp_path / f"t/_manifest/{128:020d}.root.json").write_text("garbage")
    before = files(tmp_path)
    with pytest.raises(CorruptTopicError, match="VAC-2"):
        topic.vacuum(dry_run=False)
    assert files(tmp_path) == before


def test_files_with_foreign_names_are_left_alone(disk: Store, tmp_path: Path, clock: Clock) -> None:
    topic = disk.create_topic("t")
    topic.append(kafka(["a"]))
    strange = ["t/_groups/g/00000000000000000000.json", "t/notes.txt", "t/partition=0/x.parquet"]
    for name in strange:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("{}")
    age_all(tmp_path, clock)
    clock.tick(30 * DAY)
    assert topic.vacuum(dry_run=False).files == ()
    assert files(tmp_path) >= set(strange)


def test_a_shorter_window_frees_replaced_files_at_once(
    disk: Store, tmp_path: Path, clock: Clock
) -> None:
    topic: Topic = disk.create_topic("t", config=COMPACT)
    topic.append(kafka(["a", "a"]))
    old = topic.segments()["path"].to_pylist()
    orphan = plan_append(topic).stage(kafka(["b"])).files[0].path
    topic.compact()
    age_all(tmp_path, clock)
    clock.tick(10)
    with pytest.raises(InvalidRequestError, match=r"versions of the last 7 days .*force=True"):
        topic.vacuum(dry_run=False, retention_ms=7 * DAY - 1)
    assert set(old) <= set(topic.vacuum(retention_ms=0).files)  # a dry run is free
    assert topic.vacuum(dry_run=False, retention_ms=7 * DAY).files == ()
    report = topic.vacuum(dry_run=False, retention_ms=0, force=True)
    assert list(report.files) == old
    assert (tmp_path / "t" / orphan).exists()


def test_short_vacuum_keeps_the_index_that_others_have_loaded(
    objects: MemoryStore, clock: Clock
) -> None:
    store = make_store(objects, clock, replace(SMALL, root_grace=8))
    topic = store.create_topic("t", config=IN_FILES)
    for _ in range(9):
        topic.append(kafka(["a"]))
    clock.tick(8 * DAY)
    idle = store.topic("t")
    for _ in range(3):
        topic.append(kafka(["b"]))
    topic.delete_records({0: 5})
    assert idle.end_offsets() == {0: 12}
    began_at = idle._log.known.root_version
    assert began_at != topic._log.known.root_version
    for _ in range(2):
        clock.tick(10)
        topic.vacuum(dry_run=False, retention_ms=0, force=True)
        assert idle.end_offsets() == {0: 12}
    assert idle._log.known.root_version == began_at
    assert rows(idle.read(), "offset") == [5, 6, 7, 8, 9, 10, 11]


def test_leaf_stays_as_long_as_a_root_that_stays_names_it(
    objects: MemoryStore, clock: Clock
) -> None:
    """Otherwise a later vacuum, which begins at that root, takes the topic for damaged."""
    store = make_store(objects, clock, replace(SMALL, merge_width=8))
    topic = store.create_topic("t", config=IN_FILES)
    for _ in range(11):
        topic.append(kafka(["a"]))
    clock.tick(8 * DAY)
    topic.append(kafka(["b"]))
    topic.delete_records({0: 9})
    clock.tick(900)
    for keep_ms in [0, 0, 1000]:
        clock.tick(10)
        store.topic("t").vacuum(dry_run=False, retention_ms=keep_ms, force=True)
    roots = topic._log.manifest.roots
    leaves = {leaf for version in roots.versions() for leaf in roots.read(version).leaves}
    for leaf in leaves:
        assert topic._log.manifest.leaves.load(leaf, None)


def test_many_commits_are_not_read_and_their_files_stay_longer() -> None:
    """At 10 appends a second, a week has six million commits."""
    clock = Clock()
    objects = CountingStore(MemoryStore(clock=clock))
    limits = replace(SMALL, vacuum_commits=20)
    topic = make_store(objects, clock, limits).create_topic("t", config={**COMPACT, **IN_FILES})
    versions = {}
    for day in range(12):
        for number in range(8):
            topic.append(kafka(["a", "b"], [f"{day}a", f"{number}b"]))
        topic.compact(force=True)
        versions[topic.version] = clock(), topic.read().read_all()
        clock.tick(DAY)
    objects.reset()
    report = topic.vacuum(dry_run=False)
    read = {key for verb, key in objects.by_key if verb == "read" and "_manifest/0" in key}
    in_window = 7 * 9
    assert len([key for key in read if "root" not in key]) < in_window / 2
    made_ms = {info.key: info.modified_ms for info in objects.list()}
    assert report.data_files > 0
    assert all(key not in made_ms for key in report.files)
    for version, (at_ms, before) in versions.items():
        if at_ms > clock() - 7 * DAY:
            assert topic.read(version=version).read_all() == before
    assert topic.verify(data=True)
    live = {f"t/{path}" for path in topic.segments()["path"].to_pylist()}
    replaced = [made_ms[key] for key in data_files(objects) if key not in live]
    assert clock() - 10.5 * DAY <= min(replaced) < clock() - 9 * DAY
