"""Reads and writes `_manifest/`: finds the newest state, puts commits, writes the index.

How the newest state is found [HINT-1]: the hint names a root, the root has the state at its
version, and the commits after it are read until one is missing. If the hint or its root cannot be
read, the folder is listed.
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from threading import Lock

import pyarrow as pa

from pylogtable.errors import CommitUnknownError, CorruptTopicError, StorageError
from pylogtable.format.codec import decode_commit, decode_hint, decode_root, encode
from pylogtable.format.leaf import LEAF_SCHEMA, Leaf, check_leaf
from pylogtable.format.model import Commit, Hint
from pylogtable.format.paths import (
    HINT_PATH,
    MANIFEST_DIR,
    commit_path,
    leaf_path,
    parse_root_path,
    root_path,
)
from pylogtable.format.snapshot import Snapshot, apply, from_root, replay, to_root
from pylogtable.lazy_arrow import pq
from pylogtable.plan.index import (
    ROOT_INTERVAL,
    cut_leaves,
    entries_to_fold,
    leaves_to_merge,
    root_is_overdue,
    with_leaves,
)
from pylogtable.storage.base import Created, ObjectStore
from pylogtable.storage.numbered import NumberedObjects

_log = logging.getLogger(__name__)

LEAVES_CACHED = 16
# How many commits are requested at once after a root: there are probably several.
COLD_WAVE = 8


class Manifest:
    """The manifest of the topic at the root of `store`."""

    def __init__(self, store: ObjectStore) -> None:
        self._store = store
        self._commits = NumberedObjects(store, commit_path)
        self._leaves: OrderedDict[str, Leaf] = OrderedDict()
        self._lock = Lock()

    def load(self) -> Snapshot | None:
        """Load the newest state; None if there never was a topic here."""
        hint = self._read_hint()
        if hint is not None:
            root = self._read_root(hint.root_version) if hint.root_version is not None else None
            if root is not None or hint.root_version is None:
                newest = self._forward(root, first_wave=COLD_WAVE)
                # An old hint may lead to early commits that a vacuum has removed since.
                if newest is not None:
                    return newest
        return self._forward(self._listed_root(None), first_wave=COLD_WAVE)

    def advance(self, snapshot: Snapshot) -> Snapshot:
        """The newest state, starting at an earlier one: only newer commits are read."""
        newest = self._forward(snapshot, first_wave=1)
        assert newest is not None
        if newest.version > snapshot.version and root_is_overdue(newest):
            return self.rebase(newest)
        return newest

    def rebase(self, snapshot: Snapshot) -> Snapshot:
        """The same state or a newer one, loaded from the newest root if that is newer than the one
        of `snapshot`. Without this, a snapshot that is advanced again and again keeps growing."""
        hint = self._read_hint()
        if hint is None or (hint.root_version or 0) <= (snapshot.root_version or 0):
            return snapshot
        root = self._read_root(hint.root_version or 0)
        if root is None:
            return snapshot
        newest = self._forward(root, first_wave=COLD_WAVE)
        return newest if newest and newest.version >= snapshot.version else snapshot

    def load_at(self, version: int) -> Snapshot | None:
        """The state at `version`; None if commits that it needs are gone."""
        root = self._root_at_or_below(version)
        missing = range(root.version + 1 if root else 0, version + 1)
        commits = []
        for number, data in zip(missing, self._commits.read_many(missing), strict=True):
            if data is None:
                return None
            commits.append(decode_commit(data, number))
        return replay(root, commits)

    def read_commit(self, version: int) -> Commit | None:
        """The commit of `version`; None if it does not exist or was removed."""
        data = self._commits.read(version)
        return None if data is None else decode_commit(data, version)

    def commits_backwards(self, newest: Snapshot) -> Iterator[Commit]:
        """The commits of the topic, from the newest to the oldest that still exists."""
        step = max(1, self._store.concurrency)
        for high in range(newest.version, -1, -step):
            versions = range(high, max(-1, high - step), -1)
            for version, data in zip(versions, self._commits.read_many(versions), strict=True):
                if data is None:
                    return
                commit = decode_commit(data, version)
                if commit.topic_id != newest.topic_id:
                    return
                yield commit

    def first_version(self, newest: Snapshot) -> int:
        """The oldest version of the topic that can still be read."""
        oldest = newest.version
        for commit in self.commits_backwards(newest):
            oldest = commit.version
        if self.load_at(oldest) is not None:
            return oldest
        roots = [version for version in self._root_versions() if version <= newest.version]
        return next((v for v in roots if self._read_root(v) is not None), newest.version)

    def leaves_of_roots(self, *, from_version: int) -> set[str]:
        """The leaves of all roots from this version on. Raises if one cannot be read [VAC-2]."""
        found: set[str] = set()
        for version in self._root_versions():
            if version < from_version:
                continue
            root = self._read_root(version)
            if root is None:
                raise CorruptTopicError(root_path(version), "VAC-2", "it cannot be read")
            found.update(root.leaves)
        return found

    def hinted_root(self) -> int | None:
        """The version of the root that the hint names; None if there is none."""
        hint = self._read_hint()
        return None if hint is None else hint.root_version

    def _root_versions(self) -> list[int]:
        versions = (parse_root_path(entry.key) for entry in self._store.list(MANIFEST_DIR))
        return sorted(version for version in versions if version is not None)

    def find_commit(self, commit_id: str, newest: Snapshot) -> int | None:
        """The version of a commit, searched in all kept commits; None if it is not there."""
        commits = self.commits_backwards(newest)
        return next((c.version for c in commits if c.commit_id == commit_id), None)

    def find_commit_at(self, commit_id: str, version: int) -> int | None:
        """`version` if it belongs to the commit with this id, None if it belongs to another commit.
        Raises while the version is free, because the commit may still land there [COMMIT-5]."""
        commit = self.read_commit(version)
        if commit is None:
            raise CommitUnknownError(commit_id, version)
        return version if commit.commit_id == commit_id else None

    def version_at(self, time_ms: int, newest: Snapshot) -> int | None:
        """The newest version that is not later than `time_ms`, by binary search [COMMIT-6]."""
        if newest.committed_at_ms <= time_ms:
            return newest.version
        low, high = -1, newest.version
        while high - low > 1:
            middle = (low + high) // 2
            commit = self.read_commit(middle)
            if commit is None or commit.committed_at_ms <= time_ms:
                low = middle
            else:
                high = middle
        found = self.read_commit(low) if low >= 0 else None
        return None if found is None else low

    def create_commit(self, version: int, data: bytes) -> Created:
        """Put an encoded commit if its version is still free."""
        return self._commits.create(version, data)

    def leaf(self, leaf_id: str) -> Leaf:
        """A leaf of the index. The last ones used are kept in memory."""
        with self._lock:
            if leaf_id in self._leaves:
                self._leaves.move_to_end(leaf_id)
                return self._leaves[leaf_id]
        leaf = self._read_leaf(leaf_id)
        with self._lock:
            self._leaves[leaf_id] = leaf
            while len(self._leaves) > LEAVES_CACHED:
                self._leaves.popitem(last=False)
        return leaf

    def write_hint(self, root_version: int | None) -> None:
        """Write the hint. A failure is only logged, because readers can do without it [HINT-1]."""
        try:
            self._store.write(HINT_PATH, encode(Hint(root_version=root_version)))
        except StorageError as error:
            _log.warning("the hint of %s was not written: %s", self._store.url, error)

    def write_root(
        self,
        snapshot: Snapshot,
        new_id: Callable[[], str],
        also_merge: frozenset[str] = frozenset(),
    ) -> Snapshot:
        """Write a root for this version, and return the same state with that root. If this fails,
        it is only logged: the commit has landed, and must not seem to fail [ROOT-2]."""
        try:
            folded, leaves = self._fold(snapshot, new_id, also_merge)
            for leaf in leaves:
                self._store.write(leaf_path(leaf.id), _encode_leaf(leaf))
            created = self._store.create(root_path(snapshot.version), encode(to_root(folded)))
        except Exception as error:  # any error: the commit has already landed
            _log.warning(
                "no root at version %s of %s: %s", snapshot.version, self._store.url, error
            )
            return snapshot
        if created is Created.UNKNOWN:
            return snapshot
        if created is Created.EXISTS:
            return replace(snapshot, root_version=snapshot.version)
        self.write_hint(snapshot.version)
        return replace(folded, root_version=snapshot.version)

    def _fold(
        self, snapshot: Snapshot, new_id: Callable[[], str], also_merge: frozenset[str]
    ) -> tuple[Snapshot, Sequence[Leaf]]:
        merged = leaves_to_merge(snapshot) | also_merge
        entries = entries_to_fold(snapshot, self.leaf, merged)
        leaves = cut_leaves(entries, iter(new_id, None))
        return with_leaves(snapshot, merged, leaves), leaves

    def _forward(self, base: Snapshot | None, *, first_wave: int) -> Snapshot | None:
        snapshot = base
        start = base.version + 1 if base else 0
        for version, data in self._commits.read_forward(start, first_wave=first_wave):
            snapshot = apply(snapshot, decode_commit(data, version))
        return snapshot

    def _read_hint(self) -> Hint | None:
        data = self._store.read(HINT_PATH)
        return None if data is None else decode_hint(data)

    def _root_at_or_below(self, version: int) -> Snapshot | None:
        """The newest root at or below a version. Most roots are at multiples of the interval, so
        these are tried before a listing."""
        nearest = version - version % ROOT_INTERVAL
        for candidate in (nearest, nearest - ROOT_INTERVAL):
            if candidate > 0:
                root = self._read_root(candidate)
                if root is not None:
                    return root
        return None if nearest <= 0 else self._listed_root(version)

    def _listed_root(self, at_most: int | None) -> Snapshot | None:
        for version in reversed(self._root_versions()):
            if at_most is None or version <= at_most:
                root = self._read_root(version)
                if root is not None:
                    return root
        return None

    def _read_root(self, version: int) -> Snapshot | None:
        """The root at `version`; None if it cannot be read, because a root may be ignored."""
        data = self._store.read(root_path(version))
        if data is None:
            return None
        try:
            return from_root(decode_root(data, version))
        except CorruptTopicError as error:
            _log.warning("a root of %s is ignored: %s", self._store.url, error)
            return None

    def _read_leaf(self, leaf_id: str) -> Leaf:
        path = leaf_path(leaf_id)
        data = self._store.read(path)
        if data is None:
            raise CorruptTopicError(path, "LEAF-1", "a root names it, but it is missing")
        try:
            table = pq.read_table(pa.BufferReader(data), use_threads=False)
            leaf = Leaf(leaf_id, table.select(LEAF_SCHEMA.names).cast(LEAF_SCHEMA))
        except (pa.ArrowException, KeyError, ValueError, OSError) as error:
            raise CorruptTopicError(path, "LEAF-1", str(error)) from error
        check_leaf(leaf)
        return leaf


def _encode_leaf(leaf: Leaf) -> bytes:
    sink = pa.BufferOutputStream()
    pq.write_table(leaf.table, sink, compression="zstd")
    data: bytes = sink.getvalue().to_pybytes()
    return data
