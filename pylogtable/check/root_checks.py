"""Checks of roots, also of those that no reader needs at the moment."""

from __future__ import annotations

from collections.abc import Iterator

from pylogtable.check.loaded_topic import Subject, problem_of
from pylogtable.check.report import Problem
from pylogtable.errors import CorruptTopicError, LogTableError, StorageError
from pylogtable.format.paths import parse_root_path, root_path
from pylogtable.format.snapshot import Snapshot, replay


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
        if replayed is not None and _headline(replayed) != _headline(root) and not is_known:
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


def _headline(state: Snapshot) -> tuple[object, ...]:
    """What a root says about a state, apart from the entries."""
    partitions = [(p.log_start, p.end, p.clean_end, p.live) for p in state.partitions]
    ids = (state.commit_id, state.topic_id, state.committed_at_ms)
    return ids, state.protocol, state.topic, dict(state.txns), state.mirror, partitions
