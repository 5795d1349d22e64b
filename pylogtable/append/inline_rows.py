"""Rows that go into their commit, because they are too few for files [INL-1].

Each process that stages gathers its rows by partition and packs them. Whoever commits the rows of
several processes puts them together, or writes files after all if they have become too many.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec
import pyarrow as pa

from pylogtable.format.field_ids import inline_schema
from pylogtable.format.inline_parts import (
    Part,
    has_files,
    join_parts,
    repacked,
    unpack_parts,
    with_parts,
)
from pylogtable.format.model import StagedSegment
from pylogtable.format.schema import OFFSET, nulls
from pylogtable.format.snapshot import Snapshot
from pylogtable.segments.file_layout import FileLayout
from pylogtable.segments.rolling_writer import Output, RollingWriter
from pylogtable.storage.base import ObjectStore


def part_of(partition: int, rows: pa.Table, layout: FileLayout, *, hashed: bool) -> Part:
    """Rows (`timestamp` and the topic's columns) as they go into a commit."""
    facts = layout.facts_of(partition, rows, hashed=hashed)
    return Part(facts, pa.Table.from_arrays(rows.columns, schema=inline_schema(layout.topic)))


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
    again = repacked(entries, parts, spill.limit)
    if again is not None:
        return again
    if not has_files(entries):
        parts = join_parts(parts)
    return with_parts(entries, spill.files(parts)), None


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
