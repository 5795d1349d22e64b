"""Opens the records of a segment, wherever they are."""

from __future__ import annotations

from pylogtable.format.model import Segment
from pylogtable.segments.inline_reader import InlineReader
from pylogtable.segments.segment_file import SegmentReader
from pylogtable.storage.base import ObjectStore

#: What reads records: both have the same methods.
Records = SegmentReader | InlineReader


def open_segment(store: ObjectStore, segment: Segment, *, afresh: bool = False) -> Records:
    """The records of a live segment: in its file, or in its commit [INL-1]. Rows of a commit that
    are still in memory are used, unless `afresh`."""
    if segment.is_inline:
        return InlineReader(store, segment, afresh=afresh)
    return SegmentReader(store, segment)
