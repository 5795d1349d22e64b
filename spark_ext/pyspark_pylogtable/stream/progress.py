"""How far a streaming query is behind its topics: as its progress tells, or as the topics tell."""

from __future__ import annotations

import ast
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from pylogtable import InvalidRequestError, Store
from pylogtable.engine import lag
from pyspark_pylogtable.stream.behind import BYTES_BEHIND, METRICS, left_to_read, offsets_in
from pyspark_pylogtable.stream.offsets import TopicOffsets, decode, latest_of


class TopicBehind(NamedTuple):
    """How far a query is behind one topic. `bytes` is estimated, and None if the progress does not
    tell. `seconds` is the age of the oldest unread record, and None if only the progress was asked.
    """

    offsets: int
    bytes: int | None = None
    seconds: float | None = None


@dataclass(frozen=True)
class OffsetsBehind:
    """How many offsets a query is behind: minimum, maximum and mean over its partitions, and what
    is left of each topic. Holes left by compaction are counted, as in Kafka."""

    min: int
    max: int
    avg: float
    by_topic: Mapping[str, TopicBehind] = field(default_factory=dict)

    @property
    def offsets(self) -> int:
        """The unread offsets of all topics."""
        return sum(topic.offsets for topic in self.by_topic.values())

    @property
    def bytes(self) -> int | None:
        """The unread bytes of all topics; None if that of a topic is not known."""
        sizes = [topic.bytes for topic in self.by_topic.values()]
        return None if None in sizes else sum(size or 0 for size in sizes)

    @property
    def seconds(self) -> float | None:
        """The age of the oldest unread record of all topics; None if the topics were not asked."""
        ages = [topic.seconds for topic in self.by_topic.values() if topic.seconds is not None]
        return max(ages, default=None)


def offsets_behind(progress: Any, store: Store | None = None) -> OffsetsBehind | None:
    """How far a query is behind: what the Kafka connector reports as `minOffsetsBehindLatest`,
    `maxOffsetsBehindLatest` and `avgOffsetsBehindLatest`, and the same by topic.

    >>> offsets_behind(query.lastProgress)
    OffsetsBehind(min=0, max=12, avg=4.0, by_topic={'orders': TopicBehind(offsets=12, bytes=3400)})

    `progress` is `query.lastProgress`, the `event.progress` of a listener, or the same as a dict or
    JSON. Alone, it tells how far behind the query was when Spark planned the batch. The result is
    None if there is no progress yet, or no pylogtable source in it, or if a restarted query repeats
    a batch: Spark then reports no latest offset.

    With `store`, the topics are asked how far they are now. Use it to watch a query that hangs or
    has ended: `offsets_behind(query.lastProgress, pylogtable.open("s3://bucket/logs"))`. It has all
    topics of the query. Partitions that the query has not seen yet are left out. It reads a record
    or two of each partition, for the seconds.
    """
    if progress is None:
        return None
    counts: list[int] = []
    topics: dict[str, TopicBehind] = {}
    for source in _sources(progress):
        found = _as_reported(source) if store is None else _as_of_now(source, store)
        for topic, of_partitions, behind in found:
            counts += of_partitions
            topics[topic] = _together(topics.get(topic), behind)
    if not counts:
        return None
    return OffsetsBehind(min(counts), max(counts), sum(counts) / len(counts), topics)


#: A topic, the unread offsets of each partition, and all of it together.
_Found = Iterator[tuple[str, list[int], TopicBehind]]


def _as_reported(source: Any) -> _Found:
    read, latest = (_offset(_get(source, name)) for name in ("endOffset", "latestOffset"))
    if read is None or latest is None:
        return
    sizes = latest.get(METRICS, {}).get(BYTES_BEHIND, {})
    for topic, ranges in left_to_read(decode(read), latest_of(latest)).items():
        counts = offsets_in(ranges.values())
        yield topic, counts, TopicBehind(sum(counts), sizes.get(topic))


def _as_of_now(source: Any, store: Store) -> _Found:
    read = _offset(_get(source, "endOffset"))
    for name, of_topic in ({} if read is None else decode(read)).items():
        topic = store.topic(name)
        if topic.topic_id != of_topic.topic_id:  # recreated: nothing of it was read
            of_topic = TopicOffsets(topic.topic_id, dict.fromkeys(topic.end_offsets(), 0))
        lags = lag(topic, of_topic.offsets)
        counts = [max(0, each.end_offset - of_topic.offsets[p]) for p, each in lags.items()]
        size = sum(each.bytes for each in lags.values())
        seconds = max((each.seconds for each in lags.values()), default=0.0)
        yield name, counts, TopicBehind(sum(counts), size, seconds)


def _together(one: TopicBehind | None, other: TopicBehind) -> TopicBehind:
    """Of two sources that read topics of one name."""
    if one is None:
        return other
    size = None if one.bytes is None or other.bytes is None else one.bytes + other.bytes
    ages = [age for age in (one.seconds, other.seconds) if age is not None]
    return TopicBehind(one.offsets + other.offsets, size, max(ages, default=None))


def _sources(progress: Any) -> list[Any]:
    if isinstance(progress, str):
        try:
            progress = json.loads(progress)
        except ValueError as error:
            raise InvalidRequestError(f"the progress is not JSON: {error}") from None
    sources = _get(progress, "sources")
    if not isinstance(sources, list):
        raise InvalidRequestError(
            f"progress must be a StreamingQueryProgress, not {type(progress).__name__}: give "
            "query.lastProgress, or event.progress of a StreamingQueryListener"
        )
    return sources


def _get(thing: Any, name: str) -> Any:
    return thing.get(name) if isinstance(thing, Mapping) else getattr(thing, name, None)


def _offset(given: Any) -> Mapping[str, Any] | None:
    """The offset, which Spark gives as text or parsed; None if another source wrote it. Spark 4.1
    parses it and gives it as the text of a Python dict."""
    if isinstance(given, str):
        try:
            given = json.loads(given)
        except ValueError:
            try:
                given = ast.literal_eval(given)
            except (ValueError, SyntaxError):
                return None
    return given if isinstance(given, Mapping) and "topics" in given else None
