"""Tables that were wrong once: what a hostile tester has found."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from pylogtable import CommitConflictError, InvalidRequestError, Store, Topic
from pylogtable.engine import Publication, Rewritten, Worker, plan_append, run_job
from tests.builders import Clock, make_store
from tests.publish import plain_delta, plain_iceberg
from tests.stores import AgingDisk

DAY = 86_400_000
BOTH = ["delta", "iceberg"]
#: A publication may not count on older files any more, because a vacuum may have removed them.
LATE_MS = 4 * DAY


@pytest.fixture
def disk(tmp_path: Path, clock: Clock) -> Store:
    return make_store(AgingDisk(tmp_path, clock), clock, in_files=True)


def append(topic: Topic, first: int) -> None:
    topic.append(pa.table({"k": pa.array(range(first, first + 10), pa.int64())}))


def check(topic: Topic, folder: Path, name: str) -> None:
    if name == "delta":
        plain_delta.check_table(topic, topic._store)
        return
    expected = topic.read().read_all().sort_by(plain_iceberg.ORDER)
    found = plain_iceberg.open_table(folder).scan().to_arrow()
    assert plain_iceberg.rows(found, expected.schema) == expected.to_pylist()


@pytest.mark.parametrize("name", BOTH)
@pytest.mark.parametrize("later_ms", [DAY, LATE_MS])
def test_log_start_at_the_boundary_of_a_segment_that_is_merged(
    disk: Store, clock: Clock, tmp_path: Path, name: str, later_ms: int
) -> None:
    config = {"retention.ms": -1}
    topic = disk.create_topic("t", 1, {"k": pa.int64()}, "k", config=config)
    append(topic, 0)
    append(topic, 10)
    topic.publish([name])
    topic.delete_records({0: 10})
    append(topic, 20)
    topic.merge()
    clock.tick(later_ms)
    for number in range(3):
        append(topic, 30 + 10 * number)
        topic.publish([name])
        check(topic, tmp_path / "t", name)
        topic.merge()


@pytest.mark.parametrize("name", BOTH)
def test_publication_that_is_stopped_shows_nothing_raw(
    disk: Store, tmp_path: Path, name: str
) -> None:
    """A loop that ends leaves units of work out. Shifted segments must not be shown as they are."""
    topic = disk.create_topic("t", 2, {"k": pa.int64()}, "k")
    rows = pa.table({"k": range(20)})
    for staged in [plan_append(topic).stage(rows) for _ in range(3)]:
        plan_append(topic).commit([staged])

    def stopped(worker: Worker, units: Sequence[Any]) -> list[Rewritten]:
        return [worker(unit) for unit in units[:1]]

    files = sorted(info.key for info in topic._store.list("partition=0/"))
    with pytest.raises(CommitConflictError, match="stopped"):
        run_job(topic, Publication([name]), stopped)
    assert sorted(info.key for info in topic._store.list("partition=0/")) == files
    topic.publish([name])
    check(topic, tmp_path / "t", name)


@pytest.mark.parametrize("name", BOTH)
def test_compaction_that_changes_a_part_of_what_a_copy_stands_for(
    tmp_path: Path, clock: Clock, name: str
) -> None:
    """The table has one copy of two small appends before the compaction. The second of them is a
    tombstone: the compaction changes its entry, and leaves the first alone."""
    config = {"cleanup.policy": "compact"}
    schema = {"k": pa.int64(), "v": pa.int64()}
    store = make_store(AgingDisk(tmp_path, clock), clock)
    topic = store.create_topic("t", 1, schema, "k", config=config)
    topic.append(pa.table({"k": [1, 2, 3], "v": [10, 20, 30]}))
    with pytest.warns(UserWarning, match="is compacted"):
        topic.publish([name])
    topic.append(pa.table({"k": [4], "v": [40]}))
    topic.append(pa.table({"k": pa.array([1]), "v": pa.nulls(1, pa.int64())}))
    topic.compact(force=True)
    topic.publish([name])
    check(topic, tmp_path / "t", name)
    assert topic.count() == 4
    assert topic.verify(data=True)


def test_dropped_columns_must_not_decide_what_the_newest_records_are(disk: Store) -> None:
    """Whether a record is a tombstone would depend on whether its file was written again."""
    columns = {"k": pa.int64(), "v": pa.int64(), "x": pa.string()}
    shown = disk.create_topic("shown", 1, columns, "k", config={"publish.view": "latest"})
    with pytest.raises(InvalidRequestError, match="META-8"):
        shown.alter(drop_columns=["x"])
    dropped = disk.create_topic("dropped", 1, columns, "k")
    dropped.alter(drop_columns=["x"])
    with pytest.raises(InvalidRequestError, match="META-8"):
        dropped.alter(config={"publish.view": "latest"})


def test_view_of_the_newest_records_needs_a_key(disk: Store) -> None:
    with pytest.raises(InvalidRequestError, match="needs a key"):
        disk.create_topic("t", 1, {"a": pa.int64()}, config={"publish.view": "latest"})
    topic = disk.create_topic("t", 1, {"a": pa.int64()})
    with pytest.raises(InvalidRequestError, match="needs a key"):
        topic.alter(config={"publish.view": "latest"})
