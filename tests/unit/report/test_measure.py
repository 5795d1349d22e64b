"""What a topic is measured to be like: the plans of maintenance must agree with it."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from pylogtable import HISTORY_SCHEMA
from pylogtable.format.config import DAY_MS, MANIFEST_RETENTION_MS
from pylogtable.format.leaf import Leaf
from pylogtable.format.lookup import all_entries
from pylogtable.format.model import Protocol, Segment, TopicInfo
from pylogtable.format.schema import KAFKA_FIELDS
from pylogtable.format.snapshot import PartitionState, Snapshot, totals_of
from pylogtable.plan.compaction import plan_compaction
from pylogtable.plan.merge import plan_merge
from pylogtable.plan.retention import plan_retention
from pylogtable.report.growth import BINS, FEWEST_BINS, measure_growth
from pylogtable.report.health import Cell, TopicHealth
from pylogtable.report.measure import CELLS, measure
from pylogtable.results.groups import GroupLag, Lag
from pylogtable.storage.local import LocalStore
from pylogtable.store import Store
from tests.builders import T0, Clock, kafka, make_store
from tests.unit.maintenance.test_vacuum import age_all

NOW = T0


def no_leaf(leaf_id: str) -> Leaf:
    raise AssertionError(f"leaf {leaf_id} was asked for")


def segment(base: int, end: int, **more: object) -> Segment:
    fields: dict[str, object] = {
        "partition": 0,
        "base_offset": base,
        "end_offset": end,
        "records": end - base,
        "size_bytes": 100,
        "min_timestamp_us": NOW * 1000,
        "max_timestamp_us": NOW * 1000,
        "path": f"partition=0/{base:020}-a.parquet",
    }
    return Segment(**{**fields, **more})  # type: ignore[arg-type]


def snapshot(*states: PartitionState, **config: object) -> Snapshot:
    return Snapshot(
        version=1,
        commit_id="c",
        topic_id="t",
        committed_at_ms=NOW,
        protocol=Protocol(format=1),
        topic=TopicInfo(
            fields=KAFKA_FIELDS,
            key=("key",),
            partitions=len(states),
            config={key.replace("_", "."): str(value) for key, value in config.items()},
            created_at_ms=0,
        ),
        partitions=states,
    )


def state(*segments: Segment, log_start: int = 0, clean_end: int = 0) -> PartitionState:
    end = segments[-1].end_offset if segments else 0
    return PartitionState(log_start, end, totals_of(segments), segments, clean_end)


def health(of: Snapshot, **lags: GroupLag | str) -> TopicHealth:
    return measure(
        "t", of, all_entries(of, no_leaf), HISTORY_SCHEMA.empty_table(), lags, now_ms=NOW
    )


def _random_state(rng: np.random.Generator, number: int) -> PartitionState:
    segments: list[Segment] = []
    at = int(rng.integers(0, 50))
    log_start = at
    for _ in range(rng.integers(0, 9)):
        length = int(rng.integers(1, 20))
        age = int(rng.choice([600, 700, 1200, 1500, rng.integers(0, 2000)]))
        oldest = (NOW - age) * 1000
        tombstones = int(rng.integers(0, 2))
        segments.append(
            segment(
                at,
                at + length,
                partition=number,
                path=f"partition={number}/{at:020}-a.parquet",
                records=int(rng.integers(0, length + 1)),
                size_bytes=int(rng.choice([10, 40, 50, 51, 90, 200])),
                shift=int(rng.choice([0, 0, 0, 3])),
                min_timestamp_us=oldest,
                max_timestamp_us=oldest + int(rng.choice([0, rng.integers(0, 500_000)])),
                tombstones=tombstones,
                delete_horizon_ms=rng.choice([None, NOW - 5, NOW + 5]) if tombstones else None,
                hashed_over=int(rng.choice([2, 3])) if rng.random() < 0.3 else 2,
                append_time=bool(rng.random() < 0.1),
            )
        )
        at += length
    clean_end = int(rng.choice([0, *(s.end_offset for s in segments)]))
    if segments and rng.random() < 0.5:
        log_start = int(rng.integers(log_start, segments[0].end_offset))
    made = state(*segments, log_start=log_start, clean_end=clean_end)
    return made if segments else PartitionState(log_start, log_start)


@pytest.mark.parametrize("seed", range(4))
def test_what_is_measured_is_what_maintenance_would_do(seed: int) -> None:
    rng = np.random.default_rng(seed)
    seen = {"merge": 0, "retain": 0, "clean": 0, "nothing": 0}
    for round_number in range(60):
        of = snapshot(
            *(_random_state(rng, number) for number in range(3)),
            cleanup_policy=rng.choice(["compact", "delete", "compact,delete"]),
            retention_ms=rng.choice([-1, 700, 1500]),
            retention_bytes=rng.choice([-1, 150, 400]),
            segment_bytes=100,
            min_compaction_lag_ms=rng.choice([0, 600]),
            max_compaction_lag_ms=rng.choice([1200, 10**9]),
            min_cleanable_dirty_ratio=rng.choice(["0", "0.5", "0.9"]),
        )
        found = health(of)
        retention = plan_retention(of, no_leaf, NOW)
        moves = {move.partition: move for move in retention.log_starts} if retention else {}
        for number, part in enumerate(found.partitions):
            where = f"seed {seed}, round {round_number}, partition {number}"
            works = list(plan_merge(of, no_leaf, number))
            assert bool(part.joinable) == bool(works), where
            assert part.joinable >= sum(len(work.inputs) for work in works), where
            dropped = moves[number].dropped if number in moves else None
            expired = (part.expired_segments, part.expired_records, part.expired_bytes)
            assert expired == (
                (dropped.segments, dropped.records, dropped.size_bytes) if dropped else (0, 0, 0)
            ), where
            clean = plan_compaction(of, no_leaf, number, NOW, force=False)
            wanted = of.config.is_compacted and clean is not None
            assert part.cleanable == wanted, where
            seen["merge"] += bool(works)
            seen["retain"] += bool(dropped)
            seen["clean"] += wanted
            seen["nothing"] += not (works or dropped or wanted)
    assert min(seen.values()) > 5, seen


def test_the_dirty_ratio_is_bytes_after_the_clean_end() -> None:
    segments = [segment(0, 10, size_bytes=300), segment(10, 20, size_bytes=100)]
    compacted = snapshot(state(*segments, clean_end=10), cleanup_policy="compact")
    assert health(compacted).partitions[0].dirty_ratio == 0.25
    assert health(compacted).dirty_ratio == 0.25
    assert health(snapshot(state(*segments))).dirty_ratio is None


def test_few_segments_are_drawn_each_and_many_together() -> None:
    few = health(snapshot(state(segment(5, 7), segment(7, 20)), state()))
    assert few.strips[0] == (Cell(5, 7, 1, 2, 100), Cell(7, 20, 1, 13, 100))
    assert few.strips[1] == ()
    many = health(snapshot(state(*(segment(n, n + 1) for n in range(5000)))))
    cells = many.strips[0]
    assert len(cells) <= CELLS
    assert sum(cell.segments for cell in cells) == 5000
    assert sum(cell.records for cell in cells) == 5000
    assert (cells[0].start, cells[-1].end) == (0, 5000)
    assert all(a.end == b.start for a, b in pairwise(cells))


@pytest.mark.parametrize(
    "at_ms",
    [[0], [0, 1], [0, 59_999], [7, 10**6], [-(10**14), 10**15], [T0, T0 + 400 * DAY_MS]],
)
def test_cells_of_time_hold_everything_once(at_ms: list[int]) -> None:
    segments = [segment(n, n + 1, max_timestamp_us=ms * 1000 + 999) for n, ms in enumerate(at_ms)]
    cells = health(snapshot(state(*segments))).times
    assert FEWEST_BINS <= len(cells) <= BINS
    assert len({cell.end - cell.start for cell in cells}) == 1
    for ms in set(at_ms):
        inside = [cell for cell in cells if cell.start <= ms < cell.end]
        assert len(inside) == 1
        assert inside[0].segments
    assert sum(cell.segments for cell in cells) == len(at_ms)


def test_segments_without_records_have_no_time() -> None:
    empty = segment(0, 9, records=0, min_timestamp_us=0, max_timestamp_us=0)
    found = health(snapshot(state(empty, segment(9, 10))))
    assert sum(cell.segments for cell in found.times) == 1


def test_sizes_reach_from_the_smallest_segment_to_the_size_wanted() -> None:
    two = state(segment(0, 1, size_bytes=0), segment(1, 2, size_bytes=100))
    found = health(snapshot(two, segment_bytes=512))
    assert (found.sizes[0].start, found.sizes[-1].end) == (1, 1024)
    assert [cell.start for cell in found.sizes if cell.segments] == [1, 64]


def test_a_group_is_told_what_it_has_lost_and_will_lose() -> None:
    """Segments of ten records, a thousand milliseconds apart; two are past retention."""
    old = [
        segment(base, base + 10, max_timestamp_us=(NOW - age) * 1000)
        for base, age in ((20, 2500), (30, 1500), (40, 900), (50, 0))
    ]
    of = snapshot(state(*old, log_start=20), retention_ms=1000)

    def group(position: int | None) -> tuple[int, int, int | None]:
        lag = GroupLag("g", "t", {0: Lag(position, 60, 0, 0, 0.0), 7: Lag(3, 9)})
        [found] = health(of, g=lag).groups
        return found.lost, found.expiring, found.left_ms

    assert group(5) == (15, 20, 100)
    assert group(30) == (0, 10, 100)
    assert group(45) == (0, 0, 100)
    assert group(50) == (0, 0, 1000)
    assert group(60) == (0, 0, None)
    assert group(None) == (0, 0, None)
    assert health(of, g="no rights").groups[0].error == "no rights"


def test_growth_counts_appends_and_what_rewrites_left_behind(store: Store, clock: Clock) -> None:
    topic = store.create_topic("t", partitions=1)
    for _ in range(4):
        clock.tick(1000)
        topic.append(kafka(["a", "b"]))
    topic.merge()
    merged_at = clock.now_ms
    topic.append(kafka(["c"]))
    history = topic.history()
    growth = measure_growth(history, clock.now_ms)
    assert growth.complete
    assert growth.commits == 7
    assert sum(cell.records for cell in growth.appended) == 9
    assert {op.name: op.segments_removed for op in growth.operations} == {
        "append": 0,
        "create": 0,
        "merge": 4,
    }
    assert (growth.removable, growth.waiting) == (0, 4)
    later = measure_growth(history, merged_at + MANIFEST_RETENTION_MS + 2)
    assert (later.removable, later.waiting) == (4, 0)
    assert not measure_growth(topic.history(3), clock.now_ms).complete


def test_what_a_vacuum_removed_waits_no_more(tmp_path: Path, clock: Clock) -> None:
    topic = make_store(LocalStore(tmp_path), clock).create_topic("t")
    for _ in range(4):
        topic.append(kafka(["a"]))
    topic.merge()
    age_all(tmp_path, clock)
    clock.tick(MANIFEST_RETENTION_MS + 10)
    assert measure_growth(topic.history(), clock.now_ms).removable == 4
    assert topic.vacuum(dry_run=False).data_files == 4
    history = topic.history()
    assert "vacuum" in history["operation"].to_pylist()
    assert measure_growth(history, clock.now_ms).removable == 0


def test_no_history_is_no_growth() -> None:
    assert measure_growth(pa.Table.from_pylist([], HISTORY_SCHEMA), NOW).commits == 0
