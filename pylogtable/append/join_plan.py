"""Plans to join the files of an append before their commit. Pure.

The tasks of an append leave a file for each task and partition, and only the first file of a
partition has its offsets right. Joined in the order of the tasks they are few, large and sealed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pylogtable.append.plan import check_place, in_given_order
from pylogtable.format.model import Segment, StagedSegment, TopicInfo
from pylogtable.format.snapshot import Snapshot
from pylogtable.limits import Limits


@dataclass(frozen=True)
class Join:
    """Staged files of one partition, in order, at the offsets that they will have if no other
    append comes first. Plain data, so that it can be sent to a worker."""

    topic: TopicInfo
    files: tuple[StagedSegment, ...]
    first_offset: int

    @property
    def partition(self) -> int:
        """The partition of all files."""
        return self.files[0].partition

    @property
    def size_bytes(self) -> int:
        """The bytes of all files."""
        return sum(file.size_bytes for file in self.files)

    @property
    def segments(self) -> list[Segment]:
        """The files as the segments that they would become."""
        placed: list[Segment] = []
        for file in self.files:
            base = placed[-1].end_offset if placed else self.first_offset
            placed.append(file.placed_at(base))
        return placed


def plan_joins(snapshot: Snapshot, staged: Sequence[StagedSegment], limits: Limits) -> list[Join]:
    """Units of work that join `staged` at the ends of their partitions, in the order given, or in
    that of given offsets. Their results, one after the other, are the files to commit."""
    by_partition: dict[int, list[StagedSegment]] = {}
    for file in in_given_order(staged):
        snapshot.check_partition(file.partition)
        by_partition.setdefault(file.partition, []).append(file)
    joins = []
    for number, files in sorted(by_partition.items()):
        end = snapshot.partitions[number].end
        _check_given(files, end)
        for unit in _units(files, limits.join_bytes):
            joins.append(Join(snapshot.info, unit, end))
            end = joins[-1].segments[-1].end_offset
    return joins


def _check_given(files: Sequence[StagedSegment], end: int) -> None:
    """Raise if given offsets are below the end of their partition, or come twice [APPEND-5]."""
    for at, file in enumerate(files):
        if file.given_end is not None:
            check_place(file, end, is_first=at == 0)
            end = file.given_end


def _units(files: Sequence[StagedSegment], max_bytes: int) -> list[tuple[StagedSegment, ...]]:
    """The files in runs that may share an output: of one timestamp type, and not too large."""
    units: list[list[StagedSegment]] = []
    size = 0
    for file in files:
        size += file.size_bytes
        if not units or size > max_bytes or file.append_time != units[-1][-1].append_time:
            units.append([])
            size = file.size_bytes
        units[-1].append(file)
    return [tuple(unit) for unit in units]
