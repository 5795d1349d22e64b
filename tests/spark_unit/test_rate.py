"""The arithmetic of rate limits: the cases of the Kafka connector, and what must always hold."""

from __future__ import annotations

import random

import pytest

from pyspark_pylogtable.stream.rate import NO_LIMITS, Holdback, Limits, share, take

LONG_MAX = 2**63 - 1


@pytest.mark.parametrize(
    ("limit", "sizes", "expected"),
    [
        (20, [21, 11, 1], [12, 6, 1]),  # case 26
        (15, [15], [15]),
        (5, [15], [5]),
        (3, [1, 1, 1, 1], [1, 1, 1, 1]),  # nobody starves, also if that is one too many
        (10, [0, 20], [0, 10]),
        (LONG_MAX, [21, 11, 1], [21, 11, 1]),  # case 33
        (LONG_MAX - 1, [LONG_MAX, LONG_MAX], [LONG_MAX // 2, LONG_MAX // 2]),
        (10, [], []),
    ],
)
def test_shares(limit: int, sizes: list[int], expected: list[int]) -> None:
    assert share(limit, dict(enumerate(sizes))) == dict(enumerate(expected))


def test_a_share_of_what_is_empty_is_empty() -> None:
    assert share(1, {"a": 0, "b": 5, "c": 5}) == {"a": 0, "b": 1, "c": 1}


def test_shares_hold_for_any_sizes() -> None:
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


def test_both_limits_hold_and_bytes_are_taken_in_whole_records() -> None:
    records, sizes = {"a": 100, "b": 100}, {"a": 1000, "b": 9000}
    assert take(NO_LIMITS, records, sizes) == records
    assert take(Limits(max_records=50), records, sizes) == {"a": 25, "b": 25}
    assert take(Limits(max_bytes=1000), records, sizes) == {"a": 10, "b": 10}
    assert take(Limits(max_records=50, max_bytes=1000), records, sizes) == {"a": 10, "b": 10}
    assert take(Limits(max_records=10, max_bytes=1000), records, sizes) == {"a": 5, "b": 5}
    # One record is larger than the limit: it is read all the same.
    assert take(Limits(max_bytes=1), {"a": 1}, {"a": 10**9}) == {"a": 1}


def test_a_batch_waits_for_records_or_for_time_and_the_first_for_none() -> None:
    """Case 26: at least 15, at most 5 seconds."""
    holdback = Holdback(5000)
    assert holdback.lets_go(1, 15, now_ms=100_000)
    assert not holdback.lets_go(14, 15, now_ms=100_001)
    assert not holdback.lets_go(14, 15, now_ms=104_999)
    assert holdback.lets_go(14, 15, now_ms=105_000)
    assert not holdback.lets_go(14, 15, now_ms=105_001)
    assert holdback.lets_go(15, 15, now_ms=105_002)
