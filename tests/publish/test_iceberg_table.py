"""What a published Iceberg table is made of: statistics, manifests, expiry, and what is refused."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import polars
import pyarrow as pa
import pytest

import pylogtable
from pylogtable import Topic
from pylogtable.errors import InvalidRequestError
from pylogtable.publish.iceberg.table import IcebergTable
from pylogtable.runtime import Runtime
from pylogtable.storage.local import LocalStore
from pylogtable.storage.memory import MemoryStore
from pylogtable.store import Store
from tests.builders import IN_FILES, Clock, limited, topic_of_older_writer
from tests.builders import runtime as fake_runtime
from tests.publish.plain_iceberg import (
    check_newest,
    check_rows,
    expected_rows,
    hide_pyiceberg,
    numbers_of,
    open_table,
    places_added,
    rows,
)
from tests.stores import AgingDisk, CountingStore, Fault, FaultyStore

DAY = 86_400_000


def make_topic(
    store: Store, config: dict[str, object] | None = None, **columns: pa.DataType
) -> Topic:
    return store.create_topic("orders", 2, {"id": pa.int64(), **columns}, "id", config)


def batch(start: int, count: int = 10) -> pa.Table:
    return pa.table({"id": pa.array(range(start, start + count))})


def open_at(folder: Path) -> Store:
    return pylogtable.open(str(folder))


def table_of(folder: Path) -> IcebergTable:
    return IcebergTable(LocalStore(folder), Runtime())


def entries_of(folder: Path) -> list[Any]:
    table = open_table(folder)
    snapshot = table.current_snapshot()
    assert snapshot is not None
    found = (m.fetch_manifest_entry(table.io) for m in snapshot.manifests(table.io))
    return [entry for entries in found for entry in entries]


def test_filters_skip_files_by_partition_offset_timestamp_and_key(tmp_path: Path) -> None:
    topic = make_topic(open_at(tmp_path), IN_FILES)
    for start in range(0, 400, 100):
        topic.append(batch(start, 100))
    topic.publish(["iceberg"])
    table = open_table(tmp_path / "orders")
    everything = topic.read().read_all()
    assert len(list(table.scan().plan_files())) == 8
    newest = everything["timestamp"].to_pylist()[-1].isoformat()
    for condition, files in [
        ("partition = 1", 4),
        ("partition = 1 and offset < 10", 1),
        ("id >= 350", 2),
        ("id > 1000", 0),
        ("id is null", 0),
        ("offset is null", 0),
        (f"timestamp > '{newest}'", 0),
    ]:
        scan = table.scan(row_filter=condition)
        assert len(list(scan.plan_files())) == files, condition
    found = table.scan(row_filter="partition = 1 and offset >= 20 and offset < 23").to_arrow()
    expected = everything.filter(pa.compute.field("partition") == 1).slice(20, 3)
    assert rows(found, everything.schema) == expected.to_pylist()


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        (pa.int8(), [-3, 7]),
        (pa.int64(), [-(2**40), 2**41]),
        (pa.string(), ["", "ä€"]),
        (pa.binary(), [b"\x00", b"\xff\x01"]),
        (pa.bool_(), [False, True]),
        (pa.date32(), [-1, 19000]),
        (pa.timestamp("us"), [-1, 10**15]),
        (pa.timestamp("us", "UTC"), [-1, 10**15]),
        (pa.decimal128(38, 2), ["-129.00", "12345678901234567890123456789012345.67"]),
    ],
)
def test_bounds_of_a_key_are_the_least_and_the_greatest_value(
    tmp_path: Path, kind: pa.DataType, values: list[Any]
) -> None:
    from pyiceberg.conversions import from_bytes

    topic = open_at(tmp_path).create_topic("orders", 1, {"k": kind, "v": pa.int64()}, "k")
    is_text = pa.types.is_decimal(kind)
    keys = pa.array(values).cast(kind) if is_text else pa.array(values, kind)
    topic.append(pa.table({"k": keys, "v": pa.array([1, 2])}))
    topic.publish(["iceberg"])
    (entry,) = entries_of(tmp_path / "orders")
    field = open_table(tmp_path / "orders").schema().find_field("k")
    file = entry.data_file
    found = [
        from_bytes(field.field_type, b[field.field_id])
        for b in (file.lower_bounds, file.upper_bounds)
    ]
    if pa.types.is_temporal(kind):
        assert found == values
    else:
        assert found == keys.to_pylist()
    check_rows(topic, tmp_path / "orders")


def test_long_texts_are_no_bounds(tmp_path: Path) -> None:
    topic = open_at(tmp_path).create_topic("orders", 1, {"k": pa.string(), "v": pa.int64()}, "k")
    topic.append(pa.table({"k": ["a", "x" * 100], "v": [1, 2]}))
    topic.publish(["iceberg"])
    (entry,) = entries_of(tmp_path / "orders")
    assert set(entry.data_file.lower_bounds) == set(entry.data_file.upper_bounds) == {2, 3}
    assert entry.data_file.null_value_counts == {2: 0, 3: 0, 16: 0}


def test_incremental_publication_costs_the_same_however_many_files_there_are(
    tmp_path: Path,
) -> None:
    counts = []
    for appends in (3, 30):
        folder = tmp_path / str(appends)
        store = CountingStore(LocalStore(folder))
        topic = make_topic(Store(store, Runtime()))
        for number in range(appends):
            topic.append(batch(number))
        topic.publish(["iceberg"])
        topic.append(batch(1000))
        store.reset()
        topic.publish(["iceberg"])
        mine = {key: n for key, n in store.by_key.items() if "/metadata/" in key[1]}
        counts.append((sum(mine.values()), store.counts["open_input"], store.counts["list"]))
    # Reads: the metadata file before the new one. Writes: manifest, manifest list, metadata file,
    # hint. The manifest list before and the footers are known.
    assert counts == [(5, 0, 0)] * 2


def test_publication_without_a_change_reads_three_objects(tmp_path: Path) -> None:
    store = CountingStore(LocalStore(tmp_path))
    topic = make_topic(Store(store, Runtime()), IN_FILES)
    topic.append(batch(0))
    topic.publish(["iceberg"])
    store.reset()
    topic.publish(["iceberg"])
    mine = {key: n for key, n in store.by_key.items() if "/metadata/" in key[1]}
    assert sum(mine.values()) == 3


def test_manifests_are_bounded_and_merged(tmp_path: Path) -> None:
    topic = make_topic(limited(open_at(tmp_path), manifest_entries=8, small_manifests=5), IN_FILES)
    for number in range(10):
        topic.append(batch(number * 10))
    topic.publish(["iceberg"])
    folder = tmp_path / "orders"
    for number in range(10, 30):
        topic.append(batch(number * 10))
        topic.publish(["iceberg"])
        table = open_table(folder)
        snapshot = table.current_snapshot()
        assert snapshot is not None
        manifests = snapshot.manifests(table.io)
        sizes = [(m.added_files_count or 0) + (m.existing_files_count or 0) for m in manifests]
        assert max(sizes) <= 8
        assert sum(size < 4 for size in sizes) <= 5 + 2
        assert sum(sizes) == 2 * (number + 1)
    check_rows(topic, folder)
    entries = entries_of(folder)
    added = {s.snapshot_id: s.sequence_number for s in open_table(folder).snapshots()}
    assert all(added[e.snapshot_id] == e.sequence_number == e.file_sequence_number for e in entries)
    assert len({e.snapshot_id for e in entries}) == 21
    for manifest in manifests:
        for entry in manifest.fetch_manifest_entry(table.io):
            is_new = entry.snapshot_id == manifest.added_snapshot_id
            assert (entry.status.name == "ADDED") == is_new


def test_only_manifests_with_removed_files_are_read_and_written_anew(tmp_path: Path) -> None:
    store = CountingStore(LocalStore(tmp_path))
    topic = make_topic(Store(store, Runtime()))
    for number in range(6):
        topic.append(batch(number * 10))
        topic.publish(["iceberg"])
    before = _manifest_paths(tmp_path / "orders")
    topic.delete_records({0: topic.end_offsets()[0] // 6})
    topic = Store(store, Runtime()).topic("orders")  # a process that has not written them
    store.reset()
    topic.publish(["iceberg"])
    after = _manifest_paths(tmp_path / "orders")
    assert len(before - after) == 1
    (replaced,) = before - after
    read = [key for verb, key in store.by_key if verb == "read" and "/pylogtable-" in key]
    assert [replaced.endswith(key) for key in read] == [True]
    check_rows(topic, tmp_path / "orders")


def _manifest_paths(folder: Path) -> set[str]:
    table = open_table(folder)
    snapshot = table.current_snapshot()
    assert snapshot is not None
    return {manifest.manifest_path for manifest in snapshot.manifests(table.io)}


def test_old_snapshots_and_objects_expire_and_all_that_is_kept_reads(tmp_path: Path) -> None:
    clock = Clock(1_700_000_000_000)
    disk = AgingDisk(tmp_path, clock)
    topic = make_topic(Store(disk, fake_runtime(clock)))
    folder = tmp_path / "orders"
    for day in range(15):
        topic.append(batch(day * 10))
        topic.publish(["iceberg"])
        topic.merge()
        topic.publish(["iceberg"])
        clock.now_ms += DAY
    table = IcebergTable(disk.below("orders"), fake_runtime(clock))
    since_ms = clock.now_ms - 7 * DAY
    before = {path: path.stat().st_size for path in folder.rglob("*") if path.is_file()}
    needed = table.needed_files(since_ms)
    old = table.old_objects(disk.below("orders").list(), since_ms)
    assert len(old) > 20
    for info in old:
        (folder / info.key).unlink()
    for path in before:
        key = path.relative_to(folder).as_posix()
        if key.startswith("partition=") and key not in needed:
            path.unlink()
    read = open_table(folder)
    kept = [s for s in read.snapshots() if s.timestamp_ms >= since_ms]
    assert len(kept) >= 12
    assert len(read.snapshots()) <= 20
    for snapshot in kept:
        found = read.scan(snapshot_id=snapshot.snapshot_id).to_arrow()
        assert found.num_rows == int(snapshot.summary["total-records"] or 0)
    assert read.metadata.metadata_log[-1].metadata_file.endswith(
        f"v{numbers_of(folder)[-2]}.metadata.json"
    )
    topic.append(batch(1000))
    topic.publish(["iceberg"])
    assert open_table(folder).scan().to_arrow().num_rows == read.scan().to_arrow().num_rows + 10


def test_objects_of_a_lost_publication_expire_and_young_ones_stay(tmp_path: Path) -> None:
    clock = Clock(1_700_000_000_000)
    disk = AgingDisk(tmp_path, clock)
    topic = make_topic(Store(disk, fake_runtime(clock)))
    topic.append(batch(0))
    topic.publish(["iceberg"])
    root = disk.below("orders")
    root.write("metadata/pylogtable-lost-m0-0-0.avro", b"x")
    root.write("metadata/readme.txt", b"x")
    table = IcebergTable(root, fake_runtime(clock))
    assert table.old_objects(root.list(), clock.now_ms - 7 * DAY) == []
    clock.now_ms += 8 * DAY
    old = table.old_objects(root.list(), clock.now_ms - 7 * DAY)
    assert [info.key for info in old] == ["metadata/pylogtable-lost-m0-0-0.avro"]


def test_metadata_file_that_was_replaced_lately_stays(tmp_path: Path) -> None:
    clock = Clock(1_700_000_000_000)
    disk = AgingDisk(tmp_path, clock)
    topic = make_topic(Store(disk, fake_runtime(clock)))
    for number in range(3):
        topic.append(batch(number))
        topic.publish(["iceberg"])
        clock.now_ms += 5 * DAY
    root = disk.below("orders")
    old = IcebergTable(root, fake_runtime(clock)).old_objects(root.list(), clock.now_ms - 7 * DAY)
    assert [info.key for info in old] == ["metadata/v1.metadata.json"]


def test_stale_hint_keeps_the_metadata_files_that_it_leads_to(tmp_path: Path) -> None:
    clock = Clock(1_700_000_000_000)
    disk = AgingDisk(tmp_path, clock)
    topic = make_topic(Store(disk, fake_runtime(clock)))
    for number in range(4):
        topic.append(batch(number))
        topic.publish(["iceberg"])
    root = disk.below("orders")
    root.write("metadata/version-hint.text", b"2")
    clock.now_ms += 8 * DAY
    table = IcebergTable(root, fake_runtime(clock))
    old = [i.key for i in table.old_objects(root.list(), clock.now_ms) if i.key.endswith(".json")]
    assert old == ["metadata/v1.metadata.json"]
    newest = table.newest()
    assert newest is not None
    assert newest.number == 4


def test_hint_of_a_slow_publisher_is_mended_by_its_next_look(tmp_path: Path) -> None:
    """A faster one lands before the slow one has written its hint, which names an older file then.
    In `pylogtable run` the slow one looks again at once: it has not shown the newest version."""
    fast = make_topic(open_at(tmp_path))
    armed = False

    def decide(verb: str, key: str) -> Fault | None:
        nonlocal armed
        if armed and verb == "write" and key.endswith("version-hint.text"):
            armed = False
            fast.append(batch(1))
            fast.publish(["iceberg"])
        return None

    slow = Store(FaultyStore(LocalStore(tmp_path), decide), Runtime()).topic("orders")
    slow.publish(["iceberg"])
    slow.append(batch(0))
    armed = True
    (table,) = slow.publish(["iceberg"]).tables
    hint = tmp_path / "orders" / "metadata" / "version-hint.text"
    assert (hint.read_text(), numbers_of(tmp_path / "orders")[-1]) == ("2", 3)
    assert table.version < slow.version
    slow.publish(["iceberg"])
    check_newest(slow, tmp_path / "orders")


def test_unpublish_sends_few_requests(tmp_path: Path) -> None:
    disk = CountingStore(LocalStore(tmp_path))
    topic = make_topic(Store(disk, Runtime()))
    for number in range(12):
        topic.append(batch(number))
        topic.publish(["iceberg"])
    files = [*(tmp_path / "orders" / "metadata").iterdir()]
    disk.reset()
    assert topic.unpublish(["iceberg"]) == len(files) - 1
    deletes = {verb: n for verb, n in disk.counts.items() if verb.startswith("delete")}
    assert deletes == {"delete": 2, "delete_many": 3}
    assert not list((tmp_path / "orders" / "metadata").iterdir())


def test_columns_follow_and_old_snapshots_keep_theirs(tmp_path: Path) -> None:
    topic = make_topic(open_at(tmp_path), small=pa.int32(), price=pa.decimal128(9, 2))
    nothing = pa.nulls(10, pa.int32())
    prices = pa.nulls(10, pa.decimal128(9, 2))
    topic.append(batch(0).append_column("small", nothing).append_column("price", prices))
    topic.publish(["iceberg"])
    topic.alter(widen_columns={"small": pa.int64(), "price": pa.decimal128(20, 2)})
    topic.alter(rename_columns={"small": "large"})
    topic.publish(["iceberg"])
    table = open_table(tmp_path / "orders")
    assert [s.schema_id for s in table.snapshots()] == [0, 1]
    assert [str(f.field_type) for f in table.schema().fields[4:]] == ["long", "decimal(20, 2)"]
    assert table.metadata.last_column_id == 18
    first = table.scan(snapshot_id=table.snapshots()[0].snapshot_id).to_arrow()
    assert "small" in first.column_names
    check_rows(topic, tmp_path / "orders")
    topic.alter(widen_columns={"price": pa.decimal128(21, 3)})
    with pytest.raises(InvalidRequestError, match=r"'price'.*no promotion from"):
        topic.publish(["iceberg"])
    assert numbers_of(tmp_path / "orders") == [1, 2]


def test_empty_topic_is_an_empty_table(tmp_path: Path) -> None:
    topic = make_topic(open_at(tmp_path))
    topic.publish(["iceberg"])
    check_rows(topic, tmp_path / "orders")
    topic.append(batch(0))
    topic.publish(["iceberg"])
    topic.delete_records(topic.end_offsets())
    topic.publish(["iceberg"])
    check_rows(topic, tmp_path / "orders")
    operations = [s.summary.operation.value for s in open_table(tmp_path / "orders").snapshots()]
    assert operations == ["append", "append", "delete"]
    topic.append(batch(20))
    topic.publish(["iceberg"])
    assert len(_manifest_paths(tmp_path / "orders")) == 1  # the one with deleted files is gone
    check_rows(topic, tmp_path / "orders")


def test_topic_that_was_created_anew_is_another_table(tmp_path: Path) -> None:
    store = open_at(tmp_path)
    topic = make_topic(store)
    topic.append(batch(0))
    topic.publish(["iceberg"])
    folder = tmp_path / "orders"
    old = open_table(folder)
    shutil.copytree(folder / "metadata", tmp_path / "kept")
    store.delete_topic("orders")
    topic = store.create_topic("orders", 1, {"other": pa.string()})
    topic.append(pa.table({"other": ["x"]}))
    shutil.rmtree(folder / "metadata", ignore_errors=True)
    shutil.move(tmp_path / "kept", folder / "metadata")
    topic.publish(["iceberg"])
    check_rows(topic, folder)
    new = open_table(folder)
    assert numbers_of(folder) == [1, 2]
    assert len(new.snapshots()) == len(new.schemas()) == 1
    assert old.metadata.table_uuid != new.metadata.table_uuid


def test_merged_files_and_new_records_are_two_snapshots(tmp_path: Path) -> None:
    """A stream reads what snapshots append, and skips those that replace."""
    topic = make_topic(open_at(tmp_path), IN_FILES)
    for start in (0, 10):
        topic.append(batch(start))
    topic.publish(["iceberg"])
    version = topic.version
    topic.merge()
    topic.append(batch(20, 5))
    topic.publish(["iceberg"])
    assert numbers_of(tmp_path / "orders") == [1, 2]
    table = open_table(tmp_path / "orders")
    said = [(s.summary.operation.value, s.summary["pylogtable.version"]) for s in table.snapshots()]
    versions = (version, version, topic.version)
    operations = ("append", "replace", "append")
    assert said == [(o, str(v)) for o, v in zip(operations, versions, strict=True)]
    streamed = [
        place
        for snapshot in table.snapshots()
        if snapshot.summary.operation.value == "append"
        for place in places_added(table, snapshot)
    ]
    assert len(streamed) == len(set(streamed)) == 25
    check_rows(topic, tmp_path / "orders")


def test_put_whose_client_was_told_that_the_file_exists_is_known_as_ours(tmp_path: Path) -> None:
    topic = make_topic(open_at(tmp_path))
    topic.append(batch(0))

    def decide(verb: str, key: str) -> Fault | None:
        return Fault.SELF_RETRY if key.endswith("v1.metadata.json") else None

    store = Store(FaultyStore(LocalStore(tmp_path), decide), Runtime())
    report = store.topic("orders").publish(["iceberg"])
    assert report.tables[0].steps == 1
    assert report.tables[0].files_added == 2
    check_rows(topic, tmp_path / "orders")


def test_unpublish_removes_the_table_and_nothing_else(tmp_path: Path) -> None:
    topic = make_topic(open_at(tmp_path), IN_FILES)
    topic.append(batch(0))
    folder = tmp_path / "orders"
    before = sorted(folder.rglob("*"))
    topic.publish(["iceberg"])
    (folder / "metadata" / "mine.txt").write_text("mine")
    assert topic.unpublish(["iceberg"]) == 3
    assert [path.name for path in (folder / "metadata").iterdir()] == ["mine.txt"]
    shutil.rmtree(folder / "metadata")
    assert sorted(folder.rglob("*")) == before
    assert topic.unpublish(["iceberg"]) == 0
    topic.publish(["iceberg"])
    check_rows(topic, folder)


@pytest.mark.parametrize("name", ["v1.metadata.json", "00000-1a2b.metadata.json"])
def test_table_of_somebody_else_is_refused_and_stays(tmp_path: Path, name: str) -> None:
    topic = make_topic(open_at(tmp_path))
    topic.append(batch(0))
    topic.publish(["iceberg"])
    metadata = tmp_path / "orders" / "metadata"
    foreign = json.loads((metadata / "v1.metadata.json").read_text())
    shutil.rmtree(metadata)
    metadata.mkdir()
    foreign["properties"] = {}
    (metadata / name).write_text(json.dumps(foreign))
    with pytest.raises(InvalidRequestError, match="has not published"):
        topic.publish(["iceberg"])
    if name.startswith("v1"):
        with pytest.raises(InvalidRequestError, match="has not published"):
            topic.unpublish(["iceberg"])
    else:
        assert topic.unpublish(["iceberg"]) == 0
    assert [path.name for path in metadata.iterdir()] == [name]


def test_foreign_snapshot_in_our_table_is_refused_until_it_is_unpublished(tmp_path: Path) -> None:
    topic = make_topic(open_at(tmp_path))
    topic.append(batch(0))
    topic.publish(["iceberg"])
    metadata = tmp_path / "orders" / "metadata"
    foreign = json.loads((metadata / "v1.metadata.json").read_text())
    del foreign["snapshots"][0]["summary"]["pylogtable.state"]
    (metadata / "v2.metadata.json").write_text(json.dumps(foreign))
    (metadata / ".v2.metadata.json.crc").write_bytes(b"what Hadoop writes")
    with pytest.raises(InvalidRequestError, match=r"another writer.*v2\.metadata\.json"):
        topic.publish(["iceberg"])
    with pytest.raises(InvalidRequestError, match="another writer"):
        table_of(tmp_path / "orders").needed_files(0)
    topic.unpublish(["iceberg"])
    assert not metadata.exists()
    topic.publish(["iceberg"])
    check_rows(topic, tmp_path / "orders")


def test_table_of_a_topic_that_was_moved_is_refused_until_it_is_unpublished(tmp_path: Path) -> None:
    topic = make_topic(open_at(tmp_path / "a"))
    topic.append(batch(0))
    topic.publish(["iceberg"])
    shutil.copytree(tmp_path / "a", tmp_path / "b")
    moved = open_at(tmp_path / "b").topic("orders")
    moved.append(batch(10))
    with pytest.raises(InvalidRequestError, match=r"published for file://.*/a/orders"):
        moved.publish(["iceberg"])
    assert len(table_of(tmp_path / "b" / "orders").needed_files(0)) == 2
    moved.unpublish(["iceberg"])
    moved.publish(["iceberg"])
    check_rows(moved, tmp_path / "b" / "orders")
    check_rows(topic, tmp_path / "a" / "orders")


@pytest.mark.parametrize("damage", [b"", b"{", b"[]", b'{"location": 1}', b'{"properties": []}'])
def test_damaged_metadata_file_is_an_error_of_ours(tmp_path: Path, damage: bytes) -> None:
    topic = make_topic(open_at(tmp_path))
    topic.publish(["iceberg"])
    (tmp_path / "orders" / "metadata" / "v1.metadata.json").write_bytes(damage)
    with pytest.raises(pylogtable.CorruptTopicError, match=r"v1\.metadata\.json"):
        topic.publish(["iceberg"])


@pytest.mark.parametrize(
    "field",
    [
        *("location", "last-updated-ms", "last-sequence-number", "last-column-id", "schemas"),
        *("current-schema-id", "properties", "snapshots"),
    ],
)
@pytest.mark.parametrize("value", [None, "x", [{}], {"pylogtable.topic-id": 5}])
def test_field_of_the_metadata_file_that_is_wrong_is_an_error_of_ours(
    tmp_path: Path, field: str, value: object
) -> None:
    topic = make_topic(open_at(tmp_path))
    topic.publish(["iceberg"])
    path = tmp_path / "orders" / "metadata" / "v1.metadata.json"
    body = json.loads(path.read_text())
    path.write_text(json.dumps(body | {field: value}))
    topic.append(batch(0))
    with pytest.raises(pylogtable.LogTableError):
        topic.publish(["iceberg"])


@pytest.mark.parametrize("damage", [None, b"", b"Obj\x01", b"not Avro at all"])
def test_damaged_manifest_is_an_error_of_ours(tmp_path: Path, damage: bytes | None) -> None:
    topic = make_topic(open_at(tmp_path))
    topic.append(batch(0))
    topic.publish(["iceberg"])
    for path in (tmp_path / "orders" / "metadata").glob("pylogtable-*.avro"):
        path.unlink() if damage is None else path.write_bytes(damage)
    topic.delete_records({0: 1})
    with pytest.raises(pylogtable.CorruptTopicError, match=r"\.avro"):
        open_at(tmp_path).topic("orders").publish(["iceberg"])


def test_columns_that_differ_only_in_case_are_refused(tmp_path: Path) -> None:
    topic = topic_of_older_writer(open_at(tmp_path), "t", {"a": pa.int64(), "A": pa.int64()})
    with pytest.raises(InvalidRequestError, match="an Iceberg table: columns 'a' and 'A'"):
        topic.publish(["iceberg"])


def test_column_with_the_full_name_of_another_is_refused(tmp_path: Path) -> None:
    inside = pa.struct({"b": pa.int64()})
    topic = open_at(tmp_path).create_topic(
        "orders", 1, pa.schema([("a", inside), ("a.b", pa.int64())])
    )
    with pytest.raises(InvalidRequestError, match=r"an Iceberg table: .*'a\.b'"):
        topic.publish(["iceberg"])


def test_address_that_engines_misread_is_refused(tmp_path: Path) -> None:
    topic = make_topic(open_at(tmp_path / "a#b"))
    with pytest.raises(InvalidRequestError, match="'#'"):
        topic.publish(["iceberg"])


@pytest.mark.parametrize("name", ["with space", "100%", "a%20b", "ä=b,c"])
@pytest.mark.filterwarnings("ignore:Iceberg scan planning")
def test_unusual_addresses_are_read(tmp_path: Path, name: str) -> None:
    topic = make_topic(open_at(tmp_path / name))
    topic.append(batch(0))
    topic.publish(["iceberg"])
    table = open_table(tmp_path / name / "orders")
    assert table.scan().to_arrow().num_rows == 10
    assert polars.scan_iceberg(table).collect().height == 10


def test_without_pyiceberg_the_error_says_what_to_install_and_delta_works(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = make_topic(open_at(tmp_path))
    topic.append(batch(0))
    hide_pyiceberg(monkeypatch)
    with pytest.raises(InvalidRequestError, match=r"pip install 'pylogtable\[iceberg\]'"):
        topic.publish(["iceberg"])
    topic.publish(["delta"])
    assert table_of(tmp_path / "orders").needed_files(0) == set()
    assert table_of(tmp_path / "orders").old_objects([], 0) == []
    topic.unpublish()


def test_store_in_memory_can_be_published(tmp_path: Path) -> None:
    objects = MemoryStore()
    topic = make_topic(Store(objects, Runtime()))
    topic.append(batch(0))
    topic.publish(["iceberg"])
    topic.append(batch(10))
    assert topic.publish(["iceberg"]).tables[0].table_version == 2
    assert len(IcebergTable(objects.below("orders"), Runtime()).needed_files(0)) == 4


def test_vacuum_keeps_what_the_table_shows_and_removes_its_old_objects(tmp_path: Path) -> None:
    clock = Clock(1_700_000_000_000)
    disk = AgingDisk(tmp_path, clock)
    topic = make_topic(Store(disk, fake_runtime(clock)))
    folder = tmp_path / "orders"
    for number in range(3):
        topic.append(batch(number * 10))
        topic.publish(["iceberg"])
        clock.now_ms += 5 * DAY
    shown = open_table(folder).scan().to_arrow().num_rows
    topic.merge()  # the table still shows the files from before
    clock.now_ms += 8 * DAY
    topic.vacuum(dry_run=False)
    assert open_table(folder).scan().to_arrow().num_rows == shown == 30
    assert numbers_of(folder) == [3]
    topic.publish(["iceberg"])
    clock.now_ms += 8 * DAY
    topic.vacuum(dry_run=False)
    assert len(list(folder.glob("partition=*/*.parquet"))) == 2
    schema, expected = expected_rows(topic, topic.version)
    assert rows(open_table(folder).scan().to_arrow(), schema) == expected
    assert topic.verify(data=True)
