"""Checksums of segment files: damage is noticed, at no extra request, on every path [SUM-3]."""

from __future__ import annotations

import pickle
import zlib
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pylogtable import CorruptTopicError, Store, Topic
from pylogtable.engine import plan_append
from pylogtable.format.leaf import LEAF_SCHEMA, Leaf, check_leaf, leaf_table
from pylogtable.limits import DEFAULT_LIMITS
from pylogtable.segments.footer import Footer
from pylogtable.storage.memory import MemoryStore
from tests.builders import Clock, at, kafka, limited, make_store, rows, times
from tests.stores import CountingStore

pytestmark = pytest.mark.records_in("files")

COMPACT = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0"}

PAGE_ROWS = DEFAULT_LIMITS.page_rows


def footer_of(data: bytes | bytearray) -> bytes:
    return bytes(data[-8 - int.from_bytes(data[-8:-4], "little") :])


def entries(topic: Topic) -> list[dict[str, Any]]:
    return topic.segments().to_pylist()


def check_entries(topic: Topic, objects: MemoryStore, name: str = "t") -> None:
    """Every entry has the checksum of the footer of its file."""
    assert entries(topic)
    for entry in entries(topic):
        data = objects.read(f"{name}/{entry['path']}") or b""
        assert entry["footer_checksum"] == f"{zlib.crc32(footer_of(data)):08x}"
        assert len(data) == entry["size_bytes"]


def test_entry_has_the_checksum_of_its_footer_through_every_job(
    store: Store, objects: MemoryStore, clock: Clock
) -> None:
    topic = store.create_topic("t", config={**COMPACT, "delete.retention.ms": "10"})
    topic.append(kafka(["a", "b", "a"], ["1", "2", "3"]))
    check_entries(topic, objects)
    topic.append(kafka(["c"], [None]))
    topic.compact(force=True)  # rewrites one, and gives the other a delete horizon only
    assert [entry["delete_horizon_ms"] for entry in entries(topic)][1] is not None
    check_entries(topic, objects)
    topic.append(kafka(["d"]))
    topic.merge()
    check_entries(topic, objects)
    clock.tick(100)
    topic.compact(force=True)
    check_entries(topic, objects)
    assert topic.verify(data=True)


def test_staged_file_keeps_its_checksum_on_its_way_to_another_process(
    store: Store, objects: MemoryStore
) -> None:
    topic = store.create_topic("t")
    staged = [
        pickle.loads(pickle.dumps(plan_append(topic).stage(kafka(["a"] * 3)))) for _ in range(2)
    ]
    plan_append(topic).commit(staged)
    assert [entry["shift"] for entry in entries(topic)] == [0, 3]
    check_entries(topic, objects)


def test_checksum_is_in_leaves_and_older_leaves_have_none(
    store: Store, objects: MemoryStore
) -> None:
    store = limited(store, tail_max=10)
    topic = store.create_topic("t")
    for _ in range(65):
        topic.append(kafka(["k"]))
    reopened = make_store(objects).topic("t")
    check_entries(reopened, objects)
    (path,) = [info.key for info in objects.list() if "leaf-" in info.key]
    table = pq.read_table(pa.BufferReader(objects.read(path)))
    assert table.schema.names == LEAF_SCHEMA.names
    older = Leaf("a", leaf_table(table.drop_columns(["footer_checksum"])))
    check_leaf(older)
    assert {s.footer_checksum for s in older.segments(range(table.num_rows))} == {None}


def make_topic(objects: MemoryStore) -> tuple[Topic, str]:
    topic = make_store(objects, in_files=True).create_topic("t", config=COMPACT)
    keys = [f"key-{n % 9}" for n in range(24)]
    values = [None if n % 5 == 0 else f"value {n}" for n in range(24)]
    topic.append(kafka(keys, values, timestamp=times(*range(24))))
    (path,) = rows(topic.segments(), "path")
    return topic, f"t/{path}"


def answers(topic: Topic) -> list[Any]:
    return [
        topic.read().read_all().to_pylist(),
        topic.read(columns=["value"]).read_all().to_pylist(),
        topic.latest().to_pylist(),
        topic.latest([b"key-3", b"key-8", b"none"]).to_pylist(),
        topic.read(keys=[b"key-3", b"key-8", b"none"]).read_all().to_pylist(),
        topic.offsets_for_time(at(17)),
    ]


def outcome(topic: Topic) -> list[Any] | None:
    """The answers, or None if the file is said to be corrupt."""
    try:
        return answers(topic)
    except CorruptTopicError:
        return None


def test_damaged_byte_anywhere_gives_the_right_answers_or_an_error(objects: MemoryStore) -> None:
    topic, path = make_topic(objects)
    sound, right = objects.read(path) or b"", answers(topic)
    generator = np.random.default_rng(3)
    refused = 0
    for position in generator.permutation(len(sound))[:500].tolist():
        damaged = bytearray(sound)
        damaged[position] ^= 1 << int(generator.integers(8))
        objects.write(path, bytes(damaged))
        found = outcome(topic)
        assert found in (None, right), position
        refused += found is None
    assert refused > 350


def test_changed_footer_is_noticed_before_it_is_parsed(objects: MemoryStore) -> None:
    topic, path = make_topic(objects)
    sound = objects.read(path) or b""
    at_footer = len(sound) - len(footer_of(sound))
    for position in range(at_footer, len(sound) - 8, 7):
        damaged = bytearray(sound)
        damaged[position] ^= 0x55
        objects.write(path, bytes(damaged))
        with pytest.raises(CorruptTopicError) as caught:
            topic.read().read_all()
        assert caught.value.rule == "SUM-3"
    (problem,) = topic.verify(data=True).problems
    assert problem.rule == "SUM-3"


def test_damaged_bloom_filter_hides_no_key_and_is_reported(objects: MemoryStore) -> None:
    topic, path = make_topic(objects)
    right = answers(topic)
    data = bytearray(objects.read(path) or b"")
    sound = Footer(footer_of(data))
    assert sound.metadata.row_group(0).column(2).path_in_schema == "key"
    at, length = sound.filters[0, 2]
    first, last = at + 17, at + length
    data[first:last] = bytes(last - first)  # this filter says no to everything
    objects.write(path, bytes(data))
    assert answers(topic) == right
    (problem,) = topic.verify(data=True).problems
    assert problem.rule == "SUM-3"
    assert "Bloom filter" in problem.detail


def test_page_of_another_content_is_noticed(objects: MemoryStore) -> None:
    topic, path = make_topic(objects)
    data = bytearray(objects.read(path) or b"")
    chunk = pq.read_metadata(pa.BufferReader(bytes(data))).row_group(0).column(3)
    start = chunk.dictionary_page_offset or chunk.data_page_offset
    end = start + chunk.total_compressed_size
    data[end - 1] ^= 1
    objects.write(path, bytes(data))
    with pytest.raises(CorruptTopicError, match="CRC"):
        topic.read(columns=["value"]).read_all()


def test_checking_a_footer_costs_no_request(objects: MemoryStore) -> None:
    counting = CountingStore(objects)
    topic = make_store(counting, in_files=True).create_topic("t")
    topic.append(kafka(["k"] * 10))
    counting.reset()
    topic.read().read_all()
    assert counting.counts["get"] == 2  # the footer, and the columns
    counting.reset()
    topic.read(columns=["value"]).read_all()
    assert counting.counts["get"] == 2


def test_footer_larger_than_the_first_request_is_read(objects: MemoryStore) -> None:
    topic, _ = make_topic(objects)
    right = answers(topic)
    for size in (8, 9, 500):
        assert answers(limited(topic, footer_bytes=size)) == right


@pytest.mark.parametrize("data", [b"", b"PAR1", b"\xff\xff\xff\x7fPAR1", b"\0\0\0\0PAR1"])
def test_file_with_an_impossible_footer_is_corrupt(objects: MemoryStore, data: bytes) -> None:
    topic, path = make_topic(objects)
    objects.write(path, data)
    with pytest.raises(CorruptTopicError) as caught:
        topic.read().read_all()
    assert f"t/{caught.value.path}" == path


def test_large_file_has_an_index_of_small_pages_and_sound_filters(
    store: Store, objects: MemoryStore
) -> None:
    """Spark reads a range of offsets by this index, and keys are looked up by the filters, which
    lie before it."""
    topic = store.create_topic("t")
    keys = [f"k{n}" for n in range(PAGE_ROWS + 1)]
    topic.append(kafka(keys))
    topic.append(kafka(keys[:10]))
    footers = [
        Footer(footer_of(objects.read(f"t/{path}") or b""))
        for path in rows(topic.segments(), "path")
    ]
    large, small = (footer.metadata for footer in footers)
    for column in range(large.num_columns):
        chunk = large.row_group(0).column(column)
        assert chunk.has_offset_index, chunk.path_in_schema
        assert chunk.has_column_index or chunk.path_in_schema not in ("offset", "timestamp", "key")
    assert not small.row_group(0).column(0).has_offset_index
    assert set((footers[0].filter_checksums or {}).values()) not in ({"-" * 8}, set())
    assert rows(topic.latest([b"k7"]), "offset") == [PAGE_ROWS + 1 + 7]
    assert topic.verify(data=True)
