"""Waiting: how often something is tried, and how long the pauses are."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field

import pytest

from pylogtable.runtime import LONGEST_PAUSE_IN_DOUBT, Runtime


@dataclass
class Time:
    """A time in which only pauses pass."""

    now: float = 0.0
    pauses: list[float] = field(default_factory=list)

    def pause(self, seconds: float) -> None:
        self.pauses.append(seconds)
        self.now += seconds

    def runtime(self, patience_seconds: float) -> Runtime:
        return Runtime(
            monotonic=lambda: self.now,
            pause=self.pause,
            chance=lambda: 1.0,
            patience_seconds=patience_seconds,
        )


def test_attempts_end_when_patience_runs_out_and_pauses_double_up_to_a_limit() -> None:
    time = Time()
    attempts = sum(1 for _ in time.runtime(60.0).patient_attempts())
    assert time.pauses[:4] == [0.001, 0.002, 0.004, 0.008]
    assert max(time.pauses) == LONGEST_PAUSE_IN_DOUBT
    assert attempts == len(time.pauses) + 1
    assert 60.0 < time.now <= 60.0 + LONGEST_PAUSE_IN_DOUBT


def test_the_first_attempt_does_not_wait() -> None:
    time = Time()
    for _ in time.runtime(60.0).patient_attempts():
        break
    assert time.pauses == []


@pytest.mark.parametrize("patience_seconds", [-1.0, 0.0])
def test_one_attempt_is_made_even_without_patience(patience_seconds: float) -> None:
    attempts = iter(Time().runtime(patience_seconds).patient_attempts())
    next(attempts)
    if patience_seconds < 0:
        with pytest.raises(StopIteration):
            next(attempts)


def test_work_for_later_is_done_at_once_where_no_thread_can_start(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    done: list[int] = []
    Runtime().later(lambda: done.append(1))
    assert done == [1]
