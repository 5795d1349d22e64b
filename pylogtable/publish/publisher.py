"""One publication to one table: shows the topic as it was planned, and tries again where another
publication was faster."""

from __future__ import annotations

import logging
from collections.abc import Container, Sequence
from dataclasses import replace

from pylogtable.errors import CommitConflictError, CorruptTopicError, SegmentGoneError
from pylogtable.events import log_event
from pylogtable.format.config import LATEST, STALE_AFTER_MS
from pylogtable.format.model import Commit
from pylogtable.format.snapshot import Snapshot
from pylogtable.jobs.compaction_plan import records_not_compacted
from pylogtable.jobs.job import MaintainedTopic
from pylogtable.jobs.merge_plan import MergeUnit
from pylogtable.jobs.work import RunUnits
from pylogtable.log.commit_events import place_of
from pylogtable.publish.advance import Advance, find_advance
from pylogtable.publish.key_looks import KeyLooks
from pylogtable.publish.latest_view import LatestView, Since, is_latest
from pylogtable.publish.older_records import shows_older_records, warn_of_older_records
from pylogtable.publish.plan import (
    Copies,
    Shown,
    TableChange,
    is_prompt,
    is_within,
    passing_files,
    plan_copies,
    plan_table_change,
    plan_whole_table,
    stands,
    whole,
)
from pylogtable.publish.report import PublishedTable
from pylogtable.publish.sealing import Sealed, commit, write_copies
from pylogtable.publish.table import Published
from pylogtable.publish.tables import OpenTable, check_installed
from pylogtable.read.plan import Span
from pylogtable.storage.base import ObjectStore

_logger = logging.getLogger(__name__)


class Publisher:
    """One publication to one table."""

    def __init__(
        self,
        topic: MaintainedTopic,
        run_units: RunUnits,
        files: ObjectStore,
        opened: OpenTable,
        looks: KeyLooks,
    ) -> None:
        self._topic = topic
        self._manifest = topic.log.manifest
        self._run_units = run_units
        self._files = files
        self._opened = opened
        self._looks = looks
        self._table = opened.table
        self._began_ms = topic.runtime.clock()
        self._has_looked = False
        self._copies_at: tuple[int, Copies] = -1, {}
        self._done = PublishedTable(format=self._table.format, version=0, table_version=0)

    @property
    def format(self) -> str:
        """The format of the table."""
        return self._table.format

    def look(self, topic_id: str) -> None:
        """Find out what the table shows. What the process knows is believed for a while: the put
        of the next entry proves it, or fails [PUB-8]."""
        check_installed(self.format)
        age_ms = self._began_ms - self._opened.looked_ms
        is_known = self._opened.published is not None
        if not is_known or not 0 <= age_ms <= self._files.limits.table_known_ms:
            self._newest(topic_id)

    def copies_ahead(self, target: Snapshot) -> list[MergeUnit] | None:
        """The sealed copies that the table needs to show the target; None if it does not get there
        in one step."""
        published = self._opened.published
        if published is None:
            return None
        advance = find_advance(self._manifest, published, target, self._opened.shown)
        if advance is None or len(advance.versions) > 1:
            return None
        step = advance.step(advance.shown, advance.target)
        return list(plan_copies(step.wanted, step.spans))

    def use(self, sealed: Sealed, units: Sequence[MergeUnit], version: int) -> None:
        """Show these copies at this version, for the segments of those units."""
        mine = {unit.inputs[0].path for unit in units}
        made = {path: copies for path, copies in sealed.copies.items() if path in mine}
        self._copies_at = version, made

    def publish(self, target: Snapshot) -> PublishedTable:
        """Show a version of the topic. What is committed meanwhile is for next time."""
        published = self._opened.published
        if published is None and shows_older_records(target):
            warn_of_older_records(self._topic.name, target.topic_id)
        while True:
            if published is not None and published.state.version > target.version:
                target = self._topic.log.latest()
            try:
                landed = self._advance(published, target)
            except SegmentGoneError:
                # Another job replaced a file after the target was loaded, and a vacuum removed it.
                newer = self._topic.log.latest()
                if newer.version == target.version:
                    raise
                target, landed = newer, None
            except CorruptTopicError:
                # What is known of the table may be of one that was removed since.
                if self._has_looked:
                    raise
                landed = None
            if landed is not None and (self._done.steps or self._has_looked):
                break
            published = self._newest(target.topic_id)
        if not self._done.steps:
            self._table.mend(landed)
        return replace(
            self._done,
            version=max(landed.state.version, target.effective_version),
            table_version=landed.number,
            records_not_compacted=(
                records_not_compacted(target) if shows_older_records(target) else None
            ),
            rows_hidden=landed.state.hidden_rows if landed.state.view == LATEST else None,
        )

    def _newest(self, topic_id: str) -> Published | None:
        """What the table shows. A damaged table of another topic is removed: a deletion of that
        topic was interrupted."""
        self._has_looked = True
        try:
            published = self._table.newest()
        except CorruptTopicError:
            if self._table.topic_id() in (None, topic_id):
                raise
            self._table.remove()
            published = None
        self._know(published, None)
        self._opened.looked_ms = self._topic.runtime.clock()
        return published

    def _know(self, published: Published | None, shown: Shown | None) -> None:
        self._opened.published, self._opened.shown = published, shown

    def _advance(self, published: Published | None, target: Snapshot) -> Published | None:
        """Show the target after the versions that a stream has to see before it. Returns the entry
        that shows it; None if another publication was faster."""
        if published is not None and _shows(published, target):
            return published
        if published is None:
            return self._show_all(None, target)
        advance = find_advance(self._manifest, published, target, self._opened.shown)
        if advance is None:
            return self._show_all(published, target)
        try:
            return self._show_steps(published, advance)
        except SegmentGoneError:  # a version in between needs files that a vacuum has removed
            return self._show_all(self._newest(target.topic_id), target)

    def _show_steps(self, published: Published, advance: Advance) -> Published | None:
        """Show one version after the other, so that streams see every record once [PUB-4]."""
        target, shown = advance.target.snapshot, advance.shown
        versions = advance.versions
        for version in versions:
            snapshot = target if version == versions[-1] else self._manifest.load_at(version)
            if snapshot is None:
                return self._show_all(published, target)
            step = advance.step(shown, self._manifest.state(snapshot))
            unsafe: set[str] = set()
            if self._was_replaced_long_ago(version, advance.commits):
                unsafe = passing_files(shown, step.wanted.state, advance.target, step.spans)
            wanted = self._with_copies(step.wanted, step.spans, unsafe)
            change = plan_table_change(shown, wanted, step.spans)
            after = [c for c in advance.commits if c.version > published.state.version]
            now_ms, copies = self._topic.runtime.clock(), published.state.copies
            change = replace(change, is_prompt=is_prompt(change, after, copies, now_ms))
            is_same = not change and advance.is_same_table(shown.snapshot, snapshot)
            if is_same and not self._may_be_forgotten(published, advance.commits):
                shown = wanted
                continue
            since = Since(shown, step.commits, step.spans)
            landed = self._show(published, since, wanted, change)
            if landed is None:
                return None
            published, shown = landed, wanted
        return published

    def _may_be_forgotten(self, published: Published, commits: Sequence[Commit]) -> bool:
        """True if the commits after an entry are so old that a vacuum may soon remove them. Then
        the next publication could not tell what has changed since."""
        after = [c.committed_at_ms for c in commits if c.version > published.state.version]
        return bool(after) and self._began_ms - after[0] > STALE_AFTER_MS

    def _was_replaced_long_ago(self, version: int, commits: Sequence[Commit]) -> bool:
        """True if a vacuum need not keep this version until the table shows it [VAC-1]."""
        after = [c.committed_at_ms for c in commits if c.version > version]
        return bool(after) and self._began_ms - after[0] > STALE_AFTER_MS

    def _show_all(self, published: Published | None, target: Snapshot) -> Published | None:
        """Show the target whatever the table shows now: it is new, or the commits in between are
        gone, or the topic is another one."""
        try:
            there = {} if published is None else self._table.files(published)
        except CorruptTopicError:
            if published is None or published.state.topic_id == target.topic_id:
                raise
            self._table.remove()
            published, there = None, {}
        wanted = self._with_copies(Shown(self._manifest.state(target)), whole(target))
        change = plan_whole_table(there, wanted)
        return self._show(published, None, wanted, change)

    def _show(
        self,
        published: Published | None,
        since: Since | None,
        wanted: Shown,
        change: TableChange,
    ) -> Published | None:
        if self._topic.runtime.clock() - self._began_ms > STALE_AFTER_MS:  # [COMMIT-8]
            raise CommitConflictError(
                "the publication took so long that vacuum may have removed its files; publish again"
            )
        hidden = None
        if is_latest(published, wanted.snapshot):
            view = LatestView(self._table, self._looks)
            hidden = view.plan(published, since, wanted, change)
        shown = None if since is None else since.shown.snapshot.info
        landed = self._table.show(self._topic.name, published, shown, wanted, change, hidden)
        if landed is not None:
            log_event(
                _logger,
                logging.INFO,
                "the %(table)s table of topic %(topic)s shows version %(version)s",
                table=self._table.format,
                **place_of(self._topic.store.url),
                version=landed.state.version,
                table_version=landed.number,
                files_added=len(change.added),
                files_removed=len(change.removed),
            )
            self._know(landed, wanted)
            self._done = replace(
                self._done,
                steps=self._done.steps + 1,
                files_added=self._done.files_added + len(change.added),
                files_removed=self._done.files_removed + len(change.removed),
            )
        return landed

    def _with_copies(
        self, wanted: Shown, spans: Sequence[Span], unsafe: Container[str] = ()
    ) -> Shown:
        """The same with sealed copies where they are needed."""
        version, made = self._copies_at
        if version == wanted.snapshot.version:
            # Another publication may have shown some of their segments meanwhile, by its copies.
            fitting = {path: files for path, files in made.items() if is_within(files, spans)}
            wanted = Shown(wanted.state, {**wanted.copies, **fitting})
        units = list(plan_copies(wanted, spans, unsafe))
        if not units:
            return wanted
        sealed = write_copies(self._topic, self._files, self._run_units, units)
        commit(self._topic, sealed, self._files.limits.seal_tries)
        self.count_sealed(sealed)
        return Shown(wanted.state, {**wanted.copies, **sealed.copies})

    def count_sealed(self, sealed: Sealed) -> None:
        """Let the report say that these segments were sealed."""
        total = self._done.segments_sealed + sealed.segments
        self._done = replace(self._done, segments_sealed=total)


def _shows(published: Published, target: Snapshot) -> bool:
    """True if the table shows this state of the topic, apart from void commits."""
    state = published.state
    is_there = target.effective_version <= state.version <= target.version
    has_view = state.view == target.config.publish_view
    is_same = state.topic_id == target.topic_id and has_view
    return is_same and is_there and stands(state, target, ())
