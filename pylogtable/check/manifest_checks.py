"""Checks that need the manifest, the states of consumer groups and a listing, but no records."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

from pylogtable.check.loaded_topic import Subject, problem_of
from pylogtable.check.report import Problem
from pylogtable.errors import CorruptTopicError, LogTableError, StorageError
from pylogtable.format.json_codec import decode_group
from pylogtable.format.model import Commit, Segment
from pylogtable.format.partition_state import PartitionState, inline_of, tiling_fault, totals_of
from pylogtable.format.paths import (
    check_segment_path,
    commit_path,
    object_of,
    parse_commit_path,
    parse_group_path,
    root_path,
)
from pylogtable.format.snapshot import Snapshot, replay


def check_partitions(subject: Subject) -> Iterator[Problem]:
    """Bounds, tiling and totals of every partition [LOG-4], [LOG-5], [LOG-9], [ROOT-5]."""
    path = commit_path(subject.snapshot.version)
    for number, state in enumerate(subject.snapshot.partitions):
        segments = subject.segments_by_partition.get(number, [])
        yield from _check_partition(number, state, segments, path)


def check_replay(subject: Subject) -> Iterator[Problem]:
    """The index agrees with a replay of all commits [ROOT-5]. This check needs all commits since
    the topic's creation, and is skipped if some were removed."""
    manifest, snapshot = subject.manifest, subject.snapshot
    try:
        commits = []
        for commit in manifest.commits.backwards(snapshot):
            commits.append(commit)
            subject.report.commits = len(commits)  # also if the next one is damaged
        yield from _check_offers(commits)
        if not commits or commits[-1].operation != "create":
            return
        first = commits[-1].version
        kept = manifest.commits.read_range(range(first, snapshot.version + 1))
        full = replay(manifest.load_at(first - 1) if first else None, kept or ())
    except StorageError:
        raise
    except LogTableError as error:
        yield problem_of(error, commit_path(snapshot.version))
        return
    assert full is not None
    same = (
        full.topic == snapshot.topic
        and full.topic_id == snapshot.topic_id
        and dict(full.txns) == dict(snapshot.txns)
        and full.mirror == snapshot.mirror
        and full.end_offsets == snapshot.end_offsets
        and full.start_offsets == snapshot.start_offsets
        and _clean_ends(full) == _clean_ends(snapshot)
        and manifest.state(full).entries().equals(subject.entries)
    )
    if not same:
        root = snapshot.root_version
        path = commit_path(snapshot.version) if root is None else root_path(root)
        yield Problem("ROOT-5", path, "the index and the commits disagree")


def _check_offers(commits: Iterable[Commit]) -> Iterator[Problem]:
    """No offer is in two commits [OFFER-3]: its records would be in the topic twice."""
    landed: dict[str, int] = {}
    for commit in commits:
        for one in commit.appends:
            later = (
                commit.version
                if one.offer is None
                else landed.setdefault(one.offer, commit.version)
            )
            if later != commit.version:
                detail = f"offer {one.offer} has landed in version {commit.version} already"
                yield Problem("OFFER-3", commit_path(later), detail)


def check_unique_paths(subject: Subject) -> Iterator[Problem]:
    """No two live segments share a file [SEG-1]."""
    counts = Counter(segment.path for segment in subject.segments)
    for path, count in counts.items():
        if count > 1:
            yield Problem("SEG-1", path, f"{count} live segments name this file")


def check_commit_gap(subject: Subject) -> Iterator[Problem]:
    """No commit exists beyond a missing one [COMMIT-3]. Reading forward would stop at the gap and
    not notice it."""
    versions = (parse_commit_path(key) for key in subject.sizes)
    following = subject.snapshot.version + 1
    beyond = sorted(version for version in versions if version is not None and version > following)
    if not beyond or subject.manifest.commits.read(following) is not None:
        return
    for version in beyond:
        try:
            commit = subject.manifest.commits.read(version)
        except CorruptTopicError as error:
            yield problem_of(error, error.path)
            continue
        # One of another topic is void, and waits for its version to come [COMMIT-11].
        if commit is not None and commit.topic_id == subject.snapshot.topic_id:
            detail = f"the commit is missing, but commit {version} exists"
            yield Problem("COMMIT-3", commit_path(following), detail)
            return


def check_group_states(subject: Subject) -> Iterator[Problem]:
    """Each state of a consumer group can be decoded [GRP-2] and belongs to this topic [GRP-3]."""
    topic_id = subject.snapshot.topic_id
    for key in subject.sizes:
        parsed = parse_group_path(key)
        if parsed is None:
            continue
        data = None
        with subject.looking.at(key):
            data = subject.store.read(key)
        if data is None:  # it was removed since the listing, or could not be read
            continue
        try:
            state = decode_group(data, *parsed)
        except CorruptTopicError as error:
            yield problem_of(error, key)
        else:
            if state.topic_id != topic_id:
                detail = f"it belongs to topic id {state.topic_id}; this topic's id is {topic_id}"
                yield Problem("GRP-3", key, detail)


def check_files(subject: Subject) -> Iterator[Problem]:
    """Each segment's file has a valid name, exists, and has the recorded size."""
    for segment in subject.segments:
        problem = file_problem(subject, segment)
        if problem is not None:
            yield problem


def file_problem(subject: Subject, segment: Segment) -> Problem | None:
    """What is wrong with a segment's file, according to a listing [SEG-1], [SEG-5]."""
    try:
        check_segment_path(segment.path, segment.partition, source=segment.path)
    except CorruptTopicError as error:
        return problem_of(error, segment.path)
    size = subject.sizes.get(object_of(segment.path))
    if size is None:
        what = "commit" if segment.is_inline else "file"
        return Problem("SEG-1", segment.path, f"the {what} is missing")
    if size != segment.size_bytes and not segment.is_inline:
        detail = f"the file has {size} bytes, but the manifest says {segment.size_bytes}"
        return Problem("SEG-5", segment.path, detail)
    return None


def _check_partition(
    number: int, state: PartitionState, segments: list[Segment], path: str
) -> Iterator[Problem]:
    if not 0 <= state.log_start <= state.end:
        detail = f"partition {number}: log start {state.log_start}, end {state.end}"
        yield Problem("LOG-5", path, detail)
    if state.clean_end > state.end:
        detail = f"partition {number}: clean to {state.clean_end}, end {state.end}"
        yield Problem("LOG-9", path, detail)
    for segment in segments:
        if segment.delete_horizon_ms is not None and not segment.tombstones:
            detail = "it has a delete horizon but no tombstones"
            yield Problem("CLEAN-4", segment.path, detail)
    first = segments[0].base_offset if segments else state.log_start
    if first > state.log_start or (segments and segments[0].end_offset <= state.log_start):
        detail = f"partition {number}: no segment covers the log start {state.log_start}"
        yield Problem("LOG-4", path, detail)
    fault = tiling_fault(segments, first, state.end)
    if fault is not None:
        yield Problem("LOG-4", path, f"partition {number}: {fault}")
    found, inline = totals_of(segments), inline_of(segments)
    if found != state.live:
        detail = f"the recorded totals are {state.live}, but the segments add up to {found}"
        yield Problem("ROOT-5", path, f"partition {number}: {detail}")
    if state.inline not in (None, inline):
        detail = f"the recorded inline totals are {state.inline}, but segments add up to {inline}"
        yield Problem("ROOT-5", path, f"partition {number}: {detail}")


def _clean_ends(snapshot: Snapshot) -> list[int]:
    return [state.clean_end for state in snapshot.partitions]
