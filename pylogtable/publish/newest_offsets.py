"""Finds the records that `publish.view=latest` shows: the newest of each key, as `latest` finds it,
without tombstones and without records that have no key [PUB-9].

After appends only the new keys are looked at: Bloom filters say which row groups may have them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from pylogtable.format.log_state import LogState
from pylogtable.format.model import Segment, TopicInfo
from pylogtable.format.partitioner import key_bytes
from pylogtable.format.schema import OFFSET, PARTITION, TIMESTAMP, column_schema
from pylogtable.format.tombstones import one_chunk, tombstone_mask
from pylogtable.lazy_arrow import pc
from pylogtable.publish.hidden_rows import offsets_in
from pylogtable.publish.roaring import Int64s, Numbers, Offsets, numbers, union, within
from pylogtable.read.latest import latest_of_partition, newest_across_partitions, newest_of
from pylogtable.segments.key_filter import WantedKeys
from pylogtable.segments.newest_per_key import find_newest
from pylogtable.segments.projection import Projection, stored_values
from pylogtable.segments.read_segment import read_task
from pylogtable.segments.read_task import task_for
from pylogtable.segments.segment_prefetch import pairs_ahead, tasks_ahead
from pylogtable.segments.segment_reader import open_segment
from pylogtable.storage.base import ObjectStore


class Moved(NamedTuple):
    """By partition, offsets that a table hides from now on, and offsets that it shows again."""

    hidden: Offsets
    shown: Offsets


def newest_offsets(store: ObjectStore, state: LogState) -> Offsets:
    """The offsets of all records that are shown. Every key is read, in the memory of `latest`. If
    no key can be in two partitions, keys are compared in one partition at a time."""
    snapshot = state.snapshot
    segments = {number: [*state.segments(number)] for number in range(len(snapshot.partitions))}
    count = snapshot.info.partitions
    if count > 1 and any(s.hashed_over != count for of in segments.values() for s in of):
        found = newest_across_partitions(_newest_rows(store, state, segments), snapshot.info)
        newest = _by_partition(found)
    else:
        newest = {
            number: _of_partition(store, state, number, segments[number]) for number in segments
        }
    return without_tombstones(store, state, newest)


def after_appends(store: ObjectStore, before: LogState, after: LogState) -> Moved:
    """What changes between two states, if records were only appended between them, and partitions
    are as many. It may be that an older record is shown again: the newest of a key in a partition
    need not be the newest by its time."""
    info = after.snapshot.info
    columns = _columns(info)
    new = _appended(store, before, after, columns)
    new_offsets = _by_partition(new)
    keys = key_bytes([one_chunk(new[name]) for name in info.key])
    new, keys = new.filter(keys.is_valid()), keys.drop_null()
    newest_new, codes = _last_of_each(new, keys)
    wanted = WantedKeys(info, newest_new.select(info.key))
    old = pa.Table.from_batches(_newest_old(store, before, wanted, columns), columns.schema)
    replaced = _are_replaced(old, info, codes, newest_new)
    candidates = pa.concat_tables([old.filter(pa.array(~replaced)), newest_new])
    shown_before = _winners(store, after, old)
    shown_after = _winners(store, after, candidates)
    numbers_of = {*new_offsets, *shown_before, *shown_after}
    empty = numbers()
    hidden, shown = {}, {}
    for number in numbers_of:
        fresh = new_offsets.get(number, empty)
        was, now = shown_before.get(number, empty), shown_after.get(number, empty)
        hidden[number] = (was | fresh) - now
        shown[number] = now - was - fresh
    return Moved(hidden, shown)


def without_tombstones(store: ObjectStore, state: LogState, offsets: Offsets) -> Offsets:
    """The offsets of records that are no tombstones. Only segments that have some are read."""
    kept = {}
    for number, found in offsets.items():
        dead = []
        if found:
            span = found.min(), found.max() + 1
            some = (
                (segment, mine)
                for segment in state.segments(number, *span)
                if segment.tombstones
                and (mine := within(found, segment.base_offset, segment.end_offset))
            )
            for segment, mine, fetched in pairs_ahead(store, some):
                dead.append(_tombstones(fetched, state.snapshot.info, segment, mine))
        kept[number] = found - union(dead)
    return kept


def _tombstones(store: ObjectStore, info: TopicInfo, segment: Segment, offsets: Numbers) -> Numbers:
    """The offsets of tombstones in the row groups that have these offsets [REC-3]."""
    reader = open_segment(store, segment)
    values = stored_values(reader, info)
    groups = task_for(segment, offsets.min(), offsets.max() + 1).row_groups
    dead = []
    for batch in reader.batches(groups, [OFFSET, *info.key, *values]):
        mask = tombstone_mask(pa.table(batch), info.key, values)
        dead.append(reader.true_offsets(batch).to_numpy()[mask])
    return numbers(np.concatenate(dead)) if dead else numbers()


def _columns(info: TopicInfo) -> Projection:
    schema = column_schema(info.fields, [*info.key, PARTITION, TIMESTAMP, OFFSET])
    return Projection(schema, "", info)


def _newest_rows(
    store: ObjectStore, state: LogState, segments: Mapping[int, list[Segment]]
) -> pa.Table:
    """The newest record of each key in each partition."""
    info = state.snapshot.info
    columns = _columns(info)
    parts = [
        batch
        for number, of in segments.items()
        for batch in latest_of_partition(
            store, of, state.snapshot.partitions[number], info, columns
        )
    ]
    return pa.Table.from_batches(parts, columns.schema)


def _of_partition(
    store: ObjectStore, state: LogState, number: int, segments: list[Segment]
) -> Numbers:
    """The newest record of each key of one partition. Keys are read, and nothing else."""
    log = state.snapshot.partitions[number]
    dirty_from = max(log.clean_end, log.log_start)
    budget = store.limits.key_budget_bytes
    masks = find_newest(store, state.snapshot.info, segments, dirty_from, budget)
    pairs = zip(segments, masks, strict=True)
    found = union(numbers(offsets_in(store, segment)[mask]) for segment, mask in pairs)
    return within(found, log.log_start, log.end)


def _appended(
    store: ObjectStore, before: LogState, after: LogState, columns: Projection
) -> pa.Table:
    """The records that the state before has not."""
    tasks = (
        task_for(segment, was.end, now.end)
        for number, (was, now) in enumerate(
            zip(before.snapshot.partitions, after.snapshot.partitions, strict=True)
        )
        if now.end > was.end
        for segment in after.segments(number, was.end, now.end)
    )
    batches = [
        batch
        for task, fetched in tasks_ahead(store, tasks, columns)
        for batch in read_task(fetched, task, columns)
    ]
    return pa.Table.from_batches(batches, columns.schema)


def _newest_old(
    store: ObjectStore, state: LogState, wanted: WantedKeys, columns: Projection
) -> Iterator[pa.RecordBatch]:
    for number, log in enumerate(state.snapshot.partitions if len(wanted) else ()):
        newest_first = state.segments_backwards(number)
        yield from newest_of(store, newest_first, wanted, log.log_start, columns)


def _last_of_each(rows: pa.Table, keys: pa.Array) -> tuple[pa.Table, pa.Array]:
    """The last record of each key in each partition, and the keys of these records."""
    codes = keys.dictionary_encode().indices.to_numpy()
    partitions, offsets = rows[PARTITION].to_numpy(), rows[OFFSET].to_numpy()
    order = np.lexsort((offsets, codes, partitions))
    codes, partitions = codes[order], partitions[order]
    is_last = np.ones(len(order), dtype=np.bool_)
    is_last[:-1] = (codes[1:] != codes[:-1]) | (partitions[1:] != partitions[:-1])
    last = pa.array(order[is_last])
    return rows.take(last), keys.take(last)


def _are_replaced(
    old: pa.Table, info: TopicInfo, keys: pa.Array, newest_new: pa.Table
) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    """Which old records have a newer one of their key in their partition; `keys` are those of the
    newer ones."""
    old_keys = key_bytes([one_chunk(old[name]) for name in info.key])
    distinct = keys.unique()

    def places(of: pa.Array, rows: pa.Table) -> Int64s:
        codes: Int64s = pc.index_in(of, value_set=distinct).to_numpy().astype(np.int64)
        found: Int64s = codes * info.partitions + rows[PARTITION].to_numpy()
        return found

    return np.isin(places(old_keys, old), places(keys, newest_new))


def _winners(store: ObjectStore, state: LogState, candidates: pa.Table) -> Offsets:
    """Of the newest record of each key in each partition, those that are shown."""
    ordered = candidates.sort_by(PARTITION)  # of equal ones, the highest partition wins
    winners = newest_across_partitions(ordered, state.snapshot.info)
    return without_tombstones(store, state, _by_partition(winners))


def _by_partition(rows: pa.Table) -> Offsets:
    partitions, offsets = rows[PARTITION].to_numpy(), rows[OFFSET].to_numpy()
    return {int(one): numbers(offsets[partitions == one]) for one in np.unique(partitions)}
