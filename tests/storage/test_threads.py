"""Threads that generators borrow end with them, and nobody waits for those of a dropped one."""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator

import pytest

from pylogtable.storage.threads import borrowed_pool


class Work:
    """Work that ends when it may."""

    def __init__(self) -> None:
        self.may_end = threading.Event()
        self.began = threading.Semaphore(0)
        self.done: list[int] = []

    def __call__(self, number: int) -> int:
        self.began.release()
        assert self.may_end.wait(timeout=60)
        self.done.append(number)
        return number

    def wait_for_begin(self) -> None:
        assert self.began.acquire(timeout=60)


def results(work: Work, count: int) -> Iterator[int]:
    with borrowed_pool(1) as pool:
        futures = [pool.submit(work, number) for number in range(count)]
        yield -1
        for future in futures:
            yield future.result()


def test_all_is_done_when_the_generator_ends() -> None:
    work = Work()
    work.may_end.set()
    assert list(results(work, 3)) == [-1, 0, 1, 2]
    assert work.done == [0, 1, 2]


def test_a_failure_begins_nothing_new_and_waits_for_what_runs() -> None:
    work = Work()

    def failing() -> Iterator[int]:
        with borrowed_pool(1) as pool:
            futures = [pool.submit(work, number) for number in range(3)]
            work.wait_for_begin()
            futures[-1].add_done_callback(lambda _: work.may_end.set())
            yield from ()
            raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        list(failing())
    assert work.done == [0]


def test_nobody_waits_for_the_threads_of_a_dropped_generator() -> None:
    """The garbage collector may drop it in the middle of the start of a thread. That holds a lock
    without which no thread ends."""
    work = Work()
    is_dropped = threading.Event()

    def drop() -> None:
        generator = results(work, 3)
        next(generator)
        work.wait_for_begin()
        knot = [generator]
        knot.append(knot)  # type: ignore[arg-type]
        del generator, knot
        gc.collect()
        is_dropped.set()

    try:
        dropping = threading.Thread(target=drop)
        dropping.start()
        dropping.join(timeout=60)
        assert is_dropped.is_set()
        assert work.done == []
    finally:
        work.may_end.set()
