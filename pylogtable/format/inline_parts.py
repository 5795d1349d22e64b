"""Rows for one commit: gathered by partition, packed, and joined [INL-1]. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby

import msgspec
import pyarrow as pa

from pylogtable.errors import CorruptTopicError
from pylogtable.format.field_ids import inline_schema
from pylogtable.format.inline import pack_rows, sizes, unpack
from pylogtable.format.model import StagedSegment, TopicInfo
from pylogtable.format.schema import TIMESTAMP

#: Rows that have more bytes than this for each byte allowed are not packed to see whether they fit.
MAX_RATIO = 8


@dataclass(frozen=True)
class Part:
    """Rows of one partition, with the topic's columns under their stored names, and what is known
    of them."""

    facts: StagedSegment
    rows: pa.Table


def pack_parts(parts: Sequence[Part], limit: int) -> tuple[tuple[StagedSegment, ...], bytes] | None:
    """These parts as entries of one commit, and their packed rows. None if these are too large, or
    if there are none."""
    tables = [part.rows for part in parts]
    if not parts or sum(table.nbytes for table in tables) > limit * MAX_RATIO:
        return None
    table = pa.concat_tables(tables, promote_options="permissive").combine_chunks()
    packed = pack_rows(table.to_batches()[0])
    if len(packed) > limit:
        return None
    counts = [part.facts.records for part in parts]
    shares = sizes(counts, len(packed))
    entries = []
    at = 0
    for part, count, size in zip(parts, counts, shares, strict=True):
        entries.append(msgspec.structs.replace(part.facts, path=f"@{at}", size_bytes=size))
        at += count
    return tuple(entries), packed


def unpack_parts(entries: Sequence[StagedSegment], packed: bytes) -> list[Part]:
    """The parts that were packed, in order. Entries with a file are passed over."""
    rows = pa.Table.from_batches([unpack(packed, "staged rows")])
    named = sum(entry.records for entry in entries if entry.is_inline)
    if rows.num_rows != named:
        detail = f"there are {rows.num_rows} rows, and the entries name {named}"
        raise CorruptTopicError("staged rows", "INL-3", detail)
    return [
        Part(entry, rows.slice(int(entry.path[1:]), entry.records))
        for entry in entries
        if entry.is_inline
    ]


def join_parts(parts: Sequence[Part]) -> list[Part]:
    """One part for each partition, as far as they may be joined. Rows of a partition keep their
    order [APPEND-4]."""
    ordered = sorted(parts, key=lambda part: part.facts.partition)
    return [_joined(list(group)) for _, group in groupby(ordered, key=_kind)]


def _kind(part: Part) -> tuple[object, ...]:
    facts = part.facts
    return facts.partition, facts.hashed_over, facts.append_time, facts.keys_only


def _joined(parts: list[Part]) -> Part:
    joined = StagedSegment.joined([part.facts for part in parts])
    tables = [part.rows for part in parts]
    return Part(joined, pa.concat_tables(tables, promote_options="permissive"))


def repacked(
    entries: Sequence[StagedSegment], parts: Sequence[Part], limit: int
) -> tuple[tuple[StagedSegment, ...], bytes] | None:
    """These entries for one commit, with the rows of `parts`, which are those of all entries that
    have no file. None if the rows are too large, or if there are none."""
    packed = pack_parts(parts if has_files(entries) else join_parts(parts), limit)
    if packed is None:
        return None
    return with_parts(entries, [[entry] for entry in packed[0]]), packed[1]


def has_files(entries: Sequence[StagedSegment]) -> bool:
    return any(not entry.is_inline for entry in entries)


def with_parts(
    entries: Sequence[StagedSegment], found: Sequence[Sequence[StagedSegment]]
) -> tuple[StagedSegment, ...]:
    """The entries in order, with what was found in place of those without a file. A file of one
    process may stand between the rows of two others."""
    if not has_files(entries):
        return tuple(entry for some in found for entry in some)
    left = iter(found)
    return tuple(new for old in entries for new in (next(left) if old.is_inline else [old]))


def check_parts(parts: Sequence[Part], info: TopicInfo, source: str) -> None:
    """Raise if rows that another process has packed are not what their entries say, or not those of
    the topic."""
    at = 0
    for part in parts:
        facts = part.facts
        if facts.path != f"@{at}" or part.rows.num_rows != facts.records:
            raise CorruptTopicError(source, "INL-3", f"it has no {facts.records} rows from {at} on")
        at += facts.records
        times = part.rows[TIMESTAMP].combine_chunks()
        us = times.view("int64").to_numpy(zero_copy_only=False)
        if times.null_count or (us.min(), us.max()) != (
            facts.min_timestamp_us,
            facts.max_timestamp_us,
        ):
            raise CorruptTopicError(source, "SEG-5", "its rows have other times than it says")
    if not all(part.rows.schema.equals(inline_schema(info)) for part in parts):
        raise CorruptTopicError(source, "INL-3", "it has other columns than the topic")
