"""Waiting for an object: soon after it is there, without a request, and with few looks."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from pylogtable.storage.base import ObjectStore
from pylogtable.storage.local import LocalStore
from pylogtable.storage.memory import MemoryStore
from pylogtable.storage.waiting import LONGEST_SECONDS, wait_for_any
from tests.faults.support import FakeTime
from tests.stores import CountingStore


class Looked(LocalStore):
    """Counts the looks."""

    looks = 0

    def peek(self, key: str) -> bool | None:
        self.looks += 1
        return super().peek(key)


class Meanwhile(FakeTime):
    """Does something once so much time has passed."""

    def __init__(self, at: float, work: Callable[[], object]) -> None:
        super().__init__()
        self._at, self._work = at, work

    def pause(self, seconds: float) -> None:
        before = self.seconds
        super().pause(seconds)
        if before < self._at <= self.seconds:
            self._work()


def places(*stores: ObjectStore) -> list[tuple[ObjectStore, str]]:
    return [(store, "a/1") for store in stores]


@pytest.mark.parametrize("after", [0.0007, 0.01, 0.3, 20.0])
def test_object_is_seen_soon_after_it_is_there(tmp_path: Path, after: float) -> None:
    store = LocalStore(tmp_path)
    time = Meanwhile(after, lambda: store.create("a/1", b"x"))
    wait_for_any(places(LocalStore(tmp_path / "other"), store), 60.0, time.runtime())
    late = time.seconds - after
    assert 0 <= late <= max(0.0005, min(LONGEST_SECONDS, after / 16))


def test_object_that_is_there_is_not_waited_for(tmp_path: Path) -> None:
    store, time = LocalStore(tmp_path), FakeTime()
    store.create("a/1", b"x")
    wait_for_any(places(store), 60.0, time.runtime())
    assert time.waits == []


def test_long_wait_takes_few_looks_and_ends_in_time(tmp_path: Path) -> None:
    store, time = Looked(tmp_path), FakeTime()
    wait_for_any(places(store), 1.0, time.runtime())
    assert time.seconds == pytest.approx(1.0)
    assert store.looks < 120


def test_nothing_is_asked_where_a_look_is_a_request() -> None:
    store = CountingStore(MemoryStore())
    time = Meanwhile(0.5, lambda: store.create("a/1", b"x"))
    wait_for_any(places(store), 1.0, time.runtime())
    assert time.waits == [1.0]
    assert store.counts == {"create": 1}


def test_no_place_is_a_pause() -> None:
    time = FakeTime()
    wait_for_any([], 0.25, time.runtime())
    assert time.waits == [0.25]
