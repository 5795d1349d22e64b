"""Compares a segment's file with its entry: rows, row groups, offsets, times, log columns. Pure.

Offsets here are *stored* ones, as the file has them: the entry's minus its shift [LOG-1].
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pylogtable.errors import CorruptTopicError
from pylogtable.format.model import Segment
from pylogtable.format.schema import LOG_FIELDS

Bounds = tuple[int, int]


@dataclass(frozen=True, slots=True)
class GroupFacts:
    """What a footer says about a row group. The bounds are None if it has no such statistics."""

    rows: int
    offsets: Bounds | None = None
    times_us: Bounds | None = None


def stored_range(segment: Segment, group: int) -> Bounds:
    """The stored offsets `[first, end)` that the entry gives to a row group [SEG-6]."""
    firsts = segment.row_groups
    here = segment.base_offset - segment.shift
    is_last = group + 1 == len(firsts)
    return here + firsts[group], segment.end_offset - segment.shift if is_last else (
        here + firsts[group + 1]
    )


def check_footer(segment: Segment, records: int, groups: Sequence[GroupFacts]) -> None:
    """Raise if a file's footer contradicts the entry [SEG-5], [SEG-11]. A row group without
    statistics of its offsets is not proven: its offset column has to be read."""
    if records != segment.records:
        raise _corrupt(
            segment, f"it has {records} records where the manifest says {segment.records}", "SEG-5"
        )
    if len(groups) != len(segment.row_groups):
        raise _corrupt(
            segment,
            f"it has {len(groups)} row groups where the manifest says {len(segment.row_groups)}",
            "SEG-5",
        )
    total = sum(facts.rows for facts in groups)
    if total != records:
        raise _corrupt(segment, f"its row groups have {total} rows, and its footer says {records}")
    for group, facts in enumerate(groups):
        _check_group(segment, group, facts)
    times = [facts.times_us for facts in groups if facts.rows]
    if times and None not in times:
        known = [bounds for bounds in times if bounds is not None]
        found = (min(low for low, _ in known), max(high for _, high in known))
        recorded = (segment.min_timestamp_us, segment.max_timestamp_us)
        if found != recorded:
            detail = f"its timestamps span {found}, but the manifest says {recorded}"
            raise _corrupt(segment, detail, "SEG-5")


def check_footer_offsets(
    segment: Segment, group: int, offsets: npt.NDArray[np.int64], before: int | None
) -> int:
    """Raise if these stored offsets do not continue the row group after `before` as the entry says
    [SEG-11]; None at its begin. Returns the last of them."""
    first, end = stored_range(segment, group)
    last = int(offsets[-1])
    is_first = before is None
    rises = bool(np.all(offsets[1:] > offsets[:-1]))
    if before is not None:
        rises = rises and int(offsets[0]) > before
    if not rises or last >= end or (is_first and int(offsets[0]) != first):
        raise _corrupt(
            segment,
            f"the offsets of row group {group} ({int(offsets[0])} to {last} here) do not rise from "
            f"{first} to below {end}",
        )
    if segment.is_dense:
        start = first if before is None else before + 1
        if last - start + 1 != len(offsets):
            raise _corrupt(
                segment,
                f"row group {group} has {len(offsets)} offsets from {start} to {last}, and the "
                "manifest says that none is missing",
            )
    return last


def check_times(segment: Segment, times_us: npt.NDArray[np.int64]) -> None:
    """Raise if timestamps that were read are not within the bounds of the entry [SEG-5]."""
    low, high = int(times_us.min()), int(times_us.max())
    if low < segment.min_timestamp_us or high > segment.max_timestamp_us:
        recorded = (segment.min_timestamp_us, segment.max_timestamp_us)
        detail = f"it has timestamps from {low} to {high}, but the manifest says {recorded}"
        raise _corrupt(segment, detail, "SEG-5")


def check_footer_columns(path: str, schema: pa.Schema) -> None:
    """Raise if a file has not exactly one `offset` and one `timestamp` column, required and of the
    right type [SEG-3]."""
    for wanted in LOG_FIELDS[1:]:
        found = schema.get_all_field_indices(wanted.name)
        if len(found) != 1:
            detail = f"it has {len(found)} columns {wanted.name!r} where one belongs"
            raise CorruptTopicError(path, "SEG-3", detail)
        column = schema.field(found[0])
        if column.type != wanted.type or column.nullable:
            null = " and may be null" if column.nullable else ""
            detail = f"its column {wanted.name!r} is {column.type}{null}, not {wanted.type}"
            raise CorruptTopicError(path, "SEG-3", detail)


def _check_group(segment: Segment, group: int, facts: GroupFacts) -> None:
    first, end = stored_range(segment, group)
    if not facts.rows and segment.records:
        raise _corrupt(segment, f"its row group {group} is empty")
    claimed = end - first
    if facts.rows > claimed or (segment.is_dense and facts.rows != claimed):
        raise _corrupt(
            segment,
            f"its row group {group} has {facts.rows} records where the manifest has {claimed} "
            "offsets",
        )
    if facts.rows and facts.offsets is not None:
        low, high = facts.offsets
        if low != first or high >= end or high - low + 1 < facts.rows:
            raise _corrupt(
                segment,
                f"its row group {group} has the stored offsets {low} to {high}, where the manifest "
                f"says from {first} to below {end}",
            )


def _corrupt(segment: Segment, detail: str, rule: str = "SEG-11") -> CorruptTopicError:
    return CorruptTopicError(segment.path, rule, detail)
