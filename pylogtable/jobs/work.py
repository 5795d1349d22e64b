"""Units of work, which a job distributes to threads or to other machines.

A unit is plain data that can be pickled. A `Worker` turns a unit into a `Rewritten`: it reads
segments and writes new files for them. Nothing is committed here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from pylogtable.arguments import check_number
from pylogtable.errors import CorruptTopicError, StorageError
from pylogtable.format.model import Segment
from pylogtable.jobs.rebase_compaction_plan import Compacted
from pylogtable.jobs.replace_plan import Swap
from pylogtable.operation import Threads
from pylogtable.storage.base import ObjectStore


@dataclass(frozen=True)
class Rewritten:
    """The result of a unit of work, ready to be committed.

    `records_in` and `records_out` count all records that the unit looked at, including those of
    segments that stay. `clean_end` is set by compaction: below it no key occurs twice.
    `expired_below` is set if records below it were dropped for their age. `compacted` says what is
    needed to commit the work of a compaction over segments that were merged meanwhile. `erased` is
    set by an erase: for each swap, how many of the records that it removes could be read.
    """

    partition: int
    swaps: tuple[Swap, ...]
    records_in: int
    records_out: int
    clean_end: int | None = None
    expired_below: int | None = None
    compacted: Compacted | None = None
    erased: tuple[int, ...] = ()

    @property
    def new_segments(self) -> list[Segment]:
        """The segments whose files this unit wrote."""
        return [
            segment
            for swap in self.swaps
            for segment in swap.outputs
            if segment.path not in {known.path for known in swap.inputs}
        ]

    def check(self) -> None:
        """Raise if the outputs do not have exactly the records that the unit kept [LOG-10]. The
        result may come from another process."""
        dropped = self.records_in - self.records_out
        for swap in self.swaps:
            kept = sum(segment.records for segment in swap.outputs)
            swap.check(kept)
            dropped -= sum(segment.records for segment in swap.inputs) - kept
        if dropped:
            raise CorruptTopicError(
                f"partition={self.partition}",
                "LOG-10",
                f"a job was to drop {self.records_in - self.records_out} records, and its files "
                f"have {abs(dropped)} {'more' if dropped > 0 else 'fewer'}; nothing was committed",
            )

    def discard(self, store: ObjectStore) -> None:
        """Remove the new files. Call it only if no commit can name them."""
        discard_segments(store, self.new_segments)


def discard_segments(store: ObjectStore, segments: Iterable[Segment]) -> None:
    """Remove the files of segments that no commit can name. What cannot be removed is left to
    vacuum."""
    for segment in segments:
        with suppress(StorageError):
            store.delete(segment.path)


@dataclass(frozen=True)
class Worker:
    """Runs units of one job, in this process or, pickled, in another.

    >>> rewritten = worker(unit)
    """

    store: ObjectStore
    new_id: Callable[[], str]
    rewrite: Callable[[ObjectStore, Any, Callable[[], str]], Rewritten]

    def __call__(self, unit: Any) -> Rewritten:
        """Do one unit of work; nothing is committed."""
        return self.rewrite(self.store, unit, self.new_id)


#: Runs all units of a job with its worker, in any process.
RunUnits = Callable[[Worker, Sequence[Any]], Iterable[Rewritten]]


def in_threads(threads: int, is_stopped: Callable[[], bool] = lambda: False) -> RunUnits:
    """Run units of work in this process, this many at a time. Once `is_stopped()`, no further unit
    is begun, and those that are done can be committed."""
    check_number("threads", threads, least=1)

    def run_units(worker: Worker, units: Sequence[Any]) -> Iterable[Rewritten]:
        def run(unit: Any) -> Rewritten | None:
            return None if is_stopped() else worker(unit)

        with Threads(threads) as pool:
            futures = [pool.submit(run, unit) for unit in units]
            try:
                found = [future.result() for future in futures]
                return [rewritten for rewritten in found if rewritten is not None]
            except BaseException:
                for future in futures:
                    if not future.cancel() and future.exception() is None:
                        rewritten = future.result()
                        if rewritten is not None:
                            rewritten.discard(worker.store)
                raise

    return run_units


def small_work_here(run_units: RunUnits) -> RunUnits:
    """Do little work in this process, as many units at a time as the store can take: what they wait
    for is the store. More work goes to `run_units`."""

    def run(worker: Worker, units: Sequence[Any]) -> Iterable[Rewritten]:
        size = sum(segment.size_bytes for unit in units for segment in unit.inputs)
        if size > worker.store.limits.small_work_bytes:
            return run_units(worker, units)
        return in_threads(max(1, worker.store.concurrency))(worker, units)

    return run
