"""Memory stays bounded, however much a file unfolds to [SEG-12]."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import pylogtable
from pylogtable import CorruptTopicError, InvalidRequestError, Store
from pylogtable.limits import Limits
from pylogtable.storage.memory import MemoryStore
from tests.builders import IN_FILES, kafka, limited, replace_file, rows

pytestmark = pytest.mark.records_in("files")

PYARROW = int(pa.__version__.partition(".")[0])

# What may be used on top of the memory before: a few batches of 32 MiB, the row groups of a writer
# that are being encoded, and the libraries that are loaded on the way. Older versions of pyarrow
# hold more of what they write: 410 to 480 MiB.
BOUND_BYTES = (400 if PYARROW >= 22 else 560) << 20


def bomb(folder: Path, *, rows: int, width: int, key: bool) -> pylogtable.Topic:
    """A topic of one segment that has one row group: `rows` equal values of `width` bytes."""
    topic = pylogtable.open(folder).create_topic(
        "t", config={"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0", **IN_FILES}
    )
    topic.append(kafka(["k"] * 4))
    topic.append(kafka(["k"] * 3))
    (first, _) = topic.segments()["path"].to_pylist()
    codes = pa.array(np.zeros(rows, dtype=np.int32))
    large = pa.DictionaryArray.from_arrays(codes, pa.array([b"x" * width], pa.binary()))
    small = pa.DictionaryArray.from_arrays(codes, pa.array([b"k"], pa.binary()))
    schema = pq.read_schema(folder / "t" / first)
    stamps = pa.array(np.full(rows, 1_700_000_000_000_000)).cast(pa.timestamp("us", "UTC"))
    table = pa.table(
        {
            "offset": np.arange(rows),
            "timestamp": stamps,
            "key": large if key else small,
            "value": small if key else large,
            "headers": pa.nulls(rows, schema.field("headers").type),
        },
        schema=pa.schema(
            [
                schema.field("offset"),
                schema.field("timestamp"),
                schema.field("key").with_type(large.type),
                schema.field("value").with_type(large.type),
                schema.field("headers"),
            ]
        ),
    )
    path = folder / "t" / first
    pq.write_table(
        table,
        path,
        row_group_size=rows,
        compression="zstd",
        store_schema=False,
        use_dictionary=["key", "value"],
        column_encoding=dict.fromkeys(["offset", "timestamp"], "DELTA_BINARY_PACKED"),
    )
    _claim(folder / "t", rows, path.stat().st_size)
    return pylogtable.open(folder).topic("t")


def _claim(topic: Path, rows: int, size: int) -> None:
    """Let the first two commits stand for a first segment of this many records."""
    for version, base, count in ((1, 0, rows), (2, rows, 3)):
        path = topic / "_manifest" / f"{version:020d}.json"
        body = json.loads(path.read_bytes())
        body.pop("checksum", None)
        entry = body["add"][0]
        body["ends"] = {"0": base + count}
        entry.update(base_offset=base, end_offset=base + count, records=count)
        if version == 1:
            stamp = 1_700_000_000_000_000
            entry.update(size_bytes=size, min_timestamp_us=stamp, max_timestamp_us=stamp)
            entry.pop("footer_checksum", None)
        else:
            entry["shift"] = base - 4
        path.write_bytes(json.dumps(body, separators=(",", ":")).encode())


PROGRAM = """
import json, sys
import pyarrow.parquet, pyarrow.compute
import pylogtable
from tests.memory import peak_bytes

first, second = (pylogtable.open(folder).topic("t") for folder in sys.argv[1:3])
keys = int(sys.argv[3])
grown = {}
before = peak_bytes()

def use(name, is_right):
    assert is_right, name
    grown[name] = peak_bytes() - before

use("read", sum(batch.num_rows for batch in first.read()) == first.count())
use("latest", first.latest().num_rows == keys)
use("latest of a key", first.latest([b"k"]).num_rows == 1)
use("verify", first.verify(data=True))
use("merge", first.merge().units == 1)
use("compaction", second.compact(force=True).records_removed == second.end_offsets()[0] - keys)
print(json.dumps(grown))
"""


@pytest.mark.parametrize("key", [False, True], ids=["values", "keys"])
def test_file_of_some_kilobytes_that_holds_a_gibibyte_takes_bounded_memory(
    tmp_path: Path, key: bool
) -> None:
    """The peak after each use is that of all uses so far: the first beyond the bound is to blame.
    Hashing long keys takes time, so there are fewer of them."""
    folders = [tmp_path / name for name in ("first", "second")]
    for folder in folders:
        topic = bomb(folder, rows=60_000 if key else 131_072, width=8192, key=key)
        assert max(topic.segments()["size_bytes"].to_pylist()) < 34_000
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, *map(str, folders), str(1 + key)],
        capture_output=True,
        text=True,
        timeout=300,
        cwd=Path(__file__).parents[3],
    )
    assert done.returncode == 0, done.stderr
    grown = json.loads(done.stdout)
    assert {use: size >> 20 for use, size in grown.items() if size > BOUND_BYTES} == {}


LARGE_BYTES = 32 << 20
COPIES = """
import json, sys
import pyarrow as pa
import pylogtable
from tests.memory import peak_bytes, reset_peak

column, size = sys.argv[2], int(sys.argv[3])

def data(width):
    rows = {"key": [b"k1", b"k2", b"k3"], "value": [b"v1", b"v2", b"v3"]}
    rows[column][0] = bytes(width)
    return pa.table({name: pa.array(values, pa.binary()) for name, values in rows.items()})

def use(topic, rows):
    yield "append", topic.append(rows)
    yield "read", [batch.num_rows for batch in topic.read()]
    yield "a range", [batch.num_rows for batch in topic.read(0, 0, 1)]
    yield "count", topic.count()
    yield "verify", topic.verify(data=True)
    yield "latest", topic.latest().num_rows
    yield "latest of a key", topic.latest([b"k2"]).num_rows

store = pylogtable.open(sys.argv[1])
for name, _ in use(store.create_topic("small"), data(1)):  # loads the libraries
    pass
rows, grown = data(size), {}
before = reset_peak()
for name, _ in use(store.create_topic("large"), rows):
    grown[name] = (peak_bytes() - before) / size
    reset_peak()
print(json.dumps(grown))
"""


@pytest.mark.parametrize(
    ("column", "copies"),
    [
        # A page and its column, while it is read; before pyarrow 24 some more, 3.2 in all.
        ("value", 3 if PYARROW >= 24 else 3.5),
        ("key", 9),  # also what counts distinct keys, and Parquet's statistics, while it is written
    ],
)
def test_large_value_is_held_a_few_times_at_most(
    tmp_path: Path, column: str, copies: float
) -> None:
    """Each use is measured alone, with an allocator that gives back what is free."""
    done = subprocess.run(
        [sys.executable, "-c", COPIES, str(tmp_path), column, str(LARGE_BYTES)],
        env=os.environ | {"ARROW_DEFAULT_MEMORY_POOL": "system"},
        capture_output=True,
        text=True,
        timeout=300,
        cwd=Path(__file__).parents[3],
    )
    assert done.returncode == 0, done.stderr
    held = json.loads(done.stdout)
    assert len(held) == 7
    assert {use: times for use, times in held.items() if times > copies} == {}


def test_batches_are_bounded_in_bytes_and_complete(store: Store, objects: MemoryStore) -> None:
    """Values of many sizes and nulls, in a dictionary."""
    topic = store.create_topic("t", config=IN_FILES)
    values = [None if n % 7 == 0 else b"v" * (n % 50) for n in range(1000)]
    topic.append(kafka(["k"] * 1000, values))
    expected = topic.read().read_all()
    (path,) = rows(topic.segments(), "path")
    table = pq.read_table(pa.BufferReader(objects.read(f"t/{path}")))
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, store_schema=False)
    topic = replace_file(objects, "t", path, sink.getvalue().to_pybytes())
    topic = limited(topic, batch_bytes=500)
    batches = list(topic.read(columns=["key", "value"]))
    assert len(batches) > 40
    assert max(pa.table(batch).nbytes for batch in batches if batch.num_rows > 1) < 3000
    assert rows(pa.Table.from_batches(batches), "key", "value") == rows(expected, "key", "value")
    assert topic.read().read_all().equals(expected)


@pytest.mark.parametrize("limit", ["max_group_bytes", "max_record_bytes"])
def test_what_is_larger_than_the_format_allows_is_refused(store: Store, limit: str) -> None:
    topic = store.create_topic("t")
    topic.append(kafka(["k"], ["v" * 2000]))
    (path,) = rows(topic.segments(), "path")
    topic = limited(topic, **{limit: 1000})
    with pytest.raises(CorruptTopicError, match=r"has .* bytes.*; the limit is 1000") as caught:
        topic.read().read_all()
    assert (caught.value.path, caught.value.rule) == (path, "SEG-12")


def test_record_that_no_reader_must_accept_is_not_appended(store: Store) -> None:
    store = limited(store, max_record_bytes=5000)
    topic = store.create_topic("t")
    topic.append(kafka(["k"] * 10, ["v" * 3000] * 10))
    with pytest.raises(InvalidRequestError, match="the most that a record may have is 5000"):
        topic.append(kafka(["k"] * 3, ["v", "v" * 6000, "v"]))
    assert topic.count() == 10
    assert Limits().max_record_bytes == 512 << 20
