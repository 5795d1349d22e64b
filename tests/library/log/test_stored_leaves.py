"""Leaves that threads load side by side, from a cache that keeps few of them."""

from __future__ import annotations

from threading import Event, Lock, Thread

from pylogtable.log.stored_leaves import LeafObjects
from pylogtable.storage.memory import MemoryStore
from tests.builders import SMALL, fill, make_store
from tests.stores import Fault, FaultyStore

PATIENCE_SECONDS = 60


class Asked(dict[str, Lock]):
    """The locks of leaves that are being loaded. It tells when a second thread has asked."""

    def __init__(self) -> None:
        super().__init__()
        self.asks = 0
        self.twice = Event()

    def setdefault(self, key: str, default: Lock) -> Lock:  # type: ignore[override]
        found = super().setdefault(key, default)
        self.asks += 1
        if self.asks == 2:
            self.twice.set()
        return found


def test_leaf_that_goes_while_a_thread_waits_for_its_lock_is_read_again() -> None:
    objects = MemoryStore()
    topic = make_store(objects, limits=SMALL).create_topic("t")
    fill(topic, 20)
    (leaf_id, *_) = sorted(topic.at().snapshot.leaves)
    found = []
    asked = Asked()

    def decide(verb: str, key: str) -> Fault | None:
        """While the first thread reads the leaf, the second one gets the same lock."""
        if not waiting.is_alive() and not found:
            waiting.start()
            assert asked.twice.wait(PATIENCE_SECONDS)
        return None

    small = type(SMALL)(leaves_cached=0)  # the leaf goes as soon as it is there
    leaves = LeafObjects(FaultyStore(objects.below("t"), decide).with_limits(small))
    leaves._loading = asked
    waiting = Thread(target=lambda: found.append(leaves.load(leaf_id, None)))
    first = leaves.load(leaf_id, None)
    waiting.join(PATIENCE_SECONDS)
    assert [leaf.table for leaf in found] == [first.table]
    assert not leaves._loading
