"""Publication: show the topic to engines that read other table formats, over its own files.

It plans on a snapshot, as every job does. The table then shows exactly that version, whatever other
writers, jobs and publications do meanwhile [PUB-1].
"""

from __future__ import annotations

import logging
import warnings
from collections.abc import Container, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

from pylogtable.arguments import names_in
from pylogtable.errors import (
    CommitConflictError,
    CorruptTopicError,
    InvalidRequestError,
    LogTableError,
    SegmentGoneError,
    StorageError,
)
from pylogtable.format.config import (
    PUBLISH_FORMATS,
    STALE_AFTER_MS,
    TopicConfig,
    known_formats,
)
from pylogtable.format.log_state import LogState
from pylogtable.format.model import Change, Commit, TopicInfo
from pylogtable.format.snapshot import Snapshot
from pylogtable.jobs.compaction_plan import records_not_compacted
from pylogtable.jobs.job import MaintainedTopic, MaintainOptions
from pylogtable.jobs.merge import Merge
from pylogtable.jobs.replace_plan import plan_swap_commit, still_fits
from pylogtable.jobs.work import Rewritten, RunUnits, Worker
from pylogtable.publish.plan import (
    Shown,
    TableChange,
    before_appends,
    changed_spans,
    kept_copies,
    passing_files,
    plan_copies,
    plan_table_change,
    plan_whole_table,
    stands,
    versions_to_show,
    whole,
    with_lost_copies,
)
from pylogtable.publish.report import DueTable, PublishedTable, PublishReport
from pylogtable.publish.table import Published, Table
from pylogtable.publish.tables import check_installed, table_of
from pylogtable.read.description import PublishedStatus
from pylogtable.read.plan import Span

_logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Publication:
    """Brings the published tables up to the newest version. A unit of work is a sealed copy of a
    segment that a plain reader would read wrongly, or of neighbours that are in commits.

    Somebody who publishes a compacted topic is warned."""

    formats: Sequence[str] | None = None

    name: ClassVar[str] = "publication"
    warns_each_time: ClassVar[bool] = True

    @classmethod
    def for_maintain(cls, config: TopicConfig, options: MaintainOptions) -> Publication | None:
        return RegularPublication() if config.publish_formats else None

    def run(self, topic: MaintainedTopic, run_units: RunUnits) -> PublishReport:
        began = topic.runtime.monotonic()
        snapshot = topic.log.latest()
        names = chosen_formats(self.formats, snapshot.config)
        check_installed(names)
        if snapshot.config.is_compacted and self.warns_each_time:
            warn_of_older_records(topic.name, snapshot.topic_id)
        tables = tuple(
            _Publisher(topic, run_units, table_of(name, topic.store, topic.runtime)).publish()
            for name in names
        )
        seconds = topic.runtime.monotonic() - began
        return PublishReport(topic=topic.name, tables=tables, seconds=seconds)

    def preview(self, topic: MaintainedTopic) -> tuple[PublishReport, MaintainedTopic]:
        began = topic.runtime.monotonic()
        snapshot = topic.newest().snapshot
        formats = chosen_formats(self.formats, snapshot.config)
        due = tuple(DueTable(name, _status(topic, snapshot, name)) for name in formats)
        seconds = topic.runtime.monotonic() - began
        return PublishReport(topic=topic.name, tables=(), seconds=seconds, due=due), topic


class RegularPublication(Publication):
    """As `maintain` does it: a warning comes only with a new table. In each night's mail it would
    soon be overlooked, and the report has the numbers."""

    warns_each_time: ClassVar[bool] = False


def chosen_formats(asked: Sequence[str] | None, config: TopicConfig) -> list[str]:
    """The formats to publish: those asked for, or those of the topic's settings, or Delta, the one
    that needs no other package."""
    if asked is None:
        return sorted(config.publish_formats or ("delta",))
    formats = names_in("formats", asked)
    unknown = [name for name in formats if name not in PUBLISH_FORMATS]
    if unknown or not formats:
        raise InvalidRequestError(
            f"a topic cannot be published as {', '.join(map(repr, unknown)) or 'nothing'}; "
            f"the formats are {', '.join(PUBLISH_FORMATS)}"
        )
    return list(dict.fromkeys(formats))


def unpublish(topic: MaintainedTopic, formats: Sequence[str] | None) -> int:
    """Remove the tables of these formats, or of all. Returns how many objects were removed."""
    chosen = PUBLISH_FORMATS if formats is None else formats
    wanted = chosen_formats(chosen, topic.log.latest().config)
    return sum(table_of(name, topic.store, topic.runtime).remove() for name in wanted)


def published_status(topic: MaintainedTopic, newest: Snapshot) -> tuple[PublishedStatus, ...]:
    """How far the tables that the topic's settings ask for are behind. What is not published yet,
    or is damaged, is left out. Raises if the store fails: then that is not known."""
    formats = known_formats(newest.info.config)
    found = (_status(topic, newest, name) for name in formats)
    return tuple(status for status in found if status is not None)


def _status(topic: MaintainedTopic, newest: Snapshot, format: str) -> PublishedStatus | None:
    try:
        published = table_of(format, topic.store, topic.runtime).newest()
    except StorageError:
        raise
    except LogTableError as error:
        _logger.warning("the %s table of %s cannot be read: %s", format, topic.name, error)
        return None
    if published is None or published.state.topic_id != newest.topic_id:
        return None
    state = published.state
    offsets = sum(partition.end for partition in newest.partitions)
    return PublishedStatus(
        format=format,
        version=state.version,
        table_version=published.number,
        lag_records=max(0, offsets - state.offsets),
        lag_ms=max(0, newest.committed_at_ms - state.committed_at_ms),
    )


class _Publisher:
    """One publication to one table."""

    def __init__(self, topic: MaintainedTopic, run_units: RunUnits, table: Table) -> None:
        self._topic = topic
        self._manifest = topic.log.manifest
        self._run_units = run_units
        self._table = table
        self._began_ms = topic.runtime.clock()
        self._done = PublishedTable(format=table.format, version=0, table_version=0)

    def publish(self) -> PublishedTable:
        """Show the newest version of the topic. What is committed meanwhile is for next time."""
        target = self._topic.log.latest()
        published = self._newest(target.topic_id)
        if published is None and target.config.is_compacted:
            warn_of_older_records(self._topic.name, target.topic_id)
        while published is None or not _shows(published, target):
            if published is not None and published.state.version > target.version:
                target = self._topic.log.latest()
            try:
                published = self._advance(published, target) or self._newest(target.topic_id)
            except SegmentGoneError:
                # Another job replaced a file after the target was loaded, and a vacuum removed it.
                newer = self._topic.log.latest()
                if newer.version == target.version:
                    raise
                target, published = newer, self._newest(newer.topic_id)
        if not self._done.steps:
            self._table.mend(published)
        return replace(
            self._done,
            version=published.state.version,
            table_version=published.number,
            records_not_compacted=(
                records_not_compacted(target) if target.config.is_compacted else None
            ),
        )

    def _newest(self, topic_id: str) -> Published | None:
        """What the table shows. A damaged table of another topic is removed: a deletion of that
        topic was interrupted."""
        try:
            return self._table.newest()
        except CorruptTopicError:
            if self._table.topic_id() in (None, topic_id):
                raise
        self._table.remove()
        return None

    def _advance(self, published: Published | None, target: Snapshot) -> Published | None:
        """Show the target after the versions that a stream has to see before it. None if another
        publication was faster."""
        commits = None if published is None else self._commits(published, target)
        if published is None or commits is None:
            return self._show_all(published, target)
        shown = self._shown(published, target, commits)
        if shown is None:
            return self._show_all(published, target)
        try:
            return self._show_steps(published, shown, target, commits)
        except SegmentGoneError:  # a version in between needs files that a vacuum has removed
            return self._show_all(self._table.newest(), target)

    def _show_steps(
        self, published: Published, shown: Shown, target: Snapshot, commits: Sequence[Commit]
    ) -> Published | None:
        """Show one version after the other, so that streams see every record once [PUB-4]."""
        versions = versions_to_show(shown.snapshot, commits)
        for version in versions:
            snapshot = target if version == versions[-1] else self._manifest.load_at(version)
            if snapshot is None:
                return self._show_all(published, target)
            between = [c for c in commits if shown.snapshot.version < c.version <= version]
            spans = changed_spans(shown.snapshot, snapshot, between)
            state = self._manifest.state(snapshot)
            copies = kept_copies(state, shown.copies)
            spans = with_lost_copies(snapshot, spans, shown.copies, copies)
            unsafe: set[str] = set()
            if self._was_replaced_long_ago(version, commits):
                unsafe = passing_files(shown, state, self._manifest.state(target), spans)
            wanted = self._with_copies(Shown(state, copies), spans, unsafe)
            change = plan_table_change(shown, wanted, spans)
            landed = self._show(published, shown.snapshot.info, wanted, change)
            if landed is None:
                return None
            published, shown = landed, wanted
        return published

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
        shown: TopicInfo | None,
        wanted: Shown,
        change: TableChange,
    ) -> Published | None:
        if self._topic.runtime.clock() - self._began_ms > STALE_AFTER_MS:  # [COMMIT-8]
            raise CommitConflictError(
                "the publication took so long that vacuum may have removed its files; publish again"
            )
        landed = self._table.show(self._topic.name, published, shown, wanted, change)
        if landed is not None:
            self._done = replace(
                self._done,
                steps=self._done.steps + 1,
                files_added=self._done.files_added + len(change.added),
                files_removed=self._done.files_removed + len(change.removed),
            )
        return landed

    def _commits(self, published: Published, target: Snapshot) -> list[Commit] | None:
        """The commits that lead to the target, without void ones. None if one is gone, or if the
        table shows something that the topic has not."""
        if published.state.topic_id != target.topic_id:
            return None
        versions = range(published.state.version + 1, target.version + 1)
        found = self._manifest.commits.read_range(versions)
        if found is None:
            return None
        commits = [commit for commit in found if commit.topic_id == target.topic_id]
        return commits if stands(published.state, target, commits) else None

    def _shown(
        self, published: Published, target: Snapshot, commits: Sequence[Commit]
    ) -> Shown | None:
        """What the table shows; None if that version is gone."""
        version = published.state.version
        snapshot = before_appends(target, version, commits) or self._manifest.load_at(version)
        if snapshot is None or snapshot.topic_id != target.topic_id or snapshot.topic is None:
            return None
        return Shown(self._manifest.state(snapshot), published.state.copies)

    def _with_copies(
        self, wanted: Shown, spans: Sequence[Span], unsafe: Container[str] = ()
    ) -> Shown:
        """The same with sealed copies where they are needed. The topic gets them as well, if their
        segments are still live: then they are needed once [PUB-2]."""
        units = list(plan_copies(wanted, spans, unsafe))
        if not units:
            return wanted
        topic = self._topic
        worker = Worker(topic.store, topic.runtime.new_id, Merge().rewrite)
        results = list(self._run_units(worker, units))
        for rewritten in results:
            rewritten.check()
        self._commit(results)
        swaps = [swap for rewritten in results for swap in rewritten.swaps]
        made = {swap.inputs[0].path: swap.outputs for swap in swaps}
        sealed = self._done.segments_sealed + sum(len(swap.inputs) for swap in swaps)
        self._done = replace(self._done, segments_sealed=sealed)
        return Shown(wanted.state, {**wanted.copies, **made})

    def _commit(self, results: Sequence[Rewritten]) -> None:
        swaps = [swap for rewritten in results for swap in rewritten.swaps]

        def plan(state: LogState) -> Change | None:
            live = [swap for swap in swaps if still_fits(state, swap)]
            return plan_swap_commit(state, Merge.operation, live) if live else None

        self._topic.log.change(plan)


def _shows(published: Published, target: Snapshot) -> bool:
    """True if the table shows this state of the topic, apart from void commits."""
    state = published.state
    is_there = target.effective_version <= state.version <= target.version
    return state.topic_id == target.topic_id and is_there and stands(state, target, ())


#: The topics that this process has warned of. Once is enough, however often it publishes.
_warned: set[str] = set()


def warn_of_older_records(name: str, topic_id: str) -> None:
    """Warn, once for each topic in a process. This comes before the table is written, so that an
    error made of it changes nothing."""
    if topic_id in _warned:
        return
    warnings.warn(
        f"topic {name!r} is compacted, but a published table shows all of its records: those that "
        "the next compaction will remove, and tombstones. So a key may have several rows, and sums "
        "and counts over the table may be too large. Query the newest record of each key instead: "
        "the guide of published tables begins with the SQL for it",
        stacklevel=6,
    )
    _warned.add(topic_id)
