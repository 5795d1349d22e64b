"""The record with the greatest timestamp of a partition is found by what runs and entries say."""

from __future__ import annotations

import random

import pyarrow as pa
import pytest

from pylogtable.limits import Limits
from tests.builders import UTC_US, make_store


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("in_files", [True, False])
def test_it_is_the_first_record_with_the_greatest_timestamp(seed: int, in_files: bool) -> None:
    rng = random.Random(seed)
    settings = {"inline.max.bytes": 0 if in_files else 16384, "retention.ms": -1}
    limits = Limits(root_interval=8, tail_max=6, leaf_max=16, merge_width=4)
    topic = make_store(limits=limits).create_topic("t", 2, config=settings)
    assert topic.at().max_timestamp_offsets() == {0: None, 1: None}
    for number in range(40):
        times = [rng.randrange(-20, 20) for _ in range(3)]
        rows = {"partition": pa.array([number % 2] * 3, pa.int32()), "value": [b"v"] * 3}
        topic.append(pa.table({**rows, "timestamp": pa.array(times, UTC_US)}))
    topic.delete_records({0: rng.randrange(60), 1: rng.randrange(60)})
    assert topic.at().snapshot.leaves
    found = topic.at().max_timestamp_offsets()
    for partition in (0, 1):
        rows = topic.read(partition, columns=["offset", "timestamp"]).read_all().to_pylist()
        newest = max(rows, key=lambda row: (row["timestamp"], -row["offset"]))
        assert found[partition] == newest["offset"]
