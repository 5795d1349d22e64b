"""The newest known state of a topic, and the loop that changes it.

A change is planned on the newest snapshot, put as the next version, and planned again if another
commit got there first [COMMIT-4]. The outcome of a put is success, failure or unknown. The clients
below us retry by themselves, so "exists" may mean "mine": whenever the reply is not a plain yes the
version is read back and its commit id decides. Until the fate of a version is known no other is
tried, so a put that lands late is either ours at the right place or loses [COMMIT-5].
"""

from __future__ import annotations

from collections.abc import Callable
from threading import Lock
from typing import TypeVar

import msgspec

from pylogtable.errors import (
    CommitUnknownError,
    CorruptTopicError,
    LogTableError,
    StorageError,
    TopicNotFoundError,
)
from pylogtable.format.codec import check_writable, decode_commit, encode
from pylogtable.format.config import STALE_AFTER_MS
from pylogtable.format.model import Change, Commit
from pylogtable.format.snapshot import Snapshot, apply
from pylogtable.log.manifest import Manifest
from pylogtable.plan.index import root_is_due
from pylogtable.runtime import Runtime
from pylogtable.storage.base import Created

Other = TypeVar("Other")

# A lost race means that someone made progress; a doubt means that the store is in trouble.
LOST_RACE_PAUSE = 0.02
DOUBT_PAUSE = 2.0


class Head:
    """The newest state that is known of one topic, which it stays bound to by its id."""

    def __init__(self, manifest: Manifest, runtime: Runtime, snapshot: Snapshot, url: str) -> None:
        self.manifest = manifest
        self.runtime = runtime
        self._url = url
        self._topic_id = snapshot.topic_id
        self._snapshot = snapshot
        self._seen_ms = self._loaded_ms = runtime.clock()
        self._lock = Lock()

    @property
    def known(self) -> Snapshot:
        return self._snapshot

    def latest(self) -> Snapshot:
        """The newest state in the store. One that was loaded too long ago to be sure that the
        commits after it, and the leaves it rests on, are still there is loaded anew [COMMIT-8]."""
        now = self.runtime.clock()
        if now - self._loaded_ms > STALE_AFTER_MS:
            newest = self.manifest.load()
            remembered = self._remember(newest, now)
            self._loaded_ms = now
            return remembered
        return self._remember(self.manifest.advance(self._snapshot), now)

    def change(
        self, plan: Callable[[Snapshot], Change | Other], *, refresh: bool = True
    ) -> tuple[Snapshot, Commit | Other]:
        """Plan and commit until it lands, and give the state after it. What a plan returns instead
        of a change ends the loop, and so does what it raises: then nothing was committed. Without
        `refresh` it begins on the state that is known, unless that is too old."""
        commit_id = self.runtime.new_id()
        is_stale = self.runtime.clock() - self._seen_ms > STALE_AFTER_MS
        snapshot = self.latest() if refresh or is_stale else self._snapshot
        attempt = 0
        while True:
            decided = plan(snapshot)
            if not isinstance(decided, Change):
                return snapshot, decided
            landed = attempt_commit(
                self.manifest, self.runtime, snapshot, decided, commit_id, self._topic_id
            )
            if landed is not None:
                commit, after = landed
                return self._after(after), commit
            self.runtime.back_off(attempt, longest_seconds=LOST_RACE_PAUSE)
            snapshot = self.latest()
            attempt += 1

    def _after(self, snapshot: Snapshot) -> Snapshot:
        if root_is_due(snapshot) and snapshot.topic is not None:
            snapshot = self._with_root(snapshot)
        return self._remember(snapshot, self.runtime.clock(), may_be_gone=True)

    def _with_root(self, snapshot: Snapshot) -> Snapshot:
        """Write a root, unless one is overdue only because others wrote theirs unseen. The commit
        has landed: nothing that is met here may make it look as if it had not."""
        try:
            rebased = self.manifest.rebase(snapshot)
        except LogTableError:
            return snapshot
        if rebased is snapshot:
            return self.manifest.write_root(snapshot, self.runtime.new_id)
        is_gone = rebased.topic is None or rebased.topic_id != snapshot.topic_id
        return snapshot if is_gone else rebased

    def _remember(
        self, newest: Snapshot | None, now_ms: int, *, may_be_gone: bool = False
    ) -> Snapshot:
        if newest is None or (newest.topic is None and not may_be_gone):
            raise TopicNotFoundError(f"the topic at {self._url} has been deleted")
        if newest.topic_id != self._topic_id:
            raise TopicNotFoundError(
                f"the topic at {self._url} has been deleted and another created in its place; "
                "open it anew"
            )
        with self._lock:
            if newest.version >= self._snapshot.version:
                self._snapshot = newest
                self._seen_ms = now_ms
        return newest


def attempt_commit(
    manifest: Manifest,
    runtime: Runtime,
    snapshot: Snapshot | None,
    change: Change,
    commit_id: str,
    topic_id: str,
) -> tuple[Commit, Snapshot] | None:
    """Put the change as the version after `snapshot`; None is a lost race. What does not decode or
    cannot be replayed is found before it is put, because it could never be taken back."""
    if snapshot is not None:
        check_writable(snapshot.protocol)
    commit = seal(change, snapshot, commit_id, topic_id, runtime.clock())
    after = apply(snapshot, decode_commit(encode(commit), commit.version))
    doubt = CommitUnknownError(commit.commit_id, commit.version)

    def id_found() -> str | None:
        winner = manifest.read_commit(commit.version)
        return None if winner is None else winner.commit_id

    landed = put(lambda: manifest.try_commit(commit), id_found, doubt, runtime)
    return (commit, after) if landed else None


def seal(
    change: Change, snapshot: Snapshot | None, commit_id: str, topic_id: str, now_ms: int
) -> Commit:
    """The change as the commit after `snapshot`, and later in time than it [COMMIT-6]."""
    return Commit(
        **msgspec.structs.asdict(change),
        version=snapshot.version + 1 if snapshot else 0,
        commit_id=commit_id,
        topic_id=topic_id,
        committed_at_ms=max(now_ms, snapshot.committed_at_ms + 1) if snapshot else now_ms,
    )


def put(
    create: Callable[[], Created],
    id_found: Callable[[], str | None],
    doubt: CommitUnknownError,
    runtime: Runtime,
) -> bool:
    """Whether a numbered object became what its number stands for; False is a lost race. `id_found`
    gives the commit id of the object that has the number. Raises `StorageError` if it did not and
    will not, `doubt` if that cannot be told."""
    deadline = runtime.monotonic() + runtime.patience_seconds
    in_doubt = False
    attempt = 0
    while True:
        refusal: StorageError | None = None
        try:
            if create() is Created.YES:
                return True
            in_doubt = True
        except StorageError as error:
            refusal = error
        try:
            winner = id_found()
        except StorageError as error:
            if refusal is not None and not in_doubt:
                raise refusal from error
        except CorruptTopicError as error:
            raise doubt from error
        else:
            if winner is not None:
                return winner == doubt.commit_id
            if refusal is not None and not in_doubt:
                raise refusal
        if runtime.monotonic() > deadline:
            raise doubt from refusal
        runtime.back_off(attempt, longest_seconds=DOUBT_PAUSE)
        attempt += 1
