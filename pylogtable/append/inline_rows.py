"""Rows that go into their commit, because they are too few for files [INL-1].

Each process that stages gathers its rows by partition and packs them. Whoever commits the rows of
several processes puts them together, or writes files after all if they have become too many.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import groupby

import msgspec
import pyarrow as pa

from pylogtable.format.field_ids import inline_schema
from pylogtable.format.inline import pack_rows, sizes, unpack
from pylogtable.format.model import StagedSegment
from pylogtable.format.schema import OFFSET, nulls
from pylogtable.format.snapshot import Snapshot
from pylogtable.segments.rolling_writer import Output, RollingWriter
from pylogtable.segments.writer import FileLayout
from pylogtable.storage.base import ObjectStore

#: Rows that have more bytes than this for each byte allowed are not packed to see whether they fit.
MAX_RATIO = 8


@dataclass(frozen=True)
class Part:
    """Rows of one partition, with the topic's columns under their stored names, and what is known
    of them."""

    facts: StagedSegment
    rows: pa.Table


def part_of(partition: int, rows: pa.Table, layout: FileLayout, *, hashed: bool) -> Part:
    """Rows (`timestamp` and the topic's columns) as they go into a commit."""
    facts = layout.facts_of(partition, rows, hashed=hashed)
    return Part(facts, pa.Table.from_arrays(rows.columns, schema=inline_schema(layout.topic)))


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


def gathered(
    staged: Sequence[tuple[tuple[StagedSegment, ...], bytes | None]], spill: Spill
) -> tuple[tuple[StagedSegment, ...], bytes | None]:
    """The entries of several stagings in one, in the order given, and their rows. If these have
    become too many for a commit, files are written for them."""
    entries = [entry for some, _ in staged for entry in some]
    packed = [(some, rows) for some, rows in staged if rows is not None]
    if len(packed) <= 1:
        return tuple(entries), packed[0][1] if packed else None
    parts = [part for some, rows in packed for part in unpack_parts(some, rows)]
    # A file of one process may stand between the rows of two others.
    has_files = any(not entry.is_inline for entry in entries)
    if not has_files:
        parts = join_parts(parts)
    again = pack_parts(parts, spill.limit)
    found = [[entry] for entry in again[0]] if again else spill.files(parts)
    if not has_files:
        flat = [entry for some in found for entry in some]
    else:
        left = iter(found)
        flat = [new for old in entries for new in (next(left) if old.is_inline else [old])]
    return tuple(flat), again[1] if again else None


class Spill:
    """Writes files for rows that are too many for a commit. `snapshot` is the newest known state of
    the topic, whose files are in `store`."""

    def __init__(self, store: ObjectStore, snapshot: Snapshot, new_id: Callable[[], str]) -> None:
        self.limit = snapshot.inline_limit
        self._store = store
        self._snapshot = snapshot
        self._new_id = new_id

    def files(self, parts: Sequence[Part]) -> list[list[StagedSegment]]:
        """The files of each part. All are removed if one fails."""
        layout, ends = FileLayout(self._snapshot.info), self._snapshot.end_offsets
        writers: list[RollingWriter] = []
        try:
            for part in parts:
                facts = part.facts
                output = Output(self._store, layout, facts.partition, self._new_id)
                first = ends.get(facts.partition, 0)
                ends[facts.partition] = first + facts.records
                writers.append(RollingWriter(output, first))
                _write(writers[-1], _in_layout(part.rows, layout))
        except BaseException as error:
            for writer in writers:
                writer.abandon(error)
            raise
        return [
            [_described(file, part.facts) for file in writer.files]
            for part, writer in zip(parts, writers, strict=True)
        ]


def _described(file: StagedSegment, facts: StagedSegment) -> StagedSegment:
    """A file of rows, with what was known of them when they were staged."""
    return msgspec.structs.replace(
        file,
        keys_only=facts.keys_only,
        hashed_over=facts.hashed_over,
        append_time=facts.append_time,
    )


def _write(writer: RollingWriter, rows: pa.Table) -> None:
    for batch in rows.to_batches():
        writer.add(batch)
    writer.encode_waiting()
    writer.close_file()


def _in_layout(rows: pa.Table, layout: FileLayout) -> pa.Table:
    """The columns of a file. The topic may have got columns since the rows were staged."""
    schema = layout.schema.remove(layout.schema.get_field_index(OFFSET))
    columns = [
        rows[field.name].cast(field.type)
        if field.name in rows.column_names
        else nulls(rows.num_rows, field.type)
        for field in schema
    ]
    return pa.Table.from_arrays(columns, schema=schema)
