"""Reads segments in order, while those that come next are fetched."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TypeVar

from pylogtable.format.model import Segment
from pylogtable.format.paths import object_of
from pylogtable.segments.inline_reader import is_at_hand
from pylogtable.segments.projection import Projection
from pylogtable.segments.read_task import ReadTask
from pylogtable.storage.base import ObjectStore
from pylogtable.storage.prefetch import Wanted, read_ahead

Extra = TypeVar("Extra")


def segments_ahead(
    store: ObjectStore,
    segments: Iterable[Segment],
    *,
    first: int | None = None,
    bypass_cache: bool = False,
) -> Iterator[tuple[Segment, ObjectStore]]:
    """The segments in order, each with the store to read it from; see `read_ahead`. With
    `bypass_cache`, they are fetched even if they are still in memory."""

    def wanted(segment: Segment) -> Wanted | None:
        return _wanted(store, segment, bypass_cache=bypass_cache)

    return read_ahead(store, segments, wanted, first=first)


def pairs_ahead(
    store: ObjectStore, pairs: Iterable[tuple[Segment, Extra]]
) -> Iterator[tuple[Segment, Extra, ObjectStore]]:
    """Like `segments_ahead`, for segments that come with something else."""
    for (segment, extra), fetched in read_ahead(store, pairs, lambda p: _wanted(store, p[0])):
        yield segment, extra, fetched


def tasks_ahead(
    store: ObjectStore, tasks: Iterable[ReadTask], columns: Projection
) -> Iterator[tuple[ReadTask, ObjectStore]]:
    """Like `segments_ahead`, for reads of these columns, which may need no file."""

    def wanted(task: ReadTask) -> Wanted | None:
        needs_file = columns.needs_file or not task.segment.is_dense
        return _wanted(store, task.segment) if needs_file and task.row_groups else None

    return read_ahead(store, tasks, wanted)


def _wanted(store: ObjectStore, segment: Segment, *, bypass_cache: bool = False) -> Wanted | None:
    """The object that has the records of a segment, unless they are in memory."""
    if not segment.is_inline:
        return Wanted(segment.path, segment.size_bytes)
    if not bypass_cache and is_at_hand(store, segment):
        return None
    return Wanted(object_of(segment.path), None)
