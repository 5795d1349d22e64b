"""Kafka's own torture of its cleaner, with every job in its own process:
random keyed writes with deletes, compaction, merge, retention and vacuum beside them, and readers
at random offsets and versions. The writers' number of appends bounds it, no time does: the others
go on for as long as they write.

The soak goes on where that ends: producers, members of a group and maintenance, all of them killed
at any moment. Weeks pass between the rounds, and vacuum removes what is old, also of the manifest.
A handle that was opened before all that appends after each round. What the processes told is the
model.
"""

from __future__ import annotations

import itertools
import os
import random
import signal
import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import pylogtable
from pylogtable import CommitConflictError, SegmentGoneError, Topic
from pylogtable.engine import plan_append
from tests.builders import appends_in, kafka
from tests.depth import DEEP, new_seed, rounds
from tests.faults.worker import PARTITIONS as WORKER_PARTITIONS
from tests.faults.worker import SCHEMA, WHERE, Crew, batch_rows, crew, tell

NAME = "t"
PARTITIONS = 3
CONFIG = {
    "cleanup.policy": "compact,delete",
    "retention.ms": -1,
    "retention.bytes": 1 << 40,
    "min.cleanable.dirty.ratio": 0,
    "delete.retention.ms": 100,
    "segment.bytes": 20_000,
}
#: With this much in a commit, about half of the appends have files, and half have none.
MIXED_BYTES = 450
APPENDS = rounds(25, deep=300)
KEYS = 60
FORGET = "forget"


def batches(seed: int, writer: int) -> list[list[tuple[str, str | None]]]:
    """The batches of a writer depend only on the seed; no two writers share a key. Each batch has a
    record that is to be erased."""
    chance = random.Random(f"{seed} writer {writer}")
    return [
        [
            (f"{FORGET}-{writer}-{number}", "secret"),
            *(
                (
                    f"{writer}-{chance.randrange(KEYS)}",
                    None if chance.random() < 0.2 else f"{number}.{chance.random():.6f}",
                )
                for _ in range(chance.randrange(1, 40))
            ),
        ]
        for number in range(APPENDS)
    ]


def last_values(seed: int) -> dict[str, str]:
    """The model: the last value of each key that was neither deleted nor erased."""
    last: dict[str, str | None] = {}
    for writer in (0, 1):
        for batch in batches(seed, writer):
            last.update(batch)
    return {
        key: value
        for key, value in last.items()
        if value is not None and not key.startswith(FORGET)
    }


def write(topic: Topic, seed: int, writer: int) -> None:
    for number, batch in enumerate(batches(seed, writer)):
        table = kafka([key for key, _ in batch], [value for _, value in batch])
        topic.append(table, txn=(f"writer {writer}", number))


def check_order(table: pa.Table) -> None:
    for number in range(PARTITIONS):
        mine = table.filter(pc.equal(table["partition"], number))["offset"].to_numpy()
        assert (mine[1:] > mine[:-1]).all(), f"offsets of partition {number} do not grow"


def read(topic: Topic, seed: int, reader: int) -> None:
    """Read random versions from random offsets: each can be read, and reads the same again."""
    chance = random.Random(f"{seed} reader {reader}")
    while is_written_to(topic):
        if chance.random() < 0.1:
            topic = pylogtable.open_topic(topic.url)
        view = topic.at(chance.choice([None, chance.randrange(topic.version + 1)]))
        ends = view.end_offsets
        starts = {number: chance.randrange(end + 1) for number, end in ends.items()}
        found = view.read(start=starts).read_all()
        check_order(found)
        whole = view.read().read_all()
        assert whole.num_rows == view.count()
        for number, start in starts.items():
            low = pc.field("offset") >= start
            part = whole.filter((pc.field("partition") == number) & low)
            assert part == found.filter(pc.field("partition") == number)
        if chance.random() < 0.2:
            newest = view.latest()
            assert newest.num_rows == len(set(whole["key"].to_pylist()))


def forget(topic: Topic) -> None:
    """Erase what there is to be erased now. No compaction and no merge brings it back."""
    keys = topic.read(columns=["key"]).read_all()["key"]
    keys = keys.filter(pc.starts_with(keys.cast(pa.string()), FORGET))
    topic.erase(keys=keys)
    assert topic.latest(keys=keys).num_rows == 0


def is_written_to(topic: Topic) -> bool:
    last = APPENDS - 1
    return not all(
        plan_append(topic, refresh=False).find_txn(f"writer {number}", last) for number in (0, 1)
    )


def again(topic: Topic, job: Callable[[], object]) -> None:
    while is_written_to(topic):
        job()
    job()


def compact(topic: Topic, chance: random.Random, budget_bytes: int) -> None:
    """Others may have replaced the input each time until the writers are through. They end then,
    and one compaction lands at last."""
    landed = 0
    while is_written_to(topic) or not landed:
        landed += topic.compact(force=chance.random() < 0.5, budget_bytes=budget_bytes).units


def vacuum(topic: Topic) -> None:
    report = topic.vacuum(dry_run=False)
    assert report.files == (), f"younger than the grace period: {report.files}"


def play(role: str, url: str, seed: int) -> None:
    """What one process does, from the beginning to the end."""
    topic = pylogtable.open(url).topic(NAME)
    kind, _, number = role.partition("-")
    chance = random.Random(f"{seed} {role}")
    budget = chance.choice([2000, 1 << 29])
    work: dict[str, Callable[[], None]] = {
        "produce": lambda: produce(topic, int(number)),
        "member": lambda: consume(topic, number),
        "maintain": lambda: keep_clean(topic),
        "write": lambda: write(topic, seed, int(number)),
        "read": lambda: read(topic, seed, int(number)),
        "compact": lambda: compact(topic, chance, budget),
        "merge": lambda: again(topic, topic.merge),
        "erase": lambda: again(topic, lambda: forget(topic)),
        "retain": lambda: again(topic, topic.apply_retention),
        "vacuum": lambda: again(topic, lambda: vacuum(topic)),
    }
    work[kind]()


@pytest.mark.skipif(sys.platform == "win32", reason="needs fork")
@pytest.mark.parametrize("inline_bytes", [0, MIXED_BYTES])
def test_all_jobs_beside_writers_and_readers_lose_nothing(
    tmp_path: Path, inline_bytes: int
) -> None:
    seed = new_seed()
    config = {**CONFIG, "inline.max.bytes": inline_bytes}
    topic = pylogtable.open(tmp_path).create_topic(NAME, PARTITIONS, config=config)
    jobs = ["compact", "merge", "erase", "retain", "vacuum"]
    roles = ["write-0", "write-1", *jobs, "read-0", "read-1"]
    with crew() as workers:
        workers.order(*(("torture", [role, str(tmp_path), seed]) for role in roles))
        _, statuses = workers.until_end()
    assert dict(zip(roles, statuses, strict=True)) == dict.fromkeys(roles, 0)
    check_end(topic, seed)


def check_end(topic: Topic, seed: int) -> None:
    expected = last_values(seed)
    operations = Counter(topic.history()["operation"].to_pylist())
    print(dict(operations))
    assert appends_in(topic) == 2 * APPENDS
    assert operations["compact"]
    assert operations["erase"]
    assert operations["merge"] or not DEEP  # in a short run compaction may leave nothing to merge
    written = sum(len(batch) for writer in (0, 1) for batch in batches(seed, writer))
    assert sum(topic.end_offsets().values()) == written
    assert topic.start_offsets() == dict.fromkeys(range(PARTITIONS), 0)
    for step in (lambda: None, lambda: topic.compact(force=True), topic.merge):
        step()
        everything = topic.read(columns=["partition", "offset", "key", "value"]).read_all()
        check_order(everything)
        last = dict(
            zip(everything["key"].to_pylist(), everything["value"].to_pylist(), strict=True)
        )
        found = {key.decode(): v.decode() for key, v in last.items() if v is not None}
        assert found == expected
        report = topic.verify(data=True)
        assert report, str(report)
    assert everything.num_rows == len(last)


SOAK_ROUNDS = rounds(3, deep=80)
#: A round ends after this many answers of its processes, most of which are killed meanwhile.
ANSWERS = rounds(24, deep=60)
WEEK = 7 * 86_400
#: The batches of a producer are numbered from its number times this.
PRODUCER = 1_000_000

Place = tuple[int, int]


def produce(topic: Topic, producer: int) -> None:
    """Append batch after batch until killed, from the one after the last in the log."""
    app_id = f"producer {producer}"
    last = topic.last_txn(app_id)
    for number in itertools.count(0 if last is None else last + 1):
        batch = producer * PRODUCER + number
        result = topic.append(batch_rows(batch), txn=(app_id, number))
        told = {str(partition): span for partition, span in result.offsets.items()}
        tell(batch=batch, offsets=told)


def consume(topic: Topic, name: str) -> None:
    """Read as a member until killed. What was read is told first, and committed then."""
    consumer = topic.consumer("g", name, lease_ms=1000, max_records=15)
    while True:
        try:
            table = consumer.poll(timeout=0.01)
            if table.num_rows:
                places = zip(
                    table["partition"].to_pylist(), table["offset"].to_pylist(), strict=True
                )
                tell(read=list(places))
            consumer.commit()
        except (CommitConflictError, SegmentGoneError):  # noqa: PERF203 (it reads again)
            continue


def keep_clean(topic: Topic) -> None:
    """Join and remove files until killed, without regard for readers of older versions."""
    while True:
        topic.merge()
        report = topic.vacuum(dry_run=False, retention_ms=0, force=True)
        tell(removed=len(report.files), of_manifest=report.manifest_files)


def let_weeks_pass(folder: Path) -> None:
    """Make every file older. Nobody may be writing."""
    for path in folder.rglob("*"):
        if path.is_file():
            then = path.stat().st_mtime - 2 * WEEK
            os.utime(path, (then, then))


@dataclass
class Told:
    """What the processes said."""

    batches: dict[int, dict[str, list[int]]] = field(default_factory=dict)
    places: set[Place] = field(default_factory=set)
    removed: int = 0
    removed_of_manifest: int = 0
    kills: int = 0

    def hear(self, answer: dict[str, Any]) -> None:
        if "batch" in answer:
            assert answer["batch"] not in self.batches
            self.batches[answer["batch"]] = answer["offsets"]
        elif "read" in answer:
            self.places.update((partition, offset) for partition, offset in answer["read"])
        else:
            self.removed += answer["removed"]
            self.removed_of_manifest += answer["of_manifest"]


@pytest.mark.skipif(sys.platform == "win32", reason="needs fork")
@pytest.mark.parametrize("where", WHERE)
def test_soak_of_producers_members_maintenance_and_kills_loses_nothing(
    tmp_path: Path, where: str
) -> None:
    seed = new_seed()
    chance = random.Random(seed)
    config = {"retention.ms": -1, **WHERE[where]}
    topic = pylogtable.open(tmp_path).create_topic(NAME, WORKER_PARTITIONS, SCHEMA, config=config)
    idle = [pylogtable.open(tmp_path).topic(NAME) for _ in range(SOAK_ROUNDS)]
    told = Told()
    with crew() as workers:
        for number in range(SOAK_ROUNDS):
            soak_round(workers, str(tmp_path), seed, chance, told)
            # So something is old and unneeded, however far the others came before they were killed.
            cleaner = pylogtable.open(tmp_path).topic(NAME)
            cleaner.merge()
            let_weeks_pass(tmp_path)
            report = cleaner.vacuum(dry_run=False, retention_ms=0, force=True)
            told.hear({"removed": len(report.files), "of_manifest": report.manifest_files})
            batch = 9 * PRODUCER + number
            result = idle[number].append(batch_rows(batch))
            told.hear({"batch": batch, "offsets": _as_told(result.offsets)})
    print(
        f"{told.kills} kills, {len(told.batches)} batches, {len(told.places)} records read, "
        f"{told.removed} files removed, {told.removed_of_manifest} of them of the manifest"
    )
    assert told.removed_of_manifest
    check_soak(topic, told)


def soak_round(workers: Crew, url: str, seed: int, chance: random.Random, told: Told) -> None:
    roles = ["produce-0", "produce-1", "member-a", "member-b", "maintain"]
    alive = workers.order(*(("torture", [role, url, seed]) for role in roles))
    for heard in range(ANSWERS):
        told.hear(workers.answer())
        if heard % (ANSWERS // 4) == ANSWERS // 4 - 1 and len(alive) > 2:
            os.kill(alive.pop(chance.randrange(len(alive))), signal.SIGKILL)
            told.kills += 1
    for pid in alive:
        os.kill(pid, signal.SIGKILL)
    told.kills += len(alive)
    rest, statuses = workers.until_end()
    assert statuses == [-signal.SIGKILL] * len(roles)
    for answer in rest:
        told.hear(answer)


def check_soak(topic: Topic, told: Told) -> None:
    last = topic.consumer("g", "last", lease_ms=1000, max_records=10_000)
    ends = topic.end_offsets()
    while topic.group("g").positions() != ends:
        table = last.poll(timeout=0.05)
        told.places.update(
            zip(table["partition"].to_pylist(), table["offset"].to_pylist(), strict=True)
        )
        last.commit()
    assert told.places == {(p, offset) for p, end in ends.items() for offset in range(end)}
    cold = pylogtable.open_topic(topic.url)
    report = cold.verify(data=True)
    assert report, str(report)
    found = cold.read(columns=["partition", "offset", "n", "batch"]).read_all()
    batches = sorted(set(found["batch"].to_pylist()))
    expected = sorted(n for batch in batches for n in batch_rows(batch)["n"].to_pylist())
    assert sorted(found["n"].to_pylist()) == expected
    by_batch: dict[int, dict[str, list[int]]] = {}
    for row in found.to_pylist():
        spans = by_batch.setdefault(row["batch"], {})
        span = spans.setdefault(str(row["partition"]), [row["offset"], row["offset"]])
        span[1] = row["offset"] + 1
    assert {batch: by_batch.get(batch) for batch in told.batches} == told.batches
    # A producer may have been killed before it told that its last batch of a round was in the log.
    assert len(by_batch) - len(told.batches) <= 2 * SOAK_ROUNDS


def _as_told(offsets: dict[int, tuple[int, int]]) -> dict[str, list[int]]:
    return {str(partition): list(span) for partition, span in offsets.items()}
