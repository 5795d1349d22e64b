"""Counts records without a key by the footers of files and by records in commits, as far as that is
cheap."""

from __future__ import annotations

from itertools import chain, islice

import pyarrow as pa

from pylogtable.format.log_state import LogState
from pylogtable.format.model import Segment, TopicInfo
from pylogtable.format.tombstones import count_keyless
from pylogtable.segments.column_bounds import facts_of
from pylogtable.segments.segment_reader import open_segment
from pylogtable.storage.base import ObjectStore


def null_keys_text(store: ObjectStore, state: LogState) -> str | None:
    """About how many records have no key, such as "at least 12". None if there seem to be none.

    A key is null if all of its columns are [REC-4]; footers count the nulls of each column. If
    there are too many files, some of them are looked at.
    """
    info = state.snapshot.info
    keys = [field for field in info.fields if field.name in info.key]
    if any(not field.nullable for field in keys):
        return None
    live = chain.from_iterable(map(state.segments, range(len(state.snapshot.partitions))))
    segments = list(islice(live, store.limits.counted_footers))
    files = [segment for segment in segments if not segment.is_inline]
    count = sum(_keyless(store, segment, info) for segment in segments if segment.is_inline)
    is_known = len(segments) == state.snapshot.live.segments
    for facts in facts_of(store, files, info).values():
        bounds = [facts.bounds.get(field.stored_name) for field in keys]
        nulls = [found.nulls for found in bounds if found is not None]
        is_known &= len(nulls) == len(keys)
        count += min(nulls, default=0)
    if not count:
        return None
    if len(keys) > 1:
        return f"up to {count:,}" if is_known else "some"
    return f"{count:,}" if is_known else f"at least {count:,}"


def _keyless(store: ObjectStore, segment: Segment, topic: TopicInfo) -> int:
    """How many records of a segment in a commit have no key. They are in memory then, so the values
    themselves are looked at."""
    stored = [field.stored_name for field in topic.fields if field.name in topic.key]
    names = [field.name for field in topic.fields if field.name in topic.key]
    batches = open_segment(store, segment).batches([0], stored)
    return count_keyless(pa.Table.from_batches(batches).rename_columns(names), topic)
