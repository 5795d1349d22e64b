"""Reads and puts the numbered commits of a topic, and looks into its history.

Commits are put one after the other, and vacuum removes the oldest first. So as long as a commit is
there, nothing after it has been removed, unless vacuum kept it for its txn or its records. A *void*
commit is one of another topic: it takes its version and has no other effect [COMMIT-11].
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import NamedTuple

from pylogtable.errors import CommitUnknownError, CorruptTopicError
from pylogtable.format.json_codec import decode_commit
from pylogtable.format.model import Commit
from pylogtable.format.offers import Fate, fate_of
from pylogtable.format.paths import commit_path, root_path, seen_in
from pylogtable.format.recent_commits import OFFER_WINDOW, RecentCommits
from pylogtable.format.snapshot import Snapshot
from pylogtable.log.clock_skew import is_fresh
from pylogtable.storage.base import Created, ObjectStore
from pylogtable.storage.numbered import NumberedObjects
from pylogtable.storage.object_cache import recent_objects

#: How many commits are requested with the hint or a root: there are probably several. Then this
#: many times as many.
COLD_GROWTH = 4


class CommitWave(NamedTuple):
    """Encoded commits that were read at once, after the store's time `seen_ms`; None if missing."""

    seen_ms: int | None
    commits: list[tuple[int, bytes | None]]


NOT_READ = CommitWave(None, [])


class Commits:
    """The commits of the topic at the root of `store`."""

    def __init__(self, store: ObjectStore) -> None:
        self._store = store
        self._objects = NumberedObjects(store, commit_path)
        #: The commit in these bytes, of this version. The last two are remembered: each append
        #: looks at the commit it builds on, which may have an entry for each of many partitions.
        self.decode = lru_cache(maxsize=2)(decode_commit)

    def read(self, version: int) -> Commit | None:
        """The commit of `version`; None if it does not exist or was removed."""
        data = self._objects.read(version)
        return None if data is None else self.decode(data, version)

    def create(self, version: int, data: bytes) -> Created:
        """Put an encoded commit if its version is still free."""
        return self._objects.create(version, data)

    def keep(self, commit: Commit, data: bytes) -> Commit:
        """The same commit. Its bytes are kept in memory for a while: its rows are often read next,
        and a publication reads what it has changed."""
        recent_objects(self._store).keep(commit_path(commit.version), data, len(data))
        return commit

    def read_next(self, versions: range) -> list[Commit] | None:
        """The commits of these versions, up to the first that is missing, requested at once. None
        if there is one beyond that."""
        found = self._objects.read_many(versions)
        count = found.index(None) if None in found else len(found)
        if any(data is not None for data in found[count:]):
            return None
        return [
            self.keep(decode_commit(data, version), data)
            for version, data in zip(versions, found, strict=True)
            if data is not None
        ]

    def read_from(self, version: int, count: int) -> list[Commit]:
        """The commit of `version` and those after it, at most `count`, up to the first that is
        missing. They are requested at once."""
        if count == 1:
            commit = self.read(version)
            return [] if commit is None else [commit]
        return self.read_next(range(version, version + count)) or self.read_from(version, 1)

    def read_range(self, versions: range) -> list[Commit] | None:
        """The commits of all these versions; None if one is missing."""
        commits = []
        for version, data in zip(versions, self._objects.read_many(versions), strict=True):
            if data is None:
                return None
            commits.append(decode_commit(data, version))
        return commits

    def read_up_to(self, newest: Snapshot, after: int) -> list[Commit] | None:
        """The commits after a version that lead to this state, without void ones; None if one is
        missing. Those that were read a moment ago are asked for only if the others do not fit to
        them: then commits were lost, and other ones are in their place."""
        versions = range(after + 1, newest.version + 1)
        recent = recent_objects(self._store)
        kept = {version: recent.find(commit_path(version)) for version in versions}
        asked = [version for version in versions if kept[version] is None]
        data = kept | dict(zip(asked, self._objects.read_many(asked), strict=True))
        commits = _effective(data, newest)
        if commits is None or (asked != [*versions] and not _lead_to(commits, newest)):
            commits = _effective(
                dict(zip(versions, self._objects.read_many(versions), strict=True)), newest
            )
        return commits

    def waves(self, start: int, wave: CommitWave | int) -> Iterator[CommitWave]:
        """The encoded commits from `start` on, without an end, in waves: those that were read with
        something else, or this many at once, and then more [HINT-1]."""
        growth = 2
        if isinstance(wave, CommitWave):
            growth, first = COLD_GROWTH, wave
            yield first
            start += len(first.commits)
            wave = growth * len(first.commits) or self._store.limits.cold_wave
        waves = self._objects.waves(start, first_wave=wave, growth=growth)
        while True:
            seen_ms = self._store.last_reply_ms
            yield CommitWave(seen_ms, next(waves))

    def read_with(self, key: str, start: int) -> tuple[bytes | None, CommitWave]:
        """Any object of the topic, and the first commits from `start` on. All are requested at
        once, where requests are slow."""
        seen_ms = self._store.last_reply_ms
        count = min(self._store.limits.cold_wave, self._store.concurrency - 1)
        data, commits = self._objects.read_with(key, range(start, start + count))
        return data, CommitWave(seen_ms, commits)

    def is_fresh(self, snapshot: Snapshot) -> bool:
        """True if the store has confirmed this state shortly before its last reply [COMMIT-9]."""
        return is_fresh(self._store, snapshot.confirmed_ms)

    def stand(self, snapshot: Snapshot) -> bool:
        """True if the last effective commit of this state is still there, and nothing after it has
        been removed."""
        at = snapshot.effective_version
        return self._stands(snapshot, self._objects.read(at))

    def stand_and_read(
        self, snapshot: Snapshot, version: int, *, always: bool = False
    ) -> tuple[bool, bytes | None]:
        """`stand`, and the encoded commit of this version. Both are requested at once. In a
        store that is not remote, the version is read only if `always` is true."""
        if not self._store.is_remote:
            return self.stand(snapshot), self._objects.read(version) if always else None
        at = snapshot.effective_version
        data, other = self._objects.read_many([at, version])
        return self._stands(snapshot, data), other

    def _stands(self, snapshot: Snapshot, data: bytes | None) -> bool:
        """`stand`, with the encoded commit that was found. A vacuum keeps a commit that carries the
        last txn of an app id, or live records, even if it removes the commits around it. It removes
        the root that the state began at, or commit 0, before any of these [VAC-3]. A damaged commit
        proves nothing, as if it were missing [COMMIT-9]."""
        at = snapshot.effective_version
        try:
            commit = None if data is None else self.decode(data, at)
        except CorruptTopicError:
            return False
        expected = (snapshot.commit_id, snapshot.topic_id)
        if commit is None or (commit.commit_id, commit.topic_id) != expected:
            return False
        if not commit.txns and commit.rows is None:
            return True
        root = snapshot.root_version
        began = commit_path(0) if root is None else root_path(root)
        return self._store.read(began) is not None

    def read_each(self, versions: Iterable[int]) -> Iterator[tuple[int, bytes | None]]:
        """The encoded commits of these versions, each read when it is asked for."""
        return ((version, self._objects.read(version)) for version in versions)

    def find_gap(
        self, snapshot: Snapshot, beyond: Iterable[tuple[int, bytes | None]]
    ) -> CorruptTopicError | None:
        """The error if one of the commits `beyond` the end of this state is of the topic: then the
        one that follows the state is missing, and is not the end [COMMIT-3]. None if it is there by
        now, if a vacuum has removed it, and if the others are void [COMMIT-11]."""
        following = snapshot.version + 1
        for version, data in beyond:
            if data is not None and decode_commit(data, version).topic_id == snapshot.topic_id:
                is_gap = self._objects.read(following) is None and self.stand(snapshot)
                return gap_at(following, version) if is_gap else None
        return None

    def check_gap(self, snapshot: Snapshot) -> None:
        """Raise if a commit put after this state would fall into a gap [COMMIT-3]. A remote
        store is not asked: that would be a round trip for each commit."""
        if not self._store.is_remote:
            gap = self.find_gap(snapshot, self.read_each([snapshot.version + 2]))
            if gap is not None:
                raise gap

    def backwards(self, newest: Snapshot) -> Iterator[Commit]:
        """The commits of the topic, from the newest to the oldest that still exists, without void
        ones. It ends before a commit that is not the parent of the one above it: a stale writer has
        put it below the oldest that is kept [COMMIT-9]."""
        expected: str | None = newest.commit_id
        for version, data in self._down(newest.version, 0):
            if data is None:
                return
            commit = decode_commit(data, version)
            if commit.topic_id != newest.topic_id:
                continue
            if expected is not None and commit.commit_id != expected:
                return
            yield commit
            if commit.operation == "create":
                return
            expected = commit.parent

    def count(self, commit_id: str, version: int, newest: Snapshot | None) -> bool | None:
        """True if the commit of this version is the one with this id, and is part of the history of
        `newest`. An object that a stale writer has put need not be [COMMIT-9]. None if that can no
        longer be told, because the commits after it were removed."""
        if newest is None or newest.version < version:
            return False
        is_linked = True
        lowest = newest.version + 1
        for commit in self.backwards(newest):
            lowest = commit.version
            if commit.version <= version:
                return is_linked and (commit.version, commit.commit_id) == (version, commit_id)
            # Older writers give no parent. Then only commits above the root are sure to be linked.
            is_linked = commit.parent is not None or version > (newest.root_version or -1)
        below = self.read(lowest - 1) if lowest > 0 else None
        return None if below is None else False

    def find(self, commit_id: str, newest: Snapshot) -> int | None:
        """The version of a commit, searched in all kept commits; None if it is not there."""
        commits = self.backwards(newest)
        return next((c.version for c in commits if c.commit_id == commit_id), None)

    def find_at(self, commit_id: str, version: int, load: Callable[[], Snapshot]) -> int | None:
        """`version` if it belongs to the commit with this id, None if it belongs to another commit.
        Raises while the version is free, because the commit may still land there [COMMIT-5]. The
        newest state is loaded after the commit: it shows whether the commit counts. `load` raises
        if the topic is gone."""
        commit = self.read(version)
        newest = load()
        if commit is None:
            raise CommitUnknownError(commit_id, version)
        if commit.commit_id != commit_id:
            return None
        counts = self.count(commit_id, version, newest)
        if counts is None:
            raise CommitUnknownError(commit_id, version)
        return version if counts else None

    def since(self, seen: int, newest: Snapshot) -> RecentCommits | None:
        """What the commits after `seen` say about offers, as far as these may still land
        [OFFER-3]. They are read, unless the state knows them. None if some were removed."""
        if newest.recent_commits.since <= seen:
            return newest.recent_commits
        versions = range(seen + 1, min(newest.version, seen + OFFER_WINDOW) + 1)
        commits = self.read_range(versions)
        if commits is None:
            return None
        recent = RecentCommits(since=seen)
        for commit in commits:
            if commit.topic_id == newest.topic_id:
                recent = recent.after(commit)
        return replace(recent, since=seen)

    def find_offer(self, name: str, newest: Snapshot) -> int | None:
        """The version in which an offer landed; None if it never will. Raises while both are
        possible, and if that can no longer be told because commits were removed."""
        seen = seen_in(name)
        assert seen is not None
        recent = self.since(seen, newest)
        found = None if recent is None else recent.find(name, seen)
        if found is not None:
            return found[0]
        if recent is not None and fate_of(name, newest.version, recent) is Fate.VOID:
            return None
        raise CommitUnknownError(name, seen + 1)

    def version_at(self, time_ms: int, newest: Snapshot) -> int | None:
        """The newest version that is not later than `time_ms`, by binary search [COMMIT-6]."""
        if newest.committed_at_ms <= time_ms:
            return newest.version
        low, high = -1, newest.effective_version
        while high - low > 1:
            middle = (low + high) // 2
            commit = self._own_at_or_below(middle, low + 1, newest)
            if commit is None or commit.committed_at_ms <= time_ms:
                low = middle
            else:
                high = commit.version
        found = self._own_at_or_below(low, 0, newest)
        return None if found is None else found.version

    def _own_at_or_below(self, version: int, lowest: int, newest: Snapshot) -> Commit | None:
        """The last commit of the topic from `lowest` to `version`; None if there is none, or if one
        is missing before it is found. Void ones are passed over: their time means nothing."""
        for number in range(version, lowest - 1, -1):
            commit = self.read(number)
            if commit is None or commit.topic_id == newest.topic_id:
                return commit
        return None

    def _down(self, highest: int, lowest: int) -> Iterator[tuple[int, bytes | None]]:
        step = max(1, self._store.concurrency)
        for high in range(highest, lowest - 1, -step):
            versions = range(high, max(lowest - 1, high - step), -1)
            yield from zip(versions, self._objects.read_many(versions), strict=True)


def _effective(data: Mapping[int, bytes | None], newest: Snapshot) -> list[Commit] | None:
    """The commits in these bytes, by version, without void ones; None if one is missing."""
    commits = []
    for version, encoded in data.items():
        if encoded is None:
            return None
        commits.append(decode_commit(encoded, version))
    return [commit for commit in commits if commit.topic_id == newest.topic_id]


def _lead_to(commits: Sequence[Commit], newest: Snapshot) -> bool:
    """True if each of the commits follows the one before, and the last is that of the state. False
    if all were void."""
    if not commits:
        return False
    ids = [*(commit.parent for commit in commits[1:]), newest.commit_id]
    return all(commit.commit_id == after for commit, after in zip(commits, ids, strict=True))


def gap_at(version: int, later: int) -> CorruptTopicError:
    """The error for a missing commit, with a later one beyond it."""
    return CorruptTopicError(
        commit_path(version),
        "COMMIT-3",
        f"the commit is missing, but commit {later} exists. So the newest state cannot be told, "
        "and nothing can be committed. Restore the missing commit from a backup, or from old "
        "versions that the store keeps",
    )
