"""Caches of a process, which share one budget of memory."""

from __future__ import annotations

from pylogtable.storage.object_cache import ENTRY_BYTES, Memory, Recent

KILOBYTE = 1 << 10


def test_caches_share_a_budget_and_what_was_not_used_goes_first() -> None:
    memory = Memory(10 * (KILOBYTE + ENTRY_BYTES))
    one, other = Recent[str](memory), Recent[str](memory)
    for number in range(5):
        one.keep(f"{number}", f"one {number}", KILOBYTE)
        other.keep(f"{number}", f"other {number}", KILOBYTE)
    assert one.find("0") == "one 0"
    other.keep("5", "other 5", KILOBYTE)
    assert memory.used_bytes <= memory.max_bytes
    assert [other.find(f"{number}") for number in (0, 5)] == [None, "other 5"]
    assert [one.find(f"{number}") for number in range(5)] == [f"one {n}" for n in range(5)]


def test_many_empty_values_cost_memory_too() -> None:
    memory = Memory(100 * ENTRY_BYTES)
    cache = Recent[bytes](memory)
    for number in range(1_000):
        cache.keep(f"{number}", b"", 0)
    assert len([n for n in range(1_000) if cache.find(f"{n}") is not None]) == 100


def test_large_value_does_not_push_out_all_others() -> None:
    memory = Memory(100 * KILOBYTE)
    cache = Recent[str](memory)
    cache.keep("small", "small", KILOBYTE)
    cache.keep("large", "large", 50 * KILOBYTE)
    assert (cache.find("small"), cache.find("large")) == ("small", None)


def test_value_that_is_kept_again_counts_once() -> None:
    memory = Memory(100 * KILOBYTE)
    cache = Recent[str](memory)
    for size in (1, 2, 3):
        cache.keep("a", f"{size}", size * KILOBYTE)
    assert cache.find("a") == "3"
    assert memory.used_bytes == 3 * KILOBYTE + ENTRY_BYTES
