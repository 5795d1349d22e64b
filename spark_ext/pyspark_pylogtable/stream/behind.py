"""What a stream has not read yet, and how Spark's Kafka connector would count it. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from pyspark_pylogtable.stream.offsets import StreamOffsets

#: By topic and partition: the next offset to read, and the end.
Left = dict[str, dict[int, tuple[int, int]]]

METRICS = "metrics"
BYTES_BEHIND = "bytesBehindLatest"


def left_to_read(read: StreamOffsets, latest: StreamOffsets) -> Left:
    """What is left of every partition of `latest`. A partition that was not read yet counts from 0,
    as does a topic that was recreated."""
    left: Left = {}
    for topic, newest in latest.items():
        of_topic = read.get(topic)
        known = of_topic.offsets if of_topic and of_topic.topic_id == newest.topic_id else {}
        left[topic] = {p: (min(known.get(p, 0), end), end) for p, end in newest.offsets.items()}
    return left


def offsets_in(ranges: Iterable[tuple[int, int]]) -> list[int]:
    """How many offsets each of the ranges has. Holes are counted, as in Kafka."""
    return [end - start for start, end in ranges]


def metrics_of(left: Left, sizes: Mapping[str, int]) -> dict[str, Any]:
    """What the Kafka connector calls the metrics of a source, and more of the same by topic.
    `sizes` are the bytes that are left of each topic."""
    counts = {topic: offsets_in(ranges.values()) for topic, ranges in left.items()}
    each = [count for of_topic in counts.values() for count in of_topic]
    return {
        "minOffsetsBehindLatest": min(each, default=0),
        "maxOffsetsBehindLatest": max(each, default=0),
        "avgOffsetsBehindLatest": sum(each) / max(1, len(each)),
        "offsetsBehindLatest": {topic: sum(of_topic) for topic, of_topic in counts.items()},
        BYTES_BEHIND: dict(sizes),
    }
