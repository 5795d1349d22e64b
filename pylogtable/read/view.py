"""A topic at one version: reads, lookups and counts. What it answers never changes."""

from __future__ import annotations

import pickle
from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import cached_property
from numbers import Integral
from typing import Any

import pyarrow as pa

from pylogtable.arguments import check_number
from pylogtable.errors import InvalidRequestError
from pylogtable.format.lookup import (
    all_entries,
    segment_at,
    segments_backwards,
    segments_between,
    segments_reaching_time,
)
from pylogtable.format.schema import OFFSET, PARTITION, TIMESTAMP, column_schema, table_schema
from pylogtable.format.snapshot import Snapshot, tile_start
from pylogtable.format.times import Moment, to_us
from pylogtable.lazy_arrow import pc
from pylogtable.log.manifest import Manifest
from pylogtable.plan.read import Ranges, Span, choose_partitions, plan_spans, plan_tasks, spans_of
from pylogtable.read.latest import latest_of_partition, newest_across_partitions
from pylogtable.read.latest_of_keys import WantedKeys, newest_of
from pylogtable.read.range_size import RangeSize, offset_after_records, range_size
from pylogtable.results.operations import (
    TopicDescription,
    describe,
    history_table,
    partitions_table,
)
from pylogtable.segments.reader import count_from, first_offset_at_time, read_task
from pylogtable.storage.base import ObjectStore

Bound = int | str | datetime | Mapping[int, int] | None


class View:
    """The topic `name` as `snapshot` has it."""

    def __init__(
        self,
        name: str,
        store: ObjectStore,
        snapshot: Snapshot | bytes,
        manifest: Manifest | None = None,
    ) -> None:
        """A snapshot in bytes is a pickled one."""
        self.name = name
        self._given = snapshot
        self._store = store
        self._manifest = manifest or Manifest(store)
        self._leaf = self._manifest.leaf

    def __reduce__(self) -> tuple[type[View], tuple[str, ObjectStore, bytes]]:
        packed = self._given if isinstance(self._given, bytes) else pickle.dumps(self._given)
        return View, (self.name, self._store, packed)

    @cached_property
    def snapshot(self) -> Snapshot:
        """Unpacked at its first use: a worker gets a view with each task, and needs just its part
        of the plan, where this may hold tens of thousands of segments."""
        if isinstance(self._given, bytes):
            snapshot: Snapshot = pickle.loads(self._given)
            return snapshot
        return self._given

    def __repr__(self) -> str:
        return f"<View of topic {self.name!r} at {self.url}, version {self.version}>"

    @property
    def url(self) -> str:
        return self._store.url

    @property
    def topic_id(self) -> str:
        return self.snapshot.topic_id

    @property
    def version(self) -> int:
        return self.snapshot.version

    @property
    def key(self) -> tuple[str, ...]:
        return self.snapshot.info.key

    @property
    def schema(self) -> pa.Schema:
        """The columns of a read."""
        return table_schema(self.snapshot.info.fields)

    @property
    def partition_count(self) -> int:
        return len(self.snapshot.partitions)

    @property
    def start_offsets(self) -> dict[int, int]:
        return self.snapshot.start_offsets

    @property
    def end_offsets(self) -> dict[int, int]:
        return self.snapshot.end_offsets

    def describe(self) -> TopicDescription:
        return describe(self.name, self.url, self.snapshot)

    def ranges(
        self,
        partition: int | Sequence[int] | None = None,
        start: Bound = None,
        end: Bound = None,
    ) -> dict[int, tuple[int, int]]:
        """The offsets `[start, end)` that a read means, by partition."""
        spans = self._asked(partition, start, end)
        return {span.partition: (span.start, span.end) for span in spans}

    def read(
        self,
        partition: int | Sequence[int] | None = None,
        start: Bound = None,
        end: Bound = None,
        columns: Sequence[str] | None = None,
    ) -> pa.RecordBatchReader:
        spans = self._asked(partition, start, end)
        tasks = plan_tasks(self.snapshot, self._leaf, spans)
        schema = column_schema(self.snapshot.info.fields, columns)
        batches = (
            batch for task in tasks for batch in read_task(self._store, task, schema, self.name)
        )
        return pa.RecordBatchReader.from_batches(schema, batches)

    def latest(
        self,
        keys: Any = None,
        columns: Sequence[str] | None = None,
        partitions: Sequence[int] | None = None,
    ) -> pa.Table:
        info = self.snapshot.info
        if not info.key:
            raise InvalidRequestError(f"topic {self.name!r} has no key columns")
        asked = column_schema(info.fields, columns)
        needed = dict.fromkeys([*asked.names, *info.key, PARTITION, TIMESTAMP, OFFSET])
        schema = column_schema(info.fields, list(needed))
        wanted = None if keys is None else WantedKeys(info, keys)
        numbers = list(dict.fromkeys(choose_partitions(self.snapshot, partitions)))
        parts: list[pa.RecordBatch] = []
        may_repeat = wanted is not None
        for number in numbers:
            state = self.snapshot.partitions[number]
            if wanted is None:
                segments = list(
                    segments_between(self.snapshot, self._leaf, number, state.log_start, state.end)
                )
                may_repeat |= any(s.hashed_over != self.partition_count for s in segments)
                parts += latest_of_partition(self._store, segments, state, info, schema, self.name)
            else:
                newest_first = segments_backwards(self.snapshot, self._leaf, number)
                parts += newest_of(
                    self._store, newest_first, wanted, state.log_start, schema, self.name
                )
        found = pa.Table.from_batches(parts, schema)
        if may_repeat and len(numbers) > 1:
            found = newest_across_partitions(found, info)
        return found.select(asked.names)

    def offsets_for_time(
        self, when: Moment, partitions: Sequence[int] | None = None
    ) -> dict[int, int | None]:
        wanted = to_us(when)
        found: dict[int, int | None] = {}
        for number in choose_partitions(self.snapshot, partitions):
            log_start = self.snapshot.partitions[number].log_start
            reaching = segments_reaching_time(self.snapshot, self._leaf, number, wanted)
            answers = (first_offset_at_time(self._store, s, wanted, log_start) for s in reaching)
            found[number] = next((offset for offset in answers if offset is not None), None)
        return found

    def max_timestamp_offsets(
        self, partitions: Sequence[int] | None = None
    ) -> dict[int, int | None]:
        """The first offset with the greatest timestamp of each partition, None if it is empty."""
        return {number: self._youngest(number) for number in self.ranges(partitions)}

    def count(self) -> int:
        total = 0
        for number, state in enumerate(self.snapshot.partitions):
            total += state.live.records
            if not state.tiles or tile_start(state.tiles[0]) >= state.log_start:
                continue
            cut = segment_at(self.snapshot, self._leaf, number, state.log_start)
            if cut is not None and cut.base_offset < state.log_start:
                total -= cut.records - count_from(self._store, cut, state.log_start)
        return total

    def range_sizes(self, ranges: Ranges | None = None) -> dict[int, RangeSize]:
        """How many records and bytes these offset ranges hold, or the whole log. Holes are not
        counted."""
        spans = spans_of(self.snapshot, ranges)
        return {
            span.partition: range_size(self._store, self.snapshot, self._leaf, span)
            for span in spans
        }

    def offset_after_records(
        self, partition: int, start: int, records: int, end: int | None = None
    ) -> int:
        """The offset behind this many records from `start` on, and at most `end`, the end of the
        log by default."""
        to = self.end_offsets[partition] if end is None else end
        (span,) = spans_of(self.snapshot, {partition: (start, to)})
        return offset_after_records(self._store, self.snapshot, self._leaf, span, records)

    def segments(self) -> pa.Table:
        return all_entries(self.snapshot, self._leaf)

    def partitions(self) -> pa.Table:
        """Each partition: its offsets, and what lies in its live segments."""
        return partitions_table(self.describe())

    def history(self, limit: int | None = None) -> pa.Table:
        if limit is not None:
            check_number("limit", limit)
        return history_table(self._manifest.commits_backwards(self.snapshot), limit)

    def _youngest(self, partition: int) -> int | None:
        """Segments are looked at from the youngest on, until none can hold a younger record: a log
        start may have cut the one that claims to."""
        start, end = self.ranges(partition)[partition]
        segments = self.segments()
        segments = segments.filter(pc.equal(segments["partition"], partition))
        by_age = [("max_timestamp_us", "descending"), ("base_offset", "ascending")]
        segments = segments.sort_by(by_age)
        best: tuple[int, int] | None = None
        for row in range(segments.num_rows):
            claimed = segments["max_timestamp_us"][row].as_py()
            if best is not None and claimed < best[0]:
                break
            first = max(start, segments["base_offset"][row].as_py())
            last = min(end, segments["end_offset"][row].as_py())
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
        starts, ends = self._bounds(partitions, start), self._bounds(partitions, end)
        return plan_spans(self.snapshot, partitions, starts, ends)

    def _bounds(self, partitions: Sequence[int], bound: Bound) -> dict[int, int]:
        if bound is None:
            return {}
        if isinstance(bound, Mapping):
            choose_partitions(self.snapshot, list(bound))
            return {number: _offset(at) for number, at in bound.items()}
        if isinstance(bound, datetime):
            found = self.offsets_for_time(bound, partitions)
            ends = self.snapshot.end_offsets
            return {number: ends[number] if at is None else at for number, at in found.items()}
        if bound == "earliest":
            return self.snapshot.start_offsets
        if bound == "latest":
            return self.snapshot.end_offsets
        return dict.fromkeys(partitions, _offset(bound))


def _offset(bound: object) -> int:
    if isinstance(bound, bool) or not isinstance(bound, Integral):
        raise InvalidRequestError(
            f"{bound!r} is not a position: give an offset, a dict of offsets by partition, a "
            "datetime, 'earliest' or 'latest'"
        )
    return int(bound)
