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
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from threading import Lock

import pyarrow as pa

from pylogtable.errors import CorruptTopicError, StorageError
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
from pylogtable.format.snapshot import Snapshot, apply, from_root, is_void, to_root
from pylogtable.lazy_arrow import pq
from pylogtable.log.commits import Commits
from pylogtable.plan.index import (
    ROOT_INTERVAL,
    cut_leaves,
    entries_to_fold,
    leaves_to_merge,
    root_is_overdue,
    with_leaves,
)
from pylogtable.storage.base import Created, ObjectStore

_log = logging.getLogger(__name__)

LEAVES_CACHED = 16
# How many commits are requested at once after a root: there are probably several.
COLD_WAVE = 8


class Manifest:
    """The manifest of the topic at the root of `store`."""

    def __init__(self, store: ObjectStore) -> None:
        self._store = store
        self.commits = Commits(store)
        self._leaves: OrderedDict[str, Leaf] = OrderedDict()
        self._lock = Lock()

    @property
    def store(self) -> ObjectStore:
        """The store, with the topic at its root."""
        return self._store

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

    def advance(self, snapshot: Snapshot) -> Snapshot | None:
        """The newest state, starting at an earlier one: only newer commits are read. If the earlier
        one no longer stands, the newest is loaded from scratch [COMMIT-9]; None if there is none.
        """
        try:
            newest = self._forward(snapshot, first_wave=1)
        except CorruptTopicError:
            if self.commits.stand(snapshot):
                raise
            return self.load()
        assert newest is not None
        if not self.commits.is_fresh(snapshot):
            # The old commit is read last: if it is still there, no later one was removed.
            seen_ms = self._store.last_reply_ms
            stands, beyond = self.commits.stand_and_read(snapshot, newest.version + 2)
            if not stands:
                return self.load()
            newest = replace(newest, confirmed_ms=seen_ms if beyond is None else None)
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
        commits = self.commits.read_range(range(root.version + 1 if root else 0, version + 1))
        return None if commits is None else self._replay(root, commits)

    def first_version(self, newest: Snapshot) -> int:
        """The oldest version of the topic that can still be read."""
        oldest = newest.version
        for commit in self.commits.backwards(newest):
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
        it is only logged: the commit has landed, and must not seem to fail [ROOT-2]. A version
        whose commit is void gets no root [COMMIT-11]."""
        if snapshot.voids:
            return snapshot
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
        """The state after all commits from `base` to the first that is missing. It counts as
        confirmed unless there may be commits beyond that one, which would be a gap [COMMIT-3]."""
        seen_ms = self._store.last_reply_ms
        is_confirmed = base is not None and base.confirmed_ms is not None

        def found() -> Iterator[Commit]:
            nonlocal is_confirmed
            for wave in self.commits.waves(base.version + 1 if base else 0, first_wave):
                for index, (version, data) in enumerate(wave):
                    if data is None:
                        if beyond := wave[index + 1 :]:
                            is_confirmed = all(later is None for _, later in beyond)
                        return
                    yield decode_commit(data, version)

        newest = self._replay(base, found())
        if newest is None or newest is base:
            return newest if is_confirmed or base is None else replace(base, confirmed_ms=None)
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
                    raise CorruptTopicError(
                        path, "COMMIT-11", "it is not the expected one, and another topic's follow"
                    )
                is_proven = True
            snapshot = apply(snapshot, commit)
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
