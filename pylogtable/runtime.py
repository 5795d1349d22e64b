"""Everything impure: the clock, fresh ids, waiting, randomness and work in the background."""

from __future__ import annotations

import itertools
import math
import os
import random
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass

from pylogtable.errors import InvalidRequestError
from pylogtable.operation import current_operation

# After an unclear reply the store is in trouble, so it gets time.
LONGEST_PAUSE_IN_DOUBT = 2.0

#: How long an operation waits for a store that does not answer, or not clearly. The storage option
#: of this name changes it.
PATIENCE_SECONDS = 120.0
TIMEOUT_OPTION = "timeout_seconds"


def patience_in(storage_options: Mapping[str, object]) -> float:
    """How long to wait for the store, in seconds."""
    given = storage_options.get(TIMEOUT_OPTION, PATIENCE_SECONDS)
    try:
        seconds = float(given)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        seconds = math.nan
    if not seconds > 0:
        raise InvalidRequestError(
            f"{TIMEOUT_OPTION} must be a number of seconds above 0, not {given!r}"
        )
    return seconds


def _wall_clock_ms() -> int:
    return time.time_ns() // 1_000_000


def seeded_chance(seed: str) -> Callable[[], float]:
    """Random numbers from 0 to 1 that are the same for the same seed."""
    return random.Random(seed).random


def _fresh_id() -> str:
    return uuid.uuid4().hex


def _in_background(work: Callable[[], None]) -> None:
    """Nobody waits for the work, and a process that ends does not finish it. Where no thread can be
    started, it is done at once."""
    try:
        threading.Thread(target=work, name="pylogtable cleaning", daemon=True).start()
    except RuntimeError:
        work()


def _beside_the_program(work: Callable[[], None]) -> None:
    """The work ends by itself, or with the process. Where no thread can be started, it is not
    done."""
    with suppress(RuntimeError):
        threading.Thread(target=work, name="pylogtable heartbeat", daemon=True).start()


@dataclass(frozen=True)
class Runtime:
    """The outside world as the library sees it; `pylogtable.open` makes one and hands it down.

    Tests pass their own: a clock that stands still, ids that count up, pauses that take no time.
    """

    clock: Callable[[], int] = _wall_clock_ms
    new_id: Callable[[], str] = _fresh_id
    monotonic: Callable[[], float] = time.monotonic
    pause: Callable[[float], None] = time.sleep
    chance: Callable[[], float] = random.random
    #: Does work that nobody waits for. It must not raise.
    later: Callable[[Callable[[], None]], None] = _in_background
    #: Does work that goes on while the program does something else. It must not raise.
    beside: Callable[[Callable[[], None]], None] = _beside_the_program
    #: A forked process has its parent's objects, and none of its threads.
    process_id: Callable[[], int] = os.getpid
    #: How long the outcome of a commit may stay unknown before `CommitUnknownError` is raised.
    patience_seconds: float = PATIENCE_SECONDS

    def back_off(self, attempt: int, *, longest_seconds: float) -> None:
        """Wait for a random time. Its limit starts at a millisecond and doubles per attempt."""
        self.pause(self.chance() * min(longest_seconds, 0.001 * 2 ** min(attempt, 16)))

    def patient_attempts(self) -> Iterator[None]:
        """Yield once per attempt until patience runs out, with a growing pause in between. It runs
        out earlier if the store was silent for too long.

        The loop body returns as soon as it has an answer. The code after the loop reports that
        there was none:

            for _ in runtime.patient_attempts():
                if (answer := ask()) is not None:
                    return answer
            raise CommitUnknownError(...)
        """
        operation = current_operation()
        deadline = self.monotonic() + min(self.patience_seconds, operation.limit_seconds)
        for attempt in itertools.count():
            yield
            if self.monotonic() > deadline or operation.has_given_up:
                return
            self.back_off(attempt, longest_seconds=LONGEST_PAUSE_IN_DOUBT)
