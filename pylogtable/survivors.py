"""Which records survive a compaction: one bit for each, exact, in bounded memory.

Keys are compared themselves and never by a hash. Where the keys of the dirty part would not fit the
budget they are taken in slices, by a hash that only says which slice a key belongs to; each slice
reads the key columns once more.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from pylogtable.model import Segment, TopicInfo
from pylogtable.partitioner import key_bytes, murmur2
from pylogtable.plan.clean import CleanWork
from pylogtable.rows import tombstone_mask
from pylogtable.schema import HEADERS, TIMESTAMP
from pylogtable.segment_file import SegmentReader
from pylogtable.storage.base import ObjectStore

# What a record of the dirty part costs beside its key: its place, and its share of hash tables.
BYTES_PER_KEY = 48
# Clean keys are looked up in the dirty ones this many at a time.
LOOKUP_ROWS = 1 << 22

Mask = npt.NDArray[np.bool_]


def find_survivors(store: ObjectStore, work: CleanWork, budget_bytes: int) -> list[Mask]:
    """For each input of `work` which of its records survive."""
    topic = work.topic
    alive = [np.ones(segment.records, dtype=np.bool_) for segment in work.inputs]
    first_dirty = next(
        (n for n, segment in enumerate(work.inputs) if segment.end_offset > work.dirty_from),
        len(work.inputs),
    )
    slices = _slices(store, topic, work.inputs[first_dirty:], budget_bytes)
    for number in range(slices):
        newest = _mark_dirty(store, topic, work, first_dirty, alive, number, slices)
        _mark_clean(store, topic, work, first_dirty, alive, newest, number, slices)
    for segment, mask in zip(work.inputs, alive, strict=True):
        _mark_expired(store, topic, work, segment, mask)
    return alive


def _slices(
    store: ObjectStore, topic: TopicInfo, dirty: Sequence[Segment], budget_bytes: int
) -> int:
    records = sum(segment.records for segment in dirty)
    if not records:
        return 0
    sample = next(_keys(store, topic, dirty[0]), None)
    width = sample.nbytes / len(sample) if sample is not None and len(sample) else 0
    return max(1, -(-int(records * (width + BYTES_PER_KEY)) // budget_bytes))


def _mark_dirty(
    store: ObjectStore,
    topic: TopicInfo,
    work: CleanWork,
    first_dirty: int,
    alive: list[Mask],
    number: int,
    slices: int,
) -> pa.Array:
    """Mark all but the newest record of each key of this slice as dead; give the keys. Records
    without a key die with the first slice [CLEAN-3]."""
    keys: list[pa.Array] = []
    places: list[tuple[int, npt.NDArray[np.int64]]] = []
    for index in range(first_dirty, len(work.inputs)):
        segment = work.inputs[index]
        at = 0
        for batch in _keys(store, topic, segment):
            rows = _rows_of_slice(batch, number, slices)
            if number == 0 and batch.null_count:
                keyless = np.flatnonzero(pc.is_null(batch).to_numpy(zero_copy_only=False))
                alive[index][at + keyless] = False
            keys.append(batch if rows.size == len(batch) else batch.take(pa.array(rows)))
            places.append((index, rows + at))
            at += len(batch)
    encoded = pa.chunked_array(keys, pa.binary()).dictionary_encode()
    if not encoded.num_chunks:
        return pa.array([], pa.binary())
    codes = np.concatenate([chunk.indices.to_numpy() for chunk in encoded.chunks])
    # Arrow gives all chunks the one dictionary of the whole.
    distinct = encoded.chunk(0).dictionary
    # Of several values for one place numpy keeps the last, and rows come in offset order.
    newest = np.zeros(len(distinct), dtype=np.int64)
    newest[codes] = np.arange(len(codes))
    survives = np.zeros(len(codes), dtype=np.bool_)
    survives[newest] = True
    at = 0
    for index, rows in places:
        mine = survives[at : at + rows.size]
        alive[index][rows[~mine]] = False
        at += rows.size
    return distinct


def _mark_clean(
    store: ObjectStore,
    topic: TopicInfo,
    work: CleanWork,
    first_dirty: int,
    alive: list[Mask],
    newest: pa.Array,
    number: int,
    slices: int,
) -> None:
    """Mark records of the clean part dead whose key has a newer one among `newest`."""
    if not len(newest):
        return
    waiting: list[pa.Array] = []
    places: list[tuple[int, npt.NDArray[np.int64]]] = []

    def look_up() -> None:
        if not waiting:
            return
        found = pc.is_in(pa.chunked_array(waiting), value_set=newest)
        hits = found.to_numpy()
        at = 0
        for index, rows in places:
            alive[index][rows[hits[at : at + rows.size]]] = False
            at += rows.size
        waiting.clear()
        places.clear()

    rows_waiting = 0
    for index, segment in enumerate(work.inputs[:first_dirty]):
        at = 0
        for batch in _keys(store, topic, segment):
            rows = _rows_of_slice(batch, number, slices)
            waiting.append(batch if rows.size == len(batch) else batch.take(pa.array(rows)))
            places.append((index, rows + at))
            at += len(batch)
            rows_waiting += rows.size
            if rows_waiting >= LOOKUP_ROWS:
                look_up()
                rows_waiting = 0
    look_up()


def _mark_expired(
    store: ObjectStore, topic: TopicInfo, work: CleanWork, segment: Segment, mask: Mask
) -> None:
    """Mark what the log start, retention and the tombstones' time take, whatever its key."""
    values = [f.name for f in topic.fields if f.name not in topic.key and f.name != HEADERS]
    drops_tombstones = work.tombstones_expired(segment)
    expire_us = work.expire_before_us
    expires = expire_us is not None and segment.min_timestamp_us < expire_us
    cut = segment.base_offset < work.log_start
    if not (drops_tombstones or expires or cut):
        return
    wanted = [TIMESTAMP] if expires else []
    if drops_tombstones:
        wanted += [*topic.key, *values]
    reader = SegmentReader(store, segment)
    at = 0
    for batch in reader.batches(range(len(segment.row_groups)), ["offset", *wanted]):
        part = mask[at : at + batch.num_rows]
        if cut:
            part &= reader.true_offsets(batch).to_numpy() >= work.log_start
        if expires:
            part &= batch.column(TIMESTAMP).cast(pa.int64()).to_numpy() >= expire_us
        if drops_tombstones:
            part &= ~tombstone_mask(pa.table(batch), topic)
        at += batch.num_rows


def _keys(store: ObjectStore, topic: TopicInfo, segment: Segment) -> Iterator[pa.Array]:
    """The keys of a segment as bytes, in offset order."""
    reader = SegmentReader(store, segment)
    types = {field.name: field.type for field in reader.schema}
    for batch in reader.batches(range(len(segment.row_groups)), topic.key):
        columns = [
            batch.column(name) if name in types else pa.nulls(batch.num_rows) for name in topic.key
        ]
        yield key_bytes(columns)


def _rows_of_slice(keys: pa.Array, number: int, slices: int) -> npt.NDArray[np.int64]:
    """The rows with a key of this slice. Keys of one partition share their murmur2 modulo its
    count, so it is mixed once more."""
    keyed = pc.is_valid(keys).to_numpy(zero_copy_only=False)
    if slices == 1:
        return np.flatnonzero(keyed)
    mixed = (murmur2(keys).astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)) >> np.uint64(40)
    return np.flatnonzero(keyed & (mixed % np.uint64(slices) == np.uint64(number)))
