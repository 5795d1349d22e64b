"""Compaction: keep the newest record of each key, at its offset."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import msgspec
import numpy as np

from pylogtable.arguments import check_flags
from pylogtable.errors import CommitConflictError, InvalidRequestError
from pylogtable.format.config import TopicConfig, stored_config
from pylogtable.format.mirror_rules import check_may_remove
from pylogtable.format.model import Segment
from pylogtable.format.snapshot import Snapshot
from pylogtable.jobs.compaction_plan import CompactionUnit, plan_compaction, plan_swaps
from pylogtable.jobs.compaction_survivors import find_kept
from pylogtable.jobs.job import MaintainedTopic, MaintainOptions
from pylogtable.jobs.rebase_compaction_plan import Compacted, Piece, plan_carry_over
from pylogtable.jobs.replace_plan import Swap
from pylogtable.jobs.rewrite import copy_piece, rewrite_segments
from pylogtable.jobs.rewrite_job import RewriteJob
from pylogtable.jobs.work import Rewritten, discard_segments
from pylogtable.limits import DEFAULT_LIMITS
from pylogtable.storage.base import ObjectStore


@dataclass(frozen=True)
class Compaction(RewriteJob[CompactionUnit]):
    """Compacts partitions that are dirty enough, or all dirty ones with `force`. A unit of work is
    a partition; `budget_bytes` bounds the memory for its keys.

    In a partition where one of `protect_groups` has unread records, no record is dropped for its
    age. Older records of a key are still removed.
    """

    force: bool = False
    budget_bytes: int = DEFAULT_LIMITS.key_budget_bytes
    protect_groups: Sequence[str] | None = None

    name: ClassVar[str] = "compaction"
    operation: ClassVar[str] = "compact"

    def __post_init__(self) -> None:
        check_flags(force=self.force)

    @classmethod
    def for_maintain(cls, config: TopicConfig, options: MaintainOptions) -> Compaction | None:
        return cls(protect_groups=options.protect_groups) if config.is_compacted else None

    def plan(self, topic: MaintainedTopic) -> list[CompactionUnit]:
        state = topic.newest()
        snapshot = state.snapshot
        check_may_remove(snapshot.mirror, "compaction")
        if not snapshot.config.is_compacted:
            policy = ",".join(sorted(snapshot.config.cleanup_policy))
            raise InvalidRequestError(
                f"topic {topic.name!r} has cleanup.policy={policy} and is not compacted; to "
                "change that, call topic.alter(config={'cleanup.policy': 'compact'}), or run "
                f"pylogtable topics alter {topic.name} --config cleanup.policy=compact"
            )
        now_ms = topic.runtime.clock()
        unread = topic.unread_from(self.protect_groups, snapshot)
        planned = (
            plan_compaction(state, number, now_ms, force=self.force, keep_from=unread.get(number))
            for number in range(len(snapshot.partitions))
        )
        return [unit for unit in planned if unit is not None]

    def check(
        self, topic: MaintainedTopic, snapshot: Snapshot, results: Sequence[Rewritten]
    ) -> None:
        if not snapshot.config.is_compacted:
            raise CommitConflictError("the topic is not compacted any more")
        unread = topic.unread_from(self.protect_groups, snapshot)
        for rewritten in results:
            expired, partition = rewritten.expired_below, rewritten.partition
            if expired is not None and unread.get(partition, expired) < expired:  # [CLEAN-3]
                raise CommitConflictError(
                    f"compaction of partition {partition}: a group was reset to offset "
                    f"{unread[partition]}, and records below {expired} were dropped for their age"
                )

    def carry_over(
        self, topic: MaintainedTopic, results: Sequence[Rewritten], tried: Sequence[Rewritten]
    ) -> Sequence[Rewritten] | None:
        """The same survivors in the place of segments that were merged meanwhile. No key is looked
        at again; only what the compaction has not rewritten of these segments is copied."""
        (done,) = results  # a partition is one unit
        assert done.compacted is not None
        plans = plan_carry_over(topic.log.latest_state(), done.swaps, done.compacted)
        if [plan.inputs for plan in plans] == [swap.inputs for r in tried for swap in r.swaps]:
            return None
        swaps: list[Swap] = []
        copied: list[Segment] = []
        try:
            for plan in plans:
                outputs: list[Segment] = []
                in_pieces = 0
                for part in plan.parts:
                    if isinstance(part, Piece):
                        new_id = topic.runtime.new_id
                        piece = copy_piece(topic.store, done.compacted.topic, part, new_id)
                        copied += piece
                        outputs += piece
                        in_pieces += sum(segment.records for segment in piece)
                    else:
                        outputs.append(part)
                if sum(segment.records for segment in plan.inputs) - in_pieces != plan.records:
                    raise CommitConflictError(  # [LOG-8]
                        f"compaction of partition {done.partition}: another job has removed records"
                    )
                swaps.append(Swap(plan.inputs, tuple(outputs)))
        except BaseException:
            discard_segments(topic.store, copied)
            raise
        return [replace(done, swaps=tuple(swaps))]

    def rewrite(
        self, store: ObjectStore, unit: CompactionUnit, new_id: Callable[[], str]
    ) -> Rewritten:
        config = stored_config(unit.topic.config)
        masks = find_kept(store, unit, self.budget_bytes)
        kept = [int(np.count_nonzero(mask)) for mask in masks]
        mask_of = {s.path: mask for s, mask in zip(unit.inputs, masks, strict=True)}
        swaps: list[Swap] = []

        def rewritten() -> Rewritten:
            records = sum(segment.records for segment in unit.inputs)
            return Rewritten(
                unit.partition,
                tuple(swaps),
                records,
                sum(kept),
                unit.clean_end,
                expired_below=None if unit.expire_before_us is None else unit.end,
                compacted=Compacted(
                    unit.topic, unit.end, unit.delete_horizon_ms(config.delete_retention_ms)
                ),
            )

        try:
            for swap in plan_swaps(unit, kept, config.delete_retention_ms, config.segment_bytes):
                horizon_ms = swap.delete_horizon_ms
                outputs: tuple[Segment, ...]
                if swap.rewrites:
                    keep = [mask_of[segment.path] for segment in swap.inputs]
                    outputs = rewrite_segments(
                        store, unit.topic, swap.inputs, keep, new_id, delete_horizon_ms=horizon_ms
                    )
                else:
                    (only,) = swap.inputs
                    outputs = (msgspec.structs.replace(only, delete_horizon_ms=horizon_ms),)
                swaps.append(Swap(swap.inputs, outputs))
        except BaseException:
            rewritten().discard(store)
            raise
        return rewritten()
