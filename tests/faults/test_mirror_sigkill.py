"""Mirrors in real processes that are killed with SIGKILL at any moment, while writers and jobs run
at the source. Then one mirror makes both sides equal."""

from __future__ import annotations

import os
import random
import signal
import sys
from pathlib import Path

import pytest

import pylogtable
from tests.depth import new_seed, rounds
from tests.faults.worker import PARTITIONS, SCHEMA, WHERE, batch_rows, crew
from tests.mirrors import check_equal, check_sound

KILLS = rounds(4, deep=100)

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="needs fork and SIGKILL")


@pytest.mark.parametrize("where", WHERE)
def test_killed_mirrors_beside_writers_and_jobs(tmp_path: Path, where: str) -> None:
    kill_mirrors(str(tmp_path / "near"), str(tmp_path / "far"), KILLS, where)


def kill_mirrors(url: str, to: str, kills: int, where: str) -> None:
    """Kill all at any moment, as often as that, and compare both sides then."""
    chance = random.Random(new_seed())
    source = pylogtable.open(url).create_topic("t", PARTITIONS, SCHEMA, config=WHERE[where])
    store = pylogtable.open(to)
    mirrored = batches = 0
    with crew() as workers:
        for kill in range(kills):
            orders: list[tuple[str, list[object]]] = [
                ("append_until_killed", [url, batches]),
                ("mirror_until_killed", [url, to]),
                ("maintain_until_killed", [url, chance.randrange(2**32)]),
            ]
            # Sometimes two mirrors at a time.
            orders += [("mirror_until_killed", [url, to])] * (kill % 3 == 2)
            pids = workers.order(*orders)
            wanted = chance.choice([0, 1, 2, 4])
            answers = [workers.answer()]
            while (
                sum("shows" in answer for answer in answers) < wanted
                or sum("batch" in answer for answer in answers) < 2 * wanted
            ):
                answers.append(workers.answer())
            for _ in range(chance.randrange(400_000)):
                pass  # somewhere in the middle of the next mirror, or while it is still opening
            for pid in [*pids[1:], pids[0]]:
                os.kill(pid, signal.SIGKILL)
            rest, statuses = workers.until_end()
            assert set(statuses) == {-signal.SIGKILL}
            for answer in (*answers, *rest):
                mirrored += "shows" in answer
                if "batch" in answer:
                    batches = max(batches, answer["batch"] + 1)
            if store.topics():
                check_sound(store.topic("t"))
    assert mirrored
    assert batches
    report = source.mirror(store)
    print(f"{batches} batches, {mirrored} mirrors; the last one: {report}")
    copy = store.topic("t")
    check_equal(source, copy)
    # The writer moves over, and repeats its last batch first.
    last = copy.last_txn("app")
    assert last is not None
    assert last >= batches - 1
    assert copy.append(batch_rows(last), txn=("app", last)).repeated
    assert not copy.append(batch_rows(last + 1), txn=("app", last + 1)).repeated
