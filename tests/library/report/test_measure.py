"""Measuring a topic for the report. The counts must agree with the plans of maintenance."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from pylogtable import HISTORY_SCHEMA
from pylogtable.format.config import DAY_MS, MANIFEST_RETENTION_MS
from pylogtable.format.leaf import Leaf
from pylogtable.format.log_state import LogState
from pylogtable.format.model import Protocol, Segment, TopicInfo
from pylogtable.format.partition_state import PartitionState, totals_of
from pylogtable.format.schema import KAFKA_FIELDS
from pylogtable.format.snapshot import Snapshot
from pylogtable.groups.report import GroupLag, Lag
from pylogtable.jobs.compaction_plan import plan_compaction, records_not_compacted
from pylogtable.jobs.merge_plan import plan_merge
from pylogtable.jobs.retention_plan import plan_retention
from pylogtable.report.bins import MAX_BINS, MIN_BINS
from pylogtable.report.health import Bin, TopicHealth
from pylogtable.report.measure import MAX_OFFSET_BINS, measure_growth, measure_topic
from pylogtable.store import Store
from tests.builders import IN_FILES, T0, Clock, kafka, make_store
from tests.stores import AgingDisk

NOW = T0


def no_leaf(leaf_id: str, checksum: str | None) -> Leaf:
    raise AssertionError(f"leaf {leaf_id} was asked for")


def log_state(of: Snapshot) -> LogState:
    return LogState(of, no_leaf)


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
    return measure_topic(
        "t", of, log_state(of).entries(), HISTORY_SCHEMA.empty_table(), lags, now_ms=NOW
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
        is_inline = rng.random() < 0.2
        path = (
            f"_manifest/{at:020}.json@0" if is_inline else f"partition={number}/{at:020}-a.parquet"
        )
        segments.append(
            segment(
                at,
                at + length,
                partition=number,
                path=path,
                records=length if is_inline else int(rng.integers(0, length + 1)),
                size_bytes=int(rng.choice([10, 40, 50, 51, 90, 200])),
                shift=0 if is_inline else int(rng.choice([0, 0, 0, 3])),
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
def test_counts_agree_with_the_plans_of_maintenance(seed: int) -> None:
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
        retention = plan_retention(log_state(of), NOW)
        moves = {move.partition: move for move in retention.log_starts} if retention else {}
        assert found.total("records_not_compacted") == (
            records_not_compacted(of) if of.config.is_compacted else 0
        )
        for number, part in enumerate(found.partitions):
            where = f"seed {seed}, round {round_number}, partition {number}"
            works = list(plan_merge(log_state(of), number))
            assert bool(part.mergeable_segments) == bool(works), where
            assert part.mergeable_segments >= sum(len(work.inputs) for work in works), where
            inline = [s for work in works for s in work.inputs if s.is_inline]
            assert part.inline_segments == len(inline), where
            assert part.inline_records == sum(segment.records for segment in inline), where
            dropped = moves[number].dropped if number in moves else None
            expired = (part.expired_segments, part.expired_records, part.expired_bytes)
            assert expired == (
                (dropped.segments, dropped.records, dropped.size_bytes) if dropped else (0, 0, 0)
            ), where
            clean = plan_compaction(log_state(of), number, NOW, force=False)
            wanted = of.config.is_compacted and clean is not None
            assert part.cleanable == wanted, where
            seen["merge"] += bool(works)
            seen["retain"] += bool(dropped)
            seen["clean"] += wanted
            seen["nothing"] += not (works or dropped or wanted)
    assert min(seen.values()) > 5, seen


def test_dirty_ratio_is_the_share_of_bytes_after_the_clean_end() -> None:
    segments = [segment(0, 10, size_bytes=300), segment(10, 20, size_bytes=100)]
    compacted = snapshot(state(*segments, clean_end=10), cleanup_policy="compact")
    assert health(compacted).partitions[0].dirty_ratio == 0.25
    assert health(compacted).dirty_ratio == 0.25
    assert health(snapshot(state(*segments))).dirty_ratio is None


def test_many_segments_share_bins_by_offset() -> None:
    few = health(snapshot(state(segment(5, 7), segment(7, 20)), state()))
    assert few.bins_by_offset[0] == (Bin(5, 7, 1, 2, 100), Bin(7, 20, 1, 13, 100))
    assert few.bins_by_offset[1] == ()
    many = health(snapshot(state(*(segment(n, n + 1) for n in range(5000)))))
    bins = many.bins_by_offset[0]
    assert len(bins) <= MAX_OFFSET_BINS
    assert sum(bin_.segments for bin_ in bins) == 5000
    assert sum(bin_.records for bin_ in bins) == 5000
    assert (bins[0].start, bins[-1].end) == (0, 5000)
    assert all(a.end == b.start for a, b in pairwise(bins))


@pytest.mark.parametrize(
    "at_ms",
    [[0], [0, 1], [0, 59_999], [7, 10**6], [-(10**14), 10**15], [T0, T0 + 400 * DAY_MS]],
)
def test_bins_by_time_hold_every_segment_once(at_ms: list[int]) -> None:
    segments = [segment(n, n + 1, max_timestamp_us=ms * 1000 + 999) for n, ms in enumerate(at_ms)]
    bins = health(snapshot(state(*segments))).bins_by_time
    assert MIN_BINS <= len(bins) <= MAX_BINS
    assert len({bin_.end - bin_.start for bin_ in bins}) == 1
    for ms in set(at_ms):
        inside = [bin_ for bin_ in bins if bin_.start <= ms < bin_.end]
        assert len(inside) == 1
        assert inside[0].segments
    assert sum(bin_.segments for bin_ in bins) == len(at_ms)


def test_segments_without_records_are_not_in_bins_by_time() -> None:
    empty = segment(0, 9, records=0, min_timestamp_us=0, max_timestamp_us=0)
    found = health(snapshot(state(empty, segment(9, 10))))
    assert sum(bin_.segments for bin_ in found.bins_by_time) == 1


def test_bins_by_size_reach_from_the_smallest_segment_to_segment_bytes() -> None:
    two = state(segment(0, 1, size_bytes=0), segment(1, 2, size_bytes=100))
    found = health(snapshot(two, segment_bytes=512))
    assert (found.bins_by_size[0].start, found.bins_by_size[-1].end) == (1, 1024)
    assert [bin_.start for bin_ in found.bins_by_size if bin_.segments] == [1, 64]


def test_group_health_counts_lost_and_expiring_records() -> None:
    """Four segments of ten records. Two are past retention."""
    old = [
        segment(base, base + 10, max_timestamp_us=(NOW - age) * 1000)
        for base, age in ((20, 2500), (30, 1500), (40, 900), (50, 0))
    ]
    of = snapshot(state(*old, log_start=20), retention_ms=1000)

    def group(position: int | None) -> tuple[int, int, int | None]:
        lag = GroupLag("g", "t", {0: Lag(position, 60, 0, 0, 0.0), 7: Lag(3, 9)})
        [found] = health(of, g=lag).groups
        return found.lost_offsets, found.expiring_records, found.ms_until_loss

    assert group(5) == (15, 20, 100)
    assert group(30) == (0, 10, 100)
    assert group(45) == (0, 0, 100)
    assert group(50) == (0, 0, 1000)
    assert group(60) == (0, 0, None)
    assert group(None) == (0, 20, 100)  # it has read nothing
    assert health(of, g="no rights").groups[0].error == "no rights"


def test_growth_counts_appended_records_and_replaced_files(store: Store, clock: Clock) -> None:
    topic = store.create_topic("t", partitions=1)
    for _ in range(4):
        clock.tick(1000)
        topic.append(kafka(["a", "b"]))
    topic.merge()
    merged_at = clock.now_ms
    topic.append(kafka(["c"]))
    history = topic.history()
    growth = measure_growth(history, clock.now_ms)
    assert growth.is_complete
    assert growth.commits == 7
    assert sum(bin_.records for bin_ in growth.appended) == 9
    assert {op.operation: op.segments_removed for op in growth.operations} == {
        "append": 0,
        "create": 0,
        "merge": 4,
    }
    assert (growth.removable_files, growth.waiting_files) == (0, 4)
    later = measure_growth(history, merged_at + MANIFEST_RETENTION_MS + 2)
    assert (later.removable_files, later.waiting_files) == (4, 0)
    assert not measure_growth(topic.history(3), clock.now_ms).is_complete


def test_vacuumed_files_are_no_longer_removable(tmp_path: Path, clock: Clock) -> None:
    topic = make_store(AgingDisk(tmp_path, clock), clock).create_topic("t", config=IN_FILES)
    for _ in range(4):
        topic.append(kafka(["a"]))
    topic.merge()
    clock.tick(MANIFEST_RETENTION_MS + 10)
    assert measure_growth(topic.history(), clock.now_ms).removable_files == 4
    assert topic.vacuum(dry_run=False).data_files == 4
    history = topic.history()
    assert "vacuum" in history["operation"].to_pylist()
    assert measure_growth(history, clock.now_ms).removable_files == 0


def test_empty_history_gives_no_growth() -> None:
    assert measure_growth(pa.Table.from_pylist([], HISTORY_SCHEMA), NOW).commits == 0
