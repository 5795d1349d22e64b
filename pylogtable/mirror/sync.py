"""Brings a copy to the state of its source, again and again if it follows.

One step loads both states, copies what is missing, and commits it to the copy. Everything that
counts is in the two topics: a mirror that was killed begins with the next step, and two mirrors of
one topic do each other no harm.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from functools import partial
from itertools import chain

import msgspec

from pylogtable.errors import (
    CorruptTopicError,
    InvalidRequestError,
    LogTableError,
    SegmentGoneError,
    StorageError,
)
from pylogtable.events import log_event
from pylogtable.format.log_state import LogState
from pylogtable.format.model import Change, Commit, Mirror
from pylogtable.format.snapshot import Snapshot
from pylogtable.log.commit_events import place_of
from pylogtable.log.topic_log import TopicLog
from pylogtable.mirror.copy_and_commit import StoppedError, Transfer
from pylogtable.mirror.copying import (
    Copied,
    CopyTask,
    RunTasks,
    copy_tasks,
    files_there,
    usable_files,
)
from pylogtable.mirror.groups_and_txns import copy_groups, new_txns
from pylogtable.mirror.options import MirrorOptions
from pylogtable.mirror.plan import (
    Arrivals,
    OvertakenError,
    UnfinishedSourceError,
    check_copy,
    check_finished,
    check_same_retention,
    check_same_source,
    gaps,
    plan_arrival_commit,
    plan_arrivals,
    plan_topic,
)
from pylogtable.mirror.progress import Account
from pylogtable.mirror.removals_plan import shrunken_partitions
from pylogtable.mirror.removing import Check, remove_records
from pylogtable.mirror.report import MirrorReport
from pylogtable.operation import new_operation
from pylogtable.storage.base import ObjectInfo, ObjectMissingError

_logger = logging.getLogger(__name__)

#: If the source has more new commits, the states are compared without looking at them.
MAX_COMMITS = 1_000
#: If the source has so many new commits, the copy notes its version, so that nobody has to look at
#: them again.
NOTE_COMMITS = 16
#: How often in a row others may be faster.
MAX_OVERTAKEN = 20
#: How long a mirror that follows sleeps before it looks whether it is to stop.
NAP_SECONDS = 0.2


class Mirroring:
    """One run of a mirror."""

    def __init__(
        self,
        topic: str,
        source: TopicLog,
        copy: TopicLog,
        options: MirrorOptions,
        run_tasks: RunTasks[CopyTask, list[Copied]],
        *,
        is_new: bool,
    ) -> None:
        self._source = source
        self._copy = copy
        self._options = options
        self._runtime = copy.runtime
        now = self._runtime.monotonic
        urls = source.store.url, copy.store.url
        self._account = Account(topic, *urls, source, copy, now, now())
        self._transfer = Transfer(
            source, copy, self._account, run_tasks, tell=self._tell, stop=options.is_to_stop
        )
        # In a new copy there are no files of earlier tries.
        self._may_have_files = not is_new
        self._known_commit: str | None = None

    def run(self) -> MirrorReport:
        """Copy until the copy has all, or until the mirror is to stop."""
        overtaken, failing_since = 0, None
        while not self._options.is_to_stop():
            try:
                with new_operation():
                    is_all = self._step()
                overtaken, failing_since = 0, None
            except StoppedError:
                break
            except UnfinishedSourceError:
                if not self._options.follow:
                    raise
                self._wait()
                continue
            except OvertakenError:
                overtaken += 1
                if overtaken == MAX_OVERTAKEN:
                    raise
                self._may_have_files = True
                continue
            except StorageError as error:
                now = self._runtime.monotonic()
                failing_since = now if failing_since is None else failing_since
                is_patient = now - failing_since < self._runtime.patience_seconds
                if not self._options.follow or not is_patient:
                    raise
                _logger.warning(
                    "the mirror of topic %r goes on after an error: %s", self._account.topic, error
                )
                self._may_have_files = True
                self._wait()
                continue
            self._tell()
            if is_all:
                if self._options.groups:
                    told = self._account
                    told.groups, told.left_out = copy_groups(self._source, self._copy)
                if not self._options.follow:
                    break
                self._wait()
        return self._account.report()

    def _step(self) -> bool:
        """Copy as much as one commit brings; True if the copy then has all."""
        source = self._source.latest()
        try:
            return self._step_to(source)
        except (InvalidRequestError, CorruptTopicError, ObjectMissingError, SegmentGoneError) as e:
            # Perhaps this state of the source is too old. Another mirror has seen a newer one, and
            # the copy is ahead; or a vacuum has removed files that newer ones do not need.
            if self._source.latest().version == source.version:
                raise _explained(e) from e
            raise OvertakenError(f"the source has changed meanwhile: {e}") from e

    def _step_to(self, source: Snapshot) -> bool:
        check_finished(source, self._source.store.url)
        known = self._copy.known.mirror
        commits = self._new_commits(source, known)
        self._check_source(source, known, commits)
        copy = self._altered(source)
        mirror = self._checked(copy, source)
        if known is None or mirror.version != known.version:
            commits = self._new_commits(source, mirror)
        arrivals = plan_arrivals(
            copy,
            self._source.manifest.state(source),
            allow_gaps=mirror.is_following or self._options.allow_gaps,
        )
        if mirror.own_retention:
            found = self._account.gaps | gaps(copy, source)
            self._account.gaps = dict(sorted(found.items()))
        check = partial(self._unchanged, source=source, is_following=mirror.is_following)
        is_news = False
        if arrivals.is_all and mirror.is_following:
            everything = range(len(copy.partitions))
            suspects: Sequence[int] = everything
            if commits is not None:
                suspects = sorted(shrunken_partitions(commits, source.topic_id) & {*everything})
            remove_records(self._transfer, copy, source, suspects, commits or (), check)
            is_news = bool(suspects) or source.version - (mirror.version or 0) >= NOTE_COMMITS
        self._bring(source, arrivals, check, is_news=is_news)
        return arrivals.is_all

    def _checked(self, copy: Snapshot, source: Snapshot) -> Mirror:
        """What the copy knows about its source, as this run wants it to be."""
        mirror = check_copy(copy, source, self._copy.store.url)
        wanted = self._options.own_retention
        if wanted is None or wanted == mirror.own_retention:
            return mirror
        if not wanted:
            raise InvalidRequestError(
                f"the copy at {self._copy.store.url} removes records by its own settings, so it "
                "cannot follow its source again. Mirror with retention='own', or mirror to another "
                "store, or under another name"
            )
        return msgspec.structs.replace(mirror, own_retention=True)

    def _unchanged(self, copy: Snapshot, source: Snapshot, is_following: bool) -> Mirror:
        """The same, in the state that a commit is planned on."""
        return check_same_retention(self._checked(copy, source), is_following=is_following)

    def _altered(self, source: Snapshot) -> Snapshot:
        """The copy with the partitions, columns and settings that it has to have."""

        def plan(state: LogState) -> Change | None:
            return plan_topic(state.snapshot, source, self._checked(state.snapshot, source))

        copy, change = self._copy.change(plan)
        self._account.commits += change is not None
        return copy

    def _new_commits(self, source: Snapshot, mirror: Mirror | None) -> Sequence[Commit] | None:
        """The commits of the source after the version that the copy shows. None if they are too
        many, or not all kept, or if the copy does not follow."""
        if mirror is None or mirror.version is None or not mirror.is_following:
            return None
        if not 0 <= source.version - mirror.version <= MAX_COMMITS:
            return None
        versions = range(mirror.version + 1, source.version + 1)
        found = self._source.manifest.commits.read_range(versions)
        return None if found is None else list(found)

    def _check_source(
        self, source: Snapshot, mirror: Mirror | None, commits: Sequence[Commit] | None
    ) -> None:
        """Raise if the source has another past than the copy. That is looked at if what the copy
        has seen is not from this run [MIR-6]."""
        seen = None if mirror is None else mirror.seen_version
        if mirror is None or seen is None or mirror.source_id != source.topic_id:
            return
        if seen > source.version or mirror.commit_id in {None, self._known_commit}:
            return
        check_same_source(mirror, self._commit_at(source, seen, commits), self._copy.store.url)
        self._known_commit = mirror.commit_id

    def _commit_at(
        self, source: Snapshot, version: int, commits: Sequence[Commit] | None
    ) -> str | None:
        """The id of the last commit with effect up to a version of the source; None if it is not
        known. `commits` are those after the version that the copy shows, if they are known."""
        if version == source.version:
            return source.commit_id
        own = [commit for commit in commits or () if commit.topic_id == source.topic_id]
        later = [commit for commit in own if commit.version > version]
        if later:
            return later[0].parent
        if commits is not None:
            return source.commit_id
        found = self._source.manifest.commits.read(version)
        is_kept = found is not None and found.topic_id == source.topic_id
        return found.commit_id if found is not None and is_kept else None

    def _bring(self, source: Snapshot, arrivals: Arrivals, check: Check, *, is_news: bool) -> None:
        """Append what the copy does not have."""
        units, is_all = arrivals
        began, began_ms = self._runtime.monotonic(), self._runtime.clock()
        there: Mapping[str, ObjectInfo] = {}
        if units and self._may_have_files:
            there = files_there(self._copy.store, units)
            self._may_have_files = False
        tasks = copy_tasks(units, there, usable_files(units, there, began_ms))
        copied = self._transfer.copied(source, self._copy.known, tasks)
        segments = list(chain.from_iterable(one.segments for one in copied))
        commits = self._source.manifest.commits
        txns = list(new_txns(source, commits, self._copy.known)) if is_all else []

        def plan(state: LogState) -> Change | None:
            known = check(state.snapshot)
            return plan_arrival_commit(
                state, source, known, segments, txns, is_all=is_all, is_news=is_news
            )

        self._transfer.commit(plan, copied, began_ms)
        records = sum(segment.records for segment in segments)
        self._account.records += records
        if segments:
            log_event(
                _logger,
                logging.INFO,
                "a mirror brought %(records)s records to topic %(topic)s",
                records=records,
                **place_of(self._copy.store.url),
                source=self._source.store.url,
                source_version=source.version,
                bytes=sum(segment.size_bytes for segment in segments),
                seconds=round(self._runtime.monotonic() - began, 6),
            )
        if is_all:
            self._account.source_version = source.version
            self._known_commit = source.commit_id

    def _wait(self) -> None:
        seconds = max(0.001, self._options.poll_seconds)
        deadline = self._runtime.monotonic() + seconds
        while not self._options.is_to_stop() and self._runtime.monotonic() < deadline:
            self._runtime.pause(min(NAP_SECONDS, seconds))

    def _tell(self) -> None:
        if self._options.on_progress is not None:
            self._options.on_progress(self._account.progress())


def _explained(error: LogTableError) -> LogTableError:
    """A file of the source that is missing is damage, unless there is a newer version."""
    if not isinstance(error, ObjectMissingError):
        return error
    return StorageError(
        f"a file of the source is missing, so no more was copied: {error}. The topic is damaged; "
        "verify on the source tells what is missing"
    )
