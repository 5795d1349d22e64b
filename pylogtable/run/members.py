"""The soft claim of a process on topics: a small object that it writes every few seconds.

A claim saves work and protects nothing. Jobs are safe beside each other, so if two processes look
after one topic for a moment, or nobody may write claims, the data is right all the same.
"""

from __future__ import annotations

import json
import logging
import os
import socket
from collections.abc import Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path

from pylogtable.errors import StorageError
from pylogtable.events import log_event
from pylogtable.run.share_plan import Beat, living, owner
from pylogtable.runtime import Runtime
from pylogtable.storage.base import ObjectStore
from pylogtable.times import is_within

_logger = logging.getLogger(__name__)

#: In the folder of the store. No topic can have this name.
MEMBERS_DIR = "run=members/"
#: How often a member shows itself, and after which silence the others take over its topics.
BEAT_MS = 10_000
LEASE_MS = 30_000
#: The object of a member that was killed is removed by another one after this time.
GONE_MS = 10 * LEASE_MS
#: What odd content of a claim raises.
_ODD_CONTENT = (ValueError, KeyError, TypeError, AttributeError, OverflowError)
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


class Members:
    """The processes that run jobs in a store, as this one sees them. They share topics only if they
    have the same `task`: a process that does not merge must not claim a topic from one that does.
    """

    def __init__(self, store: ObjectStore, runtime: Runtime, task: str = "all") -> None:
        self._store = store
        self._runtime = runtime
        self._task = f"{task}-"
        self.id = f"{self._task}{runtime.new_id()}"
        self._key = f"{MEMBERS_DIR}{self.id}.json"
        self._began_ms = self._next_ms = runtime.clock()
        self._members: Sequence[str] = ()
        #: When each member that has come later than this one begins to work.
        self._joins_ms: dict[str, int] = {}
        self._seen_ms: int | None = None
        self._has_claimed = False
        #: True from the end of the lease until the claim could be written again.
        self._is_lost = False
        #: Others need one beat to see a new member, so it waits as long before it begins.
        self._starts_ms: int | None = None

    @property
    def next_beat_ms(self) -> int:
        """When to call `beat` again."""
        return self._next_ms

    def beat(self) -> None:
        """Show that this process is alive, and look who else is. A store that fails is asked again;
        where claims cannot be written at all, this process looks after all topics."""
        now_ms = self._runtime.clock()
        self._next_ms = now_ms + BEAT_MS
        is_new = not self._has_claimed or not self._is_seen(now_ms)
        try:
            if self._has_claimed and not self._store.is_there():
                raise StorageError("the folder of the store is gone")  # and is not made again
            self._store.write(self._key, self._about(now_ms, is_new=is_new))
            found = list(self._store.list(MEMBERS_DIR))
        except StorageError as error:
            if not self._has_claimed:
                if self._seen_ms is None:
                    _logger.warning("this process cannot claim topics, and takes all: %s", error)
                self._members, self._starts_ms, self._seen_ms = (self.id,), now_ms, now_ms
            elif not self._is_seen(now_ms) and not self._is_lost:
                self._is_lost = True
                _logger.warning("this process cannot renew its claim, and pauses: %s", error)
            return
        if self._is_lost:
            self._is_lost = False
            _logger.info("this process has renewed its claim, and goes on")
        beats = [Beat(info.key[len(MEMBERS_DIR) : -5], info.modified_ms) for info in found]
        if not self._has_claimed:
            beats = [beat for beat in beats if not self._was_killed_here(beat.member)]
        before = set(self._members)
        mine_ms = next((beat.at_ms for beat in beats if beat.member == self.id), now_ms)
        alive = living(beats, mine_ms, LEASE_MS)
        alike = [name for name in alive if name.startswith(self._task)]
        self._members = sorted({self.id, *alike})
        self._tell(before)
        if is_new:
            is_alone = len(self._members) == 1
            self._starts_ms = now_ms if is_alone else now_ms + BEAT_MS
            self._joins_ms = {}
        else:
            ages_ms = {beat.member: mine_ms - beat.at_ms for beat in beats}
            for name in {*self._members} - before:  # until it begins, its topics stay here
                self._joins_ms[name] = now_ms - ages_ms[name] + self._waits_ms(name)
        self._seen_ms, self._has_claimed = now_ms, True
        self._remove_gone(beats, mine_ms)

    def owns(self, topic: str) -> bool:
        """Whether this process looks after the topic. False while its own claim is too old, and
        just after it has come: others may look after the topic."""
        now_ms = self._runtime.clock()
        if not self._is_seen(now_ms) or self._starts_ms is None or now_ms < self._starts_ms:
            return False
        working = [name for name in self._members if self._joins_ms.get(name, now_ms) <= now_ms]
        return owner(topic, working) == self.id

    def _waits_ms(self, member: str) -> int:
        """How long a member waits after its last beat, before it begins; 0 if that cannot be
        told."""
        try:
            about = json.loads(self._store.read(f"{MEMBERS_DIR}{member}.json") or b"{}")
            return BEAT_MS if about["waits"] is True else 0
        except (StorageError, *_ODD_CONTENT):
            return 0

    def _is_seen(self, now_ms: int) -> bool:
        """Whether the others count this process as alive: its last beat is within the lease. False
        too if the clock was set back since."""
        return is_within(self._seen_ms, now_ms, LEASE_MS)

    def _was_killed_here(self, member: str) -> bool:
        """True if the claim is of a process of this machine that does not live any more: most
        likely this one was started in its place, and need not wait for the end of its lease."""
        key = f"{MEMBERS_DIR}{member}.json"
        try:
            about = json.loads(self._store.read(key) or b"{}")
            is_here = about.get("machine") == _machine() is not None
            if is_here and not _lives(int(about["process"]), about.get("started")):
                self._store.delete(key)
                return True
        except (StorageError, *_ODD_CONTENT):
            return False
        return False

    def _remove_gone(self, beats: Sequence[Beat], mine_ms: int) -> None:
        for beat in beats:
            if abs(mine_ms - beat.at_ms) > GONE_MS:
                with suppress(StorageError):  # the next beat tries again
                    self._store.delete(f"{MEMBERS_DIR}{beat.member}.json")

    def leave(self) -> None:
        """Give all topics up, so that others need not wait for the end of the lease."""
        try:
            self._store.delete(self._key)
        except StorageError as error:
            _logger.warning("the claim of this process was not removed: %s", error)

    def _about(self, now_ms: int, *, is_new: bool) -> bytes:
        about = {
            "host": socket.gethostname(),
            "machine": _machine(),
            "process": os.getpid(),
            "started": _started(os.getpid()),
            "began_ms": self._began_ms,
            "at_ms": now_ms,
            # It begins when the others have seen it.
            "waits": is_new,
        }
        return json.dumps(about).encode()

    def _tell(self, before: set[str]) -> None:
        now = set(self._members)
        come = "process %(member)s shares the topics from now on"
        gone = "process %(member)s is gone; others look after its topics"
        for member in sorted((before ^ now) - {self.id}):
            message = come if member in now else gone
            log_event(_logger, logging.INFO, message, member=member, store=self._store.url)


@cache
def _machine() -> str | None:
    """A name of this machine since its last start; None if there is none."""
    try:
        return f"{socket.gethostname()} {_BOOT_ID.read_text().strip()}"
    except OSError:
        return None


def _started(process: int) -> int | None:
    """When a process was started, in ticks since the start of the machine; None if not known."""
    try:
        fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
        return int(fields[19])
    except (OSError, ValueError, IndexError):
        return None


def _lives(process: int, started: int | None) -> bool:
    """Whether a process lives. In a container, the one that takes its place has the same number."""
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return started is None or _started(process) in (None, started)
