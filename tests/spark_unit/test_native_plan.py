"""Which scans read which files, and under which address Spark opens a topic; no session."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pylogtable.engine import ReadTask
from pylogtable.format.model import Segment
from pylogtable.limits import DEFAULT_LIMITS
from pyspark_pylogtable.table.native import MAX_RANGES, FileScan, plan_scans, roots

NO_END = 2**63 - 1


def scans(tasks: Iterable[ReadTask], *, by_time_type: bool) -> tuple[FileScan, ...]:
    return plan_scans(tasks, DEFAULT_LIMITS.needless_bytes, by_time_type=by_time_type)


def segment(
    base: int, end: int, *, shift: int = 0, append_time: bool = False, size: int = 1000
) -> Segment:
    return Segment(
        partition=0,
        base_offset=base,
        end_offset=end,
        records=end - base,
        size_bytes=size,
        min_timestamp_us=0,
        max_timestamp_us=0,
        path=f"partition=0/{base:020d}-x.parquet",
        shift=shift,
        append_time=append_time,
    )


def task(of: Segment, start: int | None = None, end: int | None = None) -> ReadTask:
    low = of.base_offset if start is None else start
    high = of.end_offset if end is None else end
    return ReadTask(of, low, high, range(1))


@dataclass(frozen=True)
class Seen:
    """A scan, by the base offsets of its segments."""

    bases: list[int]
    shift: int | None = 0
    window: tuple[int, int] | None = (0, NO_END)
    append_time: bool = False


def seen(tasks: list[ReadTask], *, by_time_type: bool = False) -> list[Seen]:
    return [
        Seen(
            [part.first + part.shift for part in scan.parts],
            scan.shift,
            scan.window,
            scan.append_time,
        )
        for scan in scans(tasks, by_time_type=by_time_type)
    ]


def test_an_empty_read_needs_no_scan() -> None:
    assert scans([], by_time_type=True) == ()


def test_whole_sealed_segments_share_one_scan_without_a_filter() -> None:
    (scan,) = scans([task(segment(n, n + 10)) for n in (0, 10, 20)], by_time_type=False)
    assert [part.name for part in scan.parts] == [f"{n:020d}-x.parquet" for n in (0, 10, 20)]
    assert (scan.shift, scan.is_cut) == (0, False)


def test_shifted_segments_share_one_scan() -> None:
    tasks = [
        task(segment(0, 10)),
        task(segment(10, 20, shift=10)),
        task(segment(20, 30, shift=10)),
    ]
    assert seen(tasks) == [Seen([0]), Seen([10, 20], shift=10)]
    tasks.append(task(segment(30, 40, shift=30)))
    assert seen(tasks) == [Seen([0]), Seen([10, 20, 30], shift=None)]


def test_bounds_of_a_cut_segment_are_in_stored_offsets() -> None:
    shifted = segment(100, 200, shift=60)
    cases = [(None, None), (100, 200), (130, None), (None, 150), (130, 150)]
    windows = [seen([task(shifted, start, end)])[0].window for start, end in cases]
    no_cut = (0, NO_END)
    assert windows == [no_cut, no_cut, (70, NO_END), (0, 90), (70, 90)]


def test_segments_that_are_cut_at_the_same_offsets_share_one_filter() -> None:
    """The same bounds for all partitions: what lies between is whole."""
    tasks = [
        task(segment(0, 20), 15),
        task(segment(20, 40)),
        task(segment(40, 60), None, 45),
        task(segment(10, 50), 15, 45),
        task(segment(44, 70), None, 45),
    ]
    assert seen(tasks) == [Seen([0, 20, 40, 10, 44], window=(15, 45))]


@pytest.mark.parametrize("shift", [0, 3])
def test_segments_that_are_cut_at_other_offsets_share_a_coarse_filter(shift: int) -> None:
    tasks = [task(segment(n, n + 10, shift=shift), n + 5) for n in (10, 30, 40)]
    (scan,) = scans([*tasks, task(segment(50, 60, shift=shift))], by_time_type=False)
    assert (scan.shift, scan.window) == (shift, None)
    found = [(low + shift, high + shift) for low, high in scan.ranges]
    assert found == [(15, 20), (35, 40), (45, 60)]


def test_whole_segments_do_not_make_the_filter_of_large_cut_ones_coarse() -> None:
    whole, other = task(segment(0, 100)), task(segment(100, 200))
    cut = [
        task(segment(0, 100, size=DEFAULT_LIMITS.needless_bytes * 2), 90),
        task(segment(100, 200), 190),
    ]
    apart = scans([whole, other, *cut], by_time_type=False)
    assert [scan.is_cut for scan in apart] == [False, True]
    assert apart[1].ranges == [(90, 100), (190, 200)]
    small = [task(segment(0, 100), 90), task(segment(100, 200), 190)]
    assert len(scans([whole, other, *small], by_time_type=False)) == 1
    # One filter fits all of them.
    fitting = [task(segment(0, 100, size=DEFAULT_LIMITS.needless_bytes * 9), 90), other]
    assert seen(fitting) == [Seen([0, 100], window=(90, NO_END))]


def test_timestamp_types_are_separated_only_on_request() -> None:
    tasks = [
        task(segment(0, 10)),
        task(segment(10, 20, append_time=True)),
        task(segment(20, 30, shift=7)),
        task(segment(30, 40, shift=7, append_time=True)),
        task(segment(40, 50, append_time=True), 45),
    ]
    assert [one.bases for one in seen(tasks)] == [[0, 10, 40], [20, 30]]
    found = [(one.bases, one.append_time) for one in seen(tasks, by_time_type=True)]
    assert found == [([0], False), ([10, 40], True), ([20], False), ([30], True)]


@st.composite
def cut_tasks(draw: st.DrawFn) -> ReadTask:
    shift = draw(st.sampled_from([0, 0, 0, 5, 9]))
    base = draw(st.integers(0, 200)) + shift
    end = base + draw(st.integers(1, 30))
    size = draw(st.sampled_from([10, DEFAULT_LIMITS.needless_bytes]))
    start = draw(st.one_of(st.just(base), st.integers(base, end - 1)))
    stop = draw(st.one_of(st.just(end), st.integers(start + 1, end)))
    return task(segment(base, end, shift=shift, size=size), start, stop)


@given(st.lists(cut_tasks(), min_size=1, max_size=40))
def test_the_filters_of_the_scans_select_exactly_what_is_read(tasks: list[ReadTask]) -> None:
    parts = []
    for scan in scans(tasks, by_time_type=False):
        parts += scan.parts
        ranges = scan.ranges
        assert len(ranges) <= MAX_RANGES
        assert all(one[1] < other[0] for one, other in pairwise(ranges))
        for part in scan.parts:
            wanted = {*range(part.low, part.high)}
            assert all(any(low <= n < high for low, high in ranges) for n in wanted)
            if scan.window is not None:
                low, high = scan.window
                assert {n for n in range(part.first, part.last) if low <= n < high} == wanted
    read = sorted((part.low + part.shift, part.high + part.shift) for part in parts)
    assert read == sorted((one.start, one.end) for one in tasks)


@pytest.mark.parametrize(
    ("url", "given", "expected"),
    [
        ("file:///data/t", None, ["file:/data/t"]),
        ("file:///data/t", "data/t", ["file:/data/t"]),
        ("file:///data/t", "file:///data/t", ["file:/data/t"]),
        ("file:///a b/100%20/#/t", None, ["file:/a b/100%20/#/t"]),
        (
            "file:///Volumes/x/t",
            "dbfs:/Volumes/x/t",
            ["dbfs:/Volumes/x/t", "file:/Volumes/x/t"],
        ),
        ("s3://b/l/t", None, ["s3://b/l/t", "s3a://b/l/t"]),
        ("s3://b/l/t", "s3://b/l/t/", ["s3://b/l/t", "s3a://b/l/t"]),
        ("s3://b/l/t", "s3a://b/l/t", ["s3a://b/l/t", "s3://b/l/t"]),
        ("s3://b/l/t", "s3n://b/l/t", ["s3n://b/l/t", "s3://b/l/t", "s3a://b/l/t"]),
        ("gs://b/t", "gs://b/t", ["gs://b/t"]),
        # Only the given address names the account.
        (
            "abfs://c/l/t",
            "abfss://c@acc.dfs.core.windows.net/l/t",
            ["abfss://c@acc.dfs.core.windows.net/l/t", "abfs://c/l/t"],
        ),
        ("memory://x/t", "memory://x/t", []),
    ],
)
def test_addresses_to_try_in_spark(url: str, given: str | None, expected: list[str]) -> None:
    assert list(roots(url, given)) == expected
