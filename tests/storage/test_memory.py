from __future__ import annotations

import gc
import pickle
import weakref

import pytest

from pylogtable.storage.base import ObjectStore
from pylogtable.storage.memory import MemoryStore
from tests.builders import T0, Clock
from tests.storage.contract import StoreContract
from tests.storage.races import check_one_winner_each, race_in_threads


class TestMemoryStore(StoreContract):
    @pytest.fixture
    def store(self) -> ObjectStore:
        return MemoryStore()


def test_a_name_is_the_same_store_throughout_the_process() -> None:
    MemoryStore("shared").write("topic/a", b"x")
    assert MemoryStore("shared", "topic/").read("a") == b"x"
    assert MemoryStore("other").read("topic/a") is None


def test_stores_without_a_name_are_private_and_are_freed() -> None:
    store, other = MemoryStore(), MemoryStore()
    store.write("a", b"x")
    assert other.read("a") is None
    space = weakref.ref(store._space)
    pickled = pickle.dumps(store)
    assert pickle.loads(pickled).read("a") == b"x"
    del store
    gc.collect()
    assert space() is None


def test_time_comes_from_the_first_clock_that_is_given() -> None:
    clock = Clock()
    store = MemoryStore("clocked", clock=clock)
    other = MemoryStore("clocked", clock=lambda: 7)
    store.write("a", b"x")
    clock.tick(5)
    other.below("f").write("b", b"x")
    assert [info.modified_ms for info in store.list()] == [T0, T0 + 5]
    assert store.now_ms() == other.last_reply_ms == T0 + 5


def test_one_winner_among_threads() -> None:
    store = MemoryStore()
    check_one_winner_each(store, race_in_threads(store, writers=8))
