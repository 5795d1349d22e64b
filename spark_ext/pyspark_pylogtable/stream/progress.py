"""How far a streaming query is behind its topics, computed from its progress."""

from __future__ import annotations

import ast
import json
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from pylogtable import InvalidRequestError
from pyspark_pylogtable.stream.offsets import decode


class OffsetsBehind(NamedTuple):
    """Minimum, maximum and mean over the partitions of a query: offsets between what it has read
    and the end. Holes left by compaction are counted, as in Kafka."""

    min: int
    max: int
    avg: float


def offsets_behind(progress: Any) -> OffsetsBehind | None:
    """How far a query is behind: what the Kafka connector reports as `minOffsetsBehindLatest`,
    `maxOffsetsBehindLatest` and `avgOffsetsBehindLatest`.

    >>> offsets_behind(query.lastProgress)
    OffsetsBehind(min=0, max=12, avg=4.0)

    `progress` is `query.lastProgress`, the `event.progress` of a listener, or the same as a dict or
    JSON. The result is None if there is no progress yet, or no pylogtable source in it, or if a
    restarted query repeats a batch: Spark then reports no latest offset. Spark 4.0 and 4.1 report
    the end of the batch as the latest offset, so there a query is never behind.
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
    read_by_topic = decode(read)
    for topic, newest in decode(latest).items():
        of_topic = read_by_topic.get(topic)
        known = of_topic.offsets if of_topic and of_topic.topic_id == newest.topic_id else {}
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
