"""Holds the newest known state of a topic, and changes it by putting the next commit.

A commit counts only if it follows the newest one. The put alone does not show that: a version is
free again if vacuum has removed it, or if the topic was removed. So after the put the writer makes
sure that the commit it planned on is still there, unless the store has confirmed it shortly before
[COMMIT-9].
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from threading import Lock
from typing import TypeVar

import msgspec

from pylogtable.errors import (
    CommitUnknownError,
    CorruptTopicError,
    LogTableError,
    StorageError,
    TopicNotFoundError,
    UnsupportedFormatError,
)
from pylogtable.format.config import STALE_AFTER_MS
from pylogtable.format.json_codec import check_writable, decode_commit, decode_own, encode
from pylogtable.format.log_state import LogState
from pylogtable.format.model import Change, Commit
from pylogtable.format.snapshot import Snapshot, apply
from pylogtable.log.clock_skew import FRESH_MS, check_clock
from pylogtable.log.commit_events import attempt_of
from pylogtable.log.commit_loop import change_until_landed, put_numbered
from pylogtable.log.commits import gap_at
from pylogtable.log.later_roots import LaterRoots
from pylogtable.log.manifest import Manifest
from pylogtable.log.root_plan import root_is_due, root_is_overdue
from pylogtable.operation import new_operation
from pylogtable.runtime import Runtime
from pylogtable.storage.base import NotSentError, ObjectStore

Other = TypeVar("Other")


#: Stands for the id of a commit that a newer release has put.
_NEWER = ""


class TopicLog:
    """The newest known state of one topic. It is bound to the topic's id: a topic that was deleted
    and created again under the same name is a different topic."""

    def __init__(self, manifest: Manifest, runtime: Runtime, snapshot: Snapshot) -> None:
        self.manifest = manifest
        self.store = manifest.store
        self.runtime = runtime
        self._topic_id = snapshot.topic_id
        self._snapshot = snapshot
        self._seen_ms = self._loaded_ms = runtime.clock()
        #: How many commits the last look has found.
        self._expected = 0
        self._is_rebasing = False
        self._lock = Lock()
        self.later_roots = LaterRoots(runtime)
        self._has_later_root = False

    @property
    def known(self) -> Snapshot:
        """The newest state this process has seen, without a request to the store."""
        return self._snapshot

    @property
    def recent(self) -> Snapshot | None:
        """The known state, if a change may be planned on it without asking for a newer one: there
        would be a request to save, and the state was the newest a short time ago. If another commit
        has come since, the put fails. None if it is better to ask first."""
        now = self.runtime.clock()
        is_new = 0 <= now - self._seen_ms < FRESH_MS and now - self._loaded_ms <= STALE_AFTER_MS
        return self._snapshot if self.store.is_remote and is_new else None

    def latest(self, *, first_wave: int = 1) -> Snapshot:
        """The newest state in the store. After `STALE_AFTER_MS` it is loaded from scratch: by then
        vacuum may have removed later commits, or leaves that the known state uses [COMMIT-8].
        `first_wave` is the least number of commits to request at once. If the last call has found
        some, as many are expected again."""
        now = self.runtime.clock()
        if now - self._loaded_ms > STALE_AFTER_MS:
            newest = self.manifest.load()
            remembered = self._remember(newest, now)
            self._loaded_ms = now
            return remembered
        known = self._snapshot
        is_old = now - self._seen_ms > FRESH_MS
        wave = max(first_wave, self._expected + 1)
        newest = self.manifest.advance(known, is_old=is_old, first_wave=wave)
        remembered = self._remember(newest, now, instead_of=known)
        self._expected = max(0, remembered.version - known.version)
        return remembered

    def latest_state(self) -> LogState:
        """The newest state in the store, with its leaves."""
        return self.manifest.state(self.latest())

    def change(
        self,
        plan: Callable[[LogState], Change | Other],
        *,
        refresh: bool = True,
        root_may_wait: bool = False,
    ) -> tuple[Snapshot, Commit | Other]:
        """Plan a change and commit it; returns the state after it and the commit. After a lost
        race it is planned again, so `plan` may be called several times.

        If `plan` raises, or returns something that is not a `Change`, nothing is committed. With
        `refresh=False` the first plan is made on the known state, unless that is stale. With
        `root_may_wait` no root is written just because the change replaces segments [INL-6].
        """
        tried = -1

        def attempt(snapshot: Snapshot) -> tuple[Snapshot, Commit | Other] | None:
            nonlocal tried
            tried = snapshot.version
            commit_id = self.runtime.new_id()
            decided = plan(self.manifest.state(snapshot))
            if not isinstance(decided, Change):
                return snapshot, decided
            return self.attempt(
                snapshot,
                decided,
                commit_id,
                root_may_wait=root_may_wait,
                looks_ahead=self.store.limits.race_looks_ahead,
            )

        first = self.latest() if refresh else self.first_state()
        return change_until_landed(
            first, attempt, lambda: self.after_lost_race(tried), self.runtime
        )

    def after_lost_race(self, tried: int) -> Snapshot:
        """The state to plan on again, after an attempt on this version. Usually the commits that
        have come are known from the lost race. If none is, the version may no longer stand. Then
        this raises; a second attempt on it would take the object of the first for a winner."""
        known = self.recent
        return known if known is not None and known.version > tried else self.latest()

    def first_state(self) -> Snapshot:
        """The state to plan a change on first: the known one, unless that is stale."""
        is_stale = self.runtime.clock() - self._seen_ms > STALE_AFTER_MS
        return self.latest() if is_stale else self._snapshot

    def attempt(
        self,
        snapshot: Snapshot,
        change: Change,
        commit_id: str,
        *,
        root_may_wait: bool = False,
        looks_ahead: int = 0,
    ) -> tuple[Snapshot, Commit] | None:
        """Put a change that was planned on this state; returns the state after it and the commit.
        None after a lost race; then up to `looks_ahead` commits are read with the one that has won,
        where that takes no longer. Each attempt needs a new id: the last one may have left an
        object that does not count."""
        landed = attempt_commit(
            self.manifest,
            self.runtime,
            snapshot,
            change,
            commit_id,
            self._topic_id,
            partial(self._follow, snapshot),
            looks_ahead if self.store.is_remote else 0,
        )
        if landed is None:
            return None
        commit, after = landed
        return self._committed(after, commit, root_may_wait), commit

    def _follow(self, snapshot: Snapshot, winners: Sequence[Commit]) -> None:
        """The commit that has won the race was read, perhaps with some after it. So the next state
        is known without another request. If one cannot follow, the next look finds out why."""
        if all(winner.topic_id == self._topic_id for winner in winners):
            with suppress(LogTableError):
                for winner in winners:
                    snapshot = apply(snapshot, winner)
                self._remember(snapshot, self.runtime.clock())

    def look(self, count: int) -> Snapshot:
        """The state after the next commits, at most this many, as far as they are there. They are
        requested at once, and nothing else is: there may be a newer state."""
        known = self._snapshot
        if self.runtime.clock() - self._loaded_ms > STALE_AFTER_MS:
            return self.latest()
        newest = self.manifest.step(known, count)
        if newest is None:
            return self.latest()
        if root_is_overdue(newest, self.store.limits) and not self._is_rebasing:
            self._is_rebasing = True
            self.runtime.later(self._rebase)
        return self._remember(newest, self.runtime.clock(), instead_of=known)

    def _rebase(self) -> None:
        """Take the newest root as the base of the known state, which would grow otherwise. Nobody
        waits for it."""
        try:
            with suppress(LogTableError), new_operation():
                self._remember(self.manifest.rebase(self._snapshot), self.runtime.clock())
        finally:
            self._is_rebasing = False

    def _committed(self, snapshot: Snapshot, commit: Commit, root_may_wait: bool) -> Snapshot:
        """The state after our own commit. Writes a new root if one is due."""
        is_due = root_is_due(snapshot, commit, self.store.limits, may_wait=root_may_wait)
        if snapshot.topic is not None and (is_due or self._has_later_root):
            with_root = partial(self._write_root_later, snapshot)
            if self._has_later_root or not self.later_roots.takes(with_root):
                self._has_later_root = False
                snapshot = self._with_root(snapshot)
        return self._remember(snapshot, self.runtime.clock(), may_be_gone=True)

    def _write_root_later(self, snapshot: Snapshot) -> None:
        """Write a root for this state. By then it is no longer the known one, and a commit that is
        planned on that may be under way. So the next commit takes the root as its base."""
        with new_operation():
            self._has_later_root = self._with_root(snapshot) is not snapshot

    def _with_root(self, snapshot: Snapshot) -> Snapshot:
        """Write a root, unless another writer has written one by now. The commit has landed, so
        a failure here must not look like a failed commit."""
        try:
            rebased = self.manifest.rebase(snapshot)
        except LogTableError:
            return snapshot
        if rebased is snapshot:
            return self.manifest.write_root(snapshot, self.runtime.new_id)
        is_gone = rebased.topic is None or rebased.topic_id != snapshot.topic_id
        return snapshot if is_gone else rebased

    def _remember(
        self,
        newest: Snapshot | None,
        now_ms: int,
        *,
        instead_of: Snapshot | None = None,
        may_be_gone: bool = False,
    ) -> Snapshot:
        newest = same_topic(newest, self._topic_id, self.store.url, may_be_gone=may_be_gone)
        with self._lock:
            # It is older than the known state only if that one no longer stands.
            if newest.version >= self._snapshot.version or self._snapshot is instead_of:
                self._snapshot = newest
                self._seen_ms = now_ms
        return newest


def open_log(name: str, store: ObjectStore, runtime: Runtime) -> TopicLog:
    """The log of the topic in `store`. Raises if there is none."""
    manifest = Manifest(store)
    snapshot = manifest.load()
    if snapshot is None or snapshot.topic is None:
        raise TopicNotFoundError(
            f"there is no topic at {store.url}; create it with "
            f"pylogtable.open(<store>).create_topic({name!r}, partitions=...)"
        )
    return TopicLog(manifest, runtime, snapshot)


def same_topic(
    newest: Snapshot | None, topic_id: str, url: str, *, may_be_gone: bool = False
) -> Snapshot:
    """The state, if it is of the topic with this id. Raises if that topic was deleted, unless
    `may_be_gone`, or if another one is in its place."""
    if newest is None or (newest.topic is None and not may_be_gone):
        raise TopicNotFoundError(f"the topic at {url} has been deleted")
    if newest.topic_id != topic_id:
        raise TopicNotFoundError(
            f"the topic at {url} has been deleted, and another one was created in its place; open "
            "the topic again"
        )
    return newest


def attempt_commit(
    manifest: Manifest,
    runtime: Runtime,
    snapshot: Snapshot | None,
    change: Change,
    commit_id: str,
    topic_id: str,
    lost_to: Callable[[Sequence[Commit]], object] | None = None,
    looks_ahead: int = 0,
) -> tuple[Commit, Snapshot] | None:
    """Put the change as the version after `snapshot`. Returns None after a lost race, and if
    `snapshot` no longer stands [COMMIT-9]. The commit is decoded and replayed before it is put,
    because a broken commit could never be removed. After a lost race, `lost_to` is called with the
    commit that has won, and those of the next `looks_ahead` that are there."""
    with attempt_of(change, manifest.store.url, runtime) as attempt:
        landed = _attempt_commit(
            manifest, runtime, snapshot, change, commit_id, topic_id, lost_to, looks_ahead
        )
        if landed is not None:
            attempt.commit = landed[0]
    return landed


def _attempt_commit(
    manifest: Manifest,
    runtime: Runtime,
    snapshot: Snapshot | None,
    change: Change,
    commit_id: str,
    topic_id: str,
    lost_to: Callable[[Sequence[Commit]], object] | None,
    looks_ahead: int,
) -> tuple[Commit, Snapshot] | None:
    if snapshot is not None:
        check_writable(snapshot.protocol)
        manifest.commits.check_gap(snapshot)
    check_clock(manifest.store, runtime)
    commit = seal(change, snapshot, commit_id, topic_id, runtime.clock())
    version, data = commit.version, encode(commit)
    after = apply(snapshot, decode_own(manifest.commits.decode, data, version))
    after = replace(after, confirmed_ms=manifest.store.last_reply_ms)

    winners: list[Commit] = []

    def read_commit_id() -> str | None:
        nonlocal winners
        try:
            winners = manifest.commits.read_from(version, 1 + looks_ahead)
        except UnsupportedFormatError as error:
            if error.__cause__ is not None:  # of the store
                raise
            return _NEWER  # what we cannot decode, we have not put: the race is lost
        return winners[0].commit_id if winners else None

    unknown = CommitUnknownError(commit_id, version)
    try:
        is_ours = put_numbered(
            lambda: manifest.commits.create(version, data), read_commit_id, unknown, runtime
        )
        is_next = is_ours and (
            snapshot is None or _is_next(manifest, runtime, snapshot, after, unknown)
        )
    except LogTableError as error:
        error.may_have_landed = not isinstance(error, NotSentError)
        raise
    if is_next:
        return manifest.commits.keep(commit, data), after
    if lost_to is not None and not is_ours and winners:
        lost_to(winners)
    return None


def _is_next(
    manifest: Manifest,
    runtime: Runtime,
    before: Snapshot,
    after: Snapshot,
    unknown: CommitUnknownError,
) -> bool:
    """True if the commit that was just put counts: the one it was planned on is still there
    [COMMIT-9]. Raises if it was put into a gap. It is already in the store, so if this check fails,
    the outcome of the commit is unknown."""
    if manifest.commits.is_fresh(before):
        return True
    failure: StorageError | None = None
    for _ in runtime.patient_attempts():
        try:
            stands, later = manifest.commits.stand_and_read(before, after.version + 1)
            if not stands:
                return _counts_anyway(manifest, after, unknown)
        except CorruptTopicError as error:  # noqa: PERF203 (a retry needs it)
            raise unknown from error
        except StorageError as error:
            failure = error
        else:
            if later is not None:
                _check_no_gap(after, later)
            return True
    raise unknown from failure


def _counts_anyway(manifest: Manifest, after: Snapshot, unknown: CommitUnknownError) -> bool:
    """Whether our commit is part of the newest state, although the one before it is gone."""
    counts = manifest.commits.count(after.commit_id, after.version, manifest.load())
    if counts is None:
        raise unknown
    return counts


def _check_no_gap(after: Snapshot, later: bytes) -> None:
    """Raise unless the commit found beyond our own follows it: then it was there before, and the
    one whose place ours took is missing [COMMIT-3]."""
    try:
        apply(after, decode_commit(later, after.version + 1))
    except CorruptTopicError as error:
        raise gap_at(after.version, after.version + 1) from error


def seal(
    change: Change, snapshot: Snapshot | None, commit_id: str, topic_id: str, now_ms: int
) -> Commit:
    """The commit for this change: the version after `snapshot`, with a later time [COMMIT-6]."""
    return Commit(
        **msgspec.structs.asdict(change),
        version=snapshot.version + 1 if snapshot else 0,
        parent=None if snapshot is None else snapshot.commit_id,
        commit_id=commit_id,
        topic_id=topic_id,
        committed_at_ms=max(now_ms, snapshot.committed_at_ms + 1) if snapshot else now_ms,
    )
