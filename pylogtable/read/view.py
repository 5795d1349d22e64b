"""A topic at one version: reads, lookups and counts."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from itertools import chain, islice
from typing import Any

import pyarrow as pa

from pylogtable.arguments import check_number
from pylogtable.errors import InvalidRequestError
from pylogtable.format.field_ids import column_ids
from pylogtable.format.log_state import LogState
from pylogtable.format.model import Segment
from pylogtable.format.partition_state import tile_start
from pylogtable.format.schema import OFFSET, PARTITION, TIMESTAMP, column_schema, table_schema
from pylogtable.format.snapshot import Snapshot
from pylogtable.lazy_arrow import pc
from pylogtable.log.manifest import Manifest
from pylogtable.read.description import TopicDescription, describe
from pylogtable.read.files import check_in_files, files_table
from pylogtable.read.history import history_table
from pylogtable.read.latest import latest_of_partition, newest_across_partitions, newest_of
from pylogtable.read.plan import Ranges, Span, choose_partitions, plan_spans, plan_tasks, spans_of
from pylogtable.read.position import Bound, locate, parse_bound
from pylogtable.read.range_size import (
    RangeSize,
    estimate_range_size,
    offset_after_bytes,
    offset_after_records,
    range_size,
)
from pylogtable.read.versions import explain_gone_files
from pylogtable.runtime import Runtime
from pylogtable.segments.key_filter import WantedKeys, wanted_keys
from pylogtable.segments.projection import Projection
from pylogtable.segments.read_segment import count_from, first_offset_at_time
from pylogtable.segments.read_tasks import read_tasks
from pylogtable.storage.base import ObjectStore
from pylogtable.storage.threads import map_parallel
from pylogtable.times import Moment, to_us
from pylogtable.tracing import span, spanned


class View:
    """A topic at one version. `topic.at(version)` makes one. Its answers never change, so use it
    for several reads that must see the same data.

    >>> view = topic.at()
    >>> view.count() == view.read().read_all().num_rows
    True
    """

    def __init__(
        self,
        name: str,
        store: ObjectStore,
        snapshot: Snapshot | bytes,
        manifest: Manifest | None = None,
        clock: Callable[[], int] = Runtime.clock,
    ) -> None:
        """`snapshot` may be pickled bytes. `clock` gives the time that durations count from."""
        self.name = name
        self._given = snapshot
        self._store = store
        self._manifest = manifest or Manifest(store)
        self.clock = clock

    def __reduce__(self) -> tuple[type[View], tuple[str, ObjectStore, bytes]]:
        packed = self._given if isinstance(self._given, bytes) else pickle.dumps(self._given)
        return View, (self.name, self._store, packed)

    @cached_property
    def snapshot(self) -> Snapshot:
        """The state behind this view, for the library itself. It is unpickled at its first use: a
        snapshot may have tens of thousands of segments, and many tasks never need it."""
        if isinstance(self._given, bytes):
            snapshot: Snapshot = pickle.loads(self._given)
            return snapshot
        return self._given

    @property
    def state(self) -> LogState:
        """The snapshot with its leaves, for the library itself."""
        return self._manifest.state(self.snapshot)

    def __repr__(self) -> str:
        return f"<View of topic {self.name!r} at {self.url}, version {self.version}>"

    @property
    def url(self) -> str:
        """Where the topic is."""
        return self._store.url

    @property
    def topic_id(self) -> str:
        """The topic's id. A topic that is deleted and created again has a different id."""
        return self.snapshot.topic_id

    @property
    def version(self) -> int:
        """The version of this view. Pass it to `Topic.at` to see the same data again."""
        return self.snapshot.version

    @property
    def key(self) -> tuple[str, ...]:
        """The names of the key columns. Empty if the topic has no key."""
        return self.snapshot.info.key

    @property
    def schema(self) -> pa.Schema:
        """The Arrow schema of `read`: the topic's columns and the log's own."""
        return table_schema(self.snapshot.info.fields)

    @property
    def column_ids(self) -> dict[str, int]:
        """The id of each column of `schema`. A column keeps its id when it is renamed. Use it to
        tell whether two versions mean the same column by a name."""
        return column_ids(self.snapshot.info)

    @property
    def stored_names(self) -> dict[str, str]:
        """The name that each column of the topic has in its files. It differs from the column's
        name if that was changed. Use it to read the files with another Parquet reader."""
        return {field.name: field.stored_name for field in self.snapshot.info.fields}

    @property
    def retired_names(self) -> tuple[str, ...]:
        """The names in files of columns that were dropped. Such a column may still be in a file,
        and is not to be read."""
        return self.snapshot.info.retired

    @property
    def partition_count(self) -> int:
        """The number of partitions."""
        return len(self.snapshot.partitions)

    @property
    def start_offsets(self) -> dict[int, int]:
        """The first readable offset of each partition."""
        return self.snapshot.start_offsets

    @property
    def end_offsets(self) -> dict[int, int]:
        """The next offset of each partition to be written."""
        return self.snapshot.end_offsets

    def describe(self) -> TopicDescription:
        """Schema, settings, the size of each partition, and how many records are in commits."""
        return describe(self.name, self.url, self.state.with_inline_totals())

    def ranges(
        self,
        partition: int | Sequence[int] | None = None,
        start: Bound = None,
        end: Bound = None,
    ) -> dict[int, tuple[int, int]]:
        """The offsets `[start, end)` that `read` would cover with these arguments, by partition.
        Use it to turn times, "earliest" and "latest" into offsets."""
        if start is None and end is None:
            logs = self.snapshot.partitions
            chosen = choose_partitions(self.snapshot, partition)
            return {number: (logs[number].log_start, logs[number].end) for number in chosen}
        spans = self._asked(partition, start, end)
        return {span.partition: (span.start, span.end) for span in spans}

    def read(
        self,
        partition: int | Sequence[int] | None = None,
        start: Bound = None,
        end: Bound = None,
        columns: Sequence[str] | None = None,
        keys: Any = None,
    ) -> pa.RecordBatchReader:
        """Stream records in offset order, one partition after the other; see `Topic.read`."""
        spans = self._asked(partition, start, end)
        info = self.snapshot.info
        asked = Projection(column_schema(info.fields, columns), self.name, info)
        wanted = wanted_keys(self.name, info, keys)
        is_wanted = None if wanted is None else wanted.may_be_in
        tasks = plan_tasks(self.state, spans, is_wanted)

        def batches() -> Iterator[pa.RecordBatch]:
            with explain_gone_files(self._manifest, self.version):
                yield from read_tasks(self._store, tasks, asked, wanted)

        told = spanned("read", batches(), topic=self.name, version=self.version, does="receive")
        return pa.RecordBatchReader.from_batches(asked.schema, told)

    def latest(
        self,
        keys: Any = None,
        columns: Sequence[str] | None = None,
        partitions: Sequence[int] | None = None,
    ) -> pa.Table:
        """The newest record of each key; see `Topic.latest`. With `partitions`, only these are
        searched."""
        info = self.snapshot.info
        if not info.key:
            raise InvalidRequestError(f"topic {self.name!r} has no key columns")
        asked = column_schema(info.fields, columns)
        needed = dict.fromkeys([*asked.names, *info.key, PARTITION, TIMESTAMP, OFFSET])
        found_columns = Projection(column_schema(info.fields, list(needed)), self.name, info)
        wanted = wanted_keys(self.name, info, keys)
        numbers = list(dict.fromkeys(choose_partitions(self.snapshot, partitions)))
        with span("read", topic=self.name, version=self.version, does="receive") as note:
            with explain_gone_files(self._manifest, self.version):
                parts, may_repeat = self._latest_parts(numbers, wanted, found_columns)
            found = pa.Table.from_batches(parts, found_columns.schema)
            if may_repeat and len(numbers) > 1:
                found = newest_across_partitions(found, info)
            note(records=found.num_rows)
        return found.select(asked.names)

    def offsets_for_time(
        self, when: Moment, partitions: Sequence[int] | None = None
    ) -> dict[int, int | None]:
        """The first offset at or after a time, by partition; see `Topic.offsets_for_time`."""
        wanted = to_us(when)

        reaching: dict[int, Iterator[Segment]] = {}
        for number in choose_partitions(self.snapshot, partitions):
            segments = self.state.segments_reaching_time(number, wanted)
            # Partitions may share a leaf, so leaves are loaded one after the other.
            reaching[number] = chain(list(islice(segments, 1)), segments)

        def first_offset(number: int) -> int | None:
            log_start = self.snapshot.partitions[number].log_start
            for segment in reaching[number]:
                offset = first_offset_at_time(self._store, segment, wanted, log_start)
                if offset is not None:
                    return offset
            return None

        found = map_parallel(self._store, first_offset, list(reaching))
        return dict(zip(reaching, found, strict=True))

    def max_timestamp_offsets(
        self, partitions: Sequence[int] | None = None
    ) -> dict[int, int | None]:
        """The offset of the record with the greatest timestamp, by partition. If several records
        have it, the first one counts. None for an empty partition."""
        return {number: self._max_timestamp_offset(number) for number in self.ranges(partitions)}

    def count(self) -> int:
        """The number of records that can be read; see `Topic.count`."""
        total = 0
        for number, state in enumerate(self.snapshot.partitions):
            total += state.live.records
            if not state.tiles or tile_start(state.tiles[0]) >= state.log_start:
                continue
            cut = self.state.segment_at(number, state.log_start)
            if cut is not None and cut.base_offset < state.log_start:
                total -= cut.records - count_from(self._store, cut, state.log_start)
        return total

    def range_sizes(
        self, ranges: Ranges | None = None, *, exact: bool = True
    ) -> dict[int, RangeSize]:
        """How many records and bytes these ranges `{partition: (start, end)}` have, or the whole
        log. Offsets without a record do not count. Use it to compute lag or to limit how
        much is read at once. With `exact=False`, no data file is read, and the records of a
        compacted segment that a range cuts are estimated."""
        spans = spans_of(self.snapshot, ranges)
        if not exact:
            return {span.partition: estimate_range_size(self.state, span) for span in spans}
        return {span.partition: range_size(self._store, self.state, span) for span in spans}

    def offset_after_records(
        self, partition: int, start: int, records: int, end: int | None = None
    ) -> int:
        """The offset after `records` records from `start` on, at most `end` (default: the end of
        the log). Use it to cut a range into batches of N records: after compaction, offsets
        alone do not give the number of records."""
        to = self.snapshot.partitions[partition].end if end is None else end
        (span,) = spans_of(self.snapshot, {partition: (start, to)})
        return offset_after_records(self._store, self.state, span, records)

    def offset_after_bytes(
        self, partition: int, start: int, size_bytes: int, end: int | None = None
    ) -> int:
        """The offset up to which there are at most `size_bytes` of files from `start` on, in whole
        row groups. If the first row group alone is larger, it is cut at about `size_bytes`. Use it
        to cut a range into batches of bounded size."""
        to = self.snapshot.partitions[partition].end if end is None else end
        (span,) = spans_of(self.snapshot, {partition: (start, to)})
        return offset_after_bytes(self._store, self.state, span, size_bytes)

    def segments(self) -> pa.Table:
        """All live segments in partition and offset order; see `Topic.segments`."""
        entries = self.state.entries()
        self.state.check_totals(entries)
        return entries

    def files(self) -> pa.Table:
        """The files of this version, for other Parquet readers; see `Topic.files`."""
        check_in_files(self.url, self.state.with_inline_totals())
        return files_table(self.url, self.snapshot, self.segments())

    def partitions(self) -> pa.Table:
        """A row for each partition: its offsets, segments, records and bytes."""
        return describe(self.name, self.url, self.snapshot).partitions_table()

    def history(self, limit: int | None = None) -> pa.Table:
        """The commits up to this version, newest first; see `Topic.history`."""
        if limit is not None:
            check_number("limit", limit)
        return history_table(self._manifest.commits.backwards(self.snapshot), limit)

    def _latest_parts(
        self, numbers: Sequence[int], wanted: WantedKeys | None, found_columns: Projection
    ) -> tuple[list[pa.RecordBatch], bool]:
        """The newest records of each partition, and whether a key may be in two partitions."""
        info = self.snapshot.info
        parts: list[pa.RecordBatch] = []
        may_repeat = wanted is not None
        for number in numbers:
            state = self.snapshot.partitions[number]
            if wanted is None:
                segments = list(self.state.segments(number))
                may_repeat |= any(s.hashed_over != self.partition_count for s in segments)
                parts += latest_of_partition(self._store, segments, state, info, found_columns)
            else:
                newest_first = self.state.segments_backwards(number)
                parts += newest_of(
                    self._store, newest_first, wanted, state.log_start, found_columns
                )
        return parts, may_repeat

    def _max_timestamp_offset(self, partition: int) -> int | None:
        """Search segments in descending order of their greatest timestamp, until no other segment
        can have a greater one. The first segment may not be enough: its greatest timestamp may
        belong to a record below the log start."""
        start, end = self.ranges(partition)[partition]
        best: tuple[int, int] | None = None
        for segment in self.state.segments_by_latest(partition):
            claimed = segment.max_timestamp_us
            if best is not None and claimed < best[0]:
                break
            first, last = max(start, segment.base_offset), min(end, segment.end_offset)
            table = self.read(partition, first, last, [OFFSET, TIMESTAMP]).read_all()
            if not table.num_rows:
                continue
            times = table[TIMESTAMP].cast("int64")
            at = pc.index(times, pc.max(times)).as_py()
            found = (times[at].as_py(), -table[OFFSET][at].as_py())
            best = found if best is None else max(best, found)
            if best[0] == claimed:
                break
        return None if best is None else -best[1]

    def _asked(self, partition: int | Sequence[int] | None, start: Bound, end: Bound) -> list[Span]:
        partitions = choose_partitions(self.snapshot, partition)
        starts, ends = (self._resolved(bound, partitions) for bound in (start, end))
        return plan_spans(self.snapshot, partitions, starts, ends)

    def _resolved(self, bound: Bound, partitions: Sequence[int]) -> dict[int, int]:
        """The offset of the bound in each partition that has one, inside the log or not."""
        if bound is None:
            return {}
        given = parse_bound(bound, partitions)
        choose_partitions(self.snapshot, list(given.keys() - set(partitions)))
        wanted = {number: given[number] for number in partitions if number in given}
        found = locate(self, wanted).items()
        return {number: at.end if at.asked is None else at.asked for number, at in found}
