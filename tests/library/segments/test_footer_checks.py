"""A file that is not what its entry says is refused on every path, and the error names it."""

from __future__ import annotations

import errno
import io
import json
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pylogtable import CorruptTopicError, StorageError, Topic
from pylogtable.storage.memory import MemoryStore
from pylogtable.store import Store
from tests.builders import (
    at,
    contents,
    data_files,
    kafka,
    limited,
    make_holes,
    make_store,
    replace_file,
    rows,
    times,
)

pytestmark = pytest.mark.records_in("files")

COMPACT = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0"}

Act = Callable[[Topic], object]
Change = Callable[[pa.Table], pa.Table]

READS: dict[str, Act] = {
    "read": lambda topic: topic.read().read_all(),
    "read without offsets": lambda topic: topic.read(columns=["value"]).read_all(),
    "read of a part": lambda topic: topic.read(0, 3, 5, ["value"]).read_all(),
    "lookup by time": lambda topic: topic.offsets_for_time(at(4)),
    "latest": lambda topic: topic.latest(),
    "latest of keys": lambda topic: topic.latest([b"k1", b"k5"]),
    "merge": lambda topic: topic.merge(),
    "compaction": lambda topic: topic.compact(force=True),
}


def make_topic(store: Store) -> tuple[Topic, str, str]:
    """A topic with two segments of equal size: offsets 0 to 2, and 3 to 5. Returns their paths."""
    topic = store.create_topic("t", config=COMPACT)
    for first in (0, 3):
        numbers = range(first, first + 3)
        topic.append(kafka([f"k{n}" for n in numbers], timestamp=times(*numbers)))
    one, other = rows(topic.segments(), "path")
    return topic, one, other


def copy_over(objects: MemoryStore, source: str, target: str) -> None:
    data = objects.read(f"t/{source}")
    assert data is not None
    assert len(data) == len(objects.read(f"t/{target}") or b"")
    objects.write(f"t/{target}", data)


@pytest.mark.parametrize("act", READS.values(), ids=READS.keys())
def test_file_with_the_bytes_of_another_segment_is_refused(
    act: Act, store: Store, objects: MemoryStore
) -> None:
    topic, one, other = make_topic(store)
    copy_over(objects, one, other)
    before = contents(objects)
    with pytest.raises(CorruptTopicError) as caught:
        act(topic)
    assert caught.value.path == other
    assert contents(objects) == before
    (problem,) = topic.verify(data=True).problems
    assert problem.path == other


@pytest.mark.parametrize("act", READS.values(), ids=READS.keys())
def test_file_with_the_offsets_of_another_segment_is_refused_without_statistics(
    act: Act, store: Store, objects: MemoryStore
) -> None:
    """Without statistics of the offsets, the footer proves nothing."""
    topic, one, other = make_topic(store)
    table = pq.read_table(pa.BufferReader(objects.read(f"t/{other}")))
    offsets = pq.read_table(pa.BufferReader(objects.read(f"t/{one}")), columns=["offset"])
    moved = table.set_column(0, table.schema.field(0), offsets["offset"])
    topic = replace_file(objects, "t", other, parquet(moved, write_statistics=False))
    with pytest.raises(CorruptTopicError) as caught:
        act(topic)
    assert caught.value.path == other


def test_file_without_statistics_is_read(store: Store, objects: MemoryStore) -> None:
    topic, _, other = make_topic(store)
    before = topic.read().read_all()
    table = pq.read_table(pa.BufferReader(objects.read(f"t/{other}")))
    topic = replace_file(objects, "t", other, parquet(table, write_statistics=False))
    assert topic.read().read_all().equals(before)
    assert rows(topic.read(columns=["value"]), "value") == rows(before, "value")
    assert topic.offsets_for_time(at(4)) == {0: 4}


def test_count_of_a_cut_segment_refuses_a_copied_file(store: Store, objects: MemoryStore) -> None:
    topic = store.create_topic("t")
    for first in (0, 10):
        topic.append(kafka(["k"] * 10, timestamp=times(*range(first, first + 10))))
    make_holes(topic, {1, 3, 5, 7, 11, 13, 15, 17})
    one, other = rows(topic.segments(), "path")
    copy_over(objects, one, other)
    topic.delete_records({0: 14})
    for count in (topic.count, lambda: topic.at().offset_after_records(0, 14, 1)):
        with pytest.raises(CorruptTopicError) as caught:
            count()
        assert (caught.value.path, caught.value.rule) == (other, "SEG-11")


def test_copy_from_another_partition_with_the_same_offsets_is_refused(
    store: Store, objects: MemoryStore
) -> None:
    topic = store.create_topic("t", partitions=2)
    for number in range(2):
        stamps = times(number, number + 2)
        topic.append(
            kafka(["k", "k"], partition=pa.array([number] * 2, pa.int32()), timestamp=stamps)
        )
    one, other = rows(topic.segments(), "path")
    copy_over(objects, one, other)
    with pytest.raises(CorruptTopicError) as caught:
        topic.read().read_all()
    assert (caught.value.path, caught.value.rule) == (other, "SUM-3")
    topic = replace_file(objects, "t", other, objects.read(f"t/{other}") or b"")
    with pytest.raises(CorruptTopicError, match=f"says that it is {one}") as caught:
        topic.read().read_all()
    assert (caught.value.path, caught.value.rule) == (other, "SEG-11")
    table = pq.read_table(pa.BufferReader(objects.read(f"t/{other}")))
    topic = replace_file(objects, "t", other, parquet(table))
    with pytest.raises(CorruptTopicError, match="timestamps span") as caught:
        topic.read().read_all()
    assert (caught.value.path, caught.value.rule) == (other, "SEG-5")


def test_rows_outside_the_time_bounds_of_the_entry_are_refused(
    store: Store, objects: MemoryStore
) -> None:
    topic = store.create_topic("t")
    topic.append(kafka(["k", "k"], timestamp=times(1, 2)))
    (path,) = rows(topic.segments(), "path")
    table = pq.read_table(pa.BufferReader(objects.read(f"t/{path}")))
    late = column("timestamp", times(1, 3))(table)
    topic = replace_file(objects, "t", path, parquet(late, write_statistics=False))
    with pytest.raises(CorruptTopicError, match="it has timestamps from") as caught:
        topic.read().read_all()
    assert (caught.value.path, caught.value.rule) == (path, "SEG-5")
    assert topic.read(columns=["key"]).read_all().num_rows == 2


def parquet(table: pa.Table, **options: Any) -> bytes:
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, store_schema=False, **options)
    return bytes(sink.getvalue().to_pybytes())


def column(name: str, values: Any, *, nullable: bool | None = None) -> Change:
    def change(table: pa.Table) -> pa.Table:
        at = table.schema.get_field_index(name)
        old = table.schema.field(at)
        array = values if isinstance(values, pa.Array) else pa.array(values, old.type)
        keeps = old.nullable if nullable is None else nullable
        return table.set_column(at, old.with_type(array.type).with_nullable(keeps), array)

    return change


MS, NO_ZONE = pa.timestamp("ms", "UTC"), pa.timestamp("us")

FILES: dict[str, tuple[Change, str]] = {
    "no offset": (lambda table: table.drop_columns(["offset"]), "SEG-3"),
    "no timestamp": (lambda table: table.drop_columns(["timestamp"]), "SEG-3"),
    "offset is text": (column("offset", pa.array(["0", "1", "2"])), "SEG-3"),
    "offset is 32 bits": (column("offset", pa.array([0, 1, 2], pa.int32())), "SEG-3"),
    "offset may be null": (column("offset", [0, 1, None], nullable=True), "SEG-3"),
    "timestamp in ms": (column("timestamp", pa.array([0, 1, 2], MS)), "SEG-3"),
    "timestamp without zone": (column("timestamp", pa.array([0, 1, 2], NO_ZONE)), "SEG-3"),
    "value is a number": (column("n", pa.array([1.5, 2.5, 3.5])), "SEG-3"),
    "value is wider": (column("n", pa.array([1, 2, 3], pa.int64())), "SEG-3"),
    "required column has nulls": (column("must", ["a", None, "c"], nullable=True), "SEG-3"),
    "required column is missing": (lambda table: table.drop_columns(["must"]), "SEG-3"),
    "key is missing": (lambda table: table.drop_columns(["id"]), "SEG-3"),
    "offset twice": (lambda table: table.append_column("offset", table["offset"]), "SEG-3"),
    "offsets fall": (column("offset", [0, 2, 1]), "SEG-11"),
    "an offset twice": (column("offset", [0, 1, 1]), "SEG-11"),
    "offsets of another place": (column("offset", [10, 11, 12]), "SEG-11"),
    "negative offsets": (column("offset", [-3, -2, -1]), "SEG-11"),
    "offsets beyond 63 bits with the shift": (column("offset", [0, 1, 2**63 - 1]), "SEG-11"),
    "an offset is missing": (column("offset", [0, 1, 3]), "SEG-11"),
}  # fmt: skip


@pytest.mark.parametrize(("change", "rule"), FILES.values(), ids=FILES.keys())
def test_file_that_contradicts_topic_or_entry_is_corrupt(
    change: Change, rule: str, store: Store, objects: MemoryStore
) -> None:
    fields = [("id", pa.int64()), ("n", pa.int32())]
    schema = pa.schema(fields).append(pa.field("must", pa.string(), nullable=False))
    topic = store.create_topic("t", schema=schema, key="id", config=COMPACT)
    data = {"id": [1, 2, 3], "n": [1, 2, 3], "must": ["a", "b", "c"]}
    topic.append(pa.table(data, schema=schema))
    (path,) = rows(topic.segments(), "path")
    table = pq.read_table(pa.BufferReader(objects.read(f"t/{path}")))
    topic = replace_file(objects, "t", path, parquet(change(table)))
    for act in (READS["read"], READS["latest"]):
        with pytest.raises(CorruptTopicError) as caught:
            act(topic)
        assert (caught.value.path, caught.value.rule) == (path, rule)


def test_rows_that_differ_from_the_statistics_are_refused_when_offsets_are_read(
    store: Store, objects: MemoryStore
) -> None:
    """The footer has the right bounds, and the rows between them fall."""
    topic = store.create_topic("t")
    topic.append(kafka(["k"] * 4))
    (path,) = rows(topic.segments(), "path")
    table = pq.read_table(pa.BufferReader(objects.read(f"t/{path}")))
    topic = replace_file(objects, "t", path, parquet(column("offset", [0, 2, 1, 3])(table)))
    for act in (READS["read"], lambda topic: topic.offsets_for_time(at(0))):
        with pytest.raises(CorruptTopicError, match="do not rise") as caught:
            act(topic)
        assert (caught.value.path, caught.value.rule) == (path, "SEG-11")


def test_batches_of_one_row_group_are_compared_with_each_other(
    store: Store, objects: MemoryStore
) -> None:
    store = limited(store, batch_rows=2)
    topic = store.create_topic("t")
    topic.append(kafka(["k"] * 6))
    assert [batch.num_rows for batch in topic.read()] == [2, 2, 2]
    assert rows(topic.read(), "offset") == list(range(6))
    (path,) = rows(topic.segments(), "path")
    table = pq.read_table(pa.BufferReader(objects.read(f"t/{path}")))
    topic = replace_file(objects, "t", path, parquet(column("offset", [0, 1, 1, 2, 4, 5])(table)))
    with pytest.raises(CorruptTopicError, match="do not rise"):
        topic.read().read_all()


def test_every_damaged_byte_ends_in_our_error_or_in_the_same_rows(
    store: Store, objects: MemoryStore
) -> None:
    """pyarrow raises nearly anything for damaged bytes. Only the class matters here."""
    topic, _, other = make_topic(store)
    sound = objects.read(f"t/{other}")
    assert sound is not None
    generator = np.random.default_rng(12)
    refused = 0
    for _ in range(400):
        damaged = bytearray(sound)
        damaged[generator.integers(len(damaged))] ^= 1 << int(generator.integers(8))
        objects.write(f"t/{other}", bytes(damaged))
        for act in (READS["read"], READS["lookup by time"], READS["latest of keys"]):
            refused += _refused(lambda act=act: act(topic), other)
    assert refused > 400


def _refused(act: Callable[[], object], path: str) -> bool:
    try:
        act()
    except CorruptTopicError as error:
        return error.path == path
    return False


class _BrokenFile(io.RawIOBase):
    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        return 1000 if whence == io.SEEK_END else offset

    def tell(self) -> int:
        return 1000

    def read(self, size: int | None = -1) -> bytes:
        raise OSError(errno.EIO, "Input/output error")


class _BrokenDisk(MemoryStore):
    """Segments cannot be read, as on a local disk that fails."""

    def below(self, prefix: str) -> MemoryStore:
        return _BrokenDisk(self._name, self._full(prefix.rstrip("/")) + "/")

    def open_input(self, key: str, size_bytes: int) -> pa.NativeFile:
        return pa.PythonFile(_BrokenFile(), mode="r")


def test_failing_disk_is_an_error_of_the_store() -> None:
    topic, one, _ = make_topic(make_store(_BrokenDisk(), in_files=True))
    with pytest.raises(StorageError, match="Input/output error") as caught:
        topic.read().read_all()
    assert one in str(caught.value)


def test_entry_and_file_may_disagree_only_by_the_shift(store: Store, objects: MemoryStore) -> None:
    """A commit that claims another shift for the same file."""
    _, _, other = make_topic(store)
    path = f"t/_manifest/{2:020d}.json"
    body = json.loads(objects.read(path) or b"")
    body["add"][0]["shift"] = 1
    objects.write(path, json.dumps(body).encode())
    with pytest.raises(CorruptTopicError) as caught:
        make_store(objects).topic("t").read().read_all()
    assert caught.value.path in (other, f"_manifest/{2:020d}.json")
    assert data_files(objects)
