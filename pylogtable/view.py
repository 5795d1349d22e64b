"""A topic at one version: reads, lookups and counts. What it answers never changes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta, timezone
from numbers import Integral
from typing import Any

import pyarrow as pa

from pylogtable.errors import InvalidRequestError
from pylogtable.key_search import WantedKeys, newest_of
from pylogtable.latest import latest_of_partition, newest_across_partitions
from pylogtable.lookup import (
    all_entries,
    segment_at,
    segments_backwards,
    segments_reaching_time,
)
from pylogtable.manifest import Manifest
from pylogtable.plan.read import choose_partitions, plan_spans, plan_tasks
from pylogtable.schema import OFFSET, PARTITION, TIMESTAMP, column_schema
from pylogtable.segment_file import count_from, first_offset_at_time, read_task
from pylogtable.snapshot import Snapshot, piece_start
from pylogtable.storage.base import ObjectStore

Moment = datetime | int
Bound = int | str | datetime | Mapping[int, int] | None

_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)


class View:
    """The topic `name` as `snapshot` has it."""

    def __init__(
        self, name: str, store: ObjectStore, manifest: Manifest, snapshot: Snapshot
    ) -> None:
        self.snapshot = snapshot
        self._name = name
        self._store = store
        self._leaf = manifest.leaf

    def read(
        self,
        partition: int | Sequence[int] | None,
        start: Bound,
        end: Bound,
        columns: Sequence[str] | None,
    ) -> pa.RecordBatchReader:
        partitions = choose_partitions(self.snapshot, partition)
        spans = plan_spans(
            self.snapshot,
            partitions,
            self._bounds(partitions, start),
            self._bounds(partitions, end),
        )
        schema = column_schema(self.snapshot.info.fields, columns)
        tasks = plan_tasks(self.snapshot, self._leaf, spans)
        batches = (
            batch for task in tasks for batch in read_task(self._store, task, schema, self._name)
        )
        return pa.RecordBatchReader.from_batches(schema, batches)

    def latest(self, keys: Any, columns: Sequence[str] | None) -> pa.Table:
        info = self.snapshot.info
        if not info.key:
            raise InvalidRequestError(f"topic {self._name!r} has no key columns")
        asked = column_schema(info.fields, columns)
        needed = dict.fromkeys([*asked.names, *info.key, PARTITION, TIMESTAMP, OFFSET])
        schema = column_schema(info.fields, list(needed))
        wanted = None if keys is None else WantedKeys(info, keys)
        parts: list[pa.RecordBatch] = []
        for number, state in enumerate(self.snapshot.partitions):
            if wanted is None:
                spans = plan_spans(self.snapshot, [number], {}, {})
                tasks = list(plan_tasks(self.snapshot, self._leaf, spans))
                parts += latest_of_partition(self._store, tasks, info, schema, self._name)
            else:
                newest_first = segments_backwards(self.snapshot, self._leaf, number)
                parts += newest_of(
                    self._store, newest_first, wanted, state.log_start, schema, self._name
                )
        found = pa.Table.from_batches(parts, schema)
        return newest_across_partitions(found, info).select(asked.names)

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

    def count(self) -> int:
        total = 0
        for number, state in enumerate(self.snapshot.partitions):
            total += state.live.records
            if not state.pieces or piece_start(state.pieces[0]) >= state.log_start:
                continue
            cut = segment_at(self.snapshot, self._leaf, number, state.log_start)
            if cut is not None and cut.base_offset < state.log_start:
                total -= cut.records - count_from(self._store, cut, state.log_start)
        return total

    def segments(self) -> pa.Table:
        return all_entries(self.snapshot, self._leaf)

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


def to_us(when: Moment) -> int:
    """An aware datetime, or milliseconds since the epoch, as microseconds."""
    if isinstance(when, datetime):
        if when.tzinfo is None:
            raise InvalidRequestError(f"{when!r} has no time zone; add one, such as timezone.utc")
        return (when - _EPOCH) // timedelta(microseconds=1)
    if isinstance(when, bool) or not isinstance(when, int):
        raise InvalidRequestError(f"{when!r} is not a time: give a datetime or milliseconds")
    return when * 1000
