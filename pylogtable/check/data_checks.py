"""Checks that read every record."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import takewhile

import pyarrow as pa

from pylogtable.check.loaded_topic import MISSING, Subject, problem_of
from pylogtable.check.manifest_checks import file_problem
from pylogtable.check.report import Problem
from pylogtable.errors import CorruptTopicError, LogTableError, StorageError
from pylogtable.format.field_ids import ids_in_file, stored_schema
from pylogtable.format.footer_checks import GroupFacts
from pylogtable.format.model import Segment, TopicInfo
from pylogtable.format.null_structs import null_field
from pylogtable.format.partition_state import PartitionState
from pylogtable.format.partitioner import key_bytes
from pylogtable.format.schema import OFFSET, TIMESTAMP
from pylogtable.format.tombstones import count_tombstones
from pylogtable.lazy_arrow import pc
from pylogtable.segments.projection import check_column_names, stored_values, type_fits
from pylogtable.segments.segment_prefetch import segments_ahead
from pylogtable.segments.segment_reader import Records, open_segment
from pylogtable.storage.base import ObjectStore


def check_contents(subject: Subject) -> Iterator[Problem]:
    """Columns, row counts, offsets, times and tombstones of each file [SEG-3], [SEG-5], [SEG-11].
    Files with a problem that `check_files` reports are skipped."""
    sound = (segment for segment in subject.segments if file_problem(subject, segment) is None)
    for segment, fetched in segments_ahead(subject.store, sound, bypass_cache=True):
        with subject.looking.at(segment.path):
            try:
                yield from _check_file(subject, fetched, segment)
            except MISSING as error:
                yield problem_of(error, segment.path)
            except StorageError:
                raise
            except LogTableError as error:
                yield problem_of(error, segment.path)


def check_compacted_keys(subject: Subject) -> Iterator[Problem]:
    """Below the clean end each key occurs once, and every record has a key [LOG-9]. Runs only if
    nothing else is wrong. The keys of one partition's clean part are held in memory."""
    info = subject.snapshot.info
    if subject.report.problems or not info.key:
        return
    for number, state in enumerate(subject.snapshot.partitions):
        if state.clean_end <= state.log_start:
            continue
        where = f"partition={number}"
        keys = None
        with subject.looking.at(where):
            keys = _clean_keys(subject, info, number, state)
        if keys is None:
            continue
        if keys.null_count:
            detail = f"{keys.null_count} record(s) without a key below offset {state.clean_end}"
            yield Problem("LOG-9", where, detail)
        counts = keys.drop_null().value_counts().field("counts")
        repeated = pc.sum(pc.greater(counts, 1)).as_py() or 0
        if repeated:
            detail = f"{repeated} key(s) occur more than once below offset {state.clean_end}"
            yield Problem("LOG-9", where, detail)


def _check_file(subject: Subject, store: ObjectStore, segment: Segment) -> Iterator[Problem]:
    info = subject.snapshot.info
    reader = open_segment(store, segment, bypass_cache=True)
    check_column_names(reader, info, [field.name for field in info.fields])
    wrong_columns = list(_check_columns(reader, info))
    yield from wrong_columns
    if wrong_columns:
        return
    values = stored_values(reader, info)
    required = [f.stored_name for f in info.fields if not f.nullable]
    tombstones = 0
    times: list[int] = []
    for group, facts in enumerate(reader.groups):
        found = _Bounds()
        for batch in reader.batches([group], reader.schema.names):
            found.add(batch)
            tombstones += count_tombstones(pa.Table.from_batches([batch]), info.key, values)
            subject.report.records += batch.num_rows
            for name in required:
                if batch.column(name).null_count:
                    detail = f"its column {name!r} has nulls, and the topic allows none"
                    raise CorruptTopicError(segment.path, "SEG-3", detail)
            for name, column in zip(batch.schema.names, batch.columns, strict=True):
                if (field := null_field(column)) is not None:
                    detail = f"field {field!r} of its column {name!r} has nulls, and must have none"
                    raise CorruptTopicError(segment.path, "SEG-3", detail)
        times += found.times_us
        if facts.rows:
            yield from _check_statistics(segment.path, group, facts, found)
    recorded = (segment.min_timestamp_us, segment.max_timestamp_us)
    if times and (min(times), max(times)) != recorded:
        detail = f"its timestamps span {(min(times), max(times))}, but the manifest says {recorded}"
        yield Problem("SEG-5", segment.path, detail)
    if tombstones != segment.tombstones:
        detail = f"it has {tombstones} tombstones, but the manifest says {segment.tombstones}"
        yield Problem("SEG-5", segment.path, detail)
    for group, column in reader.filter_checksums or ():
        if reader.read_filter(group, column) is None:
            detail = f"the Bloom filter of column {column} in row group {group} is damaged"
            yield Problem("SUM-3", segment.path, detail)


class _Bounds:
    """The least and the greatest stored offset and timestamp of a row group's rows."""

    def __init__(self) -> None:
        self.offsets: list[int] = []
        self.times_us: list[int] = []

    def add(self, batch: pa.RecordBatch) -> None:
        for name, bounds in ((OFFSET, self.offsets), (TIMESTAMP, self.times_us)):
            both = pc.min_max(batch.column(name).cast(pa.int64()))
            bounds += [both["min"].as_py(), both["max"].as_py()]


def _check_statistics(
    path: str, group: int, facts: GroupFacts, found: _Bounds
) -> Iterator[Problem]:
    """Both statistics must be there, and agree with the rows [SEG-8]."""
    for name, said, rows in (
        (OFFSET, facts.offsets, found.offsets),
        (TIMESTAMP, facts.times_us, found.times_us),
    ):
        if said is None:
            detail = f"row group {group} has no statistics of {name!r}"
            yield Problem("SEG-8", path, detail)
        elif said != (min(rows), max(rows)):
            detail = f"row group {group} has {name!r} from {min(rows)} to {max(rows)}, not {said}"
            yield Problem("SEG-8", path, detail)


def _check_columns(reader: Records, info: TopicInfo) -> Iterator[Problem]:
    """Each column is one of the topic's, or was dropped, and has its type and its ids."""
    path = reader.segment.path
    wanted = {field.name: field for field in stored_schema(info)}
    for column in reader.schema:
        if column.name in info.retired:
            continue
        field = wanted.get(column.name)
        if field is None or not type_fits(column.type, field.type):
            detail = f"its column {column.name!r} ({column.type}) does not fit the topic's schema"
            yield Problem("SEG-3", path, detail)
        elif (found := ids_in_file(column)) and found != ids_in_file(field):
            detail = f"its column {column.name!r} has the ids {found}, not {ids_in_file(field)}"
            yield Problem("META-6", path, detail)


def _clean_keys(
    subject: Subject, info: TopicInfo, number: int, state: PartitionState
) -> pa.ChunkedArray:
    keys: list[pa.Array] = []
    segments = subject.segments_by_partition.get(number, [])
    clean = takewhile(lambda segment: segment.base_offset < state.clean_end, segments)
    for segment, fetched in segments_ahead(subject.store, clean, bypass_cache=True):
        reader = open_segment(fetched, segment, bypass_cache=True)
        for batch in reader.batches(range(len(segment.row_groups)), [*info.key, OFFSET]):
            offsets = reader.true_offsets(batch).to_numpy()
            inside = (offsets >= state.log_start) & (offsets < state.clean_end)
            mine = key_bytes([batch.column(name) for name in info.key])
            keys.append(mine.filter(pa.array(inside)))
    return pa.chunked_array(keys, pa.binary())
