"""Reads and writes `_manifest/`: finds the newest state, writes the index.

How the newest state is found [HINT-1]: the hint names a root, the root has the state at its
version, and the commits after it are read until one is missing. If the hint or its root cannot be
read, the folder is listed.

A state that was found earlier is carried forward in the same way. That is right only while its last
commit still stands. If the commit is gone, or another one has its version, the topic was vacuumed,
or removed and created again: the state is loaded from scratch [COMMIT-9].
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import chain

from pylogtable.errors import CorruptTopicError, StorageError
from pylogtable.events import log_event
from pylogtable.format.json_codec import decode_commit, decode_hint, encode
from pylogtable.format.leaf import Leaf
from pylogtable.format.log_state import LogState
from pylogtable.format.model import Commit, Hint
from pylogtable.format.paths import (
    HINT_PATH,
    MANIFEST_DIR,
    commit_path,
    parse_commit_path,
    parse_root_path,
    root_path,
)
from pylogtable.format.roots import to_root
from pylogtable.format.snapshot import Snapshot, apply, is_void, replay
from pylogtable.log.commit_events import place_of
from pylogtable.log.commits import NOT_READ, Commits, CommitWave
from pylogtable.log.root_plan import (
    cut_leaves,
    entries_to_fold,
    leaves_to_merge,
    root_is_overdue,
    with_leaves,
)
from pylogtable.log.stored_leaves import LeafObjects
from pylogtable.log.stored_offers import OfferObjects
from pylogtable.log.stored_roots import RootObjects
from pylogtable.storage.base import Created, ObjectStore

_logger = logging.getLogger(__name__)

# How many listed roots a load tries, if commits contradict them, before it begins with version 0.
ROOTS_TRIED = 3


class _CannotFollow(Exception):
    """A commit that decodes cannot be applied: it is wrong, or the state before it is."""

    def __init__(self, error: CorruptTopicError) -> None:
        super().__init__(str(error))
        self.error = error


class Manifest:
    """The manifest of the topic at the root of `store`."""

    def __init__(self, store: ObjectStore) -> None:
        self._store = store
        self.commits = Commits(store)
        self.roots = RootObjects(store)
        self.leaves = LeafObjects(store)
        self.offers = OfferObjects(store)

    @property
    def store(self) -> ObjectStore:
        """The store, with the topic at its root."""
        return self._store

    def load(self) -> Snapshot | None:
        """Load the newest state; None if there never was a topic here. A root that contradicts
        itself, or the commits after it, is as good as none: an older one is tried, and then
        version 0 [ROOT-6]."""
        failures: list[CorruptTopicError] = []
        listed: list[int] = []
        for base, wave in self._bases(failures, listed):
            try:
                newest = self._follow(base, wave)
            except _CannotFollow as refusal:
                failures.append(refusal.error)
                continue
            if newest is not None:
                self._check_reaches(newest, failures, listed)
                return newest
        if failures:  # so it is not true that there is no topic
            raise _nothing_to_begin_at(failures)
        return None

    def _bases(
        self, failures: list[CorruptTopicError], listed: list[int]
    ) -> Iterator[tuple[Snapshot | None, CommitWave]]:
        """Where a load may begin, the best first: a root, or None for version 0; and the commits
        that were read with it. Sound topics need one only, the root that the hint names [HINT-1].
        Roots that cannot be used go to `failures`. If the folder has to be listed, the versions of
        its commits go to `listed`."""
        data, first_wave = self.commits.read_with(HINT_PATH, 0)
        hint = None if data is None else decode_hint(data)
        hinted = None if hint is None else hint.root_version
        if hint is not None and hinted is None:
            yield None, first_wave
        if hinted is not None:
            data, wave = self.commits.read_with(root_path(hinted), hinted + 1)
            hinted_root = self.roots.decode(data, hinted)
            if isinstance(hinted_root, Snapshot):
                yield hinted_root, wave
        # A hint may be so old that a vacuum has removed what it leads to.
        tried = 0
        keys = [entry.key for entry in self._store.list(MANIFEST_DIR)]
        listed.extend(sorted(v for v in map(parse_commit_path, keys) if v is not None))
        for found in self.roots.newest_first(keys):
            if isinstance(found, CorruptTopicError):
                self.roots.ignore(found)
                failures.append(found)
            elif found.version != hinted and tried < ROOTS_TRIED:
                tried += 1
                yield found, NOT_READ
        if hint is None or hinted is not None:
            # Where nothing is listed, nothing has come since the first look.
            yield None, NOT_READ if listed else first_wave

    def _check_reaches(
        self, newest: Snapshot, failures: list[CorruptTopicError], listed: list[int]
    ) -> None:
        """Raise if there is something beyond the newest commit found: a root or a commit that could
        not be used, or a commit in the listing. Then commits are missing, and what was found is old
        [COMMIT-3]."""
        paths = [failure.path for failure in failures]
        beyond = [parse_root_path(path) or parse_commit_path(path) or 0 for path in paths]
        if max(beyond, default=0) > newest.version:
            for failure in failures:
                if failure.rule == "COMMIT-3":
                    raise failure
            detail = f"it is missing, but there is a root of version {max(beyond)}"
            raise CorruptTopicError(commit_path(newest.version + 1), "COMMIT-3", detail)
        later = self.commits.read_each(version for version in listed if version > newest.version)
        gap = self.commits.find_gap(newest, later)
        if gap is not None:
            raise gap

    def advance(
        self, snapshot: Snapshot, *, is_old: bool = False, first_wave: int = 1
    ) -> Snapshot | None:
        """The newest state, starting at an earlier one: only newer commits are read. If the earlier
        one no longer stands, the newest is loaded from scratch [COMMIT-9]; None if there is none.
        If nobody has looked for a while (`is_old`), a commit may have come and gone [COMMIT-3]."""
        try:
            newest = self._forward(snapshot, first_wave)
        except CorruptTopicError:
            # The earlier state may be gone, or come from a root that is wrong [ROOT-6].
            return self.load()
        assert newest is not None
        if not self.commits.is_fresh(snapshot):
            # The old commit is read last: if it is still there, no later one was removed.
            seen_ms = self._store.last_reply_ms
            after_next = newest.version + 2
            stands, beyond = self.commits.stand_and_read(snapshot, after_next, always=is_old)
            if not stands or self.commits.find_gap(newest, [(after_next, beyond)]):
                return self.load()  # which says that there is a gap, or begins beyond it
            newest = replace(newest, confirmed_ms=seen_ms if beyond is None else None)
        if newest.version > snapshot.version and root_is_overdue(newest, self._store.limits):
            return self.rebase(newest)
        return newest

    def step(self, snapshot: Snapshot, count: int) -> Snapshot | None:
        """The state after the next commits, at most `count` of them, in one round trip. None if a
        whole look is needed: nobody has looked for a while, or a commit cannot follow."""
        if not self.commits.is_fresh(snapshot):
            return None
        seen_ms = self._store.last_reply_ms
        first = snapshot.version + 1
        try:
            found = self.commits.read_next(range(first, first + count))
            if found is None or any(one.topic_id != snapshot.topic_id for one in found):
                return None
            newest = replay(snapshot, found)
        except CorruptTopicError:
            return None
        assert newest is not None
        return replace(newest, confirmed_ms=seen_ms) if len(found) < count else newest

    def rebase(self, snapshot: Snapshot) -> Snapshot:
        """The same state or a newer one, loaded from the newest root if that is newer than the one
        of `snapshot`. Without this, a snapshot that is advanced again and again keeps growing."""
        hint = self._read_hint()
        if hint is None or (hint.root_version or 0) <= (snapshot.root_version or 0):
            return snapshot
        version = hint.root_version or 0
        data, wave = self.commits.read_with(root_path(version), version + 1)
        root = self.roots.usable(self.roots.decode(data, version))
        if root is None:
            return snapshot
        try:
            newest = self._forward(root, wave)
        except CorruptTopicError as error:
            self.roots.ignore(error)
            return snapshot
        if newest is None or newest.version < snapshot.version:
            return snapshot
        if newest.topic_id != snapshot.topic_id:
            return newest
        known = newest.recent_commits.continuing(snapshot.recent_commits, snapshot.version)
        return replace(newest, recent=known)

    def load_at(self, version: int, *, from_newest_root: bool = False) -> Snapshot | None:
        """The state at `version`; None if commits that it needs are gone. With `from_newest_root`
        roots are listed, and the state begins at the newest one that can be used."""
        failure: CorruptTopicError | None = None
        roots = chain(self.roots.at_or_below(version), [None], self.roots.early(version))
        if from_newest_root:
            roots = chain(self.roots.newest_below(version), [None])
        for root in roots:
            commits = self.commits.read_range(range(root.version + 1 if root else 0, version + 1))
            if commits is None:
                if root is None:
                    continue
                break
            try:
                return self._replay(root, commits)
            except _CannotFollow as refusal:
                failure = failure or refusal.error
        if failure is not None:
            raise failure
        return None

    def first_version(self, newest: Snapshot) -> int:
        """The oldest version of the topic that can still be read."""
        oldest = newest.version
        for commit in self.commits.backwards(newest):
            oldest = commit.version
        if self.load_at(oldest) is not None:
            return oldest
        roots = [version for version in self.roots.versions() if version <= newest.version]
        return next((v for v in roots if self.roots.read(v) is not None), newest.version)

    def oldest_version(self, newest: Snapshot) -> int:
        """Like `first_version`, by one listing: commits are read only if the topic was created in
        the place of another one."""
        keys = [entry.key for entry in self._store.list(MANIFEST_DIR)]
        if commit_path(0) in keys:
            first = self.commits.read(0)
            if first is not None and first.topic_id == newest.topic_id:
                return 0
            return self.first_version(newest)
        for version in sorted(v for v in map(parse_root_path, keys) if v is not None):
            root = self.roots.read(version)
            if root is not None and root.topic_id == newest.topic_id:
                return version
        return newest.version

    def leaves_of_roots(self, versions: Iterable[int], *, strict_from: int = 0) -> set[str]:
        """The leaves that the roots of these versions name. Raises if a root from `strict_from` on
        cannot be used [VAC-2]. No reader begins at an older one that cannot be used."""
        found: set[str] = set()
        for version in versions:
            root = self.roots.examine(version)
            if isinstance(root, Snapshot):
                found.update(root.leaves)
            elif version >= strict_from:
                why = "it is gone" if root is None else root.detail
                detail = f"{why}; if the topic can be read without this root, remove it"
                raise CorruptTopicError(root_path(version), "VAC-2", detail)
        return found

    def hinted_root(self) -> int | None:
        """The version of the root that the hint names; None if there is none."""
        hint = self._read_hint()
        return None if hint is None else hint.root_version

    def state(self, snapshot: Snapshot) -> LogState:
        """The snapshot with its leaves."""
        return LogState(snapshot, self.leaves.load, self._store.limits)

    def write_hint(self, root_version: int | None) -> None:
        """Write the hint. A failure is only logged, because readers can do without it [HINT-1]."""
        try:
            self._store.write(HINT_PATH, encode(Hint(root_version=root_version)))
        except StorageError as error:
            _logger.warning("the hint of %s was not written: %s", self._store.url, error)

    def write_root(
        self,
        snapshot: Snapshot,
        new_id: Callable[[], str],
        also_merge: frozenset[str] = frozenset(),
    ) -> Snapshot:
        """Write a root for this version, and return the same state with that root. If this fails,
        it is only logged: the commit has landed, and must not seem to fail [ROOT-2]. A version
        whose commit is void gets no root [COMMIT-11]."""
        if snapshot.voids:
            return snapshot
        try:
            counted = self.state(snapshot).with_inline_totals()
            folded, leaves = self._fold(counted, new_id, also_merge)
            checksums = dict(folded.leaf_checksums)
            for leaf in leaves:
                checksums[leaf.id] = self.leaves.write(leaf)
            folded = replace(folded, leaf_checksums=checksums)
            data = encode(to_root(folded))
            created = self._store.create(root_path(snapshot.version), data)
        except Exception as error:  # any error: the commit has already landed
            _logger.warning(
                "no root at version %s of %s: %s", snapshot.version, self._store.url, error
            )
            return snapshot
        if created is Created.UNKNOWN:
            return snapshot
        if created is Created.EXISTS:
            return replace(snapshot, root_version=snapshot.version, tail_bytes=0)
        self.write_hint(snapshot.version)
        log_event(
            _logger,
            logging.INFO,
            "a root of topic %(topic)s was written at version %(version)s",
            version=snapshot.version,
            **place_of(self._store.url),
            leaves=len(leaves),
            bytes=len(data),
        )
        return replace(folded, root_version=snapshot.version, tail_bytes=0)

    def _fold(
        self, snapshot: Snapshot, new_id: Callable[[], str], also_merge: frozenset[str]
    ) -> tuple[Snapshot, Sequence[Leaf]]:
        limits = self._store.limits
        merged = leaves_to_merge(snapshot, limits) | also_merge
        entries = entries_to_fold(self.state(snapshot), merged)
        leaves = cut_leaves(entries, iter(new_id, None), limits)
        return with_leaves(snapshot, merged, leaves), leaves

    def _forward(self, base: Snapshot | None, wave: CommitWave | int) -> Snapshot | None:
        """Like `_follow`, but a commit that cannot be applied is an error."""
        try:
            return self._follow(base, wave)
        except _CannotFollow as refusal:
            raise refusal.error from None

    def _follow(self, base: Snapshot | None, wave: CommitWave | int) -> Snapshot | None:
        """The state after all commits from `base` to the first that is missing. A commit of the
        topic that is found beyond that one shows a gap [COMMIT-3]. The state counts as confirmed
        unless there is any commit beyond. Whoever opens the topic looks for one beyond: `wave` is
        what has been read then, otherwise the number of commits to request first."""
        seen_ms = self._store.last_reply_ms
        is_confirmed = base is not None and base.confirmed_ms is not None
        beyond: list[tuple[int, bytes | None]] = []

        def found() -> Iterator[Commit]:
            nonlocal seen_ms
            for some in self.commits.waves(base.version + 1 if base else 0, wave):
                seen_ms = some.seen_ms
                for index, (version, data) in enumerate(some.commits):
                    if data is None:
                        beyond.extend(some.commits[index + 1 :])
                        return
                    yield self.commits.keep(decode_commit(data, version), data)

        newest = self._replay(base, found())
        if newest is None:
            return None
        if not beyond and isinstance(wave, CommitWave):  # the miss was the last of its wave
            beyond.extend(self.commits.read_each([newest.version + 2]))
        gap = self.commits.find_gap(newest, beyond)
        if gap is not None:
            raise _CannotFollow(gap)
        if beyond:
            is_confirmed = all(data is None for _, data in beyond)
        if newest is base:
            return newest if is_confirmed else replace(base, confirmed_ms=None)
        return replace(newest, confirmed_ms=seen_ms if is_confirmed else None)

    def _replay(self, base: Snapshot | None, commits: Iterable[Commit]) -> Snapshot | None:
        """The state after these commits. A commit of another topic is void only if the commit of
        `base` still stands. Otherwise `base` is the state of another topic [COMMIT-11]."""
        is_proven = base is None
        snapshot = base
        for commit in commits:
            if snapshot is not None and not is_proven and is_void(snapshot, commit):
                if not self.commits.stand(snapshot):
                    path = commit_path(snapshot.effective_version)
                    detail = "it is not the expected one, and another topic's follow"
                    raise _CannotFollow(CorruptTopicError(path, "COMMIT-11", detail))
                is_proven = True
            try:
                snapshot = apply(snapshot, commit)
            except CorruptTopicError as error:
                raise _CannotFollow(error) from None
        return snapshot

    def _read_hint(self) -> Hint | None:
        data = self._store.read(HINT_PATH)
        return None if data is None else decode_hint(data)


def _nothing_to_begin_at(failures: list[CorruptTopicError]) -> CorruptTopicError:
    """The error if no root can be used, and there is no version 0: commits are missing [ROOT-6].
    But if a root was given up because a commit after it could not be applied, it is that one's."""
    for failure in failures:
        if parse_root_path(failure.path) is None and failure.rule != "COMMIT-11":
            return failure
    detail = f"it is missing, and no root can be used: {failures[0]}"
    return CorruptTopicError(commit_path(0), "COMMIT-3", detail)
