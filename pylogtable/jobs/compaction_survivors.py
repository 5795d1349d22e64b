"""Which records a compaction keeps."""

from __future__ import annotations

import pyarrow as pa

from pylogtable.format.model import Segment
from pylogtable.format.schema import TIMESTAMP
from pylogtable.format.tombstones import tombstone_mask
from pylogtable.jobs.compaction_plan import CompactionUnit
from pylogtable.segments.newest_per_key import Mask, find_newest
from pylogtable.segments.projection import stored_values
from pylogtable.segments.segment_prefetch import pairs_ahead
from pylogtable.segments.segment_reader import open_segment
from pylogtable.storage.base import ObjectStore


def find_kept(store: ObjectStore, unit: CompactionUnit, budget_bytes: int) -> list[Mask]:
    """For each input of a compaction, which of its records are kept."""
    masks = find_newest(store, unit.topic, unit.inputs, unit.dirty_from, budget_bytes)
    pairs = zip(unit.inputs, masks, strict=True)
    some = [(segment, mask) for segment, mask in pairs if _may_expire(unit, segment)]
    for segment, mask, fetched in pairs_ahead(store, some):
        _drop_expired(fetched, unit, segment, mask)
    return masks


def _expires(unit: CompactionUnit, segment: Segment) -> bool:
    expire_us = unit.expire_before_us
    return expire_us is not None and segment.min_timestamp_us < expire_us


def _may_expire(unit: CompactionUnit, segment: Segment) -> bool:
    is_cut = segment.has_below(unit.log_start)
    return is_cut or _expires(unit, segment) or unit.tombstones_expired(segment)


def _drop_expired(store: ObjectStore, unit: CompactionUnit, segment: Segment, mask: Mask) -> None:
    """Drop records below the log start, records that are too old, and tombstones whose delete
    horizon has passed, whatever their key."""
    drops_tombstones = unit.tombstones_expired(segment)
    expire_us = unit.expire_before_us
    expires = _expires(unit, segment)
    is_cut = segment.has_below(unit.log_start)
    wanted = [TIMESTAMP] if expires else []
    reader = open_segment(store, segment)
    values: list[str] = []
    if drops_tombstones:
        values = stored_values(reader, unit.topic)
        wanted += [*unit.topic.key, *values]
    at = 0
    for batch in reader.batches(range(len(segment.row_groups)), ["offset", *wanted]):
        part = mask[at : at + batch.num_rows]
        if is_cut:
            part &= reader.true_offsets(batch).to_numpy() >= unit.log_start
        if expires:
            part &= batch.column(TIMESTAMP).cast(pa.int64()).to_numpy() >= expire_us
        if drops_tombstones:
            part &= ~tombstone_mask(pa.table(batch), unit.topic.key, values)
        at += batch.num_rows
