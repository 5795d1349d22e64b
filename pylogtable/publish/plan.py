"""Plans what a published table gets next: which versions of the topic, and which files. Pure.

A published table shows a version of the topic to engines that know nothing of this format. They
read a file as it is, so a segment that would mislead them is shown by a *sealed copy* instead: it
has the same records, with the offsets written out [PUB-2].
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import msgspec

from pylogtable.format.config import TABLES_KEEP_MS
from pylogtable.format.log_state import LogState
from pylogtable.format.model import Commit, Segment, TopicInfo
from pylogtable.format.partition_state import LeafRun, PartitionState, tile_start
from pylogtable.format.published_state import PublishedState
from pylogtable.format.snapshot import Snapshot
from pylogtable.jobs.merge_plan import MergeUnit, misleads, plan_files
from pylogtable.read.plan import Span

#: Sealed copies, by the path of the segment that they stand for: of the first one, if there are
#: several. Then the others are those in the offsets that the copies cover.
Copies = Mapping[str, tuple[Segment, ...]]


@dataclass(frozen=True)
class Shown:
    """What a table shows: a version of the topic, and the copies it uses for some segments."""

    state: LogState
    copies: Copies = field(default_factory=dict)

    @property
    def snapshot(self) -> Snapshot:
        return self.state.snapshot

    def files(self, span: Span) -> list[Segment]:
        """The files of the table that have records of this span, in offset order. A partition may
        have been added later."""
        if span.partition >= len(self.snapshot.partitions):
            return []
        shown: list[Segment] = []
        covered = 0
        for segment in self.state.segments(span.partition, span.start, span.end):
            if segment.base_offset >= covered:
                files = self.copies.get(segment.path, (segment,))
                shown += [file for file in files if file.records]
                covered = files[-1].end_offset
        return shown


class TableFile(NamedTuple):
    """A file that a table shows."""

    path: str
    partition: int
    size_bytes: int


@dataclass(frozen=True)
class AddedFile:
    """A file that a table shows from now on. If `is_data` is false, its records were in files that
    are removed with it."""

    file: Segment
    is_data: bool


@dataclass(frozen=True)
class RemovedFile:
    """A file that a table no longer shows. If `is_data` is false, its records are in files that are
    added with it."""

    file: TableFile
    is_data: bool


@dataclass(frozen=True)
class TableChange:
    """The files that lead from one version in a table to another. It `is_prompt` if the topic has
    stopped to need the removed files a short time ago: then a vacuum keeps them anyway [PUB-7]."""

    added: tuple[AddedFile, ...] = ()
    removed: tuple[RemovedFile, ...] = ()
    is_prompt: bool = False

    def __bool__(self) -> bool:
        return bool(self.added or self.removed)


def stands(state: PublishedState, newest: Snapshot, commits: Sequence[Commit]) -> bool:
    """False if the topic has not, or no longer, the version that a table shows, although these
    commits follow it up to `newest`. Then commits were lost, as when a backup is restored."""
    if state.version > newest.version:
        return False
    expected = commits[0].parent if commits else newest.commit_id
    return state.commit_id is None or expected is None or state.commit_id == expected


def before_appends(newest: Snapshot, version: int, commits: Sequence[Commit]) -> Snapshot | None:
    """The state at `version`, if these commits lead from it to `newest` and have only appended, or
    sealed what they appended; otherwise None. So the usual publication need not load the state that
    it showed before."""
    starts: dict[int, int] = {}
    for commit in commits:
        if commit.log_starts or commit.cleaned or commit.topic is not None:
            return None
        if any(swap.start < starts.get(swap.partition, swap.end) for swap in commit.replaced):
            return None
        for segment in commit.add:
            known = starts.get(segment.partition, segment.base_offset)
            starts[segment.partition] = min(known, segment.base_offset)
    partitions = tuple(
        _cut(state, starts[number]) if number in starts else state
        for number, state in enumerate(newest.partitions)
    )
    return replace(newest, version=version, voids=0, partitions=partitions)


def _cut(state: PartitionState, end: int) -> PartitionState:
    """A partition as it was when it ended here. Its totals are not needed."""
    tiles = [tile for tile in state.tiles if tile_start(tile) < end]
    if tiles and isinstance(tiles[-1], LeafRun):
        tiles[-1] = replace(tiles[-1], end=min(tiles[-1].end, end))
    return replace(state, end=end, tiles=tuple(tiles))


def same_columns(one: TopicInfo, other: TopicInfo) -> bool:
    """True if tables of these topics have the same columns. Settings and the number of partitions
    are not in a table."""
    return _columns(one) == _columns(other)


def _columns(topic: TopicInfo) -> TopicInfo:
    return msgspec.structs.replace(topic, config={}, partitions=1)


def versions_to_show(shown: Snapshot, commits: Sequence[Commit]) -> list[int]:
    """The versions that a table shows one after the other, up to the last of these commits, which
    follow the version that it shows now.

    A stream over the table sees new records only if no record vanishes in the same step, because
    it must skip steps in which records vanish. And it sees each record once only if new records
    are not in one file with old ones. So a step ends before a commit that would mix them [PUB-4].
    """
    versions: list[int] = []
    known = dict(enumerate(state.end for state in shown.partitions))
    ends = dict(known)
    has_new = has_vanished = False
    for commit in commits:
        has_gone = vanishes(commit)
        mixes = any(
            swap.start < known.get(swap.partition, 0) < swap.end for swap in commit.replaced
        )
        if (has_new and (has_gone or mixes)) or (has_vanished and commit.ends):
            versions.append(commit.version - 1)
            known = dict(ends)
            has_new = has_vanished = False
        has_new = has_new or bool(commit.ends)
        has_vanished = has_vanished or has_gone
        ends.update(commit.ends)
    if commits:
        versions.append(commits[-1].version)
    return versions


def vanishes(commit: Commit) -> bool:
    """True if records that were there before the commit are gone after it."""
    if commit.log_starts:
        return True
    for swap in commit.replaced:
        kept = sum(
            segment.records
            for segment in commit.add
            if segment.partition == swap.partition and swap.start <= segment.base_offset < swap.end
        )
        if kept < swap.dropped.records:
            return True
    return False


def changed_spans(shown: Snapshot, wanted: Snapshot, commits: Iterable[Commit]) -> list[Span]:
    """The spans in which files may differ between two versions; these commits lead from one to the
    other. Spans do not overlap. What was appended is a span of its own."""
    touched: dict[int, list[tuple[int, int]]] = {}
    for commit in commits:
        for swap in commit.replaced:
            touched.setdefault(swap.partition, []).append((swap.start, swap.end))
    spans: list[Span] = []
    for number, state in enumerate(wanted.partitions):
        is_old = number < len(shown.partitions)
        start = shown.partitions[number].log_start if is_old else 0
        end = shown.partitions[number].end if is_old else 0
        pieces = [(low, min(high, end)) for low, high in touched.get(number, ()) if low < end]
        if state.log_start > start:
            pieces.append((start, min(state.log_start, end)))
        spans += [Span(number, low, high) for low, high in _united(pieces) if low < high]
        if state.end > end:
            spans.append(Span(number, end, state.end))
    return spans


def whole(snapshot: Snapshot) -> list[Span]:
    """The spans of all records."""
    return [
        Span(number, state.log_start, state.end) for number, state in enumerate(snapshot.partitions)
    ]


def _united(pieces: Iterable[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """The same offsets as ranges that do not overlap. Neighbours stay apart."""
    low = high = None
    for start, end in sorted(pieces):
        if high is None or low is None or start >= high:
            if low is not None and high is not None:
                yield low, high
            low, high = start, end
        else:
            high = max(high, end)
    if low is not None and high is not None:
        yield low, high


def passing_files(
    shown: Shown, between: LogState, target: LogState, spans: Sequence[Span]
) -> set[str]:
    """The segments that a table would show only on its way from `shown` to `target`, at the version
    `between`. Neither the table nor the newest version keeps their files from a vacuum."""
    passing: set[str] = set()
    for span in spans:
        found = {segment.path for segment in _overlapping(between, span)}
        kept = {file.path for file in shown.files(span)}
        if found and span.partition < len(target.snapshot.partitions):
            kept |= {segment.path for segment in _overlapping(target, span)}
        passing |= found - kept
    return passing


def plan_copies(
    wanted: Shown, spans: Sequence[Span], unsafe: Container[str] = ()
) -> Iterator[MergeUnit]:
    """Units of work: a sealed copy of each segment in these spans that would mislead a plain
    reader, or whose file is `unsafe`, and that has no copy that is right. A unit has one segment,
    or neighbours whose records are in commits: a file for each append would be too many."""
    snapshot = wanted.snapshot
    planned: set[str] = set()
    for span in spans:
        log_start = snapshot.partitions[span.partition].log_start
        inline: list[Segment] = []
        covered = 0
        for segment in _overlapping(wanted.state, span):
            copies = wanted.copies.get(segment.path, (segment,))
            is_wrong = any(misleads(copy, log_start) or copy.path in unsafe for copy in copies)
            if not is_wrong:
                covered = max(covered, copies[-1].end_offset)
            is_needed = is_wrong and segment.base_offset >= covered and segment.records
            if is_needed and segment.is_inline and segment.path not in planned:
                planned.add(segment.path)
                inline.append(segment)
                continue
            yield from plan_files(snapshot, inline)
            inline = []
            if is_needed and segment.path not in planned:
                yield MergeUnit(snapshot.info, log_start, (segment,))
            planned.add(segment.path)
        yield from plan_files(snapshot, inline)


def _overlapping(state: LogState, span: Span) -> Iterator[Segment]:
    """The live segments of a span, and the one that the log start cuts if it is beside the span:
    what is below the log start is a span without segments."""
    is_below = span.end == state.snapshot.partitions[span.partition].log_start
    for segment in state.segments(span.partition, span.start, span.end + is_below):
        if segment.base_offset < span.end:
            yield segment


def plan_table_change(shown: Shown, wanted: Shown, spans: Sequence[Span]) -> TableChange:
    """The files to add and to remove, so that a table that shows `shown` shows `wanted`. They
    differ in these spans only.

    Files that replace others with the same records are no change of data: a merge. Otherwise all
    files of a span are [PUB-3].
    """
    added: dict[str, AddedFile] = {}
    removed: dict[str, RemovedFile] = {}
    for span in spans:  # a file may be in two of them if the step joins old records and new ones
        reach = _reach(shown, wanted, span)
        old = {f.path: f for f in shown.files(reach)}
        new = {f.path: f for f in wanted.files(reach)}
        gone = [file for path, file in old.items() if path not in new]
        come = [file for path, file in new.items() if path not in old]
        is_data = _records(gone) != _records(come)
        for file in gone:
            removed.setdefault(file.path, RemovedFile(_table_file(file), is_data))
        for file in come:
            added.setdefault(file.path, AddedFile(file, is_data))
    return TableChange(tuple(added.values()), tuple(removed.values()))


def is_prompt(change: TableChange, commits: Iterable[Commit], copies: Copies, now_ms: int) -> bool:
    """True if all removed files were live in the topic half an hour ago, as these commits say, and
    not only in the table, as its `copies` may be. So there is half an hour to put the entry."""
    times = [commit.committed_at_ms for commit in commits if commit.replaced or commit.log_starts]
    own = {file.path for files in copies.values() for file in files}
    is_timely = bool(times) and now_ms - min(times) < TABLES_KEEP_MS // 2
    return is_timely and not any(gone.file.path in own for gone in change.removed)


def plan_whole_table(there: Mapping[str, TableFile], wanted: Shown) -> TableChange:
    """The files to add to and to remove from a table that shows the files `there`, by path."""
    new = [file for span in whole(wanted.snapshot) for file in wanted.files(span)]
    paths = {file.path for file in new}
    return TableChange(
        tuple(AddedFile(file, is_data=True) for file in new if file.path not in there),
        tuple(RemovedFile(file, is_data=True) for p, file in there.items() if p not in paths),
    )


def _table_file(file: Segment) -> TableFile:
    return TableFile(file.path, file.partition, file.size_bytes)


def _reach(shown: Shown, wanted: Shown, span: Span) -> Span:
    """The span up to the end of the file that a new log start cuts."""
    is_new = span.partition >= len(shown.snapshot.partitions)
    if is_new or span.end != wanted.snapshot.partitions[span.partition].log_start:
        return span
    last = [*shown.state.segments(span.partition, span.end - 1, span.end)]
    return Span(span.partition, span.start, max([span.end, *(s.end_offset for s in last)]))


def _records(files: Iterable[Segment]) -> int:
    return sum(file.records for file in files)


def kept_copies(wanted: LogState, copies: Copies) -> dict[str, tuple[Segment, ...]]:
    """The copies that a table still uses when it shows `wanted`: those of segments that are all
    live, and that the log start has not cut since. A segment in a commit is what it always was.
    """
    kept: dict[str, tuple[Segment, ...]] = {}
    for path, files in copies.items():
        partition, start, end = files[0].partition, files[0].base_offset, files[-1].end_offset
        if partition >= len(wanted.snapshot.partitions):
            continue
        log_start = wanted.snapshot.partitions[partition].log_start
        live = [*wanted.segments(partition, start, end)]
        are_live = [s.path for s in live[:1]] == [path] and all(s.is_inline for s in live[1:])
        if are_live and not any(misleads(file, log_start) for file in files):
            kept[path] = files
    return kept


def is_within(files: Sequence[Segment], spans: Sequence[Span]) -> bool:
    """True if a copy stands for segments of one of these spans only."""
    first, last = files[0], files[-1]
    return any(
        span.partition == first.partition
        and span.start <= first.base_offset
        and last.end_offset <= span.end
        for span in spans
    )


def with_whole_copies(
    wanted: Snapshot, spans: Sequence[Span], copies: Copies, kept: Copies
) -> list[Span]:
    """The spans, so that none of them cuts a copy, and those of copies that a table no longer uses
    when it shows `wanted`: such a copy may have records of segments that have not changed. A copy
    of several segments is found by the first of them only."""
    pieces: dict[int, list[tuple[int, int]]] = {}
    for span in spans:
        pieces.setdefault(span.partition, []).append((span.start, span.end))
    for path, files in copies.items():
        number, start, end = files[0].partition, files[0].base_offset, files[-1].end_offset
        is_cut = any(low < end and start < high for low, high in pieces.get(number, ()))
        if (is_cut or path not in kept) and number < len(wanted.partitions):
            pieces.setdefault(number, []).append((start, end))
    return [
        Span(number, low, high)
        for number, found in sorted(pieces.items())
        for low, high in _united(found)
    ]
