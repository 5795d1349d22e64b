"""How far a streaming query is behind its topics, from what it says of its progress."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from pylogtable import InvalidRequestError
from pyspark_pylogtable.stream.offsets import decode


class OffsetsBehind(NamedTuple):
    """Over all partitions that the query reads: the least, the most and the mean number of offsets
    between what it has read and the end. Offsets count holes of compaction, as Kafka's do."""

    min: int
    max: int
    avg: float


def offsets_behind(progress: Any) -> OffsetsBehind | None:
    """What the Kafka connector reports as `minOffsetsBehindLatest`, `max…` and `avg…`.

    `progress` is a `StreamingQueryProgress` (`query.lastProgress`, or that of a listener's event),
    or the same as a dict or as JSON. None if it tells nothing of a topic of pylogtable, or if there
    is none yet. Spark 4.0 and 4.1 take for the latest offset what a batch ends with, so there a
    query is never behind.
    """
    if progress is None:
        return None
    behind = [count for source in _sources(progress) for count in _behind(source)]
    if not behind:
        return None
    return OffsetsBehind(min(behind), max(behind), sum(behind) / len(behind))


def _behind(source: Any) -> Iterator[int]:
    read, latest = (_offset(_get(source, name)) for name in ("endOffset", "latestOffset"))
    if read is None or latest is None:
        return
    places = decode(read)
    for topic, newest in decode(latest).items():
        place = places.get(topic)
        known = place.offsets if place and place.topic_id == newest.topic_id else {}
        yield from (max(0, end - known.get(p, 0)) for p, end in newest.offsets.items())


def _sources(progress: Any) -> list[Any]:
    if isinstance(progress, str):
        try:
            progress = json.loads(progress)
        except ValueError as error:
            raise InvalidRequestError(f"the progress is not JSON: {error}") from None
    sources = _get(progress, "sources")
    if not isinstance(sources, list):
        raise InvalidRequestError(
            f"this is not a StreamingQueryProgress but {type(progress).__name__}: give "
            "query.lastProgress, or what a StreamingQueryListener gets as event.progress"
        )
    return sources


def _get(thing: Any, name: str) -> Any:
    return thing.get(name) if isinstance(thing, Mapping) else getattr(thing, name, None)


def _offset(given: Any) -> Mapping[str, Any] | None:
    """An offset of ours, which Spark hands out as text or parsed; None for any other."""
    if isinstance(given, str):
        try:
            given = json.loads(given)
        except ValueError:
            return None
    return given if isinstance(given, Mapping) and "topics" in given else None
