"""The commit protocol that topics and consumer groups share.

A change is planned on the newest known state, put as the next numbered object, and planned again if
somebody else took that number [COMMIT-4]. A put may succeed, fail, or have an unknown outcome.
The same put is tried again while its outcome is unknown, so "exists" may mean that our own first
try succeeded. Unless the put clearly succeeded, the object is read back, and its commit id decides.
No other number is tried until the outcome of this one is known. So a put that arrives late is
either ours and in the right place, or it loses [COMMIT-5].
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import TypeVar

from pylogtable.errors import CommitUnknownError, CorruptTopicError, StorageError
from pylogtable.runtime import Runtime
from pylogtable.storage.base import Created

# After a lost race somebody else made progress, so the next try may follow soon.
LONGEST_PAUSE_AFTER_LOST_RACE = 0.02

State = TypeVar("State")
Outcome = TypeVar("Outcome")


def change_until_landed(
    first: State,
    attempt: Callable[[State], Outcome | None],
    refresh: Callable[[], State],
    runtime: Runtime,
) -> Outcome:
    """Attempt a change on the state `first`. While an attempt returns None, refresh and try again.

    None means a lost race: another commit took the number. An exception from `attempt` ends the
    loop.
    """
    state = first
    for number in itertools.count():
        landed = attempt(state)
        if landed is not None:
            return landed
        runtime.back_off(number, longest_seconds=LONGEST_PAUSE_AFTER_LOST_RACE)
        state = refresh()
    raise AssertionError("an endless loop ended")


def put_numbered(
    create: Callable[[], Created],
    read_commit_id: Callable[[], str | None],
    unknown: CommitUnknownError,
    runtime: Runtime,
) -> bool:
    """Put a numbered object; True if it is ours now, False if another commit has the number.

    `read_commit_id` reads the commit id of the object with that number, None if there is none.
    Raises `StorageError` if the put certainly failed, and `unknown` if its outcome cannot be found
    out in time.
    """
    in_doubt = is_hidden = False
    refusal: StorageError | None = None
    failure: StorageError | None = None
    for _ in runtime.patient_attempts():
        refusal = None
        try:
            outcome = create()
            if outcome is Created.YES:
                return True
            in_doubt, is_hidden = True, outcome is Created.EXISTS
        except StorageError as error:
            refusal = failure = error
        try:
            winner = read_commit_id()
        except StorageError as error:
            failure = error
            if refusal is not None and not in_doubt:
                raise refusal from error
        except CorruptTopicError as error:
            raise unknown from error
        else:
            if winner is not None:
                return winner == unknown.commit_id
            if refusal is not None and not in_doubt:
                raise refusal
    if failure is not None:
        unknown.reason = str(failure)
    elif is_hidden:
        unknown.reason = "the store says that there is an object of that number, and shows none"
    raise unknown from failure
