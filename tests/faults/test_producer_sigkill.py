"""A producer in a real process, killed with SIGKILL: records that `flush()` confirmed stay."""

from __future__ import annotations

import os
import random
import signal
import sys
from pathlib import Path

import pytest

import pylogtable
from tests.depth import new_seed, rounds
from tests.faults.worker import PARTITIONS, SCHEMA, WHERE, crew

KILLS = rounds(3, deep=40)

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="needs fork and SIGKILL")


@pytest.mark.parametrize("where", WHERE)
@pytest.mark.parametrize("app_id", [None, "etl"])
def test_killed_producer_loses_no_flushed_record(
    tmp_path: Path, app_id: str | None, where: str
) -> None:
    chance = random.Random(new_seed())
    url = str(tmp_path)
    topic = pylogtable.open(url).create_topic("t", PARTITIONS, SCHEMA, key="n", config=WHERE[where])
    flushed: dict[tuple[int, int], int] = {}
    with crew() as workers:
        for _ in range(KILLS):
            every = chance.choice([1, 7, 100, 500])
            (pid,) = workers.order(("produce_until_killed", [url, app_id, every]))
            answers = [workers.answer() for _ in range(chance.randrange(1, 4))]
            for _ in range(chance.randrange(400_000)):
                pass  # somewhere in the middle of the next batch
            os.kill(pid, signal.SIGKILL)
            rest, statuses = workers.until_end()
            assert statuses == [-signal.SIGKILL]
            for answer in [*answers, *rest]:
                for number, place in enumerate(answer["places"], answer["first"]):
                    flushed[tuple(place)] = number
    report = topic.verify(data=True)
    assert report, str(report)
    read = topic.read(columns=["partition", "offset", "n"]).read_all().to_pylist()
    there = {(row["partition"], row["offset"]): row["n"] for row in read}
    print(f"{len(flushed)} of {len(there)} records had been flushed")
    assert flushed.items() <= there.items()
    if app_id is not None:
        # Each life went on where the log was: no number is missing, none is twice.
        assert sorted(there.values()) == list(range(len(there)))
        assert topic.last_txn(app_id) == len(there)
