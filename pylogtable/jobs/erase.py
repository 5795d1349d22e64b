"""Erase: remove the records that somebody chooses, by key or by a condition [ERASE-1].

Other jobs may drop their work if another one was faster. An erase must not: it goes on until no
record is left that was there when it began and that matches [ERASE-2]. It searches in rounds. Each
round looks only at files that no round before has searched.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import compress
from typing import Any, ClassVar, Protocol

import numpy as np
import numpy.typing as npt

from pylogtable.arguments import check_flags
from pylogtable.errors import (
    CommitConflictError,
    InvalidRequestError,
    LogTableError,
    SegmentGoneError,
)
from pylogtable.format.config import MANIFEST_RETENTION_MS
from pylogtable.format.mirror_rules import check_may_remove
from pylogtable.format.model import Commit, Segment, TopicInfo
from pylogtable.format.paths import MANIFEST_DIR, object_of
from pylogtable.format.snapshot import Snapshot
from pylogtable.jobs.commit_rewrites import RewriteOutcome, SwapCommits
from pylogtable.jobs.erase_plan import EraseUnit, plan_erase
from pylogtable.jobs.job import MaintainedTopic
from pylogtable.jobs.replace_plan import Swap, still_fits
from pylogtable.jobs.rewrite import rewrite_segments
from pylogtable.jobs.work import Rewritten, RunUnits, Worker
from pylogtable.presentation import bytes_text, count_text, time_text
from pylogtable.segments.key_filter import WantedKeys
from pylogtable.segments.predicate import EXAMPLE, Condition
from pylogtable.segments.read_segment import count_from
from pylogtable.segments.segment_prefetch import segments_ahead
from pylogtable.storage.base import ObjectStore


@dataclass(frozen=True)
class EraseReport:
    """What `Topic.erase` removed, or would remove in a dry run, and where the records still are.

    `version` is the first version without the records; in a dry run, the one that was searched.
    `partitions` has the number of records erased by partition. `segments_searched` counts the files
    that were opened. `segments_in` and `bytes_in` describe the segments that were replaced,
    `segments_out` and `bytes_out` the new ones.

    The records are still in the versions from `held_from` to `held_to`, as long as these can be
    read: both are None if nothing matched. `old_files` are the files that had them until now, and
    the commits of small appends. Older versions are not searched: files that an earlier merge or
    compaction has replaced may have them too, and go no later. A vacuum with default settings
    removes all of them from `vacuumed_from_ms` on. But it keeps a commit that has the last txn of
    an application, until that application writes again: `kept_for_txns` has the ids of these
    applications. `published` names the formats of published tables that still show the records.
    Then `vacuumed_from_ms` is None: a vacuum keeps the files for 7 days after the next publication.
    """

    version: int
    dry_run: bool
    records_erased: int
    segments_searched: int
    segments_in: int
    segments_out: int
    bytes_in: int
    bytes_out: int
    seconds: float
    partitions: dict[int, int] = field(default_factory=dict)
    held_from: int | None = None
    held_to: int | None = None
    old_files: tuple[str, ...] = ()
    vacuumed_from_ms: int | None = None
    published: tuple[str, ...] = ()
    kept_for_txns: tuple[str, ...] = ()

    def __str__(self) -> str:
        if self.held_to is None:
            return (
                f"no record matches in version {self.version:,}, of which "
                f"{count_text(self.segments_searched, 'segment')} had to be searched; older "
                f"versions were not searched; {self.seconds:.1f} s"
            )
        verb = "would erase" if self.dry_run else "erased"
        parts = [
            f"{verb} {count_text(self.records_erased, 'record')} from "
            f"{count_text(self.segments_in, 'segment')} ({bytes_text(self.bytes_in)}) in "
            f"{count_text(len(self.partitions), 'partition')}",
            f"versions {self.held_from:,} to {self.held_to:,} may still have them",
            self._when_gone(),
        ]
        if self.kept_for_txns:
            apps = ", ".join(map(repr, self.kept_for_txns))
            parts.append(f"but it keeps commits with the last txn of {apps} until the next one")
        return f"{'; '.join(parts)}; {self.seconds:.1f} s"

    def _when_gone(self) -> str:
        commits = sum(name.startswith(MANIFEST_DIR) for name in self.old_files)
        counts = {"old file": len(self.old_files) - commits, "old commit": commits}
        files = ", ".join(count_text(count, noun) for noun, count in counts.items() if count)
        files += " and what earlier jobs have replaced"
        if self.published:
            tables = " and ".join(self.published)
            return f"the published {tables} table shows them until the next publication, and a " + (
                f"vacuum removes {files} 7 days after that"
            )
        if self.vacuumed_from_ms is None:
            return f"a vacuum removes {files} 7 days after they are replaced"
        return f"a vacuum removes {files} from {time_text(self.vacuumed_from_ms)} on"


class Matcher(Protocol):
    """Tells which records are to be erased. It can be pickled."""

    def may_match(self, segments: Sequence[Segment]) -> list[Segment]:
        """Those of these segments that may have such records, according to the manifest."""

    def find(self, store: ObjectStore, topic: TopicInfo, segment: Segment) -> npt.NDArray[np.bool_]:
        """Which records of a segment are such records."""

    def check_same_columns(self, topic: TopicInfo) -> None:
        """Raise if a name that was used to choose records means another column by now."""


@dataclass(frozen=True)
class Eraser:
    """Does the units of an erase. A dry run only searches: it gives the segments that would be
    rewritten as they are."""

    matcher: Matcher
    dry_run: bool

    def rewrite(self, store: ObjectStore, unit: EraseUnit, new_id: Callable[[], str]) -> Rewritten:
        swaps: list[Swap] = []
        erased: list[int] = []
        try:
            for segment, fetched in segments_ahead(store, unit.inputs):
                matches = self.matcher.find(fetched, unit.topic, segment)
                if not matches.any():
                    continue
                below = 0
                if segment.has_below(unit.log_start):
                    below = segment.records - count_from(fetched, segment, unit.log_start)
                outputs: tuple[Segment, ...] = (segment,)
                if not self.dry_run:
                    kept = ~matches
                    kept[:below] = False  # so that no new segment lies below the log start [LOG-7]
                    horizon_ms = segment.delete_horizon_ms
                    outputs = rewrite_segments(
                        fetched, unit.topic, [segment], [kept], new_id, delete_horizon_ms=horizon_ms
                    )
                swaps.append(Swap((segment,), outputs))
                erased.append(int(np.count_nonzero(matches[below:])))
        except BaseException:
            _rewritten(unit.partition, swaps, erased).discard(store)
            raise
        return _rewritten(unit.partition, swaps, erased)


def _rewritten(partition: int, swaps: Sequence[Swap], erased: Sequence[int]) -> Rewritten:
    return Rewritten(
        partition,
        tuple(swaps),
        records_in=sum(segment.records for swap in swaps for segment in swap.inputs),
        records_out=sum(segment.records for swap in swaps for segment in swap.outputs),
        erased=tuple(erased),
    )


@dataclass(frozen=True)
class Erasure(SwapCommits):
    """Erases the records with one of these `keys`, or those for which `where` is true. A unit of
    work is some segments of a partition that are searched, and rewritten if need be."""

    keys: Any = None
    where: Any = None
    dry_run: bool = False

    name: ClassVar[str] = "erasure"
    operation: ClassVar[str] = "erase"

    def __post_init__(self) -> None:
        check_flags(dry_run=self.dry_run)

    def run(self, topic: MaintainedTopic, run_units: RunUnits) -> EraseReport:
        began = topic.runtime.monotonic()
        snapshot = topic.log.latest()
        check_may_remove(snapshot.mirror, "erase")
        matcher = self._matcher(topic.name, snapshot.info)
        ends = {number: state.end for number, state in enumerate(snapshot.partitions)}
        eraser = Eraser(matcher, self.dry_run)
        done = _Done()
        rounds = topic.log.store.limits.erase_rounds
        for _ in range(rounds):
            if self._round(topic, snapshot, ends, eraser, run_units, done):
                seconds = topic.runtime.monotonic() - began
                return self._report(topic, snapshot, matcher, done, seconds)
            snapshot = topic.log.latest()
            matcher.check_same_columns(snapshot.info)
        raise CommitConflictError(
            f"erase of topic {topic.name!r}: other jobs have replaced its segments {rounds} times "
            f"before it could. {done.records:,} records are erased, others are left. Erase again "
            "while no merge and no compaction runs"
        )

    def carry_over(
        self, topic: MaintainedTopic, results: Sequence[Rewritten], tried: Sequence[Rewritten]
    ) -> Sequence[Rewritten] | None:
        """The results whose inputs are still live. The others are searched again."""
        state = topic.log.latest_state()
        fits = [all(still_fits(state, swap) for swap in one.swaps) for one in tried]
        if all(fits) or not any(fits):
            return None
        for one in compress(tried, (not fit for fit in fits)):
            one.discard(topic.store)
        return list(compress(tried, fits))

    def _matcher(self, name: str, topic: TopicInfo) -> Matcher:
        if (self.keys is None) == (self.where is None):
            raise InvalidRequestError(
                "an erase needs `keys`, a list of keys, or `where`, a condition such as "
                f"{EXAMPLE}: exactly one of them"
            )
        if self.keys is None:
            return Condition(topic, self.where)
        if not topic.key:
            raise InvalidRequestError(
                f"topic {name!r} has no key columns, so nothing can be erased by `keys`; use "
                f"`where`, such as {EXAMPLE}"
            )
        return WantedKeys(topic, self.keys)

    def _round(
        self,
        topic: MaintainedTopic,
        snapshot: Snapshot,
        ends: dict[int, int],
        eraser: Eraser,
        run_units: RunUnits,
        done: _Done,
    ) -> bool:
        """Search what is live and was not searched, and commit. False if another job has replaced
        what was found: then there are new files to be searched."""
        began_ms = topic.runtime.clock()
        state = topic.log.manifest.state(snapshot)
        units = [
            unit
            for number, end in ends.items()
            for unit in plan_erase(state, number, end, eraser.matcher.may_match, done.clean)
        ]
        worker = Worker(topic.store, topic.runtime.new_id, eraser.rewrite)
        try:
            found = [one for result in run_units(worker, units) for one in _each_swap(result)]
        except SegmentGoneError:
            # Another job replaced a file after it was planned, and a vacuum removed it.
            if topic.log.latest().version == snapshot.version:
                raise
            return False
        done.add_search(units, found)
        if self.dry_run:
            done.committed += found
            return True
        outcome = self.commit_all(topic, found, began_ms)
        done.add_commits(outcome)
        return not outcome.skipped

    def _report(
        self,
        topic: MaintainedTopic,
        snapshot: Snapshot,
        matcher: Matcher,
        done: _Done,
        seconds: float,
    ) -> EraseReport:
        """Also says where the records still are [ERASE-3]. `snapshot` is the last one that was
        searched."""
        last = done.commits[-1] if done.commits else None
        version = snapshot.version if last is None else last.version
        swaps = [swap for rewritten in done.committed for swap in rewritten.swaps]
        old = [segment for swap in swaps for segment in swap.inputs]
        new = [segment for swap in swaps for segment in swap.outputs]
        holding = None if not swaps else version if last is None else version - 1
        published = (
            () if holding is None else topic.tables.showing_before(snapshot.topic_id, holding + 1)
        )
        vacuumed_ms = None
        if last is not None and not published:
            vacuumed_ms = last.committed_at_ms + MANIFEST_RETENTION_MS  # [VAC-1]
        oldest = None if holding is None else topic.log.manifest.oldest_version(snapshot)
        return EraseReport(
            version=version,
            dry_run=self.dry_run,
            records_erased=done.records,
            partitions=done.by_partition(),
            segments_searched=done.opened,
            segments_in=len(old),
            segments_out=len(new),
            bytes_in=sum(segment.size_bytes for segment in old),
            bytes_out=sum(segment.size_bytes for segment in new),
            held_from=oldest,
            held_to=holding,
            old_files=tuple(sorted({object_of(segment.path) for segment in old})),
            kept_for_txns=() if holding is None else _kept_for_txns(topic, snapshot, matcher),
            vacuumed_from_ms=vacuumed_ms,
            published=published,
            seconds=seconds,
        )


def _kept_for_txns(topic: MaintainedTopic, snapshot: Snapshot, matcher: Matcher) -> tuple[str, ...]:
    """The app ids whose last txn is in a commit that also has records to be erased: a vacuum keeps
    it. They are in the commit even if a merge has written them to a file since."""

    def has_some(version: int) -> bool:
        try:
            commit = topic.log.manifest.commits.read(version)
            added = () if commit is None else commit.add
            segments = matcher.may_match([segment for segment in added if segment.is_inline])
            found = (matcher.find(topic.store, snapshot.info, segment) for segment in segments)
            return any(matches.any() for matches in found)
        except LogTableError:  # it is not known, and the records are erased already
            return True

    marks = snapshot.txns.items()
    return tuple(sorted(app for app, mark in marks if has_some(mark.commit_version)))


def _each_swap(result: Rewritten) -> Iterator[Rewritten]:
    """A result for each swap, so that one conflict does not undo the others."""
    for swap, erased in zip(result.swaps, result.erased, strict=True):
        yield _rewritten(result.partition, [swap], [erased])


@dataclass
class _Done:
    """What an erase has done so far. `clean` are files that have no record to be erased; `opened`
    counts the files that were searched."""

    clean: set[str] = field(default_factory=set)
    opened: int = 0
    committed: list[Rewritten] = field(default_factory=list)
    commits: list[Commit] = field(default_factory=list)

    @property
    def records(self) -> int:
        return sum(sum(rewritten.erased) for rewritten in self.committed)

    def by_partition(self) -> dict[int, int]:
        erased: dict[int, int] = {}
        for one in sorted(self.committed, key=lambda one: one.partition):
            erased[one.partition] = erased.get(one.partition, 0) + sum(one.erased)
        return erased

    def add_search(self, units: Sequence[EraseUnit], found: Sequence[Rewritten]) -> None:
        opened = {segment.path for unit in units for segment in unit.inputs}
        swaps = [swap for one in found for swap in one.swaps]
        self.opened += len(opened)
        self.clean |= opened - {segment.path for swap in swaps for segment in swap.inputs}

    def add_commits(self, outcome: RewriteOutcome) -> None:
        self.committed += outcome.committed
        self.commits += outcome.commits
        self.clean.update(s.path for one in outcome.committed for s in one.new_segments)
