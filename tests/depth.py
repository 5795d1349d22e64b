"""How much work the property, torture and kill tests do.

`make test` does little of it, and the same each time, so that the same code has the same result.
`make test-deep` sets `PYLOGTABLE_DEEP`: far more of it, from another seed each time. Either way an
amount of work ends a test, never a clock.
"""

from __future__ import annotations

import os
import random
from collections.abc import Iterable
from itertools import islice
from typing import TypeVar

from hypothesis import HealthCheck, settings

T = TypeVar("T")

DEEP = bool(os.environ.get("PYLOGTABLE_DEEP"))


def rounds(usual: int, *, deep: int) -> int:
    """How often to do something."""
    return deep if DEEP else usual


def sample(cases: Iterable[T], every: int, first: int = 0) -> Iterable[T]:
    """Each `every`-th case, beginning with number `first`; all of them in a deep run."""
    return cases if DEEP else islice(cases, first % every, None, every)


def new_seed() -> int:
    """For tests that draw lots; printed. `PYLOGTABLE_SEED` repeats a deep run."""
    drawn = random.randrange(2**32) if DEEP else 0
    seed = int(os.environ.get("PYLOGTABLE_SEED") or drawn)
    print(f"PYLOGTABLE_SEED={seed}")
    return seed


def load_hypothesis_profile() -> None:
    """For all property tests; those with costly examples say for themselves how many they want."""
    costly = [HealthCheck.too_slow, HealthCheck.data_too_large]
    settings.register_profile(
        "usual",
        max_examples=50,
        derandomize=True,
        database=None,
        deadline=None,
        suppress_health_check=costly,
    )
    settings.register_profile(
        "deep", max_examples=1000, deadline=None, print_blob=True, suppress_health_check=costly
    )
    settings.load_profile("deep" if DEEP else "usual")
