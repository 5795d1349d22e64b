"""A table with `publish.view=latest`: what engines read, what a publication costs, and what becomes
of vectors and delete files [PUB-9]."""

from __future__ import annotations

import json
import sys
import warnings
from datetime import timedelta
from pathlib import Path
from typing import Any

import deltalake
import numpy as np
import polars
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import pylogtable
from pylogtable import InvalidRequestError, Store, Topic
from pylogtable.limits import Limits
from pylogtable.publish.iceberg.position_deletes import MOST_FILES, encode_rows
from pylogtable.publish.roaring import numbers
from pylogtable.storage.local import LocalStore
from tests.builders import EPOCH, IN_FILES, T0, UTC_US, Clock, contents, make_store, put_back
from tests.memory import peak_bytes, reset_peak
from tests.publish.latest_engines import ENGINES
from tests.publish.latest_histories import expected
from tests.publish.plain_delta import action, actions, entries, hidden, vectors_at
from tests.publish.plain_iceberg import open_table
from tests.stores import AgingDisk, CountingStore, FaultyStore

DAY = 86_400_000
FORMATS = ["delta", "iceberg"]
LATEST = {"cleanup.policy": "compact", "publish.view": "latest", **IN_FILES}
COLUMNS = ["partition", "offset", "id", "v"]


def make_topic(store: Store, partitions: int = 2, **config: str) -> Topic:
    columns = {"id": pa.int64(), "v": pa.float64()}
    return store.create_topic("t", partitions, columns, "id", config={**LATEST, **config})


def append(topic: Topic, ids: list[int], v: float | None = 1.0, ms: int = 0, **more: Any) -> None:
    times = pa.array([EPOCH + timedelta(milliseconds=T0 + ms)] * len(ids), UTC_US)
    values = pa.array([v] * len(ids), pa.float64())
    topic.append(pa.table({"id": ids, "v": values, "timestamp": times, **more}))


def rows(table: pa.Table) -> list[tuple[Any, ...]]:
    columns = [table[name].to_pylist() for name in COLUMNS]
    return sorted(zip(*columns, strict=True))


READ = {"delta": ENGINES["polars delta"], "iceberg": ENGINES["pyiceberg"]}


def check(topic: Topic, folder: Path, *formats: str) -> None:
    wanted = rows(expected(topic, topic.version, "latest"))
    for name in formats or FORMATS:
        assert rows(READ[name](folder)) == wanted


# --- what engines read -------------------------------------------------------------------------


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("keys", [5, 20_000])
def test_engines_read_the_newest_record_of_each_key(tmp_path: Path, engine: str, keys: int) -> None:
    """With few keys the vectors are in the log, with many in an object of their own."""
    topic = make_topic(pylogtable.open(str(tmp_path)))
    append(topic, list(range(keys)))
    append(topic, list(range(0, keys, 2)), 2.0)
    append(topic, [1, 2], None)
    topic.publish(FORMATS)
    append(topic, [3, 4, keys], 3.0)
    topic.publish(FORMATS)
    wanted = rows(expected(topic, topic.version, "latest"))
    assert len(wanted) == keys - 1
    assert rows(ENGINES[engine](tmp_path / "t")) == wanted
    vectors = vectors_at(entries(LocalStore(tmp_path / "t"))).values()
    assert {v["storageType"] for v in vectors if v} == ({"i"} if keys == 5 else {"u"})


@pytest.mark.parametrize("appended_again", [False, True])
def test_files_that_come_again_with_a_backup_hide_what_they_hide_now(
    tmp_path: Path, appended_again: bool
) -> None:
    """Delete files named the first file when it left the table: key 1 had a newer record."""
    store = pylogtable.open(str(tmp_path))
    topic = make_topic(store, partitions=1)
    append(topic, [1, 2, 2, 3])
    manifest = LocalStore(tmp_path / "t" / "_manifest")
    backup = contents(manifest)
    append(topic, [1], 5.0)
    topic.publish(FORMATS)
    topic.merge()
    topic.publish(FORMATS)
    check(topic, tmp_path / "t")
    put_back(manifest, backup)
    topic = store.topic("t")
    if appended_again:
        append(topic, [3], 6.0)
    topic.publish(FORMATS)
    wanted = rows(expected(topic, topic.version, "latest"))
    for engine, read in ENGINES.items():
        assert rows(read(tmp_path / "t")) == wanted, engine
    append(topic, [2, 9])
    topic.merge()  # what the table hides is carried over
    topic.publish(FORMATS)
    check(topic, tmp_path / "t")
    assert topic.verify(data=True)


def test_reader_of_pyarrow_in_delta_rs_refuses_the_table(tmp_path: Path) -> None:
    """If it reads such tables one day, the guide names the wrong functions."""
    topic = make_topic(pylogtable.open(str(tmp_path)))
    append(topic, [1, 1])
    topic.publish()
    with pytest.raises(Exception, match="deletionVectors"):
        deltalake.DeltaTable(str(tmp_path / "t")).to_pyarrow_table()


@pytest.mark.filterwarnings("ignore:Iceberg scan planning:polars.exceptions.PerformanceWarning")
def test_reader_that_polars_chooses_never_shows_hidden_rows(tmp_path: Path) -> None:
    """Its own reader knows delete files of one data file only; pyiceberg reads the others."""
    topic = make_topic(pylogtable.open(str(tmp_path)), partitions=1)
    for ids in ([1, 2, 3, 4], [1, 2], [2, 3]):
        append(topic, ids)
        topic.publish(["iceberg"])
        wanted = rows(expected(topic, topic.version, "latest"))
        lazy = polars.scan_iceberg(str(tmp_path / "t"))
        assert rows(lazy.collect().to_arrow()) == wanted
        assert lazy.select(polars.len()).collect().item() == 4
    with pytest.raises(polars.exceptions.ComputeError, match="position delete"):
        polars.scan_iceberg(str(tmp_path / "t"), reader_override="native").collect()


@pytest.mark.parametrize("name", FORMATS)
def test_older_record_is_shown_again_if_it_is_the_newest(tmp_path: Path, name: str) -> None:
    """The newest record of a key in a partition need not be the newest by its time."""
    topic = make_topic(pylogtable.open(str(tmp_path)))
    folder = tmp_path / "t"
    append(topic, list(range(100, 150)))
    append(topic, [1], 1.0, ms=5, partition=pa.array([0], pa.int32()))
    append(topic, [1], 2.0, ms=9, partition=pa.array([1], pa.int32()))
    topic.publish([name])
    check(topic, folder, name)
    append(topic, [1], 3.0, ms=1, partition=pa.array([1], pa.int32()))
    (table,) = topic.publish([name]).tables
    check(topic, folder, name)
    assert 1.0 in READ[name](folder)["v"].filter(pa.array(
        [one == 1 for one in READ[name](folder)["id"].to_pylist()])).to_pylist()  # fmt: skip
    assert table.rows_hidden == 2


@pytest.mark.parametrize("name", FORMATS)
def test_equal_times_in_two_partitions_and_a_new_partition(tmp_path: Path, name: str) -> None:
    """The partition of the key wins, and that may change without a change of files."""
    topic = make_topic(pylogtable.open(str(tmp_path)))
    for partition in (0, 1):
        append(topic, list(range(40)), partition=pa.array([partition] * 40, pa.int32()))
    topic.publish([name])
    check(topic, tmp_path / "t", name)
    before = rows(READ[name](tmp_path / "t"))
    topic.alter(partitions=3)
    topic.publish([name])
    check(topic, tmp_path / "t", name)
    assert rows(READ[name](tmp_path / "t")) != before


# --- the setting -------------------------------------------------------------------------------


@pytest.mark.parametrize("name", FORMATS)
def test_records_in_copies_of_several_appends_are_hidden_later(
    tmp_path: Path, clock: Clock, name: str
) -> None:
    """Somebody appends between the look of a publication and the commit of its copies. The table
    then has a copy that stands for several appends, and rows in its middle are hidden."""
    disk = AgingDisk(tmp_path, clock)
    columns = {"id": pa.int64(), "v": pa.float64()}
    config = {"cleanup.policy": "compact", "publish.view": "latest"}
    topic = make_store(disk, clock).create_topic("t", 1, columns, "id", config=config)
    armed: list[int] = []

    def meet(verb: str, key: str) -> None:
        if armed and verb == "create" and "_manifest/" in key:
            append(topic, [armed.pop()])

    mine = make_store(FaultyStore(disk, meet), clock).topic("t")
    append(topic, [*range(20)])
    for number in range(6):
        for other in range(4):
            append(topic, [number, 100 + other])
        armed.append(number % 20)
        (table,) = mine.publish([name]).tables
        assert rows(READ[name](tmp_path / "t")) == rows(expected(topic, table.version, "latest"))
    mine.publish([name])
    check(topic, tmp_path / "t", name)


def test_missing_pyroaring_is_told(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyroaring", None)
    topic = make_topic(store)
    append(topic, [1])
    with pytest.raises(InvalidRequestError, match=r"pylogtable\[latest\]"):
        topic.publish()
    topic.alter(config={"publish.view": "records", "cleanup.policy": "delete"})
    assert topic.publish().tables[0].files_added == 1


def test_setting_can_be_switched_there_and_back(tmp_path: Path) -> None:
    """Each switch is one entry. Older publishers refuse a table that hides rows, and no other."""
    topic = make_topic(pylogtable.open(str(tmp_path)), **{"publish.view": "records"})
    folder = tmp_path / "t"
    append(topic, [1, 1, 2])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        topic.publish(FORMATS)
    for view, count in (("latest", 2), ("records", 3), ("latest", 2)):
        topic.alter(config={"publish.view": view, "publish.formats": "delta,iceberg"})
        assert [table.steps for table in topic.publish(FORMATS).tables] == [1, 1]
        assert [READ[name](folder).num_rows for name in FORMATS] == [count, count]
        assert [table.view for table in topic.describe().published] == [view, view]
        assert [table.steps for table in topic.publish(FORMATS).tables] == [0, 0]
    log = entries(LocalStore(folder))
    states = [action(entry, "commitInfo")["pylogtable"] for entry in log]
    assert [state.get("format", 1) for state in states] == [1, 2, 1, 2]
    assert [state.get("hidden_rows", 0) for state in states] == [0, 1, 0, 1]
    assert topic.verify().problems == []


def test_there_is_no_warning_of_older_records(tmp_path: Path) -> None:
    topic = make_topic(pylogtable.open(str(tmp_path)))
    append(topic, [1, 1])
    (table,) = topic.publish().tables
    assert (table.rows_hidden, table.records_not_compacted) == (1, None)
    assert "1 row hidden" in str(table)


# --- what a publication costs ------------------------------------------------------------------


def key(number: int) -> int:
    """Keys whose order says nothing, so that statistics exclude no file."""
    return number * 2_654_435_761 % 2**40


@pytest.mark.parametrize("name", FORMATS)
def test_publication_after_a_small_append_reads_little(tmp_path: Path, name: str) -> None:
    """Old files are opened, and Bloom filters say that almost no row group has the new key."""
    counting = CountingStore(LocalStore(tmp_path))
    limits = Limits(prefetch_bytes=1000, footer_bytes=4096)  # as files of many MB
    topic = make_topic(make_store(counting, limits=limits), partitions=1)
    for file in range(8):
        append(topic, [key(n) for n in range(file * 30_000, (file + 1) * 30_000)])
    append(topic, [key(n) for n in range(1000)], 2.0)
    counting.reset()
    topic.publish([name])
    whole = sum(counting.bytes_read.values())
    append(topic, [key(100_000)], 3.0)
    counting.reset()
    topic.publish([name])
    again, calls = sum(counting.bytes_read.values()), counting.counts.total()
    check(topic, tmp_path / "t", name)
    assert again < whole / 2
    assert calls < 60


def test_delete_files_of_a_partition_are_joined(tmp_path: Path) -> None:
    topic = make_topic(pylogtable.open(str(tmp_path)), partitions=1)
    append(topic, list(range(100)))
    topic.publish(["iceberg"])
    most = 0
    for number in range(3 * MOST_FILES):
        append(topic, [number])
        topic.publish(["iceberg"])
        summary = open_table(tmp_path / "t").current_snapshot().summary  # type: ignore[union-attr]
        assert summary is not None
        most = max(most, int(summary["total-delete-files"] or 0))
        assert summary["total-position-deletes"] == str(number + 1)
    check(topic, tmp_path / "t", "iceberg")
    assert most == MOST_FILES
    topic.compact(force=True)
    topic.publish(["iceberg"])
    summary = open_table(tmp_path / "t").current_snapshot().summary  # type: ignore[union-attr]
    assert summary is not None
    assert (summary["total-delete-files"], summary["total-position-deletes"]) == ("0", "0")


def test_delete_file_with_many_rows_is_encoded_in_pieces(tmp_path: Path) -> None:
    """The path of a file is there for each row: 17 million of them have more than 2 GiB."""
    place = f"s3://{'bucket/' * 100}0.parquet"
    found = {place.replace("0.p", f"{n}.p"): numbers(np.arange(n, 30_000)) for n in (0, 7, 8)}
    usual, pool = pa.default_memory_pool(), pa.proxy_memory_pool(pa.default_memory_pool())
    pa.set_memory_pool(pool)
    try:
        data = encode_rows(found, 10_000)
    finally:
        pa.set_memory_pool(usual)
    assert pool.max_memory() < 2_000_000
    file = pq.ParquetFile(pa.BufferReader(data))
    groups = [file.metadata.row_group(n).num_rows for n in range(file.num_row_groups)]
    assert groups == [10_000] * 8 + [9985]
    assert file.schema_arrow.field("file_path").type == pa.string()
    table = file.read()
    assert table["file_path"].to_pylist() == [at for at, rows in found.items() for _ in rows]
    assert table["pos"].to_pylist() == [row for rows in found.values() for row in rows]


def test_merge_changes_only_the_vectors_of_merged_files(tmp_path: Path) -> None:
    topic = make_topic(pylogtable.open(str(tmp_path)), partitions=1)
    for _ in range(3):
        append(topic, [1, 2, 3])
    topic.publish()
    topic.merge()
    topic.publish()
    log = entries(LocalStore(tmp_path / "t"))
    (new,) = actions(log[-1], "add")
    assert hidden(LocalStore(tmp_path / "t"), new["deletionVector"]) == list(range(6))
    check(topic, tmp_path / "t", "delta")


def test_a_publication_costs_what_there_is_and_not_how_large_offsets_are(tmp_path: Path) -> None:
    """As after an import: a segment with given offsets claims all that are below them. A bitmap of
    3e11 offsets would take 0.5 GB, and one of 2^62 would never be made."""
    topic = make_topic(pylogtable.open(str(tmp_path)), partitions=1)
    for begin in (3 * 10**11, 3 * 10**11 + 2**24, 2**62):
        before = reset_peak()
        ids, places = [1, 2, 1, 3], [begin, begin + 5, begin + 2**20, begin + 2**21]
        values = [1.0, 1.0, 1.0, None]
        topic.append(
            pa.table({"partition": [0] * 4, "offset": places, "id": ids, "v": values}),
            keep_offsets=True,
        )
        topic.publish(FORMATS)
        check(topic, tmp_path / "t")
        assert peak_bytes() - before < 200 << 20


# --- vacuum, verify, unpublish -----------------------------------------------------------------


@pytest.fixture
def aging(tmp_path: Path, clock: Clock) -> Topic:
    """A topic whose vectors are in objects, in a store whose objects age."""
    topic = make_topic(make_store(AgingDisk(tmp_path, clock), clock), partitions=1)
    append(topic, list(range(5000)))
    append(topic, list(range(0, 5000, 3)))
    topic.publish(FORMATS)
    return topic


def hiding(folder: Path) -> set[Path]:
    return {*folder.glob("_delta_vectors/*"), *folder.glob("metadata/*.parquet")}


def test_vacuum_keeps_what_hides_rows_as_long_as_it_is_needed(
    aging: Topic, tmp_path: Path, clock: Clock
) -> None:
    folder = tmp_path / "t"
    first = hiding(folder)
    assert len(first) == 2
    clock.tick(DAY // 12)
    append(aging, list(range(1, 5000, 3)))
    aging.publish(FORMATS)
    aging.compact(force=True)
    aging.publish(FORMATS)
    clock.tick(6 * DAY)
    aging.vacuum(dry_run=False)
    assert first <= hiding(folder)
    clock.tick(2 * DAY)
    append(aging, [1])
    aging.publish(FORMATS)
    report = aging.vacuum(dry_run=False)
    assert not first & hiding(folder)
    assert report.table_files >= 4
    check(aging, folder)
    assert aging.verify().problems == []


def test_vectors_that_are_shown_stay_for_ever(aging: Topic, tmp_path: Path, clock: Clock) -> None:
    kept = hiding(tmp_path / "t")
    clock.tick(30 * DAY)
    aging.vacuum(dry_run=False, retention_ms=0, force=True)
    assert hiding(tmp_path / "t") == kept
    check(aging, tmp_path / "t")


def test_verify_names_what_hides_rows_and_is_missing(aging: Topic, tmp_path: Path) -> None:
    folder = tmp_path / "t"
    lost = sorted(hiding(folder))
    for path in lost:
        path.unlink()
    problems = [(problem.rule, problem.path) for problem in aging.verify().problems]
    assert problems == [("PUB-9", path.relative_to(folder).as_posix()) for path in lost]
    aging.unpublish()
    aging.publish(FORMATS)
    check(aging, folder)


@pytest.mark.parametrize("name", FORMATS)
def test_damaged_vectors_are_told(aging: Topic, tmp_path: Path, name: str) -> None:
    folder = tmp_path / "t"
    (path,) = folder.glob({"delta": "_delta_vectors/*", "iceberg": "metadata/*.parquet"}[name])
    path.write_bytes(path.read_bytes()[:-20])
    topic = pylogtable.open_topic(str(folder))
    topic.merge()
    with pytest.raises(pylogtable.CorruptTopicError, match="PUB-9"):
        topic.publish([name])


def test_unpublish_removes_everything(aging: Topic, tmp_path: Path) -> None:
    aging.unpublish()
    left = {path.name for path in (tmp_path / "t").iterdir()}
    assert left == {"_manifest", "partition=0"}


def test_checkpoints_of_other_tables_are_as_they_were(tmp_path: Path) -> None:
    topic = make_topic(pylogtable.open(str(tmp_path)), **{"publish.view": "records"})
    append(topic, [1])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        topic.publish()
    found = pq.read_schema(tmp_path / "t" / "_delta_log" / f"{0:020d}.checkpoint.parquet")
    assert "deletionVector" not in {field.name for field in found.field("add").type}
    line = (tmp_path / "t" / "_delta_log" / f"{0:020d}.json").read_text().splitlines()[0]
    assert not {"view", "hidden_rows"} & json.loads(line)["commitInfo"]["pylogtable"].keys()
