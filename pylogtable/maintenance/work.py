"""One unit of maintenance work: read segments, write others. Nothing is committed here.

These are plain functions of a store and of a plan, so that they run in this process or on another
machine alike; what they give is plain data for whoever commits it.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

import msgspec

from pylogtable.errors import StorageError
from pylogtable.format.config import parse_config
from pylogtable.format.model import Segment
from pylogtable.maintenance.rewrite import rewrite
from pylogtable.plan.compaction import CompactionUnit, plan_swaps
from pylogtable.plan.merge import MergeUnit
from pylogtable.plan.swap import Swap
from pylogtable.segments.newest import BUDGET_BYTES, find_kept
from pylogtable.storage.base import ObjectStore

Work = CompactionUnit | MergeUnit


@dataclass(frozen=True)
class Done:
    """What a unit of work wants committed. `clean_end` is set by compaction; the counts are of all
    that was looked at, whether it was written anew or not."""

    operation: str
    partition: int
    swaps: tuple[Swap, ...]
    clean_end: int | None
    records_in: int
    records_out: int

    @property
    def new_files(self) -> list[str]:
        """The files that nobody else knows of yet."""
        return [
            segment.path
            for swap in self.swaps
            for segment in swap.outputs
            if segment.path not in {known.path for known in swap.inputs}
        ]


def run(
    store: ObjectStore,
    work: Work,
    new_id: Callable[[], str],
    budget_bytes: int = BUDGET_BYTES,
) -> Done:
    """Do the work; if it fails, no file is left behind."""
    if isinstance(work, MergeUnit):
        outputs = rewrite(
            store, work.topic, work.inputs, work.log_start, new_id, delete_horizon_ms=_time(work)
        )
        records_in = sum(segment.records for segment in work.inputs)
        records_out = sum(segment.records for segment in outputs)
        swap = Swap(work.inputs, outputs)
        return Done("merge", work.partition, (swap,), None, records_in, records_out)
    return _clean(store, work, new_id, budget_bytes)


def discard(store: ObjectStore, done: Done) -> None:
    """Remove the new files of work that is proven not to be committed."""
    for path in done.new_files:
        with suppress(StorageError):
            store.delete(path)


def _clean(
    store: ObjectStore,
    work: CompactionUnit,
    new_id: Callable[[], str],
    budget_bytes: int,
) -> Done:
    config = parse_config(work.topic.config)
    masks = find_kept(store, work, budget_bytes)
    alive = [int(mask.sum()) for mask in masks]
    by_path = {s.path: mask for s, mask in zip(work.inputs, masks, strict=True)}
    swaps: list[Swap] = []
    groups = plan_swaps(work, alive, config.delete_retention_ms, config.segment_bytes)
    try:
        for group in groups:
            outputs: tuple[Segment, ...]
            if group.rewrites:
                kept = [by_path[segment.path] for segment in group.inputs]
                outputs = rewrite(
                    store,
                    work.topic,
                    group.inputs,
                    kept,
                    new_id,
                    delete_horizon_ms=group.delete_horizon_ms,
                )
            else:
                (only,) = group.inputs
                horizon = group.delete_horizon_ms
                outputs = (msgspec.structs.replace(only, delete_horizon_ms=horizon),)
            swaps.append(Swap(group.inputs, outputs))
    except BaseException:
        discard(store, _done(work, swaps, alive))
        raise
    return _done(work, swaps, alive)


def _done(work: CompactionUnit, swaps: list[Swap], alive: list[int]) -> Done:
    records = sum(segment.records for segment in work.inputs)
    return Done("compact", work.partition, tuple(swaps), work.clean_end, records, sum(alive))


def _time(work: MergeUnit) -> int | None:
    """Inputs with tombstones have the same time for them, by plan."""
    return next((s.delete_horizon_ms for s in work.inputs if s.tombstones), None)
