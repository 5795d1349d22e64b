"""How a read is split: by offsets as in Spark's Kafka connector, then by row groups."""

from __future__ import annotations

import pickle
from itertools import pairwise

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pylogtable import Store
from pylogtable.engine import ReadPart, ReadTask, Scan
from pylogtable.format.model import Segment, Totals
from pylogtable.limits import DEFAULT_LIMITS
from pylogtable.read.parts_plan import by_commit, joined, pack_tasks, share_tasks, split_spans
from pylogtable.read.plan import Span
from pylogtable.segments.read_task import task_for
from tests.builders import ints, kafka, limited, rows

MB = 1 << 20

OPEN_BYTES, PART_BYTES = DEFAULT_LIMITS.open_bytes, DEFAULT_LIMITS.part_bytes
SHARED_BYTES, SHARED_RECORDS = DEFAULT_LIMITS.shared_bytes, DEFAULT_LIMITS.shared_records


def cut(
    *ranges: tuple[int, int], max_records: int | None = None, min_parts: int | None = None
) -> list[tuple[int, int, int]]:
    spans = [Span(number, *bounds) for number, bounds in enumerate(ranges)]
    parts = split_spans(spans, max_records, min_parts)
    return [(part.partition, part.start, part.end) for part in parts]


def test_without_options_ranges_stay_whole_and_empty_ones_are_dropped() -> None:
    assert cut((1, 5), (3, 3), (0, 9)) == [(0, 1, 5), (2, 0, 9)]
    assert cut((7, 7), min_parts=4, max_records=2) == []


def test_a_range_can_be_split_into_single_offsets() -> None:
    assert cut((1, 5), min_parts=4) == [(0, 1, 2), (0, 2, 3), (0, 3, 4), (0, 4, 5)]


def test_the_last_part_takes_the_remainder() -> None:
    assert cut((1, 11), min_parts=3) == [(0, 1, 4), (0, 4, 7), (0, 7, 11)]


def test_max_records_limits_the_records_of_a_part() -> None:
    assert cut((1, 6), max_records=4) == [(0, 1, 3), (0, 3, 6)]


# Worked out by hand from the rule of Spark's Kafka connector.
@pytest.mark.parametrize(
    ("ranges", "min_parts", "max_records", "expected"),
    [
        ([(1, 3)], 1, None, [(0, 1, 3)]),
        ([(1, 2), (1, 2), (1, 2)], 2, None, [(0, 1, 2), (1, 1, 2), (2, 1, 2)]),
        ([(1, 5)], 4, None, [(0, 1, 2), (0, 2, 3), (0, 3, 4), (0, 4, 5)]),
        ([(1, 2), (1, 21)], 3, None, [(0, 1, 2), (1, 1, 11), (1, 11, 21)]),
        (
            [(1, 2), (1, 11), (1, 11)],
            4,
            None,
            [(0, 1, 2), *[(1, 1, 6), (1, 6, 11)], *[(2, 1, 6), (2, 6, 11)]],
        ),
        ([(1, 101)], None, 50, [(0, 1, 51), (0, 51, 101)]),
        ([(1, 6), (1, 6)], 3, 4, [(0, 1, 3), (0, 3, 6), (1, 1, 3), (1, 3, 6)]),
        ([(0, 4)], 9, None, [(0, 0, 1), (0, 1, 2), (0, 2, 3), (0, 3, 4)]),
    ],
)
def test_examples_of_max_records_and_min_parts(
    ranges: list[tuple[int, int]],
    min_parts: int | None,
    max_records: int | None,
    expected: list[tuple[int, int, int]],
) -> None:
    assert cut(*ranges, min_parts=min_parts, max_records=max_records) == expected


def test_long_ranges_do_not_lose_offsets_to_rounding() -> None:
    parts = cut((0, 2**63 - 1), min_parts=7)
    assert len(parts) == 7
    assert parts[0][1] == 0
    assert parts[-1][2] == 2**63 - 1
    assert all(one[2] == other[1] for one, other in pairwise(parts))


BOUNDS = st.tuples(st.integers(0, 2**40), st.integers(0, 10**6)).map(lambda b: (b[0], sum(b)))


@given(
    st.lists(st.one_of(BOUNDS, st.tuples(st.just(0), st.integers(0, 5))), max_size=8),
    st.one_of(st.none(), st.integers(10_000, 2**62)),
    st.one_of(st.none(), st.integers(1, 200)),
)
def test_parts_cover_the_ranges_without_overlap(
    ranges: list[tuple[int, int]], max_records: int | None, min_parts: int | None
) -> None:
    parts = cut(*ranges, max_records=max_records, min_parts=min_parts)
    assert all(start < end for _, start, end in parts)
    for number, (start, end) in enumerate(ranges):
        own = [(low, high) for partition, low, high in parts if partition == number]
        bounds = [start, *(high for _, high in own)]
        assert [low for low, _ in own] == bounds[:-1]
        assert bounds[-1] == end
    assert [partition for partition, _, _ in parts] == sorted(
        partition for partition, _, _ in parts
    )
    if max_records is not None:
        assert all(end - start <= max_records for _, start, end in parts)


@given(st.lists(BOUNDS, min_size=1, max_size=8), st.integers(1, 200))
def test_min_parts_is_reached_except_for_rounding(
    ranges: list[tuple[int, int]], min_parts: int
) -> None:
    """`min_parts` is a hint: each range rounds its share, so each may miss half a part."""
    parts = cut(*ranges, min_parts=min_parts)
    total = sum(end - start for start, end in ranges)
    assert len(parts) >= min(min_parts, total) - len(ranges) / 2
    if len(ranges) == 1:
        assert len(parts) >= min(min_parts, total)


def segment(
    records: int, size: int, row_groups: int = 1, base: int = 0, end: int | None = None
) -> Segment:
    firsts = tuple(records * group // row_groups for group in range(row_groups))
    return Segment(
        partition=3,
        base_offset=base,
        end_offset=base + records if end is None else end,
        records=records,
        size_bytes=size,
        min_timestamp_us=0,
        max_timestamp_us=0,
        path=f"partition=3/{base:020d}-x.parquet",
        row_groups=firsts,
    )


def whole(*segments: Segment) -> list[ReadTask]:
    return [task_for(one, 0, 2**62) for one in segments]


def test_small_neighbouring_segments_share_a_part() -> None:
    few = [segment(10, 100, base=10 * n) for n in range(PART_BYTES // OPEN_BYTES - 1)]
    (part,) = pack_tasks(whole(*few))
    assert (part.partition, part.start, part.end) == (3, 0, 150)
    assert len([*pack_tasks(whole(*few, *(segment(10, 100, base=10 * n) for n in (15, 16))))]) == 2
    assert [*pack_tasks([])] == []


def test_a_large_segment_is_cut_between_row_groups() -> None:
    parts = [*pack_tasks(whole(segment(1000, 200 * MB, row_groups=10)))]
    assert [(part.start, part.end) for part in parts] == [
        (0, 200),
        (200, 500),
        (500, 700),
        (700, 1000),
    ]
    assert [part.tasks[0].row_groups for part in parts] == [
        range(2),
        range(2, 5),
        range(5, 7),
        range(7, 10),
    ]


def test_a_large_segment_is_cut_only_inside_the_requested_range() -> None:
    large = segment(1000, 1000 * MB, row_groups=10)
    (part,) = pack_tasks([task_for(large, 140, 160)])
    assert (part.start, part.end) == (140, 160)
    (part,) = pack_tasks([task_for(segment(1000, 1000 * MB, row_groups=1), 0, 1000)])
    assert (part.start, part.end) == (0, 1000)


@st.composite
def logs(draw: st.DrawFn) -> list[Segment]:
    made: list[Segment] = []
    base = 0
    for _ in range(draw(st.integers(1, 12))):
        records = draw(st.integers(1, 1000))
        hole = draw(st.sampled_from([0, 0, 17]))
        groups = draw(st.integers(1, min(records, 20)))
        size = draw(st.integers(1, 600 * MB))
        made.append(segment(records, size, groups, base, base + records + hole))
        base += records + hole
    return made


@given(logs(), st.data())
def test_parts_cover_a_read_and_are_cut_only_at_row_groups(
    segments: list[Segment], data: st.DataObject
) -> None:
    last = segments[-1].end_offset
    start = data.draw(st.integers(0, last - 1))
    end = data.draw(st.integers(start + 1, last))
    tasks = [
        task_for(one, start, end)
        for one in segments
        if one.base_offset < end and one.end_offset > start
    ]
    parts = [*pack_tasks(tasks)]
    pieces = [task for part in parts for task in part.tasks]
    assert [piece.start for piece in pieces] == [start, *(piece.end for piece in pieces[:-1])]
    assert pieces[-1].end == end
    for piece in pieces:
        firsts = [piece.segment.base_offset + first for first in piece.segment.row_groups]
        assert piece.start < piece.end
        assert piece.start in (start, *firsts)
        assert piece.end in (end, piece.segment.end_offset, *firsts)
        assert piece == task_for(piece.segment, piece.start, piece.end)
    for part in parts:
        cost = sum(_bytes(task) + OPEN_BYTES for task in part.tasks)
        assert len(part.tasks) == 1 or cost <= PART_BYTES
        assert pickle.loads(pickle.dumps(part)) == part


def _bytes(task: ReadTask) -> float:
    claimed = task.segment.end_offset - task.segment.base_offset
    return task.segment.size_bytes * (task.end - task.start) / claimed


WORK = st.builds(
    Totals,
    segments=st.integers(0, 20),
    records=st.integers(0, SHARED_RECORDS * 3 // 2),
    size_bytes=st.integers(0, SHARED_BYTES * 3 // 2),
)


@given(st.lists(WORK, max_size=20))
def test_only_small_neighbours_share_a_task_and_the_order_is_kept(works: list[Totals]) -> None:
    tasks = [*share_tasks((number, work) for number, work in enumerate(works))]
    assert [number for task in tasks for number in task] == [*range(len(works))]
    for task in tasks:
        together = _together([works[number] for number in task])
        limits = (SHARED_RECORDS, SHARED_BYTES, PART_BYTES)
        fits = all(found <= most for found, most in zip(together, limits, strict=True))
        assert fits or len(task) == 1
    for one, other in pairwise(tasks):
        records, size, cost = _together([works[number] for number in (*one, other[0])])
        assert records > SHARED_RECORDS or size > SHARED_BYTES or cost > PART_BYTES


def _together(works: list[Totals]) -> tuple[int, int, int]:
    size = sum(work.size_bytes for work in works)
    opens = OPEN_BYTES * sum(work.segments for work in works)
    return sum(work.records for work in works), size, size + opens


def test_partitions_that_are_worth_a_task_keep_it() -> None:
    def tasks(*works: Totals) -> int:
        return len([*share_tasks((work, work) for work in works)])

    tiny = Totals(segments=1, records=100, size_bytes=5000)
    large = Totals(segments=1, records=10, size_bytes=SHARED_BYTES)
    long = Totals(segments=1, records=SHARED_RECORDS, size_bytes=1000)
    assert tasks(*[tiny] * 6) == 1
    assert tasks(*[large] * 6) == tasks(*[long] * 6) == 6
    assert tasks(tiny, large, tiny, tiny) == 3


def test_a_part_knows_about_how_much_it_reads() -> None:
    part = ReadPart((task_for(segment(100, 1000), 50, 100), task_for(segment(10, 70), 0, 10)))
    assert part.totals == Totals(segments=2, records=60, size_bytes=570)


def test_small_partitions_share_a_group_of_keys(store: Store) -> None:
    topic = store.create_topic("t", partitions=4, key="key")
    topic.append(kafka([str(number) for number in range(40)]))
    assert Scan(topic.at()).key_groups() == [[0, 1, 2, 3]]
    topic = limited(topic, shared_records=1)
    assert Scan(topic.at()).key_groups() == [[0], [1], [2], [3]]
    topic.alter(partitions=5)
    assert Scan(topic.at()).key_groups() == [[0, 1, 2, 3, 4]]


def test_the_parts_of_a_topic_read_what_the_topic_reads(store: Store) -> None:
    store = limited(store, row_group_rows=10, part_bytes=2000, open_bytes=100)
    topic = store.create_topic("t", partitions=2)
    topic.append(kafka([None] * 100, partition=ints(*[0] * 90, *[1] * 10)))
    view = topic.at()
    assert len(view.segments()["row_groups"][0]) == 9
    parts = Scan(view).parts()
    assert len([part for part in parts if part.partition == 0]) > 1
    assert _read(Scan(view).parts(), view) == rows(topic.read(), "partition", "offset", "value")
    some = Scan(view).parts({0: (15, 35), 1: (3, 3)}, min_parts=4)
    assert [(part.start, part.end) for part in some] == [(15, 20), (20, 25), (25, 30), (30, 35)]
    assert [offset for _, offset, _ in _read(some, view)] == [*range(15, 35)]


def _read(parts: list[ReadPart], view: object) -> list[tuple[int, int, bytes]]:
    reader = pickle.loads(pickle.dumps(Scan(view).reader(["partition", "offset", "value"])))  # type: ignore[attr-defined]
    batches = [batch for part in parts for batch in reader.read(part)]
    return rows(pa.Table.from_batches(batches, reader.schema), "partition", "offset", "value")


def inline_task(partition: int, version: int, size: int = 200) -> ReadTask:
    segment = Segment(
        partition=partition,
        base_offset=10 * version,
        end_offset=10 * version + 10,
        records=10,
        size_bytes=size,
        min_timestamp_us=0,
        max_timestamp_us=0,
        path=f"_manifest/{version:020d}.json@{10 * partition}",
    )
    return task_for(segment, segment.base_offset, segment.end_offset)


def test_records_in_commits_are_read_by_few_tasks() -> None:
    """3,000 of them in 3 partitions; as files they would be 188 parts."""
    parts = [
        part
        for partition in range(3)
        for part in pack_tasks(inline_task(partition, version) for version in range(1000))
    ]
    assert sum(len(part.tasks) for part in parts) == 3000
    assert len(parts) == 12
    # Those of a few hundred commits share one task.
    few = [
        part
        for partition in range(3)
        for part in pack_tasks(inline_task(partition, version) for version in range(80))
    ]
    assert len(list(share_tasks((part, part.totals) for part in few))) == 1


def test_a_part_for_each_commit_has_all_of_its_partitions() -> None:
    tasks = [inline_task(partition, version) for partition in range(3) for version in (7, 3)]
    parts = by_commit(tasks)
    assert [[task.segment.partition for task in part.tasks] for part in parts] == [[0, 1, 2]] * 2
    assert [part.tasks[0].segment.base_offset for part in parts] == [30, 70]
    assert pickle.loads(pickle.dumps(parts)) == parts


def test_few_records_are_gathered_in_one_table(store: Store) -> None:
    topic = store.create_topic("t", 2, config={"inline.max.bytes": 16384})
    for number in range(5):
        topic.append(kafka([f"{number}-{n}" for n in range(10)]))
    scan = Scan(topic.at())
    reader = scan.reader(["partition", "offset", "key"])
    part = joined(by_commit(scan.tasks({0: (1, 4), 1: (0, 5)})))
    found = reader.gather(part, 1 << 20)
    assert found is not None
    expected = topic.read(start={0: 1, 1: 0}, end={0: 4, 1: 5}, columns=reader.schema.names)
    assert sorted(rows(found, *reader.schema.names)) == rows(expected, *reader.schema.names)
    assert reader.gather(part, 10) is None
    assert reader.gather(joined([]), 10) == reader.schema.empty_table()
