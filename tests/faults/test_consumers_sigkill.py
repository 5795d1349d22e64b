"""Consumers of one group in real processes: one is killed, and the others take over."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import pyarrow as pa
import pytest

import pylogtable
from pylogtable.format.group_model import GroupState
from pylogtable.format.json_codec import decode_group
from pylogtable.storage.local import LocalStore
from tests.faults.worker import SCHEMA, crew

PARTITIONS = 6
RECORDS = 300
LEASE_MS = 1_500
# A heart that gets no processor for two thirds of this loses its lease.
WORKING_LEASE_MS = 4_000
MOST_POLLS = 1_000

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="needs fork and SIGKILL")


def states_of(url: str) -> list[GroupState]:
    """The newest states of the group, in order. To decode them checks that owners are disjoint."""
    store = LocalStore(url).below("t")
    found = {int(info.key[-25:-5]): store.read(info.key) for info in store.list("_groups/g/")}
    return [decode_group(data, "g", n) for n, data in sorted(found.items()) if data is not None]


def test_partitions_of_a_killed_consumer_go_to_the_others(tmp_path: Path) -> None:
    url = str(tmp_path)
    topic = pylogtable.open(url).create_topic("t", PARTITIONS, SCHEMA)
    for partition in range(PARTITIONS):
        numbers = pa.array(range(RECORDS), pa.int64())
        topic.append(pa.table({"n": numbers, "partition": pa.array([partition] * RECORDS)}))
    names = ["a", "b", "c"]
    told: dict[str, list[tuple[int, int]]] = {name: [] for name in names}
    with crew() as workers:
        pids = workers.order(*[("consume", [url, name, LEASE_MS]) for name in names])
        victim = None
        answers = []
        while victim is None:
            answer = workers.answer()
            answers.append(answer)
            if "places" in answer:
                victim = names.index(answer["name"])
        os.kill(pids[victim], signal.SIGKILL)
        rest, statuses = workers.until_end()
    assert [status == 0 for status in statuses] == [index != victim for index in range(3)]
    for answer in [*answers, *rest]:
        told[answer["name"]] += [tuple(place) for place in answer.get("places", [])]
    print({name: len(places) for name, places in told.items()}, "killed:", names[victim])

    assert topic.group("g").positions() == topic.end_offsets()
    committed = [place for places in told.values() for place in places]
    assert len(set(committed)) == len(committed)
    # The one that was killed may have committed a batch that it could not tell of any more.
    everything = {(p, n) for p in range(PARTITIONS) for n in range(RECORDS)}
    assert set(committed) <= everything
    assert len(everything - set(committed)) <= 20
    # What it had owned was read on by the others.
    by_partition = [{n for p, n in committed if p == partition} for partition in range(PARTITIONS)]
    assert all(RECORDS - 1 in numbers for numbers in by_partition)

    states = states_of(url)
    assert states[-1].members == {} or all(
        not name.startswith(f"{names[victim]}-") for name in states[-1].members
    )


def test_member_that_works_keeps_its_partitions_until_it_is_killed(tmp_path: Path) -> None:
    """Its heart beats: two leases pass. After the kill its partitions are free when the lease
    is over, and the other takes them with the next look, a tenth of a lease later."""
    url = str(tmp_path)
    topic = pylogtable.open(url).create_topic("t", 2, SCHEMA)
    topic.append(pa.table({"n": pa.array([1, 2], pa.int64()), "partition": pa.array([0, 1])}))
    with crew() as workers:
        (pid,) = workers.order(("work_until_killed", [url, "busy", WORKING_LEASE_MS]))
        assert workers.answer()["polled"] == 2
        (busy,) = states_of(url)[-1].members
        first_until_ms = states_of(url)[-1].members[busy].lease_until_ms
        other = topic.consumer("g", "other", lease_ms=WORKING_LEASE_MS)
        polls = 0
        while states_of(url)[-1].members[busy].lease_until_ms < first_until_ms + WORKING_LEASE_MS:
            assert other.poll(WORKING_LEASE_MS / 10_000).num_rows == 0
            assert (polls := polls + 1) < MOST_POLLS
        assert other.assignment() == ()
        os.kill(pid, signal.SIGKILL)
        while not other.poll(WORKING_LEASE_MS / 10_000).num_rows:
            assert (polls := polls + 1) < MOST_POLLS
        workers.until_end()
    assert other.assignment() == (0, 1)
    states = states_of(url)
    held = [state for state in states if busy in state.members]
    last = held[-1]
    taken = states[states.index(last) + 1]
    until_ms = last.members[busy].lease_until_ms
    print(f"free for {taken.committed_at_ms - until_ms} ms, of a lease of {WORKING_LEASE_MS} ms")
    assert until_ms <= taken.committed_at_ms
    # It takes them with its next poll: what it wrote in between is one beat of its own heart.
    assert len([state for state in held if state.committed_at_ms >= until_ms]) <= 1
