"""Kafka's own torture of its cleaner (kafka.md §11, case 33), with every job in its own process:
random keyed writes with deletes, compaction, merge, retention and vacuum beside them, and readers
at random offsets and versions. The writers' number of appends bounds it, no time does: the others
go on for as long as they write.
"""

from __future__ import annotations

import random
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import pylogtable
from pylogtable import Topic
from pylogtable.engine import TopicWriter
from tests.builders import kafka
from tests.depth import DEEP, new_seed, rounds
from tests.faults.worker import crew

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
APPENDS = rounds(25, deep=300)
KEYS = 60


def batches(seed: int, writer: int) -> list[list[tuple[str, str | None]]]:
    """The batches of a writer depend only on the seed; no two writers share a key."""
    chance = random.Random(f"{seed} writer {writer}")
    return [
        [
            (
                f"{writer}-{chance.randrange(KEYS)}",
                None if chance.random() < 0.2 else f"{number}.{chance.random():.6f}",
            )
            for _ in range(chance.randrange(1, 40))
        ]
        for number in range(APPENDS)
    ]


def last_values(seed: int) -> dict[str, str]:
    """The model: the last value of each key that was not deleted."""
    last: dict[str, str | None] = {}
    for writer in (0, 1):
        for batch in batches(seed, writer):
            last.update(batch)
    return {key: value for key, value in last.items() if value is not None}


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


def is_written_to(topic: Topic) -> bool:
    last = APPENDS - 1
    return not all(TopicWriter(topic).find_txn(f"writer {number}", last) for number in (0, 1))


def again(topic: Topic, job: Callable[[], object]) -> None:
    while is_written_to(topic):
        job()
    job()


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
        "write": lambda: write(topic, seed, int(number)),
        "read": lambda: read(topic, seed, int(number)),
        "compact": lambda: again(
            topic, lambda: topic.compact(force=chance.random() < 0.5, budget_bytes=budget)
        ),
        "merge": lambda: again(topic, topic.merge),
        "retain": lambda: again(topic, topic.apply_retention),
        "vacuum": lambda: again(topic, lambda: vacuum(topic)),
    }
    work[kind]()


@pytest.mark.skipif(sys.platform == "win32", reason="needs fork")
def test_all_jobs_beside_writers_and_readers_lose_nothing(tmp_path: Path) -> None:
    seed = new_seed()
    topic = pylogtable.open(tmp_path).create_topic(NAME, PARTITIONS, config=CONFIG)
    roles = ["write-0", "write-1", "compact", "merge", "retain", "vacuum", "read-0", "read-1"]
    with crew() as workers:
        workers.order(*(("torture", [role, str(tmp_path), seed]) for role in roles))
        _, statuses = workers.until_end()
    assert dict(zip(roles, statuses, strict=True)) == dict.fromkeys(roles, 0)
    check_end(topic, seed)


def check_end(topic: Topic, seed: int) -> None:
    expected = last_values(seed)
    operations = Counter(topic.history()["operation"].to_pylist())
    print(dict(operations))
    assert operations["append"] == 2 * APPENDS
    assert operations["compact"]
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
