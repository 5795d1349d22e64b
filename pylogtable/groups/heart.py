"""The heartbeat of a consumer: a thread that renews its leases while the program does its work.

It gives up no partitions and takes none: that happens while the consumer polls or commits. If the
program has done neither for too long, the heartbeat leaves the group, as in Kafka. It stops when
the consumer is closed or dropped. A process that was forked has no thread until its copy of the
consumer joins the group as a member of its own.
"""

from __future__ import annotations

import logging
from threading import Event, Lock
from typing import Protocol
from weakref import ref

from pylogtable.operation import Threads
from pylogtable.runtime import Runtime

#: How many leases are renewed side by side. A consumer of many topics has one in each.
_AT_ONCE = 8

_log = logging.getLogger(__name__)


class Beating(Protocol):
    """A member whose lease is renewed."""

    def beat(self) -> float:
        """Renew the lease if it is time. Returns how many seconds to wait for the next beat."""


class Heart:
    """Renews the leases of one consumer's members. All of them share its thread."""

    def __init__(self, runtime: Runtime, most_idle_ms: int) -> None:
        self.most_idle_ms = most_idle_ms
        self._runtime = runtime
        self._process = runtime.process_id()
        self._begin()
        self.touch()

    def _begin(self) -> None:
        self._lock = Lock()
        # Weak, so that a consumer that was dropped is not kept alive by its thread.
        self._members: dict[int, ref[Beating]] = {}
        self._stop: Event | None = None

    def touch(self) -> None:
        """The program is at work: it polls, or commits."""
        self._touched_at = self._runtime.monotonic()

    @property
    def idle_ms(self) -> int:
        """How long the program has neither polled nor committed."""
        return int((self._runtime.monotonic() - self._touched_at) * 1000)

    def add(self, member: Beating) -> None:
        """Renew the lease of this member, too."""
        with self._own_lock():
            self._members[id(member)] = ref(member)
            if self._stop is not None:
                return
            self._stop = stop = Event()
        self._runtime.beside(lambda: self._beat_until(stop))

    def discard(self, member: Beating) -> None:
        """Renew the lease of this member no more. The thread ends with the last of them."""
        with self._own_lock():
            self._members.pop(id(member), None)
            if not self._members:
                self._end()

    def beat(self) -> float | None:
        """Renew what is due. Returns how many seconds to wait for the next beat, or None if there
        is no member left."""
        with self._lock:
            self._members = {key: known for key, known in self._members.items() if known()}
            members = [member for known in self._members.values() if (member := known())]
            if not members:
                self._end()
                return None
        if len(members) == 1:
            return _beat(members[0])
        with Threads(min(_AT_ONCE, len(members))) as pool:
            return min(pool.map(_beat, members))

    def _beat_until(self, stop: Event) -> None:
        wait: float | None = 0.0
        while wait is not None and not stop.wait(wait):
            wait = self._try_to_beat()

    def _try_to_beat(self) -> float | None:
        try:
            return self.beat()
        except RuntimeError:
            return None  # the interpreter ends, and starts no threads any more

    def _own_lock(self) -> Lock:
        """The lock. In a forked process a new one: the parent's thread may have held it."""
        process = self._runtime.process_id()
        if process != self._process:
            self._process = process
            self._begin()
        return self._lock

    def _end(self) -> None:
        if self._stop is not None:
            self._stop.set()
            self._stop = None


def _beat(member: Beating) -> float:
    try:
        return member.beat()
    except Exception:
        # The next poll or commit meets the same trouble, and tells the program.
        _log.debug("a heartbeat has failed", exc_info=True)
        return 1.0
