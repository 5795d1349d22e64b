"""Rewriting: replaces old segments with new, sealed ones that have all or some of their records.

One row group is read and filtered while the one before is encoded. Memory is bounded by a few row
groups, whatever the size of the segments.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor

import pyarrow as pa

from pylogtable.format.model import Segment, TopicInfo
from pylogtable.format.schema import file_schema
from pylogtable.plan.read import task_for
from pylogtable.segments.projection import Projection
from pylogtable.segments.reader import Mask, read_masked, read_task
from pylogtable.segments.rolling_writer import Output, RollingWriter
from pylogtable.segments.writer import FileLayout, WrittenFile
from pylogtable.storage.base import ObjectStore


def rewrite_segments(
    store: ObjectStore,
    topic: TopicInfo,
    inputs: Sequence[Segment],
    keep: int | Sequence[Mask],
    new_id: Callable[[], str],
    *,
    delete_horizon_ms: int | None = None,
) -> tuple[Segment, ...]:
    """Write neighbouring segments as sealed ones that cover the same offsets. If this fails,
    nothing is left behind. `keep` is the first offset to keep, or a mask for each input."""
    start, end = inputs[0].base_offset, inputs[-1].end_offset
    output = Output(store, FileLayout(topic), inputs[0].partition, new_id)
    writer = RollingWriter(output, start, lambda first, file: (first, file))
    with ThreadPoolExecutor(1) as encoder:
        try:
            for batch in _kept_records(store, topic, inputs, keep):
                writer.add(batch)
                if writer.is_due:
                    writer.start_encoding(encoder, keep_rest=True)
            writer.start_encoding(encoder)
            writer.wait_for_encoding()
            writer.close_file()
            if not writer.entries:
                writer.write_empty_file()
        except BaseException as error:
            encoder.shutdown(wait=True, cancel_futures=True)
            writer.abandon(error)
            raise
    # A segment covers all offsets up to the first record of the next one.
    ends = [first for first, _ in writer.entries[1:]] + [end]
    return tuple(
        _describe(inputs, first, end, file, delete_horizon_ms)
        for (first, file), end in zip(writer.entries, ends, strict=True)
    )


def _kept_records(
    store: ObjectStore,
    topic: TopicInfo,
    inputs: Sequence[Segment],
    keep: int | Sequence[Mask],
) -> Iterator[pa.RecordBatch]:
    columns = Projection(file_schema(topic.fields), "", topic)
    if isinstance(keep, int):
        for segment in inputs:
            yield from read_task(store, task_for(segment, keep, segment.end_offset), columns)
    else:
        for segment, mask in zip(inputs, keep, strict=True):
            yield from read_masked(store, segment, mask, columns)


def _describe(
    inputs: Sequence[Segment],
    first_offset: int,
    end_offset: int,
    file: WrittenFile,
    delete_horizon_ms: int | None,
) -> Segment:
    hashed = {segment.hashed_over for segment in inputs}
    return Segment(
        partition=inputs[0].partition,
        base_offset=first_offset,
        end_offset=end_offset,
        **file.fields_from(first_offset),
        delete_horizon_ms=delete_horizon_ms if file.tombstones else None,
        hashed_over=inputs[0].hashed_over if len(hashed) == 1 else None,
        append_time=inputs[0].append_time,
    )
