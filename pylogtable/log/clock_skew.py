"""Compares the clock of this machine with the store's time.

The ages of files are differences between times of the store. Times of commits come from the clocks
of writers. A clock that is wrong by days would make one of them useless, so it is refused.
"""

from __future__ import annotations

from pylogtable.errors import InvalidRequestError
from pylogtable.presentation import time_text
from pylogtable.runtime import Runtime
from pylogtable.storage.base import ObjectStore

#: How far a clock may be away from the store's time.
MAX_SKEW_MS = 86_400_000
#: What the store confirmed this shortly before, by its own time, needs no proof: [COMMIT-9],
#: [GRP-6].
FRESH_MS = 60_000


def is_fresh(store: ObjectStore, seen_ms: int | None) -> bool:
    """True if this time of the store is shortly before its last reply. Only times of the store are
    compared. In a store that is not remote, nothing counts as fresh."""
    now_ms = store.last_reply_ms
    if not store.is_remote or now_ms is None or seen_ms is None:
        return False
    return abs(now_ms - seen_ms) < FRESH_MS


def check_clock(store: ObjectStore, runtime: Runtime) -> None:
    """Raise if this machine's clock is more than 24 hours ahead of the store: all later commits
    would get a time after that. Raise too if it is as far behind a remote store: retention would
    remove new records at once [COMMIT-12]. No request is made, unless the last reply is old."""
    replied_ms = store.last_reply_ms
    if replied_ms is None and store.is_remote:
        return  # This store tells no time.
    if store.is_remote and replied_ms is not None and replied_ms - runtime.clock() > MAX_SKEW_MS:
        raise _wrong_clock(store, runtime, replied_ms, "nothing was committed")
    if replied_ms is not None and runtime.clock() - replied_ms <= MAX_SKEW_MS:
        return
    now_ms = store.now_ms()
    if runtime.clock() - now_ms > MAX_SKEW_MS:
        raise _wrong_clock(store, runtime, now_ms, "nothing was committed")


def agreed_now_ms(store: ObjectStore, runtime: Runtime) -> int:
    """The store's time now. Raises if this machine's clock is more than 24 hours away from it
    [VAC-4]."""
    now_ms = store.now_ms()
    if abs(runtime.clock() - now_ms) > MAX_SKEW_MS:
        raise _wrong_clock(store, runtime, now_ms, "nothing was removed")
    return now_ms


def _wrong_clock(
    store: ObjectStore, runtime: Runtime, now_ms: int, outcome: str
) -> InvalidRequestError:
    return InvalidRequestError(
        f"this machine's clock says {time_text(runtime.clock())} UTC, but it is "
        f"{time_text(now_ms)} UTC at {store.url}: {outcome}. Set the clock (NTP), or the clock of "
        "the store"
    )
