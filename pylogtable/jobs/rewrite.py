"""Rewriting: replaces old segments with new, sealed ones that have all or some of their records.

One row group is read and filtered while the one before is encoded. Memory is bounded by a few row
groups, whatever the size of the segments.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

import msgspec
import numpy as np
import pyarrow as pa

from pylogtable.errors import CorruptTopicError
from pylogtable.format.model import Segment, StagedSegment, TopicInfo
from pylogtable.format.schema import OFFSET, file_schema
from pylogtable.jobs.rebase_compaction_plan import Piece
from pylogtable.jobs.replace_plan import Swap
from pylogtable.operation import Threads
from pylogtable.segments.file_layout import FileLayout
from pylogtable.segments.projection import Projection
from pylogtable.segments.read_segment import Mask, count_from, read_masked, read_task
from pylogtable.segments.read_task import task_for
from pylogtable.segments.rolling_writer import Output, RollingWriter
from pylogtable.segments.segment_prefetch import pairs_ahead
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
    """Write neighbouring segments as sealed ones that cover the same offsets. If this fails, or
    the records written are not exactly those to be kept, nothing is left behind [LOG-10].
    `keep` is the first offset to keep, or a mask for each input."""
    return _write(
        store,
        topic,
        inputs,
        _all_kept_records(store, topic, inputs, keep),
        new_id,
        delete_horizon_ms,
    )


def copy_piece(
    store: ObjectStore, topic: TopicInfo, piece: Piece, new_id: Callable[[], str]
) -> tuple[Segment, ...]:
    """Write a piece of a segment as sealed segments that cover its offsets. If this fails, nothing
    is left behind."""
    return copy_pieces(store, store, topic, [piece], new_id)


def copy_pieces(
    source: ObjectStore,
    target: ObjectStore,
    topic: TopicInfo,
    pieces: Sequence[Piece],
    new_id: Callable[[], str],
) -> tuple[Segment, ...]:
    """Write neighbouring pieces of segments in `source` as sealed segments in `target`. They cover
    the offsets from the start of the first piece to the end of the last. All have the delete
    horizon of the first. If this fails, nothing is left behind."""
    covered = [
        msgspec.structs.replace(piece.segment, base_offset=piece.start, end_offset=piece.end)
        for piece in pieces
    ]
    pairs = [(piece.segment, (piece.start, piece.end)) for piece in pieces]
    records = (
        batch
        for segment, offsets, fetched in pairs_ahead(source, pairs)
        for batch in _kept_records(fetched, topic, segment, offsets)
    )
    return _write(target, topic, covered, records, new_id, pieces[0].delete_horizon_ms)


def write_nothing(
    target: ObjectStore,
    topic: TopicInfo,
    partition: int,
    offsets: tuple[int, int],
    new_id: Callable[[], str],
) -> tuple[Segment, ...]:
    """Write a segment without records, which covers these offsets."""
    start, end = offsets
    nothing = Segment(
        partition=partition,
        base_offset=start,
        end_offset=end,
        records=0,
        size_bytes=0,
        min_timestamp_us=0,
        max_timestamp_us=0,
        path="",
    )
    return _write(target, topic, [nothing], (), new_id, None)


def _write(
    store: ObjectStore,
    topic: TopicInfo,
    inputs: Sequence[Segment],
    records: Iterable[pa.RecordBatch],
    new_id: Callable[[], str],
    delete_horizon_ms: int | None,
) -> tuple[Segment, ...]:
    start, end = inputs[0].base_offset, inputs[-1].end_offset
    output = Output(store, FileLayout(topic), inputs[0].partition, new_id)
    writer = RollingWriter(output, start)
    with Threads(1) as encoder:
        try:
            kept = 0
            for batch in records:
                kept += batch.num_rows
                writer.add(batch)
                if writer.is_due:
                    writer.start_encoding(encoder, keep_rest=True)
            writer.start_encoding(encoder)
            writer.wait_for_encoding()
            writer.close_file()
            if not writer.files:
                writer.write_empty_file()
            # A segment covers all offsets up to the first record of the next one.
            ends = [file.predicted_base for file in writer.files[1:]] + [end]
            outputs = tuple(
                _sealed(file, end, inputs, delete_horizon_ms)
                for file, end in zip(writer.files, ends, strict=True)
            )
            Swap(tuple(inputs), outputs).check(kept)
        except BaseException as error:
            encoder.shutdown(wait=True, cancel_futures=True)
            writer.abandon(error)
            raise
    return outputs


def _what_to_keep(
    inputs: Sequence[Segment], keep: int | Sequence[Mask]
) -> Iterable[tuple[Segment, tuple[int, int] | Mask]]:
    if isinstance(keep, int):
        return [(segment, (keep, segment.end_offset)) for segment in inputs]
    return zip(inputs, keep, strict=True)


def _all_kept_records(
    store: ObjectStore, topic: TopicInfo, inputs: Sequence[Segment], keep: int | Sequence[Mask]
) -> Iterator[pa.RecordBatch]:
    kept = [pair for pair in _what_to_keep(inputs, keep) if _keeps_any(pair[1])]
    for segment, keeps, fetched in pairs_ahead(store, kept):
        yield from _kept_records(fetched, topic, segment, keeps)


def _keeps_any(keep: tuple[int, int] | Mask) -> bool:
    return isinstance(keep, tuple) or bool(keep.any())


def _kept_records(
    store: ObjectStore, topic: TopicInfo, segment: Segment, keep: tuple[int, int] | Mask
) -> Iterator[pa.RecordBatch]:
    """The records of an input that are kept: those of a range of offsets or of a mask. Raises
    unless there are exactly as many as there should be, at rising offsets inside the segment
    [LOG-10]."""
    columns = Projection(file_schema(topic.fields), "", topic)
    if isinstance(keep, tuple):
        start, end = keep
        expected = count_from(store, segment, start)
        if end < segment.end_offset:
            expected -= count_from(store, segment, end)
        batches = read_task(store, task_for(segment, start, end), columns)
    else:
        expected = int(np.count_nonzero(keep))
        batches = read_masked(store, segment, keep, columns)
    before, found = segment.base_offset - 1, 0
    for batch in batches:
        offsets = batch.column(OFFSET).to_numpy()
        rises = np.all(np.diff(offsets, prepend=before) > 0)
        before, found = int(offsets[-1]), found + batch.num_rows
        if not rises or before >= segment.end_offset:
            detail = "its records do not come in the order of their offsets"
            raise CorruptTopicError(segment.path, "LOG-10", detail)
        yield batch
    if found != expected:
        detail = f"{found} of its records were read to be kept, and {expected} must be kept"
        raise CorruptTopicError(segment.path, "LOG-10", detail)


def _sealed(
    file: StagedSegment, end_offset: int, inputs: Sequence[Segment], delete_horizon_ms: int | None
) -> Segment:
    """The segment of a file in place of `inputs`."""
    hashed = {segment.hashed_over for segment in inputs}
    facts = file.facts | {
        "hashed_over": inputs[0].hashed_over if len(hashed) == 1 else None,
        "append_time": inputs[0].append_time,
    }
    return Segment(
        **facts,
        base_offset=file.predicted_base,
        end_offset=end_offset,
        delete_horizon_ms=delete_horizon_ms if file.tombstones else None,
    )
