"""Check a topic against the specification and name what is wrong, without changing anything."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import groupby

import numpy as np
import pyarrow as pa

from pylogtable.errors import CorruptTopicError, LogTableError, TopicNotFoundError
from pylogtable.format.codec import decode_group
from pylogtable.format.leaf import segments_of
from pylogtable.format.lookup import all_entries
from pylogtable.format.model import Segment, TopicInfo
from pylogtable.format.partitioner import key_bytes
from pylogtable.format.paths import (
    check_segment_path,
    commit_path,
    parse_commit_path,
    parse_group_path,
    root_path,
)
from pylogtable.format.schema import OFFSET, TIMESTAMP, file_schema, fits, from_arrow, to_arrow
from pylogtable.format.shaping import count_tombstones
from pylogtable.format.snapshot import PartitionState, Snapshot, replay, tiling_fault, totals_of
from pylogtable.lazy_arrow import pc
from pylogtable.log.manifest import Manifest
from pylogtable.results.operations import Problem, VerifyReport
from pylogtable.segments.reader import SegmentReader
from pylogtable.storage.base import ObjectStore


def verify(store: ObjectStore, *, data: bool) -> VerifyReport:
    """All invariants of the topic as it lies in the store: of the state and its index; that the
    commits give the same state; that each segment's file is there with its size; with `data`, what
    is in it, and that what counts as compacted is."""
    report = VerifyReport()
    manifest = Manifest(store)
    try:
        snapshot = manifest.load()
        if snapshot is None or snapshot.topic is None:
            raise TopicNotFoundError(f"there is no topic at {store.url}")
        report.leaves = len(snapshot.leaves)
        entries = all_entries(snapshot, manifest.leaf)
    except CorruptTopicError as error:
        _note(report, error, error.path)
        return report
    report.segments = entries.num_rows
    segments = segments_of(entries)
    by_partition = {n: list(some) for n, some in groupby(segments, lambda s: s.partition)}
    for number, state in enumerate(snapshot.partitions):
        mine = by_partition.get(number, [])
        report.problems += _check_partition(number, state, mine, commit_path(snapshot.version))
    _check_replay(report, manifest, snapshot, entries)
    twice = [path for path, times in Counter(s.path for s in segments).items() if times > 1]
    report.problems += [Problem("SEG-1", path, "two live segments name it") for path in twice]
    sizes = {entry.key: entry.size_bytes for entry in store.list()}
    report.problems += _check_gap(manifest, snapshot, sizes)
    report.problems += _check_groups(store, snapshot.topic_id, sizes)
    for segment in segments:
        try:
            check_segment_path(segment.path, segment.partition, source=segment.path)
        except CorruptTopicError as error:
            _note(report, error, segment.path)
            continue
        size = sizes.get(segment.path)
        if size is None:
            report.problems.append(Problem("SEG-1", segment.path, "the file is missing"))
        elif size != segment.size_bytes:
            detail = f"the file has {size} bytes where the manifest says {segment.size_bytes}"
            report.problems.append(Problem("SEG-5", segment.path, detail))
        elif data:
            _check_file(report, store, segment, snapshot.info)
    if data and not report.problems:
        for number, state in enumerate(snapshot.partitions):
            mine = by_partition.get(number, [])
            report.problems += _check_keys(store, snapshot.info, number, state, mine)
    return report


def _check_partition(
    number: int, state: PartitionState, segments: list[Segment], path: str
) -> Iterator[Problem]:
    """Tiling, bounds and totals of one partition [LOG-4], [LOG-5], [LOG-9]."""
    if not 0 <= state.log_start <= state.end:
        detail = f"partition {number}: log start {state.log_start}, end {state.end}"
        yield Problem("LOG-5", path, detail)
    if state.clean_end > state.end:
        detail = f"partition {number}: clean to {state.clean_end}, end {state.end}"
        yield Problem("LOG-9", path, detail)
    for segment in segments:
        if segment.delete_horizon_ms is not None and not segment.tombstones:
            detail = "it has a time for tombstones and none of them"
            yield Problem("CLEAN-4", segment.path, detail)
    first = segments[0].base_offset if segments else state.log_start
    if first > state.log_start or (segments and segments[0].end_offset <= state.log_start):
        yield Problem("LOG-4", path, f"partition {number}: nothing claims its log start")
    fault = tiling_fault(segments, first, state.end)
    if fault is not None:
        yield Problem("LOG-4", path, f"partition {number}: {fault}")
    if totals_of(segments) != state.live:
        detail = (
            f"partition {number}: its totals are {state.live}, its segments' {totals_of(segments)}"
        )
        yield Problem("ROOT-5", path, detail)


def _check_replay(
    report: VerifyReport, manifest: Manifest, snapshot: Snapshot, entries: pa.Table
) -> None:
    """That root and tail say what all commits together say [ROOT-5], while all are kept."""
    try:
        commits = list(manifest.commits_backwards(snapshot))
        report.commits = len(commits)
        if not commits or commits[-1].operation != "create":
            return
        first = commits[-1].version
        full = replay(manifest.load_at(first - 1) if first else None, reversed(commits))
    except LogTableError as error:
        _note(report, error, commit_path(snapshot.version))
        return
    assert full is not None
    same = (
        full.topic == snapshot.topic
        and full.topic_id == snapshot.topic_id
        and dict(full.txns) == dict(snapshot.txns)
        and full.end_offsets == snapshot.end_offsets
        and full.start_offsets == snapshot.start_offsets
        and _clean_ends(full) == _clean_ends(snapshot)
        and all_entries(full, manifest.leaf).equals(entries)
    )
    if not same:
        path = root_path(snapshot.root_version or 0)
        report.problems.append(Problem("ROOT-5", path, "the index and the commits disagree"))


def _clean_ends(snapshot: Snapshot) -> list[int]:
    return [state.clean_end for state in snapshot.partitions]


def _check_gap(manifest: Manifest, snapshot: Snapshot, keys: Iterable[str]) -> Iterator[Problem]:
    """That no commit stands beyond a missing one [COMMIT-3]: reading forward cannot notice it."""
    versions = (parse_commit_path(key) for key in keys)
    highest = max((version for version in versions if version is not None), default=0)
    following = snapshot.version + 1
    if highest > following and manifest.read_commit(following) is None:
        detail = f"it is missing, and commit {highest} is there"
        yield Problem("COMMIT-3", commit_path(following), detail)


def _check_groups(store: ObjectStore, topic_id: str, keys: Iterable[str]) -> Iterator[Problem]:
    """That each state of a consumer group decodes [GRP-2], and is of this topic [GRP-3]."""
    for key in keys:
        parsed = parse_group_path(key)
        data = None if parsed is None else store.read(key)
        if parsed is None or data is None:  # no state, or cleaned up meanwhile
            continue
        try:
            state = decode_group(data, *parsed)
        except CorruptTopicError as error:
            yield Problem(error.rule, error.path, error.detail)
        else:
            if state.topic_id != topic_id:
                detail = f"it is of the topic {state.topic_id}, and this one is {topic_id}"
                yield Problem("GRP-3", key, detail)


def _check_file(
    report: VerifyReport, store: ObjectStore, segment: Segment, info: TopicInfo
) -> None:
    """Row counts, columns, offsets, times and tombstones of one file [SEG-3], [SEG-5]."""
    try:
        reader = SegmentReader(store, segment)
        wrong = list(_check_columns(reader, info))
        report.problems += wrong
        if wrong:
            return
        at = segment.base_offset - 1
        tombstones = 0
        times: list[int] = []
        stored = [
            field.name for field in file_schema(info.fields) if field.name in reader.schema.names
        ]
        for group, first in enumerate(segment.row_groups):
            begins = True
            for batch in reader.batches([group], stored):
                offsets = reader.true_offsets(batch).to_numpy()
                if np.any(np.diff(offsets, prepend=at) < 1) or offsets[-1] >= segment.end_offset:
                    raise CorruptTopicError(
                        segment.path,
                        "SEG-5",
                        f"its offsets do not grow inside [{segment.base_offset}, "
                        f"{segment.end_offset})",
                    )
                if begins and offsets[0] != segment.base_offset + first:
                    raise CorruptTopicError(
                        segment.path, "SEG-6", f"row group {group} does not begin at {first}"
                    )
                at, begins = int(offsets[-1]), False
                bounds = pc.min_max(batch.column(TIMESTAMP).cast(pa.int64()))
                times += [bounds["min"].as_py(), bounds["max"].as_py()]
                table = pa.Table.from_batches([batch])
                if all(field.name in stored for field in info.fields):
                    tombstones += count_tombstones(table, info)
                report.records += batch.num_rows
        if times and (min(times), max(times)) != (
            segment.min_timestamp_us,
            segment.max_timestamp_us,
        ):
            report.problems.append(
                Problem("SEG-5", segment.path, "its time bounds are not its records'")
            )
        if all(field.name in stored for field in info.fields) and tombstones != segment.tombstones:
            report.problems.append(
                Problem(
                    "SEG-5",
                    segment.path,
                    f"it has {tombstones} tombstones, not {segment.tombstones}",
                )
            )
    except LogTableError as error:
        _note(report, error, segment.path)


def _check_keys(
    store: ObjectStore,
    info: TopicInfo,
    number: int,
    state: PartitionState,
    segments: Iterable[Segment],
) -> Iterator[Problem]:
    """That compaction has left no key twice, and no record without one, below the clean end
    [LOG-9]. The keys of one partition's clean part are in memory."""
    if not info.key or state.clean_end <= state.log_start:
        return
    keys: list[pa.Array] = []
    for segment in segments:
        if segment.base_offset >= state.clean_end:
            break
        reader = SegmentReader(store, segment)
        for batch in reader.batches(range(len(segment.row_groups)), [*info.key, OFFSET]):
            offsets = reader.true_offsets(batch).to_numpy()
            inside = (offsets >= state.log_start) & (offsets < state.clean_end)
            part = key_bytes([batch.column(name) for name in info.key])
            keys.append(part.filter(pa.array(inside)))
    together = pa.chunked_array(keys, pa.binary())
    where = f"partition={number}"
    if together.null_count:
        detail = f"{together.null_count} record(s) without a key below {state.clean_end}"
        yield Problem("LOG-9", where, detail)
    times = together.drop_null().value_counts()
    twice = pc.sum(pc.greater(times.field("counts"), 1)).as_py() or 0
    if twice:
        yield Problem("LOG-9", where, f"{twice} key(s) occur twice below {state.clean_end}")


def _check_columns(reader: SegmentReader, info: TopicInfo) -> Iterator[Problem]:
    wanted = {field.name: field for field in info.fields}
    for own in (OFFSET, TIMESTAMP):
        if own not in reader.schema.names:
            yield Problem("SEG-3", reader.segment.path, f"it has no column {own!r}")
    for column in reader.schema:
        if column.name in (OFFSET, TIMESTAMP):
            continue
        field = wanted.get(column.name)
        if field is None or not fits(from_arrow(column.type), from_arrow(to_arrow(field.type))):
            detail = f"its column {column.name!r} ({column.type}) is not the topic's"
            yield Problem("SEG-3", reader.segment.path, detail)


def _note(report: VerifyReport, error: LogTableError, path: str) -> None:
    if isinstance(error, CorruptTopicError):
        report.problems.append(Problem(error.rule, error.path, error.detail))
    else:
        report.problems.append(Problem("SEG-2", path, str(error)))
