"""Reading ahead: objects are fetched before their turn, and nobody notices but the clock."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pyarrow as pa
import pytest

from pylogtable.errors import StorageError
from pylogtable.limits import DEFAULT_LIMITS
from pylogtable.storage.base import ObjectMissingError, ObjectStore
from pylogtable.storage.delegating import WrappedStore
from pylogtable.storage.memory import MemoryStore
from pylogtable.storage.prefetch import Wanted, read_ahead
from tests.stores import CountingStore, FarStore, Fault, FaultyStore

SMALL = 1000


class Far(FarStore):
    concurrency = 32
    whole_bytes = 1 << 20


@pytest.fixture
def far() -> Far:
    return Far(lambda: 0)


@pytest.fixture
def counting(far: Far) -> CountingStore:
    return CountingStore(far)


def filled(store: ObjectStore, count: int, size: int = SMALL) -> list[str]:
    keys = [f"k{n:03}" for n in range(count)]
    for key in keys:
        store.write(key, key.encode().ljust(size, b"."))
    return keys


def contents(read: Iterator[tuple[str, ObjectStore]], size: int = SMALL) -> list[str]:
    return [store.open_input(key, size).read()[:4].decode() for key, store in read]


def test_objects_come_in_order_and_each_is_fetched_once(far: Far, counting: CountingStore) -> None:
    keys = filled(far, 100)
    assert contents(read_ahead(counting, keys, lambda key: Wanted(key, SMALL))) == keys
    assert set(counting.by_key.values()) == {1}


def test_whole_objects_are_read_the_same_way(far: Far, counting: CountingStore) -> None:
    keys = filled(far, 20)
    read = read_ahead(counting, [*keys, "none"], lambda key: Wanted(key, None))
    found = [store.read(key) for key, store in read]
    assert [data[:4].decode() if data else None for data in found] == [*keys, None]
    assert counting.counts == {"read": 21}


def test_no_more_are_fetched_than_the_limit(far: Far, counting: CountingStore) -> None:
    keys = filled(far, 100)
    read = read_ahead(counting, keys, lambda key: Wanted(key, SMALL))
    next(read)
    read.close()  # type: ignore[attr-defined]
    assert len(counting.opened) <= DEFAULT_LIMITS.prefetch_objects


def test_no_more_bytes_are_fetched_than_the_limit(far: Far, counting: CountingStore) -> None:
    size = DEFAULT_LIMITS.prefetch_bytes // 4
    assert size <= Far.whole_bytes
    keys = filled(far, 20, size)
    read = read_ahead(counting, keys, lambda key: Wanted(key, size))
    next(read)
    read.close()  # type: ignore[attr-defined]
    assert len(counting.opened) <= 5


def test_a_reader_that_may_stop_soon_begins_with_few(far: Far, counting: CountingStore) -> None:
    keys = filled(far, 100)
    read = read_ahead(counting, keys, lambda key: Wanted(key, SMALL), first=1)
    for limit in (0, 2, 5):  # the first object is left to its reader
        next(read)
        assert len(counting.opened) <= limit
    read.close()  # type: ignore[attr-defined]


def test_threads_end_when_the_reader_stops_early(far: Far, counting: CountingStore) -> None:
    before = set(threading.enumerate())
    keys = filled(far, 100)
    read = read_ahead(counting, keys, lambda key: Wanted(key, SMALL))
    next(read)
    begun = set(threading.enumerate()) - before
    assert begun
    read.close()  # type: ignore[attr-defined]
    for thread in begun:
        thread.join(timeout=60)
    assert not any(thread.is_alive() for thread in begun)


def test_a_reader_that_is_dropped_waits_for_no_thread(far: Far) -> None:
    keys = filled(far, 100)
    go_on = threading.Event()
    slow = _Slow(far, go_on)
    read = read_ahead(slow, keys, lambda key: Wanted(key, SMALL))
    next(read)
    try:
        dropping = threading.Thread(target=read.close)  # type: ignore[attr-defined]
        dropping.start()
        dropping.join(timeout=60)
        assert not dropping.is_alive()
    finally:
        go_on.set()


class _Slow(WrappedStore):
    """A store that opens nothing before it may."""

    def __init__(self, inner: ObjectStore, may: threading.Event) -> None:
        super().__init__(inner)
        self._may = may

    def open_input(self, key: str, size_bytes: int) -> pa.NativeFile:
        self._may.wait()
        return super().open_input(key, size_bytes)


def test_threads_end_when_all_is_read(far: Far, counting: CountingStore) -> None:
    before = set(threading.enumerate())
    contents(read_ahead(counting, filled(far, 40), lambda key: Wanted(key, SMALL)))
    assert set(threading.enumerate()) <= before


def test_large_objects_are_left_to_their_readers(far: Far, counting: CountingStore) -> None:
    size = Far.whole_bytes + 1
    keys = filled(far, 3, size)
    stores = [store for _, store in read_ahead(counting, keys, lambda key: Wanted(key, size))]
    assert stores == [counting] * 3
    assert counting.counts == {}


def test_an_item_without_an_object_keeps_its_place(far: Far, counting: CountingStore) -> None:
    keys = filled(far, 4)
    read = read_ahead(counting, keys, lambda key: None if key == "k001" else Wanted(key, SMALL))
    assert [key for key, _ in read] == keys
    assert "k001" not in counting.opened


def test_an_object_that_cannot_be_fetched_fails_at_its_turn(far: Far) -> None:
    keys = filled(far, 5)

    def decide(verb: str, key: str) -> Fault | None:
        return Fault.REFUSE if key == "k003" else None

    store = FaultyStore(far, decide)
    read = read_ahead(store, keys, lambda key: Wanted(key, SMALL))
    for expected in keys[:3]:
        key, served = next(read)
        assert served.open_input(key, SMALL).read()[:4].decode() == expected
    key, served = next(read)
    with pytest.raises(StorageError, match="k003"):
        served.open_input(key, SMALL)


def test_a_missing_object_is_missing_at_its_turn(far: Far) -> None:
    keys = filled(far, 3)
    far.delete("k001")
    read = read_ahead(far, keys, lambda key: Wanted(key, SMALL))
    next(read)
    key, store = next(read)
    with pytest.raises(ObjectMissingError):
        store.open_input(key, SMALL)


def test_a_failure_of_the_plan_comes_after_the_items_before_it(far: Far) -> None:
    keys = filled(far, 3)

    def items() -> Iterator[str]:
        yield from keys
        raise StorageError("no more")

    read = read_ahead(far, items(), lambda key: Wanted(key, SMALL))
    assert [next(read)[0] for _ in keys] == keys
    with pytest.raises(StorageError, match="no more"):
        next(read)


def test_other_objects_are_those_of_the_store(far: Far) -> None:
    keys = filled(far, 3)
    far.write("other", b"x")
    for _, store in read_ahead(far, keys, lambda key: Wanted(key, SMALL)):
        assert store.read("other") == b"x"
        assert store.open_input("other", 1).read() == b"x"
        with store.open_output("new") as sink:
            sink.write(b"y")
    assert far.read("new") == b"y"


def test_nothing_is_fetched_ahead_where_requests_cost_nothing() -> None:
    near = CountingStore(MemoryStore())
    keys = filled(near, 10)
    near.reset()
    read = read_ahead(near, keys, lambda key: Wanted(key, SMALL))
    assert next(read) == ("k000", near)
    assert near.counts == {}


def test_an_object_that_is_fetched_already_is_copied_from_memory(
    far: Far, counting: CountingStore
) -> None:
    keys = filled(far, 3)
    target = MemoryStore()
    for key, store in read_ahead(counting, keys, lambda key: Wanted(key, SMALL)):
        target.copy_from(store, key, SMALL)
        store.copy_from(target, key, SMALL)
    assert [target.read(key) for key in keys] == [far.read(key) for key in keys]
    assert {counting.by_key["open_input", key] for key in keys} == {1}
    assert {counting.by_key["copy_from", key] for key in keys} == {1}
