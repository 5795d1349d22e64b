"""Files of a pyarrow that writes no Bloom filters and cannot limit the rows of a page. Layouts are
told to do without, so these tests are the same on every pyarrow."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pylogtable.format.footer_filters import (
    ChunkId,
    FilterPlace,
    filter_places,
    with_filter_places,
)
from pylogtable.format.json_bytes import checksum
from pylogtable.format.model import TopicInfo
from pylogtable.format.schema import LOG_FIELDS
from pylogtable.format.thrift import Thrift
from pylogtable.limits import Limits
from pylogtable.segments.file_layout import Abilities, FileLayout, abilities_of_pyarrow
from pylogtable.segments.footer import Footer
from pylogtable.segments.writer import SegmentWriter
from pylogtable.storage.local import LocalStore
from pylogtable.storage.memory import MemoryStore
from tests.builders import make_store, rows
from tests.conformance.corpus import TOPICS
from tests.stores import CountingStore

OLD = Abilities(filters=False, page_rows=False)
NEW = Abilities(filters=True, page_rows=True)

#: The key's columns come after nested ones, and not in the order of the key.
COLUMNS = {
    "tags": pa.list_(pa.string()),
    "id": pa.int64(),
    "place": pa.struct([("x", pa.int32()), ("y", pa.int32())]),
    "name": pa.string(),
    "price": pa.decimal128(10, 2),
    "day": pa.date32(),
}
KEY = ["name", "day", "price", "id"]


def info(**config: str) -> TopicInfo:
    topic = make_store().create_topic("t", schema=COLUMNS, key=KEY, config=config)
    return topic.at().snapshot.info


def records(first: int, count: int) -> pa.Table:
    ids = np.arange(first, first + count)
    return pa.table(
        {
            "timestamp": pa.array(1_700_000_000_000_000 + ids, LOG_FIELDS[-1].type),
            "tags": pa.array([["t"] * (n % 4) for n in ids.tolist()], COLUMNS["tags"]),
            "id": ids,
            "place": pa.array([{"x": n, "y": -n} for n in ids.tolist()], COLUMNS["place"]),
            "name": pa.array(
                [f"name {n % 7}" if n % 5 else None for n in ids.tolist()], pa.string()
            ),
            "price": pa.array(map(Decimal, ids.tolist()), COLUMNS["price"]),
            "day": pa.array(ids % 90, pa.int32()).cast(pa.date32()),
        }
    )


def write(
    folder: Path, abilities: Abilities, *groups: pa.Table, page_rows: int = 20_000
) -> tuple[Path, str | None]:
    """The file, and the checksum of its footer in the entry."""
    store = LocalStore(folder).with_limits(Limits(page_rows=page_rows))
    layout = FileLayout(info(), abilities=abilities)
    writer = SegmentWriter(
        store, partition=0, floor=0, file_id="0" * 8, layout=layout, like=groups[0]
    )
    for group in groups:
        writer.write_row_group(group)
    size = writer.size_bytes
    staged = writer.close()
    assert size < staged.size_bytes == (folder / staged.path).stat().st_size
    return folder / staged.path, staged.footer_checksum


def footer_of(path: Path) -> bytes:
    data = path.read_bytes()
    return data[-8 - int.from_bytes(data[-8:-4], "little") :]


GROUPS = (records(0, 300), records(300, 200), records(500, 1))


def test_our_filters_are_in_the_file_as_parquet_says(tmp_path: Path) -> None:
    path, footer_checksum = write(tmp_path, OLD, *GROUPS)
    footer = Footer(footer_of(path))
    names = {footer.metadata.schema.column(n).path: n for n in range(footer.metadata.num_columns)}
    wanted = [ChunkId(group, names[name]) for group in range(3) for name in ("id", "name", "day")]
    assert list(footer.filters) == wanted == sorted(wanted)
    data = path.read_bytes()
    for chunk, (at, length) in footer.filters.items():
        assert (footer.filter_checksums or {})[chunk] == checksum(data[at : at + length])
    assert footer_checksum == checksum(footer_of(path))
    ends = [at + length for at, length in footer.filters.values()]
    assert ends[-1] == len(data) - len(footer_of(path))
    file = pq.ParquetFile(path)
    for number, group in enumerate(GROUPS):
        found = file.read_row_group(number).drop_columns(["offset"])
        assert found.cast(group.schema).equals(group)


@pytest.mark.skipif(
    not abilities_of_pyarrow().filters, reason="this pyarrow writes no Bloom filters"
)
def test_pyarrow_writes_the_same_filters(tmp_path: Path) -> None:
    (ours, _), (theirs, _) = (
        write(tmp_path / str(abilities.filters), abilities, *GROUPS) for abilities in (OLD, NEW)
    )

    def bits(path: Path) -> dict[ChunkId, bytes]:
        data = path.read_bytes()
        places = filter_places(footer_of(path))
        return {chunk: data[at : at + length] for chunk, (at, length) in places.items()}

    price = {chunk for chunk in bits(theirs) if chunk not in bits(ours)}
    assert {chunk.column for chunk in price} == {7}
    assert bits(ours) == {chunk: each for chunk, each in bits(theirs).items() if chunk not in price}


def test_filters_are_where_pyarrow_says(tmp_path: Path) -> None:
    path, _ = write(tmp_path, OLD, *GROUPS)
    metadata = pq.read_metadata(path)
    if not hasattr(metadata.row_group(0).column(0), "bloom_filter_offset"):
        pytest.skip("this pyarrow tells no places of Bloom filters")
    for group in range(3):
        for column in range(metadata.num_columns):
            chunk = metadata.row_group(group).column(column)
            place = filter_places(footer_of(path)).get(ChunkId(group, column), (None, None))
            assert (chunk.bloom_filter_offset, chunk.bloom_filter_length) == place


def test_duckdb_uses_our_filters(tmp_path: Path) -> None:
    path, _ = write(tmp_path, OLD, *GROUPS)

    def excluded(column: str, value: str) -> list[bool]:
        query = f"select * from parquet_bloom_probe('{path}', '{column}', {value})"
        return [row[-1] for row in duckdb.sql(query).fetchall()]

    assert excluded("id", "400") == [True, False, True]
    assert excluded("id", "600") == [True, True, True]


def test_places_come_before_later_fields_of_a_column() -> None:
    """Statistics of sizes, which newer versions write, have a larger number than the filters, and
    the head of a field counts from the field before it."""
    # Row groups, columns, metadata: a type, sizes in field 16, and the end of each struct.
    footer = bytes.fromhex("491c191c3c1504fc16020000000000")
    footer += len(footer).to_bytes(4, "little") + b"PAR1"
    place = {ChunkId(0, 0): FilterPlace(1000, 47)}
    changed = with_filter_places(footer, place)
    assert filter_places(changed) == place
    before, after = Thrift(footer).struct(), Thrift(changed).struct()
    chunk_before, chunk_after = before[4][0][1][0][3], after[4][0][1][0][3]
    assert chunk_after == {**chunk_before, 14: None, 15: 47}
    assert list(chunk_after) == [1, 14, 15, 16]


def test_filters_of_pyarrow_18_spare_reading_keys() -> None:
    """The golden files were written with it. Only the filter can tell that a key between the least
    and the greatest one is not there."""
    folder = LocalStore(TOPICS / "filtered")
    objects = MemoryStore()
    for found in folder.list():
        objects.write(found.key, folder.read(found.key) or b"")
    measured = CountingStore(objects)
    topic = make_store(measured).topic("topic")
    assert rows(topic.latest([("name 1", 10), (None, 30)]), "offset") == [1, 3]
    topic.latest([("name 1", 15)])
    measured.reset()
    assert topic.latest([("name 1", 15)]).num_rows == 0
    without_keys = measured.counts["get"]
    measured.reset()
    assert topic.latest([("name 1", 10)]).num_rows == 1
    assert without_keys < measured.counts["get"]
    assert topic.verify(data=True)


def page_values(path: Path, group: int, column: int) -> list[int]:
    """How many values each page of a column has."""
    data = path.read_bytes()
    chunk = pq.read_metadata(path).row_group(group).column(column)
    at = chunk.dictionary_page_offset or chunk.data_page_offset
    found, end = [], at + chunk.total_compressed_size
    while at < end:
        thrift = Thrift(data, at)
        header: dict[int, Any] = thrift.struct()
        if 5 in header:
            found.append(header[5][1])
        at = thrift.at + header[3]
    return found


@pytest.mark.parametrize("abilities", [OLD, NEW], ids=["old", "new"])
def test_pages_have_few_rows_and_an_index(tmp_path: Path, abilities: Abilities) -> None:
    if abilities == NEW:
        abilities = abilities_of_pyarrow()
        if not abilities.page_rows:
            pytest.skip("this pyarrow cannot limit the rows of a page")
    path, _ = write(tmp_path, abilities, records(0, 1001), page_rows=100)
    metadata = pq.read_metadata(path)
    for column in range(metadata.num_columns):
        chunk = metadata.row_group(0).column(column)
        assert chunk.has_offset_index
        if chunk.path_in_schema != "tags.list.element":
            assert page_values(path, 0, column) == [100] * 10 + [1], chunk.path_in_schema
    assert pq.read_table(path).num_rows == 1001


def test_pages_of_wide_columns_have_a_usual_size(tmp_path: Path) -> None:
    wide = records(0, 4000)
    at = wide.schema.get_field_index("name")
    wide = wide.set_column(at, "name", pa.array([f"{n:01000d}" for n in range(4000)]))
    path, _ = write(tmp_path, OLD, wide, page_rows=3000)
    metadata = pq.read_metadata(path)
    (name,) = (n for n in range(metadata.num_columns) if metadata.schema.column(n).path == "name")
    counts = page_values(path, 0, name)
    assert sum(counts) == 4000
    assert 1000 < max(counts) < 1100
