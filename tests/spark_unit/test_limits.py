"""The limits of a batch: the cases of the Kafka connector, and what holds for any input."""

from __future__ import annotations

import random

import pytest

from pyspark_pylogtable.stream.limits import BatchDelay, byte_shares, share

LONG_MAX = 2**63 - 1


@pytest.mark.parametrize(
    ("limit", "sizes", "expected"),
    [
        (20, [21, 11, 1], [12, 6, 1]),
        (15, [15], [15]),
        (5, [15], [5]),
        (3, [1, 1, 1, 1], [1, 1, 1, 1]),  # no partition starves, even if the sum exceeds the limit
        (10, [0, 20], [0, 10]),
        (LONG_MAX, [21, 11, 1], [21, 11, 1]),
        (LONG_MAX - 1, [LONG_MAX, LONG_MAX], [LONG_MAX // 2, LONG_MAX // 2]),
        (10, [], []),
    ],
)
def test_limit_is_shared_in_proportion(limit: int, sizes: list[int], expected: list[int]) -> None:
    assert share(limit, dict(enumerate(sizes))) == dict(enumerate(expected))


def test_an_empty_partition_gets_no_share() -> None:
    assert share(1, {"a": 0, "b": 5, "c": 5}) == {"a": 0, "b": 1, "c": 1}


def test_shares_stay_within_limit_and_size() -> None:
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    chance = random.Random(seed)
    for _ in range(500):
        sizes = {n: chance.choice([0, 1, 7, 10**6]) for n in range(chance.randint(1, 8))}
        limit = chance.randint(1, 10**6)
        shares = share(limit, sizes)
        busy = [n for n, size in sizes.items() if size]
        assert sum(shares.values()) <= max(limit, 0) + len(busy)
        for n, size in sizes.items():
            assert (1 if size else 0) <= shares[n] <= size
        if sum(sizes.values()) <= limit:
            assert shares == sizes


def test_all_bytes_are_shared_out_since_sizes_are_estimates() -> None:
    assert byte_shares(1000, {"a": 100, "b": 300, "c": 0}) == {"a": 250, "b": 750}
    assert byte_shares(1, {"a": 100, "b": 300}) == {"a": 1, "b": 1}
    assert byte_shares(5, {}) == {}


def test_a_batch_waits_for_enough_records_or_the_maximum_delay() -> None:
    """At least 15 records, or 5 seconds. The first batch does not wait."""
    delay = BatchDelay(5000)
    assert delay.is_due(1, 15, now_ms=100_000)
    assert not delay.is_due(14, 15, now_ms=100_001)
    assert not delay.is_due(14, 15, now_ms=104_999)
    assert delay.is_due(14, 15, now_ms=105_000)
    assert not delay.is_due(14, 15, now_ms=105_001)
    assert delay.is_due(15, 15, now_ms=105_002)
