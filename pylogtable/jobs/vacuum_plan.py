"""Plans a vacuum: which objects of a topic are no longer needed. Pure.

Everything that a kept version needs stays. So does every young file, since a writer may be about to
commit it. Files with names that are not part of this format are ignored.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

from pylogtable.format.paths import (
    is_segment_path,
    parse_commit_path,
    parse_leaf_path,
    parse_offer_path,
    parse_root_path,
)


class Listed(NamedTuple):
    """An object in the store's listing."""

    key: str
    size_bytes: int
    modified_ms: int


@dataclass(frozen=True)
class Needed:
    """What must stay. `segments` are the objects that have records: files, and commits [INL-6]. The
    oldest kept version is read from the root at `root_version`; without a root no commit can be
    removed. `txn_commits` are read when an append with a txn is repeated."""

    segments: frozenset[str]
    leaves: frozenset[str]
    root_version: int | None
    txn_commits: frozenset[int]


@dataclass(frozen=True)
class Garbage:
    """What can be removed, in the order of removal. After a crash in between, the topic still reads
    the same [VAC-3]. `tables` are objects of published tables. `leftovers` are temporary files of
    the store and not objects. `offers` have landed, or never will [OFFER-7]."""

    roots: tuple[Listed, ...] = ()
    commits: tuple[Listed, ...] = ()
    leaves: tuple[Listed, ...] = ()
    segments: tuple[Listed, ...] = ()
    offers: tuple[Listed, ...] = ()
    tables: tuple[Listed, ...] = ()
    leftovers: tuple[Listed, ...] = ()

    def __iter__(self) -> Iterator[Listed]:
        yield from self.roots
        yield from self.commits
        yield from self.leaves
        yield from self.segments
        yield from self.offers
        yield from self.tables
        yield from self.leftovers


def is_stranger(key: str) -> bool:
    """True if this is a Parquet file in the folder of a partition that no writer of this format has
    made: another engine's, which a published table has refused. Vacuum leaves it alone."""
    return key.startswith("partition=") and key.endswith(".parquet") and not is_segment_path(key)


def staying_roots(
    listing: Iterable[Listed], oldest_kept: int | None, old_before_ms: int
) -> list[int]:
    """The versions of the roots that stay [VAC-1]. `oldest_kept` is the root that the oldest kept
    version is read from, None for version 0. With a short retention that root may be minutes old,
    and others still use the one before it: the newest that is older than `old_before_ms`."""
    roots = {parse_root_path(entry.key): entry.modified_ms for entry in listing}
    times = {version: at for version, at in roots.items() if version is not None}
    newest_old = max((v for v, at in times.items() if at < old_before_ms), default=None)
    first = min((v for v in (oldest_kept, newest_old) if v is not None), default=0)
    return sorted(
        version
        for version, at in times.items()
        if oldest_kept is None or version >= first or at >= old_before_ms
    )


def plan_vacuum(listing: Iterable[Listed], needed: Needed, old_before_ms: int) -> Garbage:
    """The garbage in a listing. Only objects that were last changed before `old_before_ms` may be
    removed [VAC-1]."""
    roots: list[Listed] = []
    commits: list[Listed] = []
    leaves: list[Listed] = []
    segments: list[Listed] = []
    offers: list[Listed] = []
    first_root = needed.root_version
    for entry in listing:
        root, commit = parse_root_path(entry.key), parse_commit_path(entry.key)
        leaf = parse_leaf_path(entry.key)
        is_old = entry.modified_ms < old_before_ms
        if root is not None:
            if needed.root_version is None or root >= needed.root_version:
                continue
            if is_old:
                roots.append(entry)
            else:
                # A reader that begins at this root needs the commits after it.
                first_root = root if first_root is None else min(root, first_root)
        elif not is_old:
            continue
        elif commit is not None:  # [COMMIT-7]
            if commit not in needed.txn_commits and entry.key not in needed.segments:
                commits.append(entry)
        elif leaf is not None:
            if leaf not in needed.leaves:
                leaves.append(entry)
        elif parse_offer_path(entry.key) is not None:
            offers.append(entry)
        elif is_segment_path(entry.key) and entry.key not in needed.segments:
            segments.append(entry)
    commits = [entry for entry in commits if _is_below(entry.key, first_root)]
    kinds = (roots, commits, leaves, segments, offers)
    return Garbage(*(tuple(sorted(entries)) for entries in kinds))


def _is_below(key: str, root: int | None) -> bool:
    version = parse_commit_path(key)
    return root is not None and version is not None and version < root
