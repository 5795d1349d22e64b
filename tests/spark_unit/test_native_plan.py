"""Which scans read which files, and under which address Spark opens a topic; no session."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from pylogtable.engine import ReadTask
from pylogtable.format.model import Segment
from pyspark_pylogtable.table.native import MAX_CUT_SCANS, FilePart, FileScan, plan_scans, roots


def segment(base: int, end: int, *, shift: int = 0, append_time: bool = False) -> Segment:
    return Segment(
        partition=0,
        base_offset=base,
        end_offset=end,
        records=end - base,
        size_bytes=1000 + base,
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
    uniform: bool
    append_time: bool = False


def seen(scans: tuple[FileScan, ...]) -> list[Seen]:
    return [
        Seen(
            [part.size_bytes - 1000 for part in scan.parts],
            scan.uniform is not None,
            scan.append_time,
        )
        for scan in scans
    ]


def test_an_empty_read_needs_no_scan() -> None:
    assert plan_scans([], by_time_type=True) == ()


def test_whole_sealed_segments_share_one_scan_without_a_filter() -> None:
    (scan,) = plan_scans([task(segment(n, n + 10)) for n in (0, 10, 20)], by_time_type=False)
    assert len(scan.parts) == 3
    assert scan.uniform == FilePart("partition=0/00000000000000000000-x.parquet", 1000)
    assert not scan.uniform.is_cut
    assert scan.uniform.name == "00000000000000000000-x.parquet"


def test_shifted_segments_share_one_scan() -> None:
    tasks = [
        task(segment(0, 10)),
        task(segment(10, 20, shift=10)),
        task(segment(20, 30, shift=10)),
    ]
    assert seen(plan_scans(tasks, by_time_type=False)) == [Seen([0], True), Seen([10, 20], True)]
    tasks.append(task(segment(30, 40, shift=30)))
    scans = plan_scans(tasks, by_time_type=False)
    assert seen(scans) == [Seen([0], True), Seen([10, 20, 30], False)]
    assert [part.shift for part in scans[1].parts] == [10, 10, 30]


def test_bounds_of_a_cut_segment_are_in_stored_offsets() -> None:
    shifted = segment(100, 200, shift=60)
    cases = [(None, None), (100, 200), (130, None), (None, 150), (130, 150)]
    parts = [
        plan_scans([task(shifted, start, end)], by_time_type=False)[0].parts[0]
        for start, end in cases
    ]
    assert [(part.low, part.high) for part in parts] == [
        (None, None),
        (None, None),
        (70, None),
        (None, 90),
        (70, 90),
    ]
    assert [part.is_cut for part in parts] == [False, False, True, True, True]
    # A start at stored offset 0 is a bound too.
    assert plan_scans([task(segment(5, 9, shift=6), 6)], by_time_type=False)[0].parts[0].low == 0


@pytest.mark.parametrize("shift", [0, 3])
def test_few_cut_segments_get_their_own_scans_and_many_share_one(shift: int) -> None:
    whole = task(segment(1000, 1010))
    cut = [task(segment(n, n + 10, shift=shift), n + 5) for n in range(10, 10 + MAX_CUT_SCANS)]
    few = seen(plan_scans([whole, *cut], by_time_type=False))
    assert few == [Seen([1000], True), *(Seen([n], True) for n in range(10, 10 + MAX_CUT_SCANS))]
    more = [*cut, task(segment(90, 100, shift=shift), None, 95)]
    assert seen(plan_scans([whole, *more], by_time_type=False)) == [
        Seen([1000], True),
        Seen([*range(10, 10 + MAX_CUT_SCANS), 90], False),
    ]


def test_timestamp_types_are_separated_only_on_request() -> None:
    tasks = [
        task(segment(0, 10)),
        task(segment(10, 20, append_time=True)),
        task(segment(20, 30, shift=7)),
        task(segment(30, 40, shift=7, append_time=True)),
        task(segment(40, 50, append_time=True), 45),
    ]
    assert seen(plan_scans(tasks, by_time_type=False)) == [
        Seen([0, 10], True),
        Seen([40], True),
        Seen([20, 30], True),
    ]
    assert seen(plan_scans(tasks, by_time_type=True)) == [
        Seen([0], True),
        Seen([10], True, append_time=True),
        Seen([40], True, append_time=True),
        Seen([20], True),
        Seen([30], True, append_time=True),
    ]


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
