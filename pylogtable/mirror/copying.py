"""Copies records from the store of a topic to that of its copy. Nothing is committed here.

A file is copied as it is, under its own name, wherever that is possible. Otherwise its records are
written to a new file: if only a part of them is wanted, if they are in a commit, or if the name is
taken. A vacuum of the copy may be about to remove an older file of that name [MIR-7].
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from pylogtable.errors import StorageError
from pylogtable.format.config import STALE_AFTER_MS
from pylogtable.format.model import Segment, TopicInfo
from pylogtable.jobs.rewrite import copy_pieces, write_nothing
from pylogtable.mirror.plan import CopyUnit, placed
from pylogtable.operation import Threads
from pylogtable.storage.base import ObjectInfo, ObjectStore
from pylogtable.storage.threads import map_parallel

#: Files up to this size in total are copied by one task.
TASK_BYTES = 64 << 20
#: How many copies run at a time on a store where requests are not sent side by side. They wait for
#: the disk most of the time.
LOCAL_THREADS = 4
#: The same where they are. More would need more memory.
FAR_THREADS = 8

Task = TypeVar("Task")
Result = TypeVar("Result")
#: Calls the first function for each task, in any process, and the second one here with each result,
#: in order. If that one fails, no other task begins, and none runs any more in the end.
RunTasks = Callable[[Callable[[Task], Result], Sequence[Task], Callable[[Result], None]], None]


@dataclass(frozen=True)
class CopyTask:
    """Units that one worker copies. The files of `at_hand` are there already, whole and new."""

    units: tuple[CopyUnit, ...]
    taken: frozenset[str]
    at_hand: frozenset[str]

    @property
    def inputs(self) -> list[Segment]:
        """The segments of the source that are read."""
        return [segment for unit in self.units for segment in unit.inputs]


@dataclass(frozen=True)
class Copied:
    """The segments of one unit in the copy, and how they came there."""

    segments: tuple[Segment, ...]
    is_file: bool


@dataclass(frozen=True)
class Copier:
    """Copies units of one topic, in this process or, pickled, in another."""

    source: ObjectStore
    target: ObjectStore
    topic: TopicInfo
    new_id: Callable[[], str]
    new_names: bool = False

    def __call__(self, task: CopyTask) -> list[Copied]:
        """Copy the units of a task. Files that were copied stay if this fails: a repeat uses
        them, or a vacuum removes them."""
        return [self._copy(unit, task) for unit in task.units]

    def _copy(self, unit: CopyUnit, task: CopyTask) -> Copied:
        whole = unit.whole
        if whole is not None and whole.path not in task.taken and not self.new_names:
            if whole.path not in task.at_hand:
                self.target.copy_from(self.source, whole.path, whole.size_bytes)
            return Copied((placed(whole, unit.start),), is_file=True)
        return Copied(self._rewritten(unit), is_file=False)

    def _rewritten(self, unit: CopyUnit) -> tuple[Segment, ...]:
        if not unit.pieces:
            offsets = unit.start, unit.end
            return write_nothing(self.target, self.topic, unit.partition, offsets, self.new_id)
        written = copy_pieces(self.source, self.target, self.topic, unit.pieces, self.new_id)
        return (placed(written[0], unit.start), *written[1:])


def copy_tasks(
    units: Iterable[CopyUnit], there: Container[str], at_hand: Container[str]
) -> list[CopyTask]:
    """The units in tasks for workers, in order. `there` are the files that the store of the copy
    has, of which those `at_hand` can be used as they are."""
    gathered: list[list[CopyUnit]] = []
    size = 0
    for unit in units:
        if not gathered or size + unit.size_bytes > TASK_BYTES:
            gathered.append([])
            size = 0
        gathered[-1].append(unit)
        size += unit.size_bytes
    tasks = []
    for some in gathered:
        paths = {unit.whole.path for unit in some if unit.whole is not None}
        usable = frozenset(path for path in paths if path in at_hand)
        taken = frozenset(path for path in paths - usable if path in there)
        tasks.append(CopyTask(tuple(some), taken, usable))
    return tasks


def usable_files(
    units: Iterable[CopyUnit], there: Mapping[str, ObjectInfo], now_ms: int
) -> frozenset[str]:
    """The files of an earlier try that nobody has committed: whole, and too new for any vacuum
    [COMMIT-8]."""
    wholes = (unit.whole for unit in units)
    return frozenset(
        whole.path
        for whole in wholes
        if whole is not None
        and whole.path in there
        and there[whole.path].size_bytes == whole.size_bytes
        and now_ms - there[whole.path].modified_ms < STALE_AFTER_MS
    )


def files_there(store: ObjectStore, units: Iterable[CopyUnit]) -> dict[str, ObjectInfo]:
    """The files of the copy's store that have names of these units, and perhaps others. Usually
    there are none. To find that out for a few names, folders with many files are not listed."""
    paths = [unit.whole.path for unit in units if unit.whole is not None]
    if len(paths) <= store.limits.mirror_few_files and all(
        size is None for size in map_parallel(store, store.size_of, paths)
    ):
        return {}
    folders = sorted({path[: path.index("/") + 1] for path in paths})
    found = map_parallel(store, lambda folder: list(store.list(folder)), folders)
    return {entry.key: entry for entries in found for entry in entries}


def copy_in_threads(target: ObjectStore) -> RunTasks[CopyTask, list[Copied]]:
    """Run tasks in this process, as many at a time as the store takes requests. Each unit is a task
    of its own: there is nothing to be saved by larger ones, and small files take the time of their
    requests."""

    def run(
        copier: Callable[[CopyTask], list[Copied]],
        tasks: Sequence[CopyTask],
        done: Callable[[list[Copied]], None],
    ) -> None:
        single = [
            CopyTask((unit,), task.taken, task.at_hand) for task in tasks for unit in task.units
        ]
        with Threads(_threads(target)) as pool:
            for copied in pool.map(copier, single):
                done(copied)

    return run


def _threads(store: ObjectStore) -> int:
    return max(LOCAL_THREADS, min(FAR_THREADS, store.concurrency))


def discard_copies(target: ObjectStore, copied: Iterable[Copied]) -> None:
    """Remove files that no commit can name. Files with the names of the source stay: a repeat
    uses them."""
    for one in copied:
        for segment in () if one.is_file else one.segments:
            try:
                target.delete(segment.path)
            except StorageError:  # noqa: PERF203 (the others go)
                continue
