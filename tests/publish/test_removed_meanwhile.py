"""Publications that meet the end of a table, of a file or of the topic itself."""

from __future__ import annotations

import logging
import random
from collections.abc import Callable
from pathlib import Path

import msgspec
import pyarrow as pa
import pytest

from pylogtable import LogTableError, Topic
from pylogtable.errors import TopicNotFoundError
from pylogtable.format.json_codec import decode_commit, encode
from pylogtable.format.paths import commit_path
from pylogtable.storage.base import ObjectStore
from pylogtable.storage.memory import MemoryStore
from tests.builders import Clock, make_store
from tests.publish import plain_delta, plain_iceberg
from tests.stores import AgingDisk, Fault, FaultyStore, SimulatedCrash

BOTH = ["delta", "iceberg"]
SCHEMA = {"k": pa.int64(), "v": pa.int64()}
HOUR_MS = 3_600_000


def append(topic: Topic, *keys: int) -> None:
    topic.append(pa.table({"k": [*keys], "v": [*keys]}))


def once_before(
    inner: ObjectStore, verb: str, part: str, action: Callable[[], object]
) -> FaultyStore:
    """A store that lets something happen before its first request of this kind."""
    is_due = True

    def decide(asked: str, key: str) -> Fault | None:
        nonlocal is_due
        if is_due and asked == verb and part in key:
            is_due = False
            action()
        return None

    return FaultyStore(inner, decide)


def shown(topic: Topic, folder: Path, name: str) -> list[int]:
    if name == "delta":
        (entry, *_) = plain_delta.entries(topic._store)[::-1]
        assert plain_delta.shown_version(entry) == topic.version
        return sorted(_delta_rows(folder))
    found = plain_iceberg.open_table(folder).scan().to_arrow()
    return sorted(found["k"].to_pylist())


def _delta_rows(folder: Path) -> list[int]:
    from deltalake import DeltaTable, QueryBuilder

    found = QueryBuilder().register("t", DeltaTable(folder)).execute("SELECT k FROM t").read_all()
    return [int(k) for k in pa.table(found)["k"].to_pylist()]


@pytest.mark.parametrize("is_created_anew", [False, True])
def test_topic_whose_folder_is_gone_gets_no_records_afterwards(
    objects: MemoryStore, clock: Clock, is_created_anew: bool
) -> None:
    """The seal of a publication is tried again after it has met nothing that it can stand on. Its
    first object must not count as the commit of somebody else."""

    def wipe() -> None:
        for info in list(objects.list("t/")):
            objects.delete(info.key)
        if is_created_anew:
            append(make_store(objects, clock).create_topic("t", 1, SCHEMA, "k"), 100)

    append(make_store(objects, clock).create_topic("t", 1, SCHEMA, "k"), 1)
    is_sealing = False

    def decide(verb: str, key: str) -> Fault | None:
        nonlocal is_sealing
        if is_sealing and verb == "create" and "_manifest" in key:
            is_sealing = False
            wipe()
        return None

    topic = make_store(FaultyStore(objects, decide), clock).topic("t")
    topic.publish(["delta"])
    append(topic, 2)
    is_sealing = True
    with pytest.raises(TopicNotFoundError):
        topic.publish(["delta"])
    with pytest.raises(TopicNotFoundError):
        append(topic, 3)
    assert not list(objects.list("t/_delta_log/"))
    if is_created_anew:
        assert make_store(objects, clock).topic("t").read().read_all()["k"].to_pylist() == [100]


@pytest.mark.parametrize("name", BOTH)
def test_first_entry_is_taken_back_if_what_it_needs_was_removed(
    tmp_path: Path, clock: Clock, name: str
) -> None:
    disk = AgingDisk(tmp_path, clock)
    config = {"publish.view": "latest", "inline.max.bytes": 0}
    topic = make_store(disk, clock).create_topic("t", 1, SCHEMA, "k", config=config)
    chance = random.Random(1)
    append(topic, *(chance.randrange(3_000) for _ in range(6_000)))
    entry = "_delta_log/0" if name == "delta" else "metadata/v1."
    removed: list[int] = []
    store = once_before(disk, "create", entry, lambda: removed.append(topic.unpublish([name])))
    publisher = make_store(store, clock).topic("t")
    publisher.publish([name])
    assert removed[0] > 0
    keys = sorted(topic.latest()["k"].to_pylist())
    assert shown(topic, tmp_path / "t", name) == keys
    append(topic, 5_000)
    publisher.publish([name])
    assert shown(topic, tmp_path / "t", name) == [*keys, 5_000]


@pytest.mark.parametrize("name", BOTH)
@pytest.mark.parametrize("is_published_anew", [False, True])
@pytest.mark.parametrize("view", ["records", "latest"])
def test_table_that_another_process_removed_is_not_called_damaged(
    tmp_path: Path, clock: Clock, name: str, is_published_anew: bool, view: str
) -> None:
    disk = AgingDisk(tmp_path, clock)
    config = {"publish.view": view, "inline.max.bytes": 0}
    knows = make_store(disk, clock).create_topic("t", 1, SCHEMA, "k", config=config)
    for number in range(3):
        append(knows, 0, number)
        knows.publish([name])
    other = make_store(disk, clock).topic("t")
    other.unpublish([name])
    if is_published_anew:
        other.publish([name])
    append(other, 10)
    other.delete_records({0: 2})
    knows.publish([name])
    expected = other.latest() if view == "latest" else other.read().read_all()
    assert shown(other, tmp_path / "t", name) == sorted(expected["k"].to_pylist())


def test_only_void_commits_since_the_last_publication(objects: MemoryStore) -> None:
    """They are of a writer that did not know that the topic was created anew."""
    topic = make_store(objects, in_files=True).create_topic("t", 1, SCHEMA, "k")
    append(topic, 1)
    topic.publish(["delta"])
    data = objects.read(f"t/{commit_path(topic.version)}")
    assert data is not None
    commit = decode_commit(data, topic.version)
    number = topic.version + 1
    void = msgspec.structs.replace(commit, version=number, topic_id="f" * 32, commit_id="e" * 32)
    objects.write(f"t/{commit_path(number)}", encode(void))
    for publisher in (topic, make_store(objects).topic("t")):
        (table,) = publisher.publish(["delta"]).tables
        assert (table.steps, table.files_added) == (0, 0)


def test_copy_that_a_vacuum_has_removed_is_not_shown(objects: MemoryStore, clock: Clock) -> None:
    """The process that wrote it has its footer in memory still."""
    topic = make_store(objects, clock).create_topic(
        "t", 1, SCHEMA, "k", config={"cleanup.policy": "compact"}
    )
    append(topic, 1)
    is_down = False

    def decide(verb: str, key: str) -> Fault | None:
        return Fault.CRASH_BEFORE if is_down and verb == "create" and "_delta_log" in key else None

    publisher = make_store(FaultyStore(objects, decide), clock).topic("t")
    with pytest.warns(UserWarning, match="is compacted"):
        publisher.publish(["delta"])
    topic.append(pa.table({"k": [5, 5, 6], "v": [1, 2, 3]}))
    is_down = True
    with pytest.raises(SimulatedCrash):
        publisher.publish(["delta"])
    is_down = False
    topic.compact(force=True)
    clock.tick(2 * HOUR_MS)
    assert topic.vacuum(dry_run=False, retention_ms=0, force=True).files
    publisher.publish(["delta"])
    log = plain_delta.entries(objects.below("t"))
    there = {info.key for info in objects.below("t").list()}
    for number in range(len(log)):
        assert {*plain_delta.files_at(log[: number + 1])} <= there


def test_copies_that_cannot_be_committed_do_not_make_a_publication_fail(
    objects: MemoryStore, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    """The tables show them all the same [PUB-2]."""
    topic = make_store(objects, clock).create_topic("t", 1, SCHEMA, "k")
    append(topic, 1)
    seals = 0
    is_down = False

    def decide(verb: str, key: str) -> Fault | None:
        nonlocal seals
        if is_down and verb == "create" and "_manifest/0" in key:
            seals += 1
            if seals == 1:
                append(topic, 3)
            else:
                raise LogTableError("the store takes no commits")
        return None

    publisher = make_store(FaultyStore(objects, decide), clock).topic("t")
    publisher.publish(["delta"])
    append(topic, 2)
    is_down = True
    with caplog.at_level(logging.WARNING):
        (table,) = publisher.publish(["delta"]).tables
    assert seals > 1
    assert table.version == 3
    assert "were not committed" in caplog.text
    is_down = False
    publisher.publish(["delta"])
    plain_delta.check_table(topic, objects.below("t"))
