"""Measures peers in turn, so that other work on the machine hits all of them alike."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping

Seconds = dict[str, float]


def medians(
    steps: Mapping[str, Callable[[], object]],
    rounds: int,
    clock: Callable[[], float] = time.perf_counter,
) -> Seconds:
    """The median time of each step. The first round warms up and is not counted. Each round begins
    with another step, since what runs first after a pause is slower."""
    names = list(steps)
    taken: dict[str, list[float]] = {name: [] for name in names}
    for round_ in range(rounds + 1):
        first = round_ % len(names)
        for name in names[first:] + names[:first]:
            began = clock()
            steps[name]()
            if round_:
                taken[name].append(clock() - began)
    return {name: statistics.median(seconds) for name, seconds in taken.items()}
