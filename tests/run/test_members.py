"""The claims of processes: who works, who waits, and who takes over."""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from pylogtable.errors import StorageError
from pylogtable.run.members import BEAT_MS, GONE_MS, LEASE_MS, MEMBERS_DIR, Members
from pylogtable.storage.local import LocalStore
from pylogtable.storage.memory import MemoryStore
from tests.builders import Clock, runtime
from tests.stores import FailingStore

TOPICS = [f"topic-{n}" for n in range(40)]


@pytest.fixture
def objects(clock: Clock) -> MemoryStore:
    return MemoryStore(clock=clock)


def member(objects: MemoryStore, clock: Clock, task: str = "all") -> Members:
    return Members(objects, runtime(clock), task)


def owned(members: Members) -> set[str]:
    return {topic for topic in TOPICS if members.owns(topic)}


def test_lone_process_begins_at_once(objects: MemoryStore, clock: Clock) -> None:
    alone = member(objects, clock)
    assert owned(alone) == set()
    alone.beat()
    assert owned(alone) == set(TOPICS)


def test_second_process_waits_until_the_first_has_seen_it(
    objects: MemoryStore, clock: Clock
) -> None:
    first, second = member(objects, clock), member(objects, clock)
    first.beat()
    clock.tick(1_000)
    second.beat()
    assert owned(first) == set(TOPICS)
    assert owned(second) == set()
    clock.tick(BEAT_MS)
    first.beat()
    second.beat()
    assert owned(first) | owned(second) == set(TOPICS)
    assert not owned(first) & owned(second)
    assert owned(first)
    assert owned(second)


@pytest.mark.parametrize("came_ms", [1_000, BEAT_MS // 2, BEAT_MS - 500])
def test_topics_go_to_a_process_that_joins_when_it_begins(
    objects: MemoryStore, clock: Clock, came_ms: int
) -> None:
    """No topic stands still meanwhile, and none has two owners."""
    first, second, third = (member(objects, clock) for _ in range(3))
    first.beat()
    clock.tick(BEAT_MS)
    second.beat()
    comes_ms = clock() + came_ms
    seen_owners = set()
    while clock() < comes_ms + 3 * BEAT_MS:
        for one in (first, second, third):
            if one.next_beat_ms <= clock() and (one is not third or clock() >= comes_ms):
                one.beat()
        shares = [owned(first), owned(second), owned(third)]
        assert sum(map(len, shares)) == len(TOPICS) == len(set().union(*shares))
        seen_owners.add(sum(map(bool, shares)))
        clock.tick(500)
    assert seen_owners == {1, 2, 3}


def test_spare_takes_over_when_the_lease_of_a_killed_process_has_ended(
    objects: MemoryStore, clock: Clock
) -> None:
    first, second = member(objects, clock), member(objects, clock)
    for _ in range(3):
        first.beat()
        second.beat()
        clock.tick(BEAT_MS)
    share = owned(second)
    first.beat()
    for _ in range(LEASE_MS // BEAT_MS):
        second.beat()
        assert owned(second) == share
        clock.tick(BEAT_MS)
    second.beat()
    assert owned(second) == set(TOPICS)


def test_process_that_ends_gives_its_topics_up_at_once(objects: MemoryStore, clock: Clock) -> None:
    first, second = member(objects, clock), member(objects, clock)
    for _ in range(2):
        first.beat()
        second.beat()
        clock.tick(BEAT_MS)
    first.leave()
    second.beat()
    assert owned(second) == set(TOPICS)


def test_process_that_slept_longer_than_its_lease_works_only_after_it_was_seen_again(
    objects: MemoryStore, clock: Clock
) -> None:
    first, second = member(objects, clock), member(objects, clock)
    for _ in range(2):
        first.beat()
        second.beat()
        clock.tick(BEAT_MS)
    for _ in range(4):
        clock.tick(BEAT_MS)
        second.beat()
    assert owned(second) == set(TOPICS)
    assert owned(first) == set()  # it has not looked for 40 seconds
    first.beat()
    assert owned(first) == set()
    clock.tick(BEAT_MS)
    second.beat()
    first.beat()
    assert not owned(first) & owned(second)
    assert owned(first)


def test_objects_of_killed_processes_are_removed(objects: MemoryStore, clock: Clock) -> None:
    killed = member(objects, clock)
    killed.beat()
    clock.tick(GONE_MS + 1)
    other = member(objects, clock)
    other.beat()
    (left,) = objects.list(MEMBERS_DIR)
    assert left.key == f"{MEMBERS_DIR}{other.id}.json"
    about = json.loads(objects.read(left.key) or b"")
    assert about["at_ms"] == clock()
    assert about["host"]


def test_store_that_takes_no_claims_does_not_stop_the_work(
    objects: MemoryStore, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    failing = FailingStore(objects)
    failing.fails = lambda verb, key: key.startswith(MEMBERS_DIR)
    alone = Members(failing, runtime(clock))
    for _ in range(5):
        alone.beat()
        assert owned(alone) == set(TOPICS)
        clock.tick(BEAT_MS)
    assert caplog.text.count("cannot claim topics") == 1


def test_claim_that_cannot_be_renewed_ends_with_its_lease(
    objects: MemoryStore, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    failing = FailingStore(objects)
    mine = Members(failing, runtime(clock))
    mine.beat()
    failing.fails = lambda verb, key: True
    with pytest.raises(StorageError):
        failing.read("x")
    clock.tick(LEASE_MS - 1)
    mine.beat()
    assert owned(mine) == set(TOPICS)
    clock.tick(1)
    assert owned(mine) == set()  # from now on the others count it as gone
    assert mine.next_beat_ms > clock()
    for _ in range(3):
        mine.beat()
    assert caplog.text.count("cannot renew its claim") == 1
    failing.fails = lambda verb, key: False
    mine.beat()
    assert owned(mine) == set(TOPICS)
    assert caplog.text.count("has renewed its claim") == 1


def test_folder_of_a_store_that_is_gone_is_not_made_again(
    tmp_path: Path, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    """Its disk was unmounted, or somebody has moved it."""
    (folder := tmp_path / "logs").mkdir()
    mine = Members(LocalStore(folder), runtime(clock))
    mine.beat()
    folder.rename(tmp_path / "moved")
    for _ in range(4):
        clock.tick(BEAT_MS)
        mine.beat()
    assert not folder.exists()
    assert "the folder of the store is gone" in caplog.text


def test_processes_with_other_tasks_do_not_take_topics_from_each_other(
    objects: MemoryStore, clock: Clock
) -> None:
    """One that only publishes would leave its topics without retention."""
    everything, publishes = member(objects, clock), member(objects, clock, "publishes")
    for _ in range(3):
        everything.beat()
        publishes.beat()
        clock.tick(BEAT_MS)
    assert owned(everything) == owned(publishes) == set(TOPICS)


def test_object_that_cannot_be_removed_is_left_there(objects: MemoryStore, clock: Clock) -> None:
    member(objects, clock).beat()
    clock.tick(GONE_MS + 1)
    failing = FailingStore(objects)
    failing.fails = lambda verb, key: verb == "delete"
    mine = Members(failing, runtime(clock))
    mine.beat()
    assert owned(mine) == set(TOPICS)


def test_clock_that_was_set_back_makes_a_process_claim_its_topics_anew(
    objects: MemoryStore, clock: Clock
) -> None:
    own = Clock()
    mine = Members(objects, runtime(own))
    mine.beat()
    own.now_ms -= 3_600_000
    assert owned(mine) == set()
    mine.beat()
    assert owned(mine) == set(TOPICS)
    assert mine.next_beat_ms == own() + BEAT_MS


def claim_of_a_killed_process(objects: MemoryStore, clock: Clock) -> tuple[str, dict[str, Any]]:
    """The key of its claim, and what is in it."""
    member(objects, clock).beat()
    (claim,) = objects.list(MEMBERS_DIR)
    return claim.key, json.loads(objects.read(claim.key) or b"")


def test_process_that_is_started_in_the_place_of_a_killed_one_begins_at_once(
    objects: MemoryStore, clock: Clock
) -> None:
    key, about = claim_of_a_killed_process(objects, clock)
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    objects.write(key, json.dumps({**about, "process": ended.pid}).encode())
    clock.tick(1_000)
    again = member(objects, clock)
    again.beat()
    assert owned(again) == set(TOPICS)
    assert [info.key for info in objects.list(MEMBERS_DIR)] == [f"{MEMBERS_DIR}{again.id}.json"]


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="needs Linux's /proc")
def test_process_of_a_container_that_was_started_again_has_the_number_of_the_killed_one(
    objects: MemoryStore, clock: Clock
) -> None:
    key, about = claim_of_a_killed_process(objects, clock)
    assert about["process"] == os.getpid()
    objects.write(key, json.dumps({**about, "started": about["started"] - 1}).encode())
    again = member(objects, clock)
    again.beat()
    assert owned(again) == set(TOPICS)


ODD_CLAIMS = [b"", b"{", b"[]", b"null", b'{"process": "x"}', b"\xff"]


def odd_claims_of_this_machine() -> list[bytes]:
    _, about = claim_of_a_killed_process(MemoryStore(), Clock())
    return [json.dumps({**about, "process": odd}).encode() for odd in (None, [], 10**30)]


@pytest.mark.parametrize("content", [*ODD_CLAIMS, *odd_claims_of_this_machine()])
def test_claim_that_cannot_be_read_counts_as_long_as_its_lease(
    objects: MemoryStore, clock: Clock, content: bytes
) -> None:
    other = member(objects, clock)
    objects.write(f"{MEMBERS_DIR}{other.id}.json", content)
    mine = member(objects, clock)
    mine.beat()
    assert owned(mine) == set()
    clock.tick(LEASE_MS)
    mine.beat()
    clock.tick(BEAT_MS)
    mine.beat()
    assert owned(mine) == set(TOPICS)


def test_claim_from_the_future_takes_no_topics(objects: MemoryStore, clock: Clock) -> None:
    """A clock was ahead, and its process was killed."""
    clock.tick(GONE_MS * 100)
    member(objects, clock).beat()
    clock.tick(-GONE_MS * 100)
    first, second = member(objects, clock), member(objects, clock)
    for _ in range(3):
        first.beat()
        second.beat()
        clock.tick(BEAT_MS)
    assert owned(first) | owned(second) == set(TOPICS)
    assert not owned(first) & owned(second)
