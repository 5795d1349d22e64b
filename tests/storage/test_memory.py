from __future__ import annotations

import gc
import pickle
import weakref

import pytest

from pylogtable.storage.base import ObjectStore
from pylogtable.storage.memory import MemoryStore
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


def test_modified_ms_grows_with_every_change() -> None:
    store = MemoryStore()
    store.write("b", b"x")
    store.write("a", b"x")
    a, b = store.list()
    assert a.modified_ms > b.modified_ms


def test_one_winner_among_threads() -> None:
    store = MemoryStore()
    check_one_winner_each(store, race_in_threads(store, writers=8))
