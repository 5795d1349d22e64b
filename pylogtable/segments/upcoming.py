"""Reads segments in order, while those that come next are fetched."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from pylogtable.format.model import Segment
from pylogtable.plan.read import ReadTask
from pylogtable.segments.projection import Projection
from pylogtable.storage.ahead import AHEAD, Wanted, read_ahead
from pylogtable.storage.base import ObjectStore


def object_of(segment: Segment) -> Wanted:
    """The object that has a segment's records."""
    return Wanted(segment.path, segment.size_bytes)


def segments_ahead(
    store: ObjectStore, segments: Iterable[Segment], *, first: int = AHEAD
) -> Iterator[tuple[Segment, ObjectStore]]:
    """The segments in order, each with the store to read it from; see `read_ahead`."""
    return read_ahead(store, segments, object_of, first=first)


def tasks_ahead(
    store: ObjectStore, tasks: Iterable[ReadTask], columns: Projection
) -> Iterator[tuple[ReadTask, ObjectStore]]:
    """Like `segments_ahead`, for reads of these columns, which may need no file."""

    def wanted(task: ReadTask) -> Wanted | None:
        return object_of(task.segment) if needs_file(task, columns) else None

    return read_ahead(store, tasks, wanted)


def needs_file(task: ReadTask, columns: Projection) -> bool:
    """False if the entry alone tells the records of a task."""
    return bool(task.row_groups) and (columns.needs_file or not task.segment.is_dense)
