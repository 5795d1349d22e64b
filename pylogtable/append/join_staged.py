"""Joining: staged files become few sealed ones, before any commit names them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from pylogtable.append.join_plan import Join
from pylogtable.format.model import Segment, StagedSegment
from pylogtable.jobs.rewrite import rewrite_segments
from pylogtable.storage.base import ObjectStore


@dataclass(frozen=True)
class Joiner:
    """Joins staged files, in this process or, pickled, in another. The files that it reads stay.

    >>> joined = joiner(join)
    """

    store: ObjectStore
    new_id: Callable[[], str]

    def __call__(self, join: Join) -> tuple[StagedSegment, ...]:
        """Write the records of one unit again, in order. Nothing is committed, and nothing is left
        behind if it fails."""
        keep = join.first_offset
        outputs = rewrite_segments(self.store, join.topic, join.segments, keep, self.new_id)
        return tuple(_staged(output, join) for output in outputs)


def _staged(output: Segment, join: Join) -> StagedSegment:
    return StagedSegment(
        **output.facts,
        predicted_base=output.base_offset,
        # How many there are matters only if there are any.
        null_keys=sum(file.null_keys for file in join.files),
        keys_only=any(file.keys_only for file in join.files),
        given_end=output.end_offset if join.files[0].given_end is not None else None,
    )
