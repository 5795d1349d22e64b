"""What leads from the version that a table shows to a newer one. It reads, and writes nothing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pylogtable.format.config import LATEST, RECORDS
from pylogtable.format.log_state import LogState
from pylogtable.format.model import Commit
from pylogtable.format.snapshot import Snapshot
from pylogtable.log.manifest import Manifest
from pylogtable.publish.plan import (
    Shown,
    before_appends,
    changed_spans,
    kept_copies,
    plan_copies,
    plan_table_change,
    same_columns,
    stands,
    versions_to_show,
    with_whole_copies,
)
from pylogtable.publish.table import Published
from pylogtable.read.plan import Span


@dataclass(frozen=True)
class Step:
    """From what a table shows to another version: what it would show with the copies that it has,
    and where files may differ."""

    wanted: Shown
    spans: Sequence[Span]
    commits: Sequence[Commit]


@dataclass(frozen=True)
class Advance:
    """From what a table shows to the version `target`, by these commits, without void ones."""

    shown: Shown
    target: LogState
    commits: Sequence[Commit]
    view: str = RECORDS

    @property
    def versions(self) -> list[int]:
        """The versions that the table shows on the way, one after the other [PUB-4]. A table that
        hides rows promises nothing to streams, and shows the target in one step [PUB-9]."""
        if LATEST in (self.view, self.target.snapshot.config.publish_view):
            return [self.target.snapshot.version]
        return versions_to_show(self.shown.snapshot, self.commits)

    def step(self, shown: Shown, to: LogState) -> Step:
        """The step to one of these versions, from what the table shows by then."""
        first, last = shown.snapshot.version, to.snapshot.version
        between = [commit for commit in self.commits if first < commit.version <= last]
        spans = changed_spans(shown.snapshot, to.snapshot, between)
        copies = kept_copies(to, shown.copies)
        spans = with_whole_copies(to.snapshot, spans, shown.copies, copies)
        return Step(Shown(to, copies), spans, between)

    def is_same_table(self, shown: Snapshot, wanted: Snapshot) -> bool:
        """True if tables with the same files that show these states are the same: they have the
        same columns, and hide the same rows. Which record of a key is the newest depends on the
        number of partitions, too [READ-6]."""
        view = wanted.config.publish_view
        hides_same = view == self.view and (
            view != LATEST or len(shown.partitions) == len(wanted.partitions)
        )
        return hides_same and same_columns(shown.info, wanted.info)

    @property
    def shows_nothing_new(self) -> bool:
        """True if the table shows the files of the target already, and its columns."""
        if len(self.versions) > 1:
            return False
        step = self.step(self.shown, self.target)
        if any(plan_copies(step.wanted, step.spans)):
            return False
        has_change = bool(plan_table_change(self.shown, step.wanted, step.spans))
        return not has_change and self.is_same_table(self.shown.snapshot, self.target.snapshot)


def find_advance(
    manifest: Manifest, published: Published, target: Snapshot, known: Shown | None = None
) -> Advance | None:
    """The way from an entry of a table to a version of the topic. None if commits are gone, or if
    the table shows something that the topic has not. `known` is what the entry shows, if that is
    known."""
    if published.state.topic_id != target.topic_id:
        return None
    commits = manifest.commits.read_up_to(target, published.state.version)
    if commits is None or not stands(published.state, target, commits):
        return None
    shown = known or _shown(manifest, published, target, commits)
    return (
        None
        if shown is None
        else Advance(shown, manifest.state(target), commits, published.state.view)
    )


def _shown(
    manifest: Manifest, published: Published, target: Snapshot, commits: Sequence[Commit]
) -> Shown | None:
    """What the table shows; None if that version is gone."""
    version = published.state.version
    snapshot = before_appends(target, version, commits) or manifest.load_at(version)
    if snapshot is None or snapshot.topic_id != target.topic_id or snapshot.topic is None:
        return None
    return Shown(manifest.state(snapshot), published.state.copies)
