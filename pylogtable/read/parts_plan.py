"""Splits a read into parts that run in parallel. Pure.

There are three steps. First, if the user asks for a number of parts or a limit of records per part,
offset ranges are divided, as in Spark's Kafka connector. Then large segments are cut between row
groups, and small ones of a partition are grouped. At last, parts of several partitions and topics
that are too small to be worth a task share one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import msgspec

from pylogtable.format.model import Segment, Totals
from pylogtable.format.paths import object_of
from pylogtable.limits import DEFAULT_LIMITS, Limits
from pylogtable.read.plan import Span
from pylogtable.segments.read_task import ReadTask, task_for

# So many commits with records count as one file: they are small, and need no second request.
COMMITS_PER_FILE = 16

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(list[tuple[Segment, int, int]]).decode

Item = TypeVar("Item")


@dataclass(frozen=True, slots=True)
class ReadPart:
    """Tasks for one worker: of one partition in offset order, or of the same commits [INL-1].
    Plain data."""

    tasks: tuple[ReadTask, ...]

    def __reduce__(self) -> tuple[Any, ...]:
        # A plan may have a hundred thousand tasks, and pickling them one by one is slow.
        return _unpacked, (_encode([(task.segment, task.start, task.end) for task in self.tasks]),)

    @property
    def partition(self) -> int:
        """The partition of the tasks."""
        return self.tasks[0].segment.partition

    @property
    def start(self) -> int:
        """The first offset of the part."""
        return self.tasks[0].start

    @property
    def end(self) -> int:
        """The offset after the part."""
        return self.tasks[-1].end

    @property
    def totals(self) -> Totals:
        """About how much the part reads."""
        inline = sum(task.segment.is_inline for task in self.tasks)
        return Totals(
            segments=len(self.tasks) - inline + -(-inline // COMMITS_PER_FILE),
            records=sum(task.end - task.start for task in self.tasks),
            size_bytes=int(sum(map(_bytes, self.tasks))),
        )


def _unpacked(data: bytes) -> ReadPart:
    return ReadPart(tuple(task_for(*task) for task in _decode(data)))


def split_spans(
    spans: Sequence[Span], max_records: int | None, min_parts: int | None
) -> list[Span]:
    """Cut the spans so that none has more than `max_records` offsets, and then so that there are
    about `min_parts`: small spans stay whole, large ones are cut in proportion to their size."""
    parts = [span for span in spans if span.start < span.end]
    if max_records is not None:
        parts = [cut for span in parts for cut in _divide(span, -(-_size(span) // max_records))]
    if min_parts is None or len(parts) >= min_parts:
        return parts
    total = sum(_size(span) for span in parts)
    whole = [_share(span, total, min_parts) == 1 for span in parts]
    rest = total - sum(_size(span) for span, small in zip(parts, whole, strict=True) if small)
    wanted = max(min_parts - sum(whole), 1)
    return [
        cut
        for span, small in zip(parts, whole, strict=True)
        for cut in ([span] if small else _divide(span, _share(span, rest, wanted)))
    ]


def pack_tasks(tasks: Iterable[ReadTask], limits: Limits = DEFAULT_LIMITS) -> Iterator[ReadPart]:
    """Group tasks of one partition, in offset order, into parts of about `part_bytes`."""
    gathered: list[ReadTask] = []
    cost = 0.0
    for task in tasks:
        for small in _cut_at_row_groups(task, limits.part_bytes):
            size = _bytes(small) + _open_bytes(small.segment, limits)
            if gathered and cost + size > limits.part_bytes:
                yield ReadPart(tuple(gathered))
                gathered, cost = [], 0.0
            gathered.append(small)
            cost += size
    if gathered:
        yield ReadPart(tuple(gathered))


def by_commit(tasks: Iterable[ReadTask]) -> list[ReadPart]:
    """Tasks whose records are in commits, in one part for each commit, in order: each is then read
    once."""
    parts: dict[str, list[ReadTask]] = {}
    for task in tasks:
        parts.setdefault(object_of(task.segment.path), []).append(task)
    return [ReadPart(tuple(some)) for _, some in sorted(parts.items())]


def joined(parts: Iterable[ReadPart]) -> ReadPart:
    """All tasks of these parts in one."""
    return ReadPart(tuple(task for part in parts for task in part.tasks))


def share_tasks(
    items: Iterable[tuple[Item, Totals]], limits: Limits = DEFAULT_LIMITS
) -> Iterator[list[Item]]:
    """Group neighbours that together are small, in their order. Each item comes with how much it
    reads."""
    gathered: list[Item] = []
    work = Totals()
    for item, size in items:
        together = work.plus(size)
        if gathered and not _is_small(together, limits):
            yield gathered
            gathered, together = [], size
        gathered.append(item)
        work = together
    if gathered:
        yield gathered


def _is_small(work: Totals, limits: Limits) -> bool:
    return (
        work.records <= limits.shared_records
        and work.size_bytes <= limits.shared_bytes
        and work.size_bytes + work.segments * limits.open_bytes <= limits.part_bytes
    )


def _cut_at_row_groups(task: ReadTask, part_bytes: int) -> Sequence[ReadTask]:
    segment, groups = task.segment, task.row_groups
    if segment.size_bytes <= part_bytes or len(groups) < 2:
        return (task,)
    count = min(len(groups), -(-int(_bytes(task)) // part_bytes))
    firsts = [groups[len(groups) * n // count] for n in range(1, count)]
    bounds = [segment.base_offset + segment.row_groups[group] for group in firsts]
    ranges = zip([task.start, *bounds], [*bounds, task.end], strict=True)
    return [task_for(segment, start, end) for start, end in ranges]


def _bytes(task: ReadTask) -> float:
    """About how many bytes of the file the task reads."""
    segment = task.segment
    return segment.size_bytes * (task.end - task.start) / (segment.end_offset - segment.base_offset)


def _open_bytes(segment: Segment, limits: Limits) -> int:
    return limits.open_bytes // (COMMITS_PER_FILE if segment.is_inline else 1)


def _size(span: Span) -> int:
    return span.end - span.start


def _share(span: Span, total: int, parts: int) -> int:
    # Halves are rounded up, as Java's Math.round does.
    return max(1, (2 * _size(span) * parts + total) // (2 * total))


def _divide(span: Span, parts: int) -> Iterator[Span]:
    """The span in `parts` spans of about the same size, none of them empty."""
    parts = min(parts, _size(span))
    start = span.start
    for left in range(parts, 0, -1):
        end = start + (span.end - start) // left
        yield Span(span.partition, start, end)
        start = end
