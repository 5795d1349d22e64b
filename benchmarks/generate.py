"""Large topics made quickly: real commits through the real manifest code, without data files."""

from __future__ import annotations

from pylogtable.append.stager import Staged
from pylogtable.engine import plan_append
from pylogtable.format.model import StagedSegment
from pylogtable.format.paths import segment_path
from pylogtable.topic import Topic

RECORDS = 100
STEP_US = 1_000


def grow(topic: Topic, commits: int, segments_per_commit: int) -> None:
    """Append `commits` times, each time so many segments of 100 records, spread over partitions."""
    ends = dict(topic.end_offsets())
    partitions = len(ends)
    serial = sum(ends.values()) // RECORDS
    for _ in range(commits):
        files = []
        for _ in range(segments_per_commit):
            partition = serial % partitions
            first_us = serial * RECORDS * STEP_US
            files.append(
                StagedSegment(
                    partition=partition,
                    predicted_base=ends[partition],
                    records=RECORDS,
                    size_bytes=10_000,
                    min_timestamp_us=first_us,
                    max_timestamp_us=first_us + (RECORDS - 1) * STEP_US,
                    path=segment_path(partition, ends[partition], f"{serial:020x}"),
                    hashed_over=partitions,
                )
            )
            ends[partition] += RECORDS
            serial += 1
        now_ms = topic._log.runtime.clock()
        plan_append(topic).commit([Staged(tuple(files), now_ms, topic.topic_id)])
