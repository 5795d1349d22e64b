"""From rows to files: where they roll, how they are grouped, and how little memory it takes."""

from __future__ import annotations

import random
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pylogtable.engine import plan_append
from pylogtable.storage.memory import MemoryStore
from pylogtable.store import Store
from tests.builders import IN_FILES, data_files, ints, kafka, limited, rows

pytestmark = pytest.mark.records_in("files")


def noise(count: int, size: int = 100) -> list[bytes]:
    chance = random.Random(count)
    return [chance.randbytes(size) for _ in range(count)]


@pytest.mark.parametrize("compression", ["uncompressed", "zstd", "gzip", "snappy", "lz4"])
def test_segments_roll_before_they_exceed_segment_bytes(store: Store, compression: str) -> None:
    """A segment stays within segment.bytes, and what is larger makes several."""
    limit = 100_000
    topic = store.create_topic(
        "t", config={"segment.bytes": limit, "compression.type": compression}
    )
    result = topic.append(kafka([b"k"] * 8000, noise(8000)))
    assert result.segments > 5
    sizes = rows(topic.segments(), "size_bytes")
    assert max(sizes) <= limit * 1.15  # the footer and one row group's misjudgement
    assert min(sizes[:-1]) > limit / 4
    assert rows(topic.read(), "value") == noise(8000)
    assert topic.verify(data=True)


def test_segment_size_includes_bloom_filters(store: Store) -> None:
    """They come with the footer, and are much of a file of short records; also when rewritten."""
    store = limited(store, row_group_rows=2000)
    limit = 150_000
    topic = store.create_topic("t", config={"segment.bytes": limit})
    plan_append(topic).commit(
        [plan_append(topic).stage(kafka(noise(20_000, 8), [b""] * 20_000)) for _ in range(2)]
    )
    for _ in range(2):
        sizes = rows(topic.segments(), "size_bytes")
        assert max(sizes) <= limit
        assert sizes[0] > 0.8 * limit
        topic.merge()  # what is shifted is written anew
    assert set(rows(topic.segments(), "shift")) == {0}


def test_files_with_repeated_keys_are_filled(store: Store) -> None:
    """Their filters are small; a file that is half empty would be merged again and again."""
    store = limited(store, row_group_rows=2000)
    topic = store.create_topic("t", config={"segment.bytes": 100_000})
    keys = noise(50, 8) * 400
    topic.append(kafka(keys, noise(20_000, 8)))
    sizes = rows(topic.segments(), "size_bytes")
    assert len(sizes) == 2
    assert min(sizes) > 80_000
    assert topic.merge().units == 0


def test_a_record_larger_than_segment_bytes_gets_its_own_segment(store: Store) -> None:
    """Kafka refuses it; a table has no batch limit, and its segment is the one record."""
    topic = store.create_topic("t", config={"segment.bytes": 1000})
    topic.append(kafka(["a", "b", "c"], noise(3, 20_000)))
    assert rows(topic.segments(), "records") == [1, 1, 1]
    assert rows(topic.read(), "value") == noise(3, 20_000)


def test_one_append_makes_one_file_per_partition_and_appends_never_share_one(
    store: Store, objects: MemoryStore
) -> None:
    topic = store.create_topic("t", partitions=3)
    for _ in range(2):
        topic.append(kafka(["a"] * 30, partition=ints(*[0, 1, 2] * 10)).to_batches(max_chunksize=2))
    assert len(data_files(objects)) == 6


@pytest.mark.parametrize(("group_rows", "groups"), [(10, 10), (30, 4), (100, 1), (1000, 1)])
def test_row_groups_have_similar_sizes_and_their_starts_are_in_the_manifest(
    store: Store,
    objects: MemoryStore,
    group_rows: int,
    groups: int,
) -> None:
    store = limited(store, row_group_rows=group_rows)
    topic = store.create_topic("t")
    topic.append(kafka(["a"] * 7))
    topic.append(kafka(["a"] * 100))
    entry = rows(topic.segments())[1]
    assert len(entry["row_groups"]) == groups
    metadata = pq.ParquetFile(pa.BufferReader(objects.read("t/" + entry["path"]))).metadata
    counts = [metadata.row_group(group).num_rows for group in range(metadata.num_row_groups)]
    assert sum(counts) == 100
    assert entry["row_groups"] == [sum(counts[:group]) for group in range(groups)]
    assert max(counts) <= group_rows


def test_row_groups_are_bounded_in_bytes(store: Store) -> None:
    store = limited(store, row_group_bytes=10000)
    topic = store.create_topic("t")
    topic.append(kafka([b"k"] * 1000, noise(1000)))
    (groups,) = rows(topic.segments(), "row_groups")
    assert 10 <= len(groups) <= 20


def test_files_are_closed_when_too_many_are_open(store: Store) -> None:
    store = limited(store, open_files=4, chunk_rows=20, row_group_rows=1)
    topic = store.create_topic("t", partitions=20)
    spread = ints(*list(range(20)) * 3)
    result = topic.append(kafka(["a"] * 60, [str(n) for n in range(60)], partition=spread))
    assert result.segments > 20
    assert result.offsets == dict.fromkeys(range(20), (0, 3))
    for number in range(20):
        values = [str(number + 20 * turn).encode() for turn in range(3)]
        assert rows(topic.read(number), "value") == values
    assert topic.verify(data=True)


def test_sealed_segment_is_plain_parquet_with_true_offsets(
    tmp_path: Path,
) -> None:
    import pylogtable

    topic = pylogtable.open(tmp_path).create_topic("t", partitions=2, config=IN_FILES)
    for part in range(2):
        topic.append(kafka(["a"] * 5, [str(part)] * 5, partition=ints(*[1] * 5)))
    entries = rows(topic.segments(), "path", "shift", "base_offset")
    assert [shift for _, shift, _ in entries] == [0, 0]
    for path, _, base in entries:
        assert path.startswith(f"partition=1/{base:020d}-")
        table = pq.read_table(tmp_path / "t" / path, partitioning=None)
        assert table.column_names == ["offset", "timestamp", "key", "value", "headers"]
        assert table["offset"].to_pylist() == list(range(base, base + 5))
        column = pq.ParquetFile(tmp_path / "t" / path).metadata.row_group(0).column(0)
        assert column.encodings[-1] == "DELTA_BINARY_PACKED" or (
            "DELTA_BINARY_PACKED" in column.encodings
        )
        assert (column.statistics.min, column.statistics.max) == (base, base + 4)


MEMORY_PROGRAM = """
import io, sys
from contextlib import contextmanager
import numpy as np, pyarrow as pa
from pylogtable.storage.memory import MemoryStore
from tests.builders import make_store
from tests.memory import peak_bytes

class Sink(io.RawIOBase):
    size = 0
    def writable(self): return True
    def write(self, data):
        self.size += len(data)
        return len(data)
    def tell(self): return self.size

class Forgetful(MemoryStore):
    def below(self, prefix): return Forgetful(self._name, self._full(prefix.rstrip("/")) + "/")
    @contextmanager
    def open_output(self, key):
        yield pa.PythonFile(Sink(), mode="w")

objects = Forgetful()
topic = make_store(objects).create_topic(
    "t", partitions=int(sys.argv[2]), config={"compression.type": "uncompressed"}
)
rows, width = 16_000, 1000
noise = pa.py_buffer(np.random.default_rng(1).bytes(rows * width + 10_000))
keys = pa.array([b"%d" % n for n in range(rows)])

def batch(number):
    ends = np.arange(0, rows * width + 1, width, dtype=np.int32) + 37 * number
    buffers = [None, pa.py_buffer(ends), noise]
    value = pa.Array.from_buffers(pa.binary(), rows, buffers)
    return pa.record_batch({"key": keys, "value": value})

count = int(sys.argv[1]) * 1_000_000 // (rows * width)
before = peak_bytes() >> 20
result = topic.append(batch(number) for number in range(count))
peak = peak_bytes() >> 20
assert result.records == rows * count
assert result.size_bytes > rows * count * width
print(before, peak)
"""


@pytest.mark.parametrize(("megabytes", "partitions"), [(1000, 1), (1000, 64)])
def test_memory_stays_bounded_however_much_is_appended(megabytes: int, partitions: int) -> None:
    done = subprocess.run(
        [sys.executable, "-c", MEMORY_PROGRAM, str(megabytes), str(partitions)],
        capture_output=True,
        text=True,
        timeout=120,
        cwd=Path(__file__).parents[3],
    )
    assert done.returncode == 0, done.stderr
    before, peak = (int(word) for word in done.stdout.split())
    assert peak - before < 600, f"{peak} MB at the peak, {before} MB before the append"
