"""Nothing relies on the order of a listing: topics, groups, jobs and tables have the same history
on a store that shuffles its listings and on one that sorts them."""

from __future__ import annotations

import random

import pytest

from pylogtable.storage.base import ObjectStore
from pylogtable.storage.memory import MemoryStore
from pylogtable.store import Store
from tests.builders import Clock, kafka, make_store
from tests.depth import new_seed, rounds
from tests.stores import ShufflingStore

DAY_MS = 86_400_000
#: Roots are written at every 64th commit.
COMMITS = 70


def history(objects: ObjectStore, clock: Clock, *, in_files: bool) -> dict[str, object]:
    """Work with a store by handles that know nothing, so that listings decide; what it has then."""

    def fresh() -> Store:
        return make_store(objects, clock, in_files=in_files)

    for name in ("b", "a", "c"):
        fresh().create_topic(name, 2, config={"cleanup.policy": "compact,delete"})
    told: list[object] = []
    for number in range(COMMITS):
        clock.tick(60_000)
        topic = fresh().topic("a")
        topic.append(kafka([f"{number % 5}"], [f"{number}"]), txn=("etl", number))
        for name in ("g", "h"):
            topic.group(name).commit({0: number})
        told.append(fresh().topic("a").group("g").positions())
        if number % 20 == 19:
            topic.publish(["delta", "iceberg"])
            topic.merge()
            topic.compact(force=True)
            clock.tick(8 * DAY_MS)
            removed = topic.vacuum(dry_run=False, retention_ms=0, force=True).files
            told.append(len(removed))
    topic = fresh().topic("a")
    topic.mirror(fresh(), name="copy", groups=True)
    copy = fresh().topic("copy")
    report = topic.verify(data=True)
    assert report, str(report)
    return {
        "told": told,
        "topics": sorted(fresh().topics()),
        "records": topic.read().read_all().drop_columns(["timestamp"]).to_pylist(),
        "copied": copy.read().read_all().num_rows,
        "copied groups": {group: copy.group(group).positions() for group in copy.groups()},
        "groups": {group: topic.group(group).positions() for group in sorted(topic.groups())},
        "version": topic.version,
        "last": topic.last_txn("etl"),
        "keys": len([*objects.list()]),
    }


@pytest.mark.parametrize("in_files", [False, True], ids=["commits", "files"])
def test_history_is_the_same_whatever_the_order(in_files: bool) -> None:
    expected = history(MemoryStore(), Clock(), in_files=in_files)
    seed = new_seed()
    for number in range(rounds(1, deep=40)):
        shuffled = ShufflingStore(MemoryStore(), random.Random(seed + number))
        assert history(shuffled, Clock(), in_files=in_files) == expected
