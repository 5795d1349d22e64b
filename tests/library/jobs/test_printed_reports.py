"""What `print` shows of the report of a job: one line that a person can read."""

from __future__ import annotations

import re

import pytest

from pylogtable import Store, Topic
from pylogtable.engine import plan_append
from tests.builders import Clock, kafka, times

pytestmark = pytest.mark.records_in("files")

DAY = 86_400_000


def shown(report: object) -> str:
    """The line without the seconds."""
    text, seconds = str(report).rsplit("; ", 1)
    assert re.fullmatch(r"[0-9]+\.[0-9] s", seconds)
    return text


def filled(store: Store, config: dict[str, object]) -> Topic:
    topic = store.create_topic("t", config=config)
    staged = [plan_append(topic).stage(kafka("aab", timestamp=times(0, 0, 0))) for _ in range(3)]
    plan_append(topic).commit(staged)
    return topic


def test_merge_and_compaction(store: Store) -> None:
    topic = filled(store, {"cleanup.policy": "compact"})
    assert shown(topic.merge()) == "merged 3 segments (2 shifted) into 1"
    assert shown(topic.merge()) == "nothing to merge"
    compacted = shown(topic.compact(force=True))
    assert compacted == "compacted 1 segment into 1, 7 of 9 records removed"
    assert shown(topic.compact(force=True)) == "nothing to compact"


def test_dry_run_of_a_merge(store: Store) -> None:
    merge = filled(store, {}).maintain(dry_run=True).merge
    assert shown(merge) == "would merge 3 segments (2 shifted) in 1 partition"


def test_retention(store: Store, clock: Clock) -> None:
    topic = filled(store, {"retention.ms": 1000})
    assert shown(topic.apply_retention()) == "removed 0 records in 0 segments"
    clock.tick(5000)
    foreseen = shown(topic.apply_retention(dry_run=True))
    assert foreseen == "would remove 9 records in 3 segments, log start would be 0:9"
    done = shown(topic.apply_retention())
    assert done == "removed 9 records in 3 segments, log start is now 0:9"


def test_vacuum(store: Store, clock: Clock) -> None:
    topic = filled(store, {"retention.ms": -1})
    topic._store.write("partition=0/notes.parquet", b"not ours")
    size = sum(topic.segments()["size_bytes"].to_pylist())
    topic.merge()
    clock.tick(8 * DAY)
    kept = "and kept 1 file of others"
    assert shown(topic.vacuum()) == f"would remove 3 files, {size / 1024:.1f} KiB, {kept}"
    assert shown(topic.vacuum(dry_run=False)) == f"removed 3 files, {size / 1024:.1f} KiB, {kept}"
    assert shown(topic.vacuum()) == f"would remove 0 files, 0 B, {kept}"
