"""Splits a read into parts that can be read in parallel, in this process or in others."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from pylogtable.arguments import check_number
from pylogtable.errors import SchemaMismatchError
from pylogtable.format.schema import ON_REQUEST, column_schema
from pylogtable.lazy_arrow import pc
from pylogtable.limits import Limits
from pylogtable.log.manifest import Manifest
from pylogtable.read.parts_plan import ReadPart, pack_tasks, share_tasks, split_spans
from pylogtable.read.plan import Ranges, Span, plan_tasks, spans_of
from pylogtable.read.versions import explain_gone_files
from pylogtable.read.view import View
from pylogtable.segments.key_filter import WantedKeys, wanted_keys
from pylogtable.segments.projection import Projection
from pylogtable.segments.read_task import ReadTask
from pylogtable.segments.read_tasks import read_tasks
from pylogtable.storage.base import ObjectStore


@dataclass(frozen=True)
class PartReader:
    """Reads the parts of a `Scan`, in any process. It can be pickled. `Scan.reader` makes one."""

    store: ObjectStore
    columns: Projection
    wanted: WantedKeys | None = None

    @property
    def topic(self) -> str:
        """The name of the topic."""
        return self.columns.topic

    @property
    def schema(self) -> pa.Schema:
        """The columns of the records."""
        return self.columns.schema

    def read(self, part: ReadPart) -> Iterator[pa.RecordBatch]:
        """The records of a part, in offset order."""
        with explain_gone_files(Manifest(self.store)):
            yield from read_tasks(self.store, part.tasks, self.columns, self.wanted)

    def gather(self, part: ReadPart, max_bytes: int) -> pa.Table | None:
        """The records of a part in one table; None if they have more bytes. For few records."""
        found: list[pa.RecordBatch] = []
        size = 0
        for batch in self.read(part):
            found.append(batch)
            size += batch.nbytes
            if size > max_bytes:
                return None
        return pa.Table.from_batches(found, self.schema).combine_chunks()


class Scan:
    """Plans reads of a view for an engine that reads in many processes.

    >>> scan = Scan(topic.at())
    >>> parts, reader = scan.parts(), scan.reader(["offset", "value"])
    >>> for batch in reader.read(parts[0]): ...        # in a task
    """

    def __init__(self, view: View, keys: Any = None) -> None:
        """With `keys`, in the forms of `Topic.read`, it reads only the records of these."""
        self._view = view
        self._wanted = wanted_keys(view.name, view.snapshot.info, keys)

    @property
    def limits(self) -> Limits:
        """By which work is split."""
        return self._view._store.limits

    def tasks(self, ranges: Ranges | None = None) -> Iterator[ReadTask]:
        """The part of each segment that a read of these offsets needs, in partition and offset
        order. Without `ranges`, all segments. Leaves are loaded as the iterator reaches them. With
        keys, only segments that may have one of them, according to the manifest."""
        snapshot = self._view.snapshot
        return self._planned(spans_of(snapshot, ranges))

    def parts(
        self,
        ranges: Ranges | None = None,
        *,
        max_records: int | None = None,
        min_parts: int | None = None,
    ) -> list[ReadPart]:
        """Split the read of these offsets, or of everything, into parts for tasks. A part covers at
        most `max_records` offsets. There are about `min_parts` parts or more. Without these limits
        parts are cut by size."""
        for name, number in (("max_records", max_records), ("min_parts", min_parts)):
            if number is not None:
                check_number(name, number, least=1)
        snapshot = self._view.snapshot
        return [
            part
            for span in split_spans(spans_of(snapshot, ranges), max_records, min_parts)
            for part in pack_tasks(self._planned([span]), self.limits)
        ]

    def reader(self, columns: Sequence[str] | pa.Schema | None = None) -> PartReader:
        """A reader of the parts, with these columns. A `pyarrow.Schema` is used as it is. Send it
        to the tasks together with their parts."""
        info = self._view.snapshot.info
        schema: pa.Schema = (
            columns if isinstance(columns, pa.Schema) else column_schema(info.fields, columns)
        )
        gone = [name for name in schema.names if name not in (*self._view.column_ids, *ON_REQUEST)]
        if gone:
            raise SchemaMismatchError(
                f"topic {self._view.name!r} has no column(s) {', '.join(gone)} at version "
                f"{self._view.version}; it has {', '.join(self._view.schema.names)}"
            )
        projection = Projection(schema, self._view.name, info)
        return PartReader(self._view._store, projection, self._wanted)

    def _planned(self, spans: Sequence[Span]) -> Iterator[ReadTask]:
        is_wanted = None if self._wanted is None else self._wanted.may_be_in
        return plan_tasks(self._view.state, spans, is_wanted)

    def key_groups(self) -> list[list[int]]:
        """Partitions grouped so that no key has records in two groups. If every record is in the
        partition its key belongs to now [SEG-7], each partition is a group of its own, except that
        small ones share one; otherwise all partitions are in one group."""
        partitions = self._view.snapshot.partitions
        hashed_over = self._view.segments()["hashed_over"]
        settled = pc.all(pc.equal(pc.fill_null(hashed_over, 0), len(partitions)))
        if settled.as_py() is False:
            return [list(range(len(partitions)))]
        live = ((number, state.live) for number, state in enumerate(partitions))
        return [*share_tasks(live, self.limits)]
