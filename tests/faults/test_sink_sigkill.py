"""A job that reads, processes and writes, in real processes: killed with SIGKILL at any moment, and
with zombies, which stop right before a put and go on when another run has taken over."""

from __future__ import annotations

import os
import random
import signal
import sys
from pathlib import Path

import pyarrow as pa
import pytest

import pylogtable
from pylogtable import Topic
from tests.depth import new_seed, rounds
from tests.faults.worker import PARTITIONS, SCHEMA, WHERE, Crew, crew, squared

KILLS = rounds(6, deep=50)
#: After so many kills there is a zombie. It puts its commit before the next run does, or after.
ZOMBIES = {KILLS // 3: "before", 2 * KILLS // 3: "after"}
RECORDS = 400

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="needs fork and SIGKILL")


def feed(topic: Topic, chance: random.Random, first: int) -> None:
    numbers = range(first, first + RECORDS)
    partitions = [chance.randrange(PARTITIONS) for _ in numbers]
    topic.append(pa.table({"n": pa.array(numbers, pa.int64()), "partition": partitions}))


def by_partition(table: pa.Table) -> dict[int, list[int]]:
    rows = table.select(["partition", "n"]).to_pylist()
    return {p: [r["n"] for r in rows if r["partition"] == p] for p in range(PARTITIONS)}


def until(workers: Crew, name: str) -> list[dict[str, object]]:
    """The answers up to the first that tells this."""
    answers = [workers.answer()]
    while name not in answers[-1]:
        assert "statuses" not in answers[-1], f"it has ended, and never told {name!r}"
        answers.append(workers.answer())
    return answers


def resumed(workers: Crew, zombie: int, outcome: str) -> list[dict[str, object]]:
    """What a zombie tells when it goes on: what became of the commit that it was about to put."""
    os.kill(zombie, signal.SIGCONT)
    answers, statuses = workers.until_end()
    assert statuses == [0]
    assert [outcome in answer for answer in answers] == [True]
    return answers


@pytest.mark.parametrize("where", WHERE)
def test_a_job_that_is_killed_writes_everything_once(tmp_path: Path, where: str) -> None:
    chance = random.Random(new_seed())
    url = str(tmp_path)
    store = pylogtable.open(url)
    source = store.create_topic("t", PARTITIONS, SCHEMA)
    out = store.create_topic("out", PARTITIONS, SCHEMA, config=WHERE[where])
    told: list[dict[str, object]] = []
    with crew() as workers, crew() as others:
        for life in range(KILLS):
            feed(source, chance, life * RECORDS)
            case = ZOMBIES.get(life)
            if case is not None:
                stop = chance.randrange(1, 4)
                (zombie,) = others.order(("transform_until_killed", [url, stop, True]))
                told += until(others, "stopped")
            (pid,) = workers.order(
                ("transform_until_killed", [url, 0 if case == "before" else None])
            )
            if case == "before":
                told += until(workers, "stopped")
                told += resumed(others, zombie, "number")  # its late put has landed
                os.kill(pid, signal.SIGCONT)
                told += until(workers, "fenced")
            told += until(workers, "number")
            if case == "after":
                told += resumed(others, zombie, "fenced")
            told += [workers.answer() for _ in range(chance.randrange(4))]
            for _ in range(chance.randrange(400_000)):
                pass  # somewhere in the middle of the next batch
            os.kill(pid, signal.SIGKILL)
            rest, statuses = workers.until_end()
            assert statuses == [-signal.SIGKILL]
            told += rest
    with source.consumer("job") as consumer:
        sink = out.sink(consumer)
        for batch in consumer:
            sink.append(squared(batch))
    wanted = squared(source.read().read_all())
    assert by_partition(out.read().read_all()) == by_partition(wanted)
    report = out.verify(data=True)
    assert report, str(report)
    last = out.txn("job")
    assert last is not None
    assert last.note["positions"] == list(source.end_offsets().values())
    fenced = sum("fenced" in answer for answer in told)
    print(f"{KILLS} kills, {last.number + 1} commits, {out.count()} records, fenced {fenced} times")
    # No number of a txn was told by two runs: each commit is of one of them.
    numbers = [answer["number"] for answer in told if "number" in answer]
    assert len(set(numbers)) == len(numbers)
