"""What other readers get: a topic's files with all that it takes to read them rightly, and its
records without copies."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pandas
import polars
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import pylogtable
from pylogtable import InvalidRequestError, Topic
from pylogtable.engine import plan_append
from pylogtable.store import Store
from tests.builders import IN_FILES, at, kafka, make_holes, rows, times

pytestmark = pytest.mark.records_in("files")

SCHEMA = {"id": pa.int64(), "amount": pa.float64()}
COLUMNS = ("partition", "offset", "id", "amount")


def some(*ids: int) -> pa.Table:
    return pa.table({"id": ids, "amount": [number / 2 for number in ids]})


@pytest.fixture
def topic(tmp_path: Path) -> Topic:
    """Shifted files, replaced files, and log starts inside files. In the name of its folder are
    signs that mean something in URLs and patterns."""
    store = pylogtable.open(tmp_path / "a b%20[c]")
    topic = store.create_topic("t", 2, SCHEMA, key="id", config=IN_FILES)
    plan_append(topic).commit([plan_append(topic).stage(some(*range(10))) for _ in range(2)])
    topic.merge()
    plan_append(topic).commit([plan_append(topic).stage(some(*range(10, 30))) for _ in range(3)])
    topic.delete_records({number: end - 12 for number, end in topic.end_offsets().items()})
    assert any(topic.segments()["shift"].to_pylist())
    return topic


def with_pyarrow(files: pa.Table) -> list[Any]:
    parts = []
    for file in files.to_pylist():
        stored = pq.ParquetFile(file["path"]).read(columns=["offset", "id", "amount"])
        offsets = stored["offset"].to_numpy() + file["shift"]
        fits = (offsets >= file["start_offset"]) & (offsets < file["end_offset"])
        part = stored.set_column(0, "offset", pa.array(offsets))
        part = part.append_column("partition", pa.array(np.full(len(part), file["partition"])))
        parts.append(part.filter(pa.array(fits)))
    return rows(pa.concat_tables(parts), *COLUMNS)


def with_duckdb(files: pa.Table) -> list[Any]:
    stored = duckdb.read_parquet(files["path"].to_pylist(), filename=True, hive_partitioning=False)
    assert "filename" in stored.columns
    found = duckdb.sql(
        'SELECT files.partition, stored."offset" + files.shift AS "offset", id, amount '
        "FROM stored JOIN files ON stored.filename = files.path "
        'WHERE stored."offset" + files.shift >= files.start_offset ORDER BY ALL'
    )
    return rows(found.to_arrow_table(), *COLUMNS)


def with_polars(files: pa.Table) -> list[Any]:
    parts = [
        polars.scan_parquet(file["path"], hive_partitioning=False, glob=False)
        .with_columns(
            partition=polars.lit(file["partition"]), offset=polars.col("offset") + file["shift"]
        )
        .filter(polars.col("offset") >= file["start_offset"])
        for file in files.to_pylist()
    ]
    return polars.concat(parts).select(COLUMNS).collect().rows()


@pytest.mark.parametrize("reader", [with_pyarrow, with_polars])
def test_other_engines_read_a_version_by_its_files(
    topic: Topic, reader: Callable[[pa.Table], list[Any]]
) -> None:
    for version in (1, 2, topic.version):
        expected = rows(topic.read(columns=COLUMNS, version=version), *COLUMNS)
        assert reader(topic.files(version)) == expected


def test_duckdb_reads_a_version_by_its_files(tmp_path: Path) -> None:
    """DuckDB takes a path for a pattern, so the folder has no sign that means something there."""
    topic = pylogtable.open(tmp_path).create_topic("t", 2, SCHEMA, key="id", config=IN_FILES)
    plan_append(topic).commit([plan_append(topic).stage(some(*range(10))) for _ in range(3)])
    topic.delete_records({0: 2, 1: 3})
    assert with_duckdb(topic.files()) == rows(topic.read(columns=COLUMNS), *COLUMNS)


def test_topic_without_records_has_no_files_and_engines_refuse_an_empty_list(store: Store) -> None:
    files = store.create_topic("t", 2, SCHEMA, key="id").files()
    assert len(files) == 0
    with pytest.raises(duckdb.Error):
        duckdb.read_parquet(files["path"].to_pylist())
    with pytest.raises(ValueError, match="empty"):
        polars.concat([])


def test_bare_directory_would_be_wrong(topic: Topic) -> None:
    """The reason for all of this. If it fails, the documents warn of something that is gone."""
    place = topic.url.removeprefix("file://")
    found = pandas.read_parquet(place, columns=["offset", "id", "amount"], partitioning=None)
    assert len(found) > topic.count()


def test_files_say_what_segments_say_cut_at_the_log_start(store: Store) -> None:
    topic = store.create_topic("t", 2)
    topic.append(kafka("abcd", partition=pa.array([0, 0, 1, 1]), timestamp=times(1, 2, 3, 4)))
    topic.append(kafka("ef", partition=pa.array([0, 0]), timestamp=times(9, 5)))
    topic.delete_records({0: 1})
    files, segments = topic.files(), topic.segments()
    assert rows(files, "partition", "start_offset", "end_offset", "records") == [
        (0, 1, 2, 2),
        (0, 2, 4, 2),
        (1, 0, 2, 2),
    ]
    assert rows(files, "min_timestamp", "max_timestamp")[1] == (at(5), at(9))
    for name in ("shift", "size_bytes"):
        assert files[name].to_pylist() == segments[name].to_pylist()
    assert files["path"].to_pylist() == [f"{topic.url}/{path}" for path in rows(segments, "path")]


def test_files_without_records_and_files_of_other_versions_are_left_out(store: Store) -> None:
    topic = store.create_topic("t")
    assert topic.files().num_rows == 0
    topic.append(kafka("ab"))
    topic.append(kafka("cd"))
    make_holes(topic, kept={0})
    assert rows(topic.files(), "start_offset", "end_offset", "records") == [(0, 2, 1)]
    assert topic.files(1).num_rows == 1
    assert topic.files(1)["path"] != topic.files()["path"]
    with pytest.raises(InvalidRequestError, match="no version 99"):
        topic.files(99)


def test_duckdb_reads_the_stream_of_a_read_with_the_columns_asked_for(
    store: Store,
) -> None:
    topic = store.create_topic("t", 2, SCHEMA, key="id")
    topic.append(some(*range(100)))
    records = topic.read(columns=["id", "amount"])
    found = duckdb.sql("SELECT count(*), sum(id), sum(amount) FROM records").fetchall()
    assert found == [(100, 4950, 2475.0)]
    assert records.schema.names == ["id", "amount"]


def test_polars_and_pandas_take_the_numbers_of_a_read_without_copies(store: Store) -> None:
    topic = store.create_topic("t", 1, SCHEMA, key="id")
    topic.append(some(*range(1000)))
    table = topic.read(columns=["offset", "amount"]).read_all()
    polar = polars.DataFrame(table)
    panda = table.to_pandas(types_mapper=pandas.ArrowDtype)
    assert polar.columns == list(panda.columns) == ["offset", "amount"]
    for name in table.column_names:
        place = table[name].chunk(0).buffers()[1].address
        assert polar[name].to_arrow().buffers()[1].address == place
        assert pa.array(panda[name].array).buffers()[1].address == place
    assert polars.DataFrame(topic.read(columns=["offset", "amount"])).equals(polar)


def test_records_in_commits_are_not_left_out_silently(store: Store) -> None:
    topic = store.create_topic("inline", 2, SCHEMA, key="id", config={"inline.max.bytes": 16384})
    topic.append(some(*range(10)))
    topic.append(some(*range(10)))
    with pytest.raises(InvalidRequestError, match=r"20 records .* 4 segments .* topic.merge\(\)"):
        topic.files()
    topic.merge()
    assert sum(topic.files()["records"].to_pylist()) == 20
    with pytest.raises(InvalidRequestError, match="at version 1 are in 2 segments"):
        topic.files(version=1)
