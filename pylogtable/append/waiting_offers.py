"""The offers of other writers, as this process knows them: who waits, and what is to be appended.

A writer looks for offers beside its puts, and before it commits because nobody else does. What may
land is in `combine_plan`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from threading import Lock

from pylogtable.append.combine_plan import (
    OneAppend,
    append_in,
    is_new,
    may_be_offered,
    may_be_taken,
)
from pylogtable.errors import CorruptTopicError
from pylogtable.format.offers import Fate, Offer, fate_of
from pylogtable.format.snapshot import Snapshot
from pylogtable.log.topic_log import TopicLog
from pylogtable.operation import new_operation

#: A writer that puts one commit after the other looks for offers beside them: nobody else would get
#: a turn. It looks this often, and less often while it finds none. In between it pays nothing.
LOOK_EVERY_SECONDS = 0.25
LOOK_AT_LEAST_EVERY_SECONDS = 1.0
#: To list and to read takes two round trips, and a put one.
LOOKS_AT_ONCE = 2
#: How long a writer remembers that offers were waiting.
CROWDED_FOR_SECONDS = 1.0
#: At most so many offers are read for one commit.
READ_AT_ONCE = 256


class WaitingOffers:
    """The offers of others on the topic of `log`."""

    def __init__(self, log: TopicLog) -> None:
        self._log = log
        self._runtime = log.runtime
        self._offers = log.manifest.offers
        self._lock = Lock()
        #: Those that were listed last, and those of them that were read. None for one that cannot
        #: be taken along.
        self._waiting: list[str] = []
        self._read: dict[str, OneAppend | None] = {}
        self._looked = self._crowded = float("-inf")
        #: When this process has last put a commit.
        self.last_landed = float("-inf")
        self._look_every = LOOK_EVERY_SECONDS
        self._looks_under_way = 0

    @property
    def is_crowded(self) -> bool:
        """True if offers were waiting a short time ago."""
        return self._runtime.monotonic() - self._crowded < CROWDED_FOR_SECONDS

    def note_crowd(self) -> None:
        self._crowded = self._runtime.monotonic()

    def note_others(self) -> None:
        """Another writer was here."""
        self._look_every = LOOK_EVERY_SECONDS

    def note_landed(self, names: Sequence[str]) -> None:
        """These were in a commit of this process."""
        self.last_landed = self._runtime.monotonic()
        with self._lock:
            self._waiting = [name for name in self._waiting if name not in names]
        self.remove(names)

    def refuse(self, names: Sequence[str]) -> None:
        """These cannot be taken along."""
        with self._lock:
            self._read.update(dict.fromkeys(names))

    def takeable(self, own: OneAppend, state: Snapshot) -> list[OneAppend]:
        """The offers of others that were read, and that a commit on this state may take along."""
        if not self._waiting or not may_be_offered(own):
            return []
        with self._lock:
            found = [self._read.get(name) for name in self._open(own, state)]
        now_ms = self._runtime.clock()
        return [one for one in found if one is not None and may_be_taken(state, one, now_ms)]

    def look_beside(self) -> None:
        """Look for offers beside a put, if it is time to, so that it takes no time of its own."""
        if not self._look_is_due():
            return
        with self._lock:
            if self._looks_under_way >= LOOKS_AT_ONCE:
                return
            self._looks_under_way += 1
        self._runtime.later(self._look)

    def fetch(self, own: OneAppend | None, state: Snapshot) -> None:
        """Read the offers that were listed and not read yet."""
        with self._lock:
            unread = [name for name in self._open(own, state) if name not in self._read]
        if unread:
            self._note_read(self._offers.read(unread), state)

    def rank(self, name: str, state: Snapshot) -> int:
        """How many offers are in line before this one."""
        self._note_listed(self._offers.names(), state)
        with self._lock:
            before = [one for one in self._waiting if one < name]
            return sum(self._read.get(one, True) is not None for one in before)

    def remove(self, names: Sequence[str]) -> None:
        if names:
            self._runtime.later(lambda: self._offers.remove(names))

    def _open(self, own: OneAppend | None, state: Snapshot) -> list[str]:
        """The offers of others that were listed, and that may still land [OFFER-3]."""
        recent = state.recent_commits
        waiting = (name for name in self._waiting if own is None or name != own.offer)
        names = [name for name in waiting if fate_of(name, state.version, recent) is Fate.OPEN]
        return names[:READ_AT_ONCE]

    def _look_is_due(self) -> bool:
        """True if it is time to look for offers. A writer that appends now and then need not: the
        log is free in between."""
        now = self._runtime.monotonic()
        if self.is_crowded:
            return True
        if now - self.last_landed > self._look_every:
            self._looked = now
        return now - self._looked > self._look_every

    def _look(self) -> None:
        """List the offers that wait, and read those that are new."""
        try:
            with new_operation():
                state = self._log.known
                self._note_listed(self._offers.names(), state)
                self.fetch(None, state)
        finally:
            with self._lock:
                self._looks_under_way -= 1

    def _note_listed(self, names: Sequence[str], state: Snapshot) -> None:
        self._looked = self._runtime.monotonic()
        recent, listed = state.recent_commits, set(names)
        fates = {name: fate_of(name, state.version, recent) for name in names}
        self.remove([name for name, fate in fates.items() if fate is Fate.VOID])
        with self._lock:
            self._waiting = [name for name, fate in fates.items() if fate is Fate.OPEN]
            self._read = {name: one for name, one in self._read.items() if name in listed}
        longest = LOOK_AT_LEAST_EVERY_SECONDS
        self._look_every = LOOK_EVERY_SECONDS if names else min(2 * self._look_every, longest)
        if self._waiting:
            self._crowded = self._looked

    def _note_read(self, offers: Mapping[str, Offer | None], state: Snapshot) -> None:
        found: dict[str, OneAppend | None] = dict.fromkeys(offers)
        for name, offer in offers.items():
            if offer is not None:
                with suppress(CorruptTopicError):  # [OFFER-6]
                    found[name] = append_in(offer, state)
        void = [name for name, one in found.items() if one is not None and not is_new(state, one)]
        with self._lock:
            self._read.update(found)
            self._waiting = [name for name in self._waiting if name not in void]
        self.remove(void)
