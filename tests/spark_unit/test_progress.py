"""How far a query is behind, from every form of its progress, and from the topics."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pytest

from pylogtable import InvalidRequestError, TopicNotFoundError
from pyspark_pylogtable import OffsetsBehind, TopicBehind, offsets_behind
from tests.builders import Clock, ints, kafka, make_store, times


def offset(topic_id: str = "x", **partitions: int) -> dict[str, Any]:
    listed = {number[1:]: at for number, at in partitions.items()}
    return {"topics": {"t": {"id": topic_id, "offsets": listed}}}


def source(end: object, latest: object) -> dict[str, Any]:
    return {"description": "python", "endOffset": end, "latestOffset": latest}


READ, LATEST = offset(p0=3, p1=10), offset(p0=5, p1=10, p2=4)
BEHIND = OffsetsBehind(0, 4, 2.0, {"t": TopicBehind(6)})


@pytest.mark.parametrize(
    "progress",
    [
        {"sources": [source(READ, LATEST)]},
        json.dumps({"sources": [source(READ, LATEST)]}),
        # Text, as in a `StreamingQueryProgress`.
        SimpleNamespace(
            sources=[SimpleNamespace(endOffset=json.dumps(READ), latestOffset=json.dumps(LATEST))]
        ),
        # Text of a dict, as Spark 4.1 gives it.
        {"sources": [{"endOffset": str(READ), "latestOffset": str(LATEST)}]},
    ],
)
def test_unread_partition_counts_from_0(progress: object) -> None:
    assert offsets_behind(progress) == BEHIND


def test_query_without_progress_gives_none() -> None:
    assert offsets_behind(None) is None


def test_all_pylogtable_sources_count() -> None:
    other = source({"logOffset": 4}, {"logOffset": 7})
    more = source(offset(p0=0), offset(p0=10))
    progress = {"sources": [other, source(READ, LATEST), more]}
    assert offsets_behind(progress) == OffsetsBehind(0, 10, 4.0, {"t": TopicBehind(16)})


def test_recreated_topic_counts_from_0() -> None:
    assert offsets_behind({"sources": [source(offset("old", p0=9), offset("new", p0=2))]}) == (
        OffsetsBehind(2, 2, 2.0, {"t": TopicBehind(2)})
    )


@pytest.mark.parametrize(
    "sources",
    [[], [source(READ, None)], [source(None, LATEST)], [source("null", "-")], [source(4, 5)]],
)
def test_progress_without_pylogtable_offsets_gives_none(sources: list[Any]) -> None:
    assert offsets_behind({"sources": sources}) is None


# --- the topics are asked --------------------------------------------------------------------


def test_topics_tell_how_far_behind_a_query_is_now() -> None:
    """Whatever the progress says: here a batch that Spark repeats, without a latest offset."""
    clock = Clock()
    logs = make_store(clock=clock)
    topic = logs.create_topic("t", 3)
    topic.append(kafka(["a"] * 4, partition=ints(0, 0, 0, 1), timestamp=times(*[0] * 4)))
    progress = {"sources": [source(offset(topic.topic_id, p0=1, p1=1, p2=0), None)]}
    clock.tick(60_000)
    now = offsets_behind(progress, logs)
    assert now is not None
    assert (now.min, now.max, now.avg) == (0, 2, 2 / 3)
    assert (now.offsets, now.seconds) == (2, 60.0)
    assert now.bytes == topic.at().range_sizes({0: (1, 3)})[0].bytes > 0
    assert now.by_topic == {"t": TopicBehind(2, now.bytes, 60.0)}


def test_a_query_that_has_read_everything_is_0_seconds_behind() -> None:
    logs = make_store()
    topic = logs.create_topic("t", 1)
    topic.append(kafka(["a"]))
    progress = {"sources": [source(offset(topic.topic_id, p0=1), None)]}
    assert offsets_behind(progress, logs) == OffsetsBehind(0, 0, 0.0, {"t": TopicBehind(0, 0, 0.0)})


def test_a_recreated_topic_is_unread_and_one_that_is_gone_is_an_error() -> None:
    logs = make_store()
    topic = logs.create_topic("t", 2)
    topic.append(kafka(["a"] * 3, partition=ints(0, 1, 1)))
    progress = {"sources": [source(offset("an older one", p0=9), None)]}
    now = offsets_behind(progress, logs)
    assert now is not None
    assert (now.min, now.max, now.offsets) == (1, 2, 3)
    with pytest.raises(TopicNotFoundError, match="'t'"):
        offsets_behind(progress, make_store())


def test_only_partitions_that_the_query_reads_count() -> None:
    logs = make_store()
    topic = logs.create_topic("t", 2)
    topic.append(kafka(["a"] * 3, partition=ints(0, 1, 1)))
    now = offsets_behind({"sources": [source(offset(topic.topic_id, p0=0), None)]}, logs)
    assert now is not None
    assert (now.max, now.offsets) == (1, 1)


@pytest.mark.parametrize("progress", [{}, "what", "[]", 7])
def test_other_input_is_refused(progress: object) -> None:
    with pytest.raises(InvalidRequestError, match=r"progress is not JSON|must be a Streaming"):
        offsets_behind(progress)
