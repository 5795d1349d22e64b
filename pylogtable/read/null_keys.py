"""Counts records without a key by the footers of files, as far as that is cheap."""

from __future__ import annotations

from itertools import chain, islice

from pylogtable.format.lookup import LoadLeaf, segments_between
from pylogtable.format.snapshot import Snapshot
from pylogtable.segments.column_bounds import facts_of
from pylogtable.storage.base import ObjectStore

#: At most this many footers are read.
MOST_FOOTERS = 64


def null_keys_text(store: ObjectStore, snapshot: Snapshot, leaves: LoadLeaf) -> str | None:
    """About how many records have no key, such as "at least 12". None if there seem to be none.

    A key is null if all of its columns are [REC-4]; footers count the nulls of each column. If
    there are too many files, some of them are looked at.
    """
    info = snapshot.info
    keys = [field for field in info.fields if field.name in info.key]
    if any(not field.nullable for field in keys):
        return None
    spans = (
        segments_between(snapshot, leaves, number, state.log_start, state.end)
        for number, state in enumerate(snapshot.partitions)
    )
    files = list(islice(chain.from_iterable(spans), MOST_FOOTERS))
    count, is_known = 0, len(files) == snapshot.live.segments
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
