"""Which records a copy has to lose: those that its source has lost."""

from __future__ import annotations

import pytest

from pylogtable.errors import InvalidRequestError
from pylogtable.format.model import Commit, Replaced, Segment, Totals
from pylogtable.jobs.replace_plan import Swap, plan_swap_commit
from pylogtable.limits import Limits
from pylogtable.mirror.plan import OvertakenError
from pylogtable.mirror.removals_plan import (
    Side,
    Stretch,
    in_commits,
    plan_removal_commit,
    plan_removals,
    shrunken_partitions,
)
from pylogtable.segments.read_segment import count_from
from pylogtable.topic import Topic
from tests.builders import fill, make_holes, rows, write_sparse_segment
from tests.mirrors import Pair

COMPACTED = {"cleanup.policy": "compact,delete", "inline.max.bytes": 0}


def side(topic: Topic, reads: list[str] | None = None) -> Side:
    def count(segment: Segment, offset: int) -> int:
        if reads is not None:
            reads.append(segment.path)
        return count_from(topic._store, segment, offset)

    return Side(topic.at().state, count)


def stretches(pair: Pair, reads: list[str] | None = None) -> list[Stretch]:
    return [*plan_removals(side(pair.copy, reads), side(pair.source, reads), 0)]


def spans(pair: Pair) -> list[tuple[tuple[int, int], list[tuple[int, int]]]]:
    """What is replaced, and by which units."""
    return [
        (
            (stretch.inputs[0].base_offset, stretch.inputs[-1].end_offset),
            [(unit.start, unit.end) for unit in stretch.units],
        )
        for stretch in stretches(pair)
    ]


def both(appends: int = 4) -> Pair:
    pair = Pair(config=COMPACTED)
    fill(pair.source, appends)
    pair.mirror()
    return pair


def test_the_same_files_need_not_be_looked_at() -> None:
    reads: list[str] = []
    assert stretches(both(), reads) == []
    assert reads == []


def test_merges_on_either_side_remove_nothing() -> None:
    pair = both()
    reads: list[str] = []
    pair.source.merge()
    assert stretches(pair, reads) == []
    pair.copy.merge()
    assert stretches(pair, reads) == []
    fill(pair.source, 1)
    pair.source.merge()
    assert stretches(pair, reads) == []
    assert reads == []  # dense segments are counted without a look


def test_only_what_has_lost_records_is_replaced() -> None:
    pair = both()
    pair.source.erase(keys=["c1", "c3"])
    assert spans(pair) == [((3, 6), [(3, 6)]), ((9, 12), [(9, 12)])]


def test_a_merged_copy_is_replaced_as_a_whole() -> None:
    pair = both()
    pair.copy.merge()
    pair.source.erase(keys=["c1"])
    assert spans(pair) == [((0, 12), [(0, 3), (3, 6), (6, 9), (9, 12)])]


def test_a_merged_source_that_reaches_beyond_the_end_of_the_copy() -> None:
    pair = both(2)
    fill(pair.source, 1)
    pair.source.erase(keys=["c1"])
    pair.source.merge()
    (stretch,) = stretches(pair)
    assert [segment.end_offset for segment in stretch.inputs] == [3, 6]
    (unit,) = stretch.units
    assert (unit.start, unit.end, unit.whole) == (0, 6, None)


def test_borders_of_both_sides_cross() -> None:
    """The copy has [0, 6) [6, 9), the source [0, 3) [3, 9): only the ends are common."""
    pair = both(2)
    pair.copy.merge()
    fill(pair.source, 1)
    pair.mirror()
    rest = _entries(pair.source)[1:]
    merged = write_sparse_segment(
        pair.source._store,
        pair.source.at().snapshot.info,
        partition=0,
        base_offset=3,
        end_offset=9,
        records=[row for row in rows(pair.source.read(0, 3, 9)) if row["offset"] != 7],
        file_id="crossing",
    )
    pair.source._log.change(
        lambda state: plan_swap_commit(state, "compact", [Swap(tuple(rest), (merged,))])
    )
    assert spans(pair) == [((0, 9), [(0, 3), (3, 9)])]
    pair.mirror()
    pair.check()


def _entries(topic: Topic) -> list[Segment]:
    return [tile for tile in topic.at().snapshot.partitions[0].tiles if isinstance(tile, Segment)]


def test_log_starts_inside_segments() -> None:
    pair = both()
    pair.source.delete_records({0: 4})
    assert stretches(pair) == []  # what is below the log start does not count
    pair.source.erase(keys=["c1"])
    (stretch,) = stretches(pair)
    (unit,) = stretch.units
    assert (unit.start, unit.end) == (3, 6)
    assert unit.pieces[0].start == 4
    pair.source.delete_records({0: None})
    assert stretches(pair) == []


def test_holes_that_are_cut_are_counted_in_the_file() -> None:
    pair = both(1)
    fill(pair.source, 1)
    make_holes(pair.source, kept={0, 2, 3, 5})
    pair.source.merge()
    reads: list[str] = []
    (stretch,) = stretches(pair, reads)
    assert len(reads) >= 1
    assert stretch.units[0].end == 3


def test_segments_without_records() -> None:
    pair = both(2)
    pair.source.erase(keys=["a", "b", "c0"])
    (first, second) = stretches(pair)
    assert first.units[0].whole is not None
    assert first.units[0].whole.records == 0
    pair.mirror()
    assert stretches(pair) == []
    assert second.partition == 0


def test_a_copy_that_has_fewer_records() -> None:
    pair = both()
    make_holes(pair.copy, kept={0, 1, 2, 3})
    with pytest.raises(InvalidRequestError) as caught:
        stretches(pair)
    assert "the copy has 1 records in offsets [3, 6) of partition 0" in str(caught.value)
    assert "its source has 3" in str(caught.value)


def test_many_stretches_take_several_commits() -> None:
    pair = both()
    pair.source.erase(keys=["a"])
    found = stretches(pair)
    assert [len(some) for some in in_commits(found, Limits())] == [4]
    assert [len(some) for some in in_commits(found, Limits(mirror_removal_units=3))] == [3, 1]
    assert [len(some) for some in in_commits(found, Limits(mirror_removal_bytes=1))] == [1, 1, 1, 1]
    assert [*in_commits([], Limits())] == []


def test_segments_that_have_changed_meanwhile() -> None:
    pair = both()
    pair.source.erase(keys=["c1"])
    (stretch,) = stretches(pair)
    state = pair.copy.at().state
    mirror = state.snapshot.mirror
    assert mirror is not None
    outputs = [unit.whole for unit in stretch.units if unit.whole is not None]
    change = plan_removal_commit(state, mirror, [(stretch, outputs)])
    assert change.summary["records_removed"] == 1
    assert change.mirror == mirror
    pair.copy.merge()
    merged = pair.copy.at().state
    with pytest.raises(OvertakenError, match="another job has changed these segments"):
        plan_removal_commit(merged, mirror, [(stretch, outputs)])


def test_commits_that_may_have_removed_records() -> None:
    def commit(version: int, partition: int, before: int, after: int, topic: str = "t") -> Commit:
        segment = Segment(
            partition=partition,
            base_offset=0,
            end_offset=9,
            records=after,
            size_bytes=1,
            min_timestamp_us=0,
            max_timestamp_us=0,
            path=f"partition={partition}/{0:020d}-x.parquet",
        )
        dropped = Totals(segments=1, records=before, size_bytes=1)
        swap = Replaced(partition=partition, start=0, end=9, dropped=dropped)
        return Commit(
            operation="merge",
            version=version,
            commit_id=f"c{version}",
            topic_id=topic,
            committed_at_ms=0,
            add=(segment,),
            replaced=(swap,),
        )

    commits = [commit(1, 0, 5, 5), commit(2, 1, 5, 4), commit(3, 2, 5, 0, topic="other")]
    assert shrunken_partitions(commits, "t") == {1}
