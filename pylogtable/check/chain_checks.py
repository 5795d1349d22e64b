"""Checks on commits and roots that readers cannot make: commits outside of the chain, timestamps,
and roots that differ from the commits."""

from __future__ import annotations

from collections.abc import Iterator

from pylogtable.check.loaded_topic import Subject, problem_of
from pylogtable.check.report import Problem
from pylogtable.errors import CorruptTopicError, LogTableError, StorageError
from pylogtable.format.model import Commit, Txn
from pylogtable.format.paths import (
    commit_path,
    object_of,
    parse_commit_path,
    parse_root_path,
    root_path,
)
from pylogtable.format.snapshot import Snapshot, replay
from pylogtable.log.clock_skew import MAX_SKEW_MS
from pylogtable.presentation import time_text


def check_stranded_commits(subject: Subject) -> Iterator[Problem]:
    """No commit of the topic stands below the oldest that is kept [COMMIT-9], apart from those that
    a vacuum keeps for their txns and for their records [VAC-1]. A stale writer may have put it
    there."""
    try:
        chain = list(subject.manifest.commits.backwards(subject.snapshot))
    except StorageError:
        raise
    except LogTableError:
        return  # `check_replay` reports it.
    if not chain or chain[-1].operation == "create" or _is_cut_short(subject, chain[-1]):
        return
    listed = (parse_commit_path(key) for key in subject.sizes)
    below = [version for version in listed if version is not None and version < chain[-1].version]
    for version in sorted(below):
        commit = None
        try:
            with subject.looking.at(commit_path(version)):
                commit = subject.manifest.commits.read(version)
        except CorruptTopicError as error:
            yield problem_of(error, error.path)
            continue
        if commit is not None and _is_stranded(subject, commit):
            detail = f"it is no part of the topic: version {chain[-1].version} is the oldest kept"
            yield Problem("COMMIT-9", commit_path(version), detail)


def check_commits_from_the_future(subject: Subject) -> Iterator[Problem]:
    """No commit is more than 24 hours ahead of the store's time [COMMIT-12]."""
    store, newest = subject.store, subject.snapshot
    # It is later now than when something was written. To ask for the time takes a write, which may
    # not be allowed here.
    if newest.committed_at_ms <= subject.written_ms + MAX_SKEW_MS:
        return
    now_ms = store.last_reply_ms if store.last_reply_ms is not None else store.now_ms()
    if newest.committed_at_ms <= now_ms + MAX_SKEW_MS:
        return
    last_good = subject.manifest.commits.version_at(now_ms + MAX_SKEW_MS, newest)
    first = 0 if last_good is None else last_good + 1
    detail = (
        f"from this version on, commits are ahead of the store's time {time_text(now_ms)} UTC, "
        f"up to {time_text(newest.committed_at_ms)} UTC: a writer's clock was wrong"
    )
    yield Problem("COMMIT-12", commit_path(first), detail)


def _is_cut_short(subject: Subject, oldest: Commit) -> bool:
    """True if the commit below the oldest one of the chain is lost: it has live records, so no
    vacuum removed it. `check_files` reports that. The commits below it are no strangers."""
    below = commit_path(oldest.version - 1)
    needed = {object_of(segment.path) for segment in subject.segments if segment.is_inline}
    return below in needed and below not in subject.sizes


def _is_stranded(subject: Subject, commit: Commit) -> bool:
    # One with rows may have been kept for a version that is no longer kept.
    if commit.topic_id != subject.snapshot.topic_id or commit.rows is not None:
        return False
    return all(_is_unknown(subject, commit, txn) for txn in commit.txns)


def _is_unknown(subject: Subject, commit: Commit, txn: Txn) -> bool:
    """True if the topic's state has not come from a commit with this txn."""
    mark = subject.snapshot.txns.get(txn.app_id)
    if mark is None or txn.version > mark.txn_version:
        return True
    return txn.version == mark.txn_version and commit.version != mark.commit_version


def check_roots(subject: Subject) -> Iterator[Problem]:
    """Each root agrees with itself [ROOT-6], and with the commits since the root before it, as far
    as these are kept [ROOT-5]. A reader ignores a root that does not, so nothing is lost by it. But
    opening the topic may take long."""
    before: Snapshot | None = None
    for version in sorted(v for v in map(parse_root_path, subject.sizes) if v is not None):
        root, replayed = None, None
        with subject.looking.at(root_path(version)):
            root = subject.manifest.roots.examine(version)
            if isinstance(root, Snapshot) and version <= subject.snapshot.version:
                replayed = _replayed(subject, before, version)
        if isinstance(root, CorruptTopicError):
            yield problem_of(root, root_path(version))
        if not isinstance(root, Snapshot):
            continue
        if version > subject.snapshot.version:
            detail = f"it is of a version that does not exist; {subject.snapshot.version} is newest"
            yield Problem("ROOT-6", root_path(version), detail)
            continue
        is_known = any(p.path == root_path(version) for p in subject.report.problems)
        if replayed is not None and not _agree(replayed, root) and not is_known:
            yield Problem("ROOT-5", root_path(version), "it differs from the commits before it")
        before = replayed or root


def _replayed(subject: Subject, base: Snapshot | None, version: int) -> Snapshot | None:
    """The state that the commits after `base` lead to; None if they are not all kept, or if they
    cannot be applied, which other checks report."""
    try:
        first = base.version + 1 if base else 0
        commits = subject.manifest.commits.read_range(range(first, version + 1))
        return None if commits is None else replay(base, commits)
    except StorageError:
        raise
    except LogTableError:
        return None


def _agree(replayed: Snapshot, root: Snapshot) -> bool:
    """True if both say the same. One of them may not know how much is inline [INL-7]."""
    states = zip(replayed.partitions, root.partitions, strict=False)
    return _headline(replayed) == _headline(root) and all(
        one.inline == other.inline or None in (one.inline, other.inline) for one, other in states
    )


def _headline(state: Snapshot) -> tuple[object, ...]:
    """What a root says about a state, apart from the entries."""
    partitions = [(p.log_start, p.end, p.clean_end, p.live) for p in state.partitions]
    ids = (state.commit_id, state.topic_id, state.committed_at_ms)
    return ids, state.protocol, state.topic, dict(state.txns), state.mirror, partitions
