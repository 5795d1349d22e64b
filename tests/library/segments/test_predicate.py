"""Conditions: what Arrow says can be skipped has no record that the condition selects."""

from __future__ import annotations

import operator
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pylogtable.format.leaf import segments_of
from pylogtable.limits import Limits
from pylogtable.segments.predicate import Condition
from pylogtable.storage.memory import MemoryStore
from pylogtable.topic import Topic
from tests.builders import UTC_US, Clock, ints, make_store, times
from tests.stores import CountingStore

pytestmark = pytest.mark.records_in("files")

COMPARE: list[Callable[[Any, Any], Any]] = [
    operator.eq,
    operator.ne,
    operator.lt,
    operator.le,
    operator.gt,
    operator.ge,
]


@pytest.fixture(scope="module")
def topic() -> Topic:
    """Three partitions, segments of a few records, with times that go back and forth."""
    topic = make_store(MemoryStore(), Clock(), in_files=True).create_topic(
        "t", partitions=3, schema={"n": pa.int64()}
    )
    for number in range(12):
        table = pa.table(
            {
                "n": pa.array([number, None, -number], pa.int64()),
                "timestamp": times(number % 5, (number * 7) % 11, number),
                "partition": ints(*[number % 3] * 3),
            }
        )
        topic.append(table)
    return topic


moments = st.integers(-1, 13).map(lambda ms: times(ms)[0].cast(UTC_US))
comparisons = st.one_of(
    st.builds(
        lambda compare, name, number: compare(pc.field(name), number),
        st.sampled_from(COMPARE),
        st.sampled_from(["partition", "offset", "n"]),
        st.integers(-2, 14) | st.sampled_from([2.5, -0.5]),
    ),
    st.builds(
        lambda compare, when: compare(pc.field("timestamp"), when),
        st.sampled_from(COMPARE),
        moments,
    ),
    st.builds(lambda values: pc.field("offset").isin(values), st.lists(st.integers(0, 14))),
    st.sampled_from([pc.field("n").is_null(), pc.field("n").is_valid(), pc.scalar(True)]),
)
conditions = st.recursive(
    comparisons,
    lambda inner: st.one_of(
        st.builds(operator.and_, inner, inner),
        st.builds(operator.or_, inner, inner),
        st.builds(operator.invert, inner),
    ),
    max_leaves=5,
)


@given(where=conditions)
def test_what_is_skipped_has_nothing_that_is_selected(topic: Topic, where: Any) -> None:
    view = topic.at()
    info = view.snapshot.info
    condition = pickle.loads(pickle.dumps(Condition(info, where)))
    selected = view.read().read_all().filter(where)
    expected = set(
        zip(selected["partition"].to_pylist(), selected["offset"].to_pylist(), strict=True)
    )
    found = set()
    for segment in condition.may_match(segments_of(topic.segments())):
        mask = condition.find(topic._store, info, segment)
        found |= {(segment.partition, segment.base_offset + int(row)) for row in mask.nonzero()[0]}
    assert found == expected


def test_row_groups_are_skipped_by_their_offsets() -> None:
    counting = CountingStore(MemoryStore())
    store = make_store(counting, limits=Limits(row_group_rows=10_000), in_files=True)
    topic = store.create_topic("t", schema={"n": pa.int64()})
    numbers = np.random.default_rng(7).integers(0, 2**60, 100_000)
    numbers[70_000] = 7
    topic.append(pa.table({"n": numbers}))
    (segment,) = segments_of(topic.segments())
    info = topic.at().snapshot.info
    read = {}
    for name, where in {
        "one": (pc.field("offset") == 70_000) & (pc.field("n") == 7),
        "all": (pc.field("offset") >= 0) & (pc.field("n") == 7),
    }.items():
        counting.reset()
        assert Condition(info, where).find(topic._store, info, segment).nonzero()[0] == [70_000]
        read[name] = sum(counting.bytes_read.values())
    assert read["one"] < read["all"] / 4


def test_columns_are_those_that_the_expression_needs(topic: Topic) -> None:
    info = topic.at().snapshot.info
    assert Condition(info, pc.field("n") == 1).columns == ["n"]
    assert Condition(info, (pc.field("n") == 1) & (pc.field("offset") > 1)).columns == [
        "offset",
        "n",
    ]
    assert Condition(info, pc.scalar(True)).columns == []
    assert Condition(info, pc.field(3) == 1).columns == topic.schema.names
