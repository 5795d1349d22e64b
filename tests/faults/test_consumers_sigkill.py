"""Consumers of one group in real processes: one is killed, and the others take over."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import pyarrow as pa
import pytest

import pylogtable
from pylogtable.format.json_codec import decode_group
from pylogtable.storage.local import LocalStore
from tests.faults.worker import SCHEMA, crew

PARTITIONS = 6
RECORDS = 300
LEASE_MS = 1_500

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="needs fork and SIGKILL")


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

    store = LocalStore(url).below("t")
    states = []
    for info in store.list("_groups/g/"):
        data = store.read(info.key)
        assert data is not None
        states.append(decode_group(data, "g", int(info.key[-25:-5])))  # owners are disjoint
    assert states[-1].members == {} or all(
        not name.startswith(f"{names[victim]}-") for name in states[-1].members
    )
