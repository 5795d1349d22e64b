"""One publication a second for days: what a table keeps about itself does not grow, and what it
keeps can be read. Here a publication comes every few minutes, and less is kept of everything."""

from __future__ import annotations

import io
import json
import random
from collections import Counter
from pathlib import Path
from typing import Any

import deltalake
import polars
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.table import StaticTable

from pylogtable import Store, Topic
from pylogtable.limits import Limits
from pylogtable.storage.local import LocalStore
from tests.builders import IN_FILES, Clock, make_store
from tests.publish.latest_histories import expected
from tests.publish.plain_delta import entries, shown_version, vectors_at
from tests.publish.plain_iceberg import check_newest, numbers_of, open_table
from tests.stores import AgingDisk, CountingStore

MINUTE, DAY = 60_000, 86_400_000
FORMATS = ["delta", "iceberg"]
SMALL = Limits(
    snapshots_kept=12, metadata_files_kept=40, metadata_files_removed=20, table_entries_kept=40,
    table_entries_removed=20, manifest_entries=40, small_manifests=10, root_interval=8,
)  # fmt: skip


@pytest.fixture
def disk(tmp_path: Path, clock: Clock) -> CountingStore:
    return CountingStore(AgingDisk(tmp_path, clock).with_limits(SMALL))


@pytest.fixture
def topic(disk: CountingStore, clock: Clock) -> Topic:
    store: Store = make_store(disk, clock)
    return store.create_topic("t", 1, {"n": pa.int64()}, config={"retention.ms": -1})


def metadata_files(folder: Path) -> list[Path]:
    return [folder / "metadata" / f"v{number}.metadata.json" for number in numbers_of(folder)]


def publish(topic: Topic, clock: Clock, times: int, minutes: int = 10) -> None:
    """Append and publish, and merge from time to time, as a process does that runs for long."""
    for number in range(times):
        topic.append(pa.table({"n": [number, number]}))
        topic.publish(FORMATS)
        if number % 8 == 0:
            clock.tick(MINUTE)
            topic.merge()
            topic.publish(FORMATS)
        clock.tick(minutes * MINUTE)


def sizes(folder: Path) -> dict[str, int]:
    """How much there is of the tables' own objects, and how long the newest of them are."""
    found: Counter[str] = Counter()
    for place in ("_delta_log", "metadata"):
        found[f"objects in {place}"] = len(list((folder / place).iterdir()))
    found["metadata file"] = metadata_files(folder)[-1].stat().st_size
    found["checkpoint"] = max((folder / "_delta_log").glob("*.parquet")).stat().st_size
    return dict(found)


def test_tables_do_not_grow_with_time(
    topic: Topic, disk: CountingStore, clock: Clock, tmp_path: Path
) -> None:
    folder = tmp_path / "t"
    measured: list[dict[str, int]] = []
    for _ in range(5):  # ten days
        publish(topic, clock, 48, minutes=60)
        topic.vacuum(dry_run=False)
        measured.append(sizes(folder))
        topic.append(pa.table({"n": [1]}))
        disk.reset()
        topic.publish(FORMATS)
        measured[-1]["requests"] = sum(disk.counts.values())
    for what, size in measured[-1].items():
        assert size <= measured[-2][what] * 1.1 + 4, (what, measured)
    check_newest(topic, folder)
    expected = topic.count()
    assert deltalake.DeltaTable(folder).to_pyarrow_table().num_rows == expected
    assert polars.scan_delta(str(folder)).collect().height == expected
    assert topic.verify()


def test_what_is_kept_can_be_read(
    topic: Topic, disk: CountingStore, clock: Clock, tmp_path: Path
) -> None:
    """Two days, with a vacuum each half day. The records of a version are those below an offset."""
    folder = tmp_path / "t"
    for _ in range(4):
        publish(topic, clock, 72)
        topic.vacuum(dry_run=False)
    newest = deltalake.DeltaTable(folder).version()
    assert len(list((folder / "_delta_log").glob("*.json"))) <= 60
    for version in range(newest - 39, newest + 1, 3):
        shown = deltalake.DeltaTable(folder, version=version)
        rows = shown.to_pyarrow_table(columns=["offset"])["offset"].to_pylist()
        assert sorted(rows) == list(range(len(rows)))
    table = open_table(folder)
    snapshots = table.snapshots()
    assert 40 < len(snapshots) < 12 + 2 * 26 + 2
    for snapshot in snapshots:
        rows = table.scan(snapshot_id=snapshot.snapshot_id).to_arrow()["offset"].to_pylist()
        assert sorted(rows) == list(range(len(rows)))
    last = [s.snapshot_id for s in snapshots[-12:]]
    parents = [s.parent_snapshot_id for s in snapshots[-11:]]
    assert parents == last[:-1]  # a stream that is not far behind goes on
    # Every metadata file of the last day that is there can be read as well.
    for path in metadata_files(folder)[::7]:
        if clock() - path.stat().st_mtime * 1000 < DAY:
            rows = StaticTable.from_metadata(str(path)).scan().to_arrow().num_rows
            assert rows <= topic.count()


def test_iceberg_table_that_hides_rows_does_not_grow_with_time(
    disk: CountingStore, clock: Clock, tmp_path: Path
) -> None:
    """Which rows older snapshots hide is known by their manifests: no more snapshots are needed."""
    folder = tmp_path / "t"
    columns = {"n": pa.int64(), "v": pa.int64()}
    config = {"cleanup.policy": "compact", "publish.view": "latest", "inline.max.bytes": 0}
    topic = make_store(disk, clock).create_topic("t", 1, columns, key="n", config=config)
    newest: dict[int, int] = {}
    wanted: dict[int, dict[int, int]] = {}
    lengths: list[int] = []

    def publish_all() -> None:
        topic.publish(["iceberg"])
        wanted[topic.version] = dict(newest)

    def check(table: StaticTable, snapshot: Any) -> None:
        found = table.scan(snapshot_id=snapshot.snapshot_id).to_arrow()
        values = dict(zip(found["n"].to_pylist(), found["v"].to_pylist(), strict=True))
        assert values == wanted[int(snapshot.summary["pylogtable.version"])]

    for number in range(4 * 48):  # two days
        newest[number**2 % 31] = number
        topic.append(pa.table({"n": [number**2 % 31], "v": [number]}))
        publish_all()
        if number % 4 == 0:
            clock.tick(MINUTE)
            topic.merge()
            publish_all()
        clock.tick(15 * MINUTE)
        if number % 64 == 63:
            topic.vacuum(dry_run=False)
            table = open_table(folder)
            lengths.append(len(table.snapshots()))
            for snapshot in table.snapshots()[::5]:
                check(table, snapshot)
            for path in metadata_files(folder)[::5]:
                if clock() - path.stat().st_mtime * 1000 < DAY:
                    then = StaticTable.from_metadata(str(path))
                    check(then, then.current_snapshot())
    assert lengths[-1] <= SMALL.snapshots_kept + 2 * 26, lengths
    assert topic.verify()


def test_metadata_files_do_not_wait_for_a_vacuum(
    topic: Topic, disk: CountingStore, clock: Clock, tmp_path: Path
) -> None:
    """With one publication a second they would take 20 GB within a day."""
    publish(topic, clock, 90, minutes=1)
    assert 40 <= len(metadata_files(tmp_path / "t")) < 60
    assert numbers_of(tmp_path / "t")[-1] > 90
    check_newest(topic, tmp_path / "t")


def test_checkpoints_forget_files_that_a_vacuum_keeps_anyway(
    topic: Topic, clock: Clock, tmp_path: Path
) -> None:
    folder = tmp_path / "t"
    publish(topic, clock, 40)
    (newest,) = sorted((folder / "_delta_log").glob("*.parquet"))[-1:]
    removed = pq.read_table(io.BytesIO(newest.read_bytes()))["remove"].drop_null()
    assert len(removed) == 0
    entries = sorted((folder / "_delta_log").glob("*.json"))
    lines = [json.loads(line) for path in entries for line in path.read_text().splitlines()]
    shown = {line["add"]["path"] for line in lines if "add" in line}
    assert sum("remove" in line for line in lines) > 30
    clock.tick(6 * DAY)
    topic.vacuum(dry_run=False)
    assert all((folder / path).exists() for path in shown)


def test_checkpoints_remember_files_that_the_topic_replaced_long_before(
    topic: Topic, clock: Clock, tmp_path: Path
) -> None:
    """The publication comes two days after the merge: a vacuum would remove them too soon."""
    folder = tmp_path / "t"
    for _ in range(3):
        topic.append(pa.table({"n": [1]}))
        topic.publish(FORMATS)
    shown = {path for path in (folder / "partition=0").iterdir() if path.suffix == ".parquet"}
    topic.merge()
    clock.tick(2 * DAY)
    topic.publish(FORMATS)
    clock.tick(6 * DAY)  # eight days after the merge, six after the table showed them
    topic.append(pa.table({"n": [1]}))
    topic.publish(FORMATS)
    topic.vacuum(dry_run=False)
    assert all(path.exists() for path in shown)
    table = open_table(folder)
    for snapshot in table.snapshots():
        assert table.scan(snapshot_id=snapshot.snapshot_id).to_arrow().num_rows > 0


# --- publish.view=latest -----------------------------------------------------------------------

KEYS = 4000


@pytest.fixture
def accounts(disk: CountingStore, clock: Clock) -> Topic:
    """Each publication hides other rows in most files. Their vectors are too large for the log."""
    config = {"cleanup.policy": "compact", "publish.view": "latest", **IN_FILES}
    columns = {"id": pa.int64(), "v": pa.int64()}
    topic = make_store(disk, clock).create_topic("t", 1, columns, "id", config=config)
    for _ in range(3):
        topic.append(pa.table({"id": list(range(KEYS)), "v": [0] * KEYS}))
    return topic


def update(topic: Topic, clock: Clock, times: int, minutes: int, cold: bool = False) -> None:
    """Append new records of some keys, and publish. The second half of the keys is cold."""
    for number in range(times):
        keys = range(KEYS // 2, KEYS) if cold else range(KEYS // 2)
        ids = random.Random(number).sample(keys, 400)
        topic.append(pa.table({"id": ids, "v": [number] * len(ids)}))
        topic.publish(["delta"])
        clock.tick(minutes * MINUTE)


def vector_objects(folder: Path) -> set[str]:
    return {path.name for path in (folder / "_delta_vectors").iterdir()}


def test_a_table_does_not_remember_files_that_only_got_another_vector(
    accounts: Topic, clock: Clock, tmp_path: Path
) -> None:
    """Of one publication a second there would be 4.6 million after 7 days."""
    update(accounts, clock, 41, minutes=1)
    log = entries(LocalStore(tmp_path / "t"))
    paths = [line["remove"]["path"] for entry in log for line in entry if "remove" in line]
    assert len(paths) > 80
    assert {*paths} <= {*vectors_at(log)}  # all of them are still shown
    (newest,) = sorted((tmp_path / "t" / "_delta_log").glob("*.parquet"))[-1:]
    rows = pq.read_table(newest)
    assert len(rows["remove"].drop_null()) == 0
    assert len(rows["add"].drop_null()) == len(vectors_at(log[:41]))


def test_vectors_stay_as_long_as_an_entry_that_needs_them(
    accounts: Topic, clock: Clock, tmp_path: Path
) -> None:
    """An entry is there for some hours. Each can be read, though one of its vectors is older than
    all entries, and was replaced a moment ago."""
    folder = tmp_path / "t"
    update(accounts, clock, 2, minutes=10, cold=True)
    old = vector_objects(folder)
    update(accounts, clock, 100, minutes=10)
    update(accounts, clock, 2, minutes=10, cold=True)
    written = vector_objects(folder)
    accounts.vacuum(dry_run=False)
    left = vector_objects(folder)
    log = entries(LocalStore(folder))
    newest = deltalake.DeltaTable(folder).version()
    first = newest + 1 - len(log)
    assert 40 <= len(log) < 60
    assert len(left) < len(written)
    assert left & old
    for version, entry in enumerate(log, start=first):
        table = deltalake.DeltaTable(folder, version=version)
        query = deltalake.QueryBuilder().register("t", table)
        found = pa.table(query.execute('SELECT "partition", "offset", id, v FROM t').read_all())
        wanted = expected(accounts, shown_version(entry), "latest").select(found.column_names)
        assert found.sort_by("offset").to_pylist() == wanted.to_pylist()
    assert accounts.verify().problems == []
