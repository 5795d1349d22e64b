"""A writer in a real process that is killed with SIGKILL at any moment, again and again."""

from __future__ import annotations

import os
import random
import signal
import sys
from pathlib import Path
from typing import Any

import pyarrow.compute as pc
import pytest

import pylogtable
from tests.depth import new_seed, rounds
from tests.faults.worker import PARTITIONS, SCHEMA, WHERE, batch_rows, crew

KILLS = rounds(12, deep=200)

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="needs fork and SIGKILL")


@pytest.mark.parametrize("where", WHERE)
def test_killed_writer_loses_and_duplicates_nothing_acknowledged(
    tmp_path: Path, where: str
) -> None:
    kill_writers(str(tmp_path), KILLS, where)
    assert bool(list(tmp_path.rglob("*.parquet"))) == (where == "files")


def kill_writers(url: str, kills: int, where: str = "files") -> None:
    """Kill a writer at any moment, as often as that, and check what it was told."""
    seed = new_seed()
    chance = random.Random(seed)
    pylogtable.open(url).create_topic("t", PARTITIONS, SCHEMA, config=WHERE[where])
    acknowledged: dict[int, dict[str, Any]] = {}
    repeats = 0
    with crew() as workers:
        for _ in range(kills):
            first = len(acknowledged)
            (pid,) = workers.order(("append_until_killed", [url, first]))
            acks = [workers.answer() for _ in range(chance.choice([0, 1, 2, 3, 5]))]
            for _ in range(chance.randrange(400_000)):
                pass  # somewhere in the middle of the next batch, or while it is still opening
            os.kill(pid, signal.SIGKILL)
            rest, statuses = workers.until_end()
            assert statuses == [-signal.SIGKILL]
            for ack in [*acks, *rest]:
                acknowledged[ack["batch"]] = ack
                repeats += ack["repeated"]
            assert sorted(acknowledged) == list(range(len(acknowledged)))
    print(f"{len(acknowledged)} batches acknowledged, {repeats} of them as repeats")
    check_acknowledged(url, acknowledged)
    assert acknowledged


@pytest.mark.parametrize("where", WHERE)
def test_writer_killed_before_each_operation_of_an_append(tmp_path: Path, where: str) -> None:
    url = str(tmp_path)
    pylogtable.open(url).create_topic("t", PARTITIONS, SCHEMA, config=WHERE[where])
    # Reads, up to four files, the commit, reads, and for the 64th the root and the hint.
    steps = 9
    batches, kills = 70, rounds(24, deep=70)
    landed = 0
    acknowledged: dict[int, dict[str, Any]] = {}
    with crew() as workers:
        for batch in range(batches):
            is_there = False
            if batch >= batches - kills:
                workers.order(("append_and_die", [url, batch, (batch + 4) % steps]))
                _, statuses = workers.until_end()
                assert statuses == [-signal.SIGKILL]
                is_there = pylogtable.open(url).topic("t").version == batch + 1
                landed += is_there
            result = pylogtable.open(url).topic("t").append(batch_rows(batch), txn=("app", batch))
            assert result.repeated == is_there
            assert result.version == batch + 1
            offsets = {str(number): list(span) for number, span in result.offsets.items()}
            acknowledged[batch] = {"version": result.version, "offsets": offsets}
    print(f"{landed} of {kills} had landed when their writer died")
    assert 0 < landed < kills
    check_acknowledged(url, acknowledged)


def check_acknowledged(url: str, acknowledged: dict[int, dict[str, Any]]) -> None:
    """Every acknowledged batch is at the offsets that were told, and no batch is there twice."""
    topic = pylogtable.open(url).topic("t")
    report = topic.verify(data=True)
    assert report, str(report)
    found = topic.read(columns=["partition", "offset", "n", "batch"]).read_all()
    batches = set(found["batch"].to_pylist())
    # The last batch of all may have landed without an acknowledgement.
    assert batches - set(acknowledged) <= {len(acknowledged)}
    expected = sorted(n for batch in batches for n in batch_rows(batch)["n"].to_pylist())
    assert sorted(found["n"].to_pylist()) == expected
    assert set(acknowledged) <= batches
    for number, end in topic.end_offsets().items():
        mine = found.filter(pc.equal(found["partition"], number))
        assert mine["offset"].to_pylist() == list(range(end))
    history = topic.history()
    carried = dict(
        zip(history["txn_version"].to_pylist(), history["version"].to_pylist(), strict=True)
    )
    for batch, ack in acknowledged.items():
        assert carried[batch] == ack["version"]
        mine = found.filter(pc.equal(found["batch"], batch))
        places: dict[str, list[int]] = {}
        for partition, offset in zip(
            mine["partition"].to_pylist(), mine["offset"].to_pylist(), strict=True
        ):
            places.setdefault(str(partition), []).append(offset)
        assert {p: [o[0], o[-1] + 1] for p, o in places.items()} == ack["offsets"]
