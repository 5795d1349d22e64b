"""Records in a commit, read like those in a file [INL-1..5]."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pylogtable.errors import CorruptTopicError, SegmentGoneError
from pylogtable.format.footer_checks import GroupFacts, check_footer, check_footer_columns
from pylogtable.format.footer_filters import ChunkId
from pylogtable.format.inline import entries_fault, from_text, own_entries, unpack
from pylogtable.format.json_codec import decode_commit
from pylogtable.format.model import Segment
from pylogtable.format.paths import object_of, parse_inline_path
from pylogtable.format.schema import LOG_FIELDS, OFFSET, TIMESTAMP
from pylogtable.storage.base import ObjectStore
from pylogtable.storage.object_cache import Recent, recent_objects


class InlineReader:
    """The records of one live segment that are in a commit. It has what `SegmentReader` has: one
    row group, without statistics and Bloom filters, since everything is in memory."""

    def __init__(self, store: ObjectStore, segment: Segment, *, bypass_cache: bool = False) -> None:
        """`bypass_cache` means that the commit is read even if its rows are still in memory."""
        self.segment = segment
        self._rows, self._first = _rows_of(store, segment, bypass_cache=bypass_cache)
        self.schema: pa.Schema = self._rows.schema
        times = self._rows.times_us[self._first : self._first + segment.records]
        bounds = int(times.min()), int(times.max())
        offsets = segment.base_offset, segment.end_offset - 1
        self.groups = [GroupFacts(segment.records, offsets, bounds)]
        check_footer(segment, segment.records, self.groups)

    @property
    def group_bytes(self) -> list[int]:
        """The bytes of each row group."""
        return [self.segment.size_bytes]

    #: There are no Bloom filters that could be damaged.
    filter_checksums: dict[ChunkId, str] | None = None

    def column_index(self, name: str) -> int | None:
        """None: there are no statistics of any column."""
        return None

    def statistics(self, group: int, column: int) -> Any:
        """None: there are no statistics."""
        return None

    def has_filter(self, group: int, column: int) -> bool:
        """False: there are no Bloom filters."""
        return False

    def read_filter(self, group: int, column: int) -> bytes | None:
        """None: there are no Bloom filters."""
        return None

    def batches(
        self, row_groups: Sequence[int], columns: Sequence[str]
    ) -> Iterator[pa.RecordBatch]:
        """These columns of all records, if the row group is asked for."""
        if not len(row_groups):
            return
        segment, batch = self.segment, self._rows.batch
        offsets = np.arange(segment.base_offset, segment.end_offset, dtype=np.int64)
        found = [
            pa.array(offsets)
            if name == OFFSET
            else batch.column(name).slice(self._first, segment.records)
            for name in columns
        ]
        yield pa.RecordBatch.from_arrays(found, names=list(columns))

    def true_offsets(self, batch: pa.RecordBatch) -> pa.Array:
        """The offsets of the records."""
        return batch.column(OFFSET)


#: What Arrow and the entries need around the rows of a commit, as measured.
ROWS_BYTES = 16 << 10


@dataclass(frozen=True)
class _Rows:
    """The rows of a commit, and the entries that it has for them by path. `schema` has their
    columns, and that of the offsets."""

    batch: pa.RecordBatch
    schema: pa.Schema
    times_us: npt.NDArray[np.int64]
    entries: dict[str, Segment]


_of_stores: WeakKeyDictionary[ObjectStore, Recent[_Rows]] = WeakKeyDictionary()


def _kept(store: ObjectStore) -> Recent[_Rows]:
    return _of_stores.setdefault(store.origin, Recent())


def is_at_hand(store: ObjectStore, segment: Segment) -> bool:
    """True if the rows of a segment, or its commit, are still in memory."""
    path = object_of(segment.path)
    found = _kept(store).find(path) or recent_objects(store).find(path)
    return found is not None


def _rows_of(store: ObjectStore, segment: Segment, *, bypass_cache: bool) -> tuple[_Rows, int]:
    """The rows of a commit, and the first of this segment. The commit must have the same entry for
    it [INL-3]."""
    kept = _kept(store)
    path = object_of(segment.path)
    rows = None if bypass_cache else kept.find(path)
    if rows is not None and not _is_of(segment, rows.entries.get(segment.path)):
        # A backup was restored, and another commit has this version now.
        rows, bypass_cache = None, True
    if rows is None:
        rows = _read(store, segment, bypass_cache=bypass_cache)
        kept.keep(path, rows, rows.batch.nbytes + ROWS_BYTES)
    entry = rows.entries.get(segment.path)
    if entry is None or _claims(entry) != _claims(segment):
        detail = f"it has no records {segment.path[len(path) :]} with the offsets of the entry"
        raise CorruptTopicError(path, "INL-3", detail)
    return rows, int(segment.path[len(path) + 1 :])


def _is_of(segment: Segment, kept: Segment | None) -> bool:
    if kept is None or _claims(kept) != _claims(segment) or kept.size_bytes != segment.size_bytes:
        return False
    kept_times = kept.min_timestamp_us, kept.max_timestamp_us
    return kept_times == (segment.min_timestamp_us, segment.max_timestamp_us)


def _claims(entry: Segment) -> tuple[int, int, int]:
    return entry.partition, entry.base_offset, entry.end_offset


def _read(store: ObjectStore, segment: Segment, *, bypass_cache: bool) -> _Rows:
    path = object_of(segment.path)
    data = None if bypass_cache else recent_objects(store).find(path)
    data = data or store.read(path)
    if data is None:
        raise SegmentGoneError(segment.path, "the commit that has its records is missing")
    place = parse_inline_path(segment.path)
    assert place is not None
    commit = decode_commit(data, place[0])
    own = {entry.path: entry for entry in own_entries(commit)}
    fault = entries_fault(commit)
    if fault is not None:
        raise CorruptTopicError(path, fault.rule, fault.detail)
    if commit.rows is None:
        raise CorruptTopicError(path, "INL-3", "an entry says that it has records, and it has none")
    batch = unpack(from_text(commit.rows, path), path)
    expected = sum(entry.records for entry in own.values())
    if batch.num_rows != expected:
        detail = f"it has {batch.num_rows} rows, and its entries {expected} records"
        raise CorruptTopicError(path, "INL-3", detail)
    # Offsets are not stored: a column of this name means nothing [INL-2].
    batch = batch.select([at for at, name in enumerate(batch.schema.names) if name != OFFSET])
    schema = pa.schema([LOG_FIELDS[1], *batch.schema])
    check_footer_columns(path, schema)
    if batch.column(TIMESTAMP).null_count:
        raise CorruptTopicError(path, "SEG-3", "a record has no timestamp")
    return _Rows(batch, schema, batch.column(TIMESTAMP).view(pa.int64()).to_numpy(), own)
