"""What a maintenance job is.

A job changes how a topic is stored, or removes what its settings allow. It can run at the same time
as writers, readers and other jobs: it plans on a snapshot, and commits only if what it read is
still live. If another job was faster, it changes nothing.

To add a job, write a module next to this one and add a line to `JOBS` in `maintain`. Its report
gets a field in `MaintainReport`.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import Protocol, TypeVar

from pylogtable.arguments import check_flags, names_in
from pylogtable.errors import InvalidRequestError
from pylogtable.events import log_event
from pylogtable.format.log_state import LogState
from pylogtable.format.model import Change
from pylogtable.format.snapshot import Snapshot, apply
from pylogtable.groups.positions_plan import unread_from
from pylogtable.jobs.work import RunUnits
from pylogtable.log.group_objects import load_groups
from pylogtable.log.topic_log import TopicLog, seal
from pylogtable.read.plan import Span
from pylogtable.runtime import Runtime
from pylogtable.storage.base import ObjectInfo, ObjectStore
from pylogtable.tracing import span

_logger = logging.getLogger(__name__)

Report = TypeVar("Report", covariant=True)


@dataclass(frozen=True)
class TableObjects:
    """What a vacuum has to know about published tables: the files that they show, and the objects
    of their own that are not needed any more. `keep_longer_ms` is how much longer it keeps files
    that the topic has replaced: tables may have shown them for a while."""

    shown: frozenset[str]
    old: tuple[ObjectInfo, ...]
    keep_longer_ms: int = 0


class PublishedTables(Protocol):
    """The published tables of a topic, as far as jobs have to know them. `publish/` has them."""

    def showing_before(self, topic_id: str, version: int) -> tuple[str, ...]:
        """The formats of the tables that show a version of the topic before this one."""

    def copied(self, newest: Snapshot) -> list[Span]:
        """The offsets that tables show by copies which are not the topic's, as of the last
        publication or look [PUB-2]."""

    def objects(
        self, topic_id: str, listing: Sequence[ObjectInfo], since_ms: int, old_before_ms: int
    ) -> TableObjects:
        """Which files tables show from `since_ms` on, and which of their own objects are older than
        `old_before_ms` and not needed [PUB-7]."""


@dataclass(frozen=True)
class MaintainedTopic:
    """The topic that a job works on. `foreseen` is set in a dry run only."""

    name: str
    log: TopicLog
    tables: PublishedTables
    foreseen: Snapshot | None = None

    def newest(self) -> LogState:
        """The state to plan on: the newest, or in a dry run the one that earlier jobs would
        leave."""
        snapshot = self.log.latest() if self.foreseen is None else self.foreseen
        return self.log.manifest.state(snapshot)

    def after(self, change: Change | None) -> MaintainedTopic:
        """The topic as it would be after this change, which is not committed. For dry runs."""
        if change is None:
            return self
        snapshot = self.newest().snapshot
        commit = seal(change, snapshot, "dry-run", snapshot.topic_id, self.runtime.clock())
        return replace(self, foreseen=apply(snapshot, commit))

    @property
    def store(self) -> ObjectStore:
        return self.log.store

    @property
    def runtime(self) -> Runtime:
        return self.log.runtime

    def unread_from(self, groups: Sequence[str] | None, snapshot: Snapshot) -> dict[int, int]:
        """For each partition, the first offset that one of these consumer groups has not read.
        Raises if a group does not exist, since the caller relies on its protection."""
        groups = names_in("groups", () if groups is None else groups)
        if not groups:
            return {}
        known = load_groups(self.store, snapshot.topic_id)
        for name in groups:
            if name in known.damaged:
                raise known.damaged[name]
        missing = [name for name in groups if name not in known.states]
        if missing:
            raise InvalidRequestError(
                f"topic {self.name!r} has no group {', '.join(map(repr, missing))} to "
                f"protect; existing groups: {', '.join(known.names) or 'none'}"
            )
        return unread_from([known.states[name] for name in groups], snapshot)


@dataclass(frozen=True)
class MaintainOptions:
    """What a caller of `maintain` chooses: whether files are removed, the consumer groups whose
    unread records do not expire, and whether to do the work or only to say what would be done.
    `jobs` has the names of the jobs to run; None is all. `again_and_again` says that the jobs come
    back every few seconds, so work may wait until there is enough of it."""

    vacuum: bool = True
    protect_groups: Sequence[str] | None = None
    dry_run: bool = False
    jobs: Collection[str] | None = None
    again_and_again: bool = False

    def __post_init__(self) -> None:
        check_flags(vacuum=self.vacuum, dry_run=self.dry_run)

    def wants(self, job: str) -> bool:
        """Whether the caller wants the job of this name."""
        return self.jobs is None or job in self.jobs


class Job(Protocol[Report]):
    """A maintenance job.

    >>> report = job.run(topic, in_threads(2))
    """

    @property
    def name(self) -> str:
        """The job's name, such as "compaction"."""

    def run(self, topic: MaintainedTopic, run_units: RunUnits) -> Report:
        """Do the job. A job with much to read or write splits it into units for `run_units`."""


def run_job(job: Job[Report], topic: MaintainedTopic, run_units: RunUnits) -> Report:
    """Do a job. The log and spans tell of it."""
    with span("job", topic=topic.name, job=job.name):
        report = job.run(topic, run_units)
    log_event(
        _logger,
        logging.DEBUG,
        "%(job)s of topic %(topic)s: %(report)s",
        job=job.name,
        topic=topic.name,
        store=topic.store.url.rpartition("/")[0],
        report=report,
    )
    return report


class RegularJob(Job[Report], Protocol[Report]):
    """A job that `maintain` runs. Its report goes to the field `name` of `MaintainReport`."""

    def preview(self, topic: MaintainedTopic) -> tuple[Report, MaintainedTopic]:
        """What `run` would do, and the topic as later jobs would find it, as far as both are known
        without reading data. Nothing is changed."""
