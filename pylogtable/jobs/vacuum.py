"""Vacuum: remove files that no kept version needs.

It stops if it cannot read what a kept version refers to [VAC-2].
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

from pylogtable.arguments import check_flags
from pylogtable.errors import CorruptTopicError, InvalidRequestError, StorageError
from pylogtable.format.config import (
    FOREVER,
    MANIFEST_RETENTION_MS,
    STALE_AFTER_MS,
    TopicConfig,
)
from pylogtable.format.model import Change
from pylogtable.format.paths import MANIFEST_DIR, commit_path, object_of
from pylogtable.format.snapshot import Snapshot
from pylogtable.jobs.job import MaintainedTopic, MaintainOptions
from pylogtable.jobs.vacuum_plan import (
    Garbage,
    Listed,
    Needed,
    is_stranger,
    plan_vacuum,
    staying_roots,
)
from pylogtable.jobs.work import RunUnits
from pylogtable.log.clock_skew import agreed_now_ms
from pylogtable.log.root_plan import sparse_leaves
from pylogtable.log.topic_log import TopicLog
from pylogtable.operation import Threads
from pylogtable.presentation import bytes_text, count_text
from pylogtable.runtime import Runtime
from pylogtable.storage.base import ObjectInfo, ObjectStore

#: How many commits are held in memory at a time.
READ_COMMITS = 1_000


@dataclass(frozen=True)
class VacuumReport:
    """What a vacuum removed, or would remove in a dry run. `table_files` counts the objects of
    published tables. `strangers` are Parquet files in the folders of partitions that are not the
    topic's. They stay: only you know what they are."""

    version: int
    dry_run: bool
    files: tuple[str, ...]
    size_bytes: int
    data_files: int
    manifest_files: int
    seconds: float
    table_files: int = 0
    strangers: tuple[str, ...] = ()

    def __str__(self) -> str:
        verb = "would remove" if self.dry_run else "removed"
        text = f"{verb} {count_text(len(self.files), 'file')}, {bytes_text(self.size_bytes)}"
        if self.strangers:
            text += f", and kept {count_text(len(self.strangers), 'file')} of others"
        return f"{text}; {self.seconds:.1f} s"


@dataclass(frozen=True)
class Vacuum:
    """Removes the files that no version of the last `retention_ms` needs, 7 days by default. A
    `dry_run` only lists them. Less than 7 days needs `force`. It lists and deletes, so it has no
    units of work."""

    dry_run: bool = False
    retention_ms: int | None = None
    force: bool = False

    name: ClassVar[str] = "vacuum"

    def __post_init__(self) -> None:
        check_flags(dry_run=self.dry_run, force=self.force)

    @classmethod
    def for_maintain(cls, config: TopicConfig, options: MaintainOptions) -> Vacuum | None:
        return cls() if options.vacuum else None

    def run(self, topic: MaintainedTopic, run_units: RunUnits) -> VacuumReport:
        keep_ms = self._keep_ms()
        if keep_ms < MANIFEST_RETENTION_MS and not self.dry_run and not self.force:
            raise InvalidRequestError(
                f"vacuum of topic {topic.name!r} with retention_ms={keep_ms} would remove files "
                "that versions of the last 7 days need. These versions could not be read any more, "
                "and readers, streams and publications that use such a file now would fail. Call "
                "vacuum(dry_run=True) to see what would go. If nobody needs them, give force=True, "
                "or --force on the command line"
            )
        return _vacuum(topic, self.dry_run, keep_ms)

    def preview(self, topic: MaintainedTopic) -> tuple[VacuumReport, MaintainedTopic]:
        return _vacuum(topic, True, self._keep_ms()), topic

    def _keep_ms(self) -> int:
        keep_ms = MANIFEST_RETENTION_MS if self.retention_ms is None else self.retention_ms
        if isinstance(keep_ms, bool) or not isinstance(keep_ms, int) or keep_ms < 0:
            raise InvalidRequestError(
                f"retention_ms must be a whole number, 0 or more, not {keep_ms!r}"
            )
        return keep_ms


def _vacuum(topic: MaintainedTopic, dry_run: bool, keep_ms: int) -> VacuumReport:
    store, log, runtime = topic.store, topic.log, topic.runtime
    began = runtime.monotonic()
    now_ms = _now_ms(store, runtime, dry_run)
    newest = log.latest()
    # Listed before anything is decided, so that files written later are not in the list.
    listed = list(store.list())
    listing = [_listed(entry) for entry in listed]
    leftovers = [_listed(entry) for entry in store.leftovers()]
    old_ms = now_ms - MANIFEST_RETENTION_MS
    tables = topic.tables.objects(newest.topic_id, listed, now_ms - keep_ms, old_ms)
    since_ms = now_ms - keep_ms - tables.keep_longer_ms
    needed, known, files_before_ms = _needed(
        log, newest, since_ms, listing, old_ms, is_short=keep_ms < MANIFEST_RETENTION_MS
    )
    needed = replace(needed, segments=needed.segments | tables.shown)
    planned = _plan(listing, needed, known, now_ms, keep_ms)
    garbage = replace(
        planned,
        segments=tuple(s for s in planned.segments if s.modified_ms < files_before_ms),
        tables=tuple(map(_listed, tables.old)),
        leftovers=tuple(entry for entry in leftovers if entry.modified_ms < old_ms),
    )
    version = newest.version
    if not dry_run and any(garbage):
        version = _commit_with_root(log, garbage)
        _remove(log, garbage, needed.root_version)
    removed = tuple(entry.key for entry in garbage)
    manifest_files = sum(key.startswith(MANIFEST_DIR) for key in removed)
    return VacuumReport(
        version=version,
        dry_run=dry_run,
        files=removed,
        size_bytes=sum(entry.size_bytes for entry in garbage),
        data_files=len(removed) - manifest_files - len(garbage.tables),
        manifest_files=manifest_files,
        table_files=len(garbage.tables),
        strangers=tuple(entry.key for entry in listing if is_stranger(entry.key)),
        seconds=runtime.monotonic() - began,
    )


def _now_ms(store: ObjectStore, runtime: Runtime, dry_run: bool) -> int:
    """The store's time [VAC-4]. A dry run must also work where nothing may be written."""
    try:
        return agreed_now_ms(store, runtime)
    except StorageError:
        if not dry_run:
            raise
        return runtime.clock()


def _plan(
    listing: list[Listed], needed: Needed, known: frozenset[str], now_ms: int, keep_ms: int
) -> Garbage:
    """With a short retention, files that a version once named are removed early. A file that no
    version ever named is removed only when it is old: a writer may be about to commit it
    [COMMIT-8]."""
    old = plan_vacuum(listing, needed, now_ms - MANIFEST_RETENTION_MS)
    if keep_ms >= MANIFEST_RETENTION_MS:
        return old
    replaced = [entry for entry in listing if entry.key in known - needed.segments]
    segments = sorted({*old.segments, *replaced})
    return replace(old, segments=tuple(segments))


def _needed(
    log: TopicLog,
    newest: Snapshot,
    since_ms: int,
    listing: Sequence[Listed],
    old_before_ms: int,
    *,
    is_short: bool,
) -> tuple[Needed, frozenset[str], int]:
    """What versions from `since_ms` on need; every data file that a known commit added, if the
    retention `is_short`; and the time from which on data files stay, needed or not."""
    manifest = log.manifest
    oldest = manifest.commits.version_at(since_ms, newest)
    if oldest is None:
        oldest = manifest.first_version(newest)
    oldest_kept = manifest.load_at(oldest, from_newest_root=True)
    if oldest_kept is None or oldest_kept.topic_id != newest.topic_id:
        oldest = manifest.first_version(newest)
        oldest_kept = manifest.load_at(oldest, from_newest_root=True)
    if oldest_kept is None:
        raise CorruptTopicError(
            commit_path(oldest), "VAC-2", "the files that this version needs cannot be read"
        )
    segments = set(manifest.state(oldest_kept).entries()["path"].to_pylist())
    segments.update(manifest.state(newest).entries()["path"].to_pylist())
    files_before_ms = FOREVER
    if not is_short and newest.version - oldest > log.store.limits.vacuum_commits:
        # A file that a commit since then has added is no older than this [COMMIT-8], so these many
        # commits need not be read [VAC-2].
        files_before_ms = since_ms - STALE_AFTER_MS
    else:
        segments |= _added_after(log, newest, oldest)
    known: set[str] = set()
    for commit in manifest.commits.backwards(newest) if is_short else ():
        known.update(segment.path for segment in commit.add if not segment.is_inline)
    first = oldest_kept.root_version
    roots = staying_roots(listing, first, old_before_ms)
    leaves = {*newest.leaves, *oldest_kept.leaves}
    leaves |= manifest.leaves_of_roots(roots, strict_from=first or 0)
    return (
        Needed(
            segments=frozenset(map(object_of, segments)),
            leaves=frozenset(leaves),
            root_version=None if first is None else min([first, *roots]),
            txn_commits=frozenset(mark.commit_version for mark in newest.txns.values()),
        ),
        frozenset(known),
        files_before_ms,
    )


def _added_after(log: TopicLog, newest: Snapshot, oldest: int) -> set[str]:
    """What the commits after a version have added."""
    added: set[str] = set()
    commits = log.manifest.commits
    for start in range(oldest + 1, newest.version + 1, READ_COMMITS):
        versions = range(start, min(start + READ_COMMITS, newest.version + 1))
        found = commits.read_range(versions)
        if found is None:
            gone = next(v for v in versions if commits.read(v) is None)
            raise CorruptTopicError(commit_path(gone), "VAC-2", "the commit is missing")
        for commit in found:
            if commit.topic_id == newest.topic_id:  # the files of a void commit are not needed
                added.update(segment.path for segment in commit.add)
    return added


def _commit_with_root(log: TopicLog, garbage: Garbage) -> int:
    """Commit the vacuum, and write a root without leaves that are mostly dead. So the hint names a
    root that stays before anything is removed [VAC-3]."""
    summary = {
        "files_removed": len(list(garbage)),
        "bytes_removed": sum(entry.size_bytes for entry in garbage),
    }
    after, _ = log.change(lambda _: Change(operation="vacuum", summary=summary))
    if after.root_version != after.version:
        sparse = sparse_leaves(log.manifest.state(after))
        log.manifest.write_root(after, log.runtime.new_id, also_merge=sparse)
    return after.version


def _remove(log: TopicLog, garbage: Garbage, kept_root: int | None) -> None:
    """Remove the garbage. The manifest is left alone unless the hint names a root that stays: a
    reader that begins at an older root needs commits and leaves that are garbage now."""
    store, hint = log.store, log.manifest.hinted_root()
    manifest_safe = hint is not None and kept_root is not None and hint >= kept_root
    if manifest_safe:
        for entry in (*garbage.roots, *garbage.commits[:1]):
            store.delete(entry.key)
        store.delete_many([entry.key for entry in garbage.commits[1:]])
        store.delete_many([entry.key for entry in garbage.leaves])
    for group in (garbage.tables, garbage.offers, garbage.segments):
        store.delete_many([entry.key for entry in group])
    with Threads(max(1, store.concurrency)) as pool:
        list(pool.map(store.remove_leftover, [entry.key for entry in garbage.leftovers]))


def _listed(entry: ObjectInfo) -> Listed:
    return Listed(entry.key, entry.size_bytes, entry.modified_ms)
