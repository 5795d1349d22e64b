"""How far a query is behind, from every form of its progress."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pytest

from pylogtable import InvalidRequestError
from pyspark_pylogtable import OffsetsBehind, offsets_behind


def offset(topic_id: str = "x", **partitions: int) -> dict[str, Any]:
    listed = {number[1:]: at for number, at in partitions.items()}
    return {"topics": {"t": {"id": topic_id, "offsets": listed}}}


def source(end: object, latest: object) -> dict[str, Any]:
    return {"description": "python", "endOffset": end, "latestOffset": latest}


READ, LATEST = offset(p0=3, p1=10), offset(p0=5, p1=10, p2=4)
BEHIND = OffsetsBehind(min=0, max=4, avg=2.0)


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
    assert offsets_behind(progress) == OffsetsBehind(0, 10, 4.0)


def test_recreated_topic_counts_from_0() -> None:
    assert offsets_behind({"sources": [source(offset("old", p0=9), offset("new", p0=2))]}) == (
        OffsetsBehind(2, 2, 2.0)
    )


@pytest.mark.parametrize(
    "sources",
    [[], [source(READ, None)], [source(None, LATEST)], [source("null", "-")], [source(4, 5)]],
)
def test_progress_without_pylogtable_offsets_gives_none(sources: list[Any]) -> None:
    assert offsets_behind({"sources": sources}) is None


@pytest.mark.parametrize("progress", [{}, "what", "[]", 7])
def test_other_input_is_refused(progress: object) -> None:
    with pytest.raises(InvalidRequestError, match=r"progress is not JSON|must be a Streaming"):
        offsets_behind(progress)
