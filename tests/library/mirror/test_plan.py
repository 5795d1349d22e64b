"""What a copy gets from its source: units to copy, and the commits that bring them."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import pyarrow as pa
import pytest

from pylogtable.errors import InvalidRequestError, TopicExistsError
from pylogtable.format.model import (
    GIVEN_OFFSETS,
    INLINE_BATCHES,
    MIRROR,
    Mirror,
    MirroredTxn,
    Segment,
)
from pylogtable.format.snapshot import Snapshot
from pylogtable.jobs.rebase_compaction_plan import Piece
from pylogtable.mirror.plan import (
    CopyUnit,
    OvertakenError,
    check_copy,
    new_copy,
    placed,
    plan_arrival_commit,
    plan_arrivals,
    plan_promotion,
    plan_topic,
)
from pylogtable.topic import Topic
from tests.builders import IN_FILES, fill, ints, kafka, limited, make_holes
from tests.mirrors import Pair

IN_COMMITS = {"inline.max.bytes": 16384}


def states(pair: Pair) -> tuple[Snapshot, Snapshot]:
    """The copy and the source."""
    return pair.copy.at().snapshot, pair.source.at().snapshot


def arrivals(pair: Pair, *, allow_gaps: bool = True, **limits: int) -> tuple[list[CopyUnit], bool]:
    copy, source = pair.copy.at().snapshot, limited(pair.source, **limits).at().state
    found = plan_arrivals(copy, source, allow_gaps=allow_gaps)
    return found.units, found.is_all


def spans(units: list[CopyUnit]) -> list[tuple[int, int, int]]:
    return [(unit.partition, unit.start, unit.end) for unit in units]


def behind(**topic: object) -> Pair:
    pair = Pair(**topic)
    fill(pair.source, 1)
    pair.mirror()
    return pair


def test_each_file_is_a_unit_of_its_own() -> None:
    pair = behind()
    fill(pair.source, 3)
    units, is_all = arrivals(pair)
    assert is_all
    assert spans(units) == [(0, 3, 6), (0, 6, 9), (0, 9, 12)]
    assert all(unit.whole is not None for unit in units)


def test_a_part_of_a_segment_is_written_anew() -> None:
    """The source has merged what the copy has with what it does not have."""
    pair = behind()
    fill(pair.source, 1)
    pair.source.merge()
    (unit,), _ = arrivals(pair)
    assert (unit.start, unit.end, unit.whole) == (3, 6, None)
    (piece,) = unit.pieces
    assert (piece.start, piece.end, piece.segment.base_offset) == (3, 6, 0)


def test_records_in_commits_share_a_file() -> None:
    pair = behind(config=IN_COMMITS)
    fill(pair.source, 3)
    pair.source.alter(config={"message.timestamp.type": "LogAppendTime"})
    fill(pair.source, 2)
    pair.source.alter(config=IN_FILES)
    fill(pair.source, 1)
    units, _ = arrivals(pair)
    assert spans(units) == [(0, 3, 12), (0, 12, 18), (0, 18, 21)]
    assert [len(unit.pieces) for unit in units] == [3, 2, 1]
    assert [unit.whole is None for unit in units] == [True, True, False]


def test_a_commit_brings_a_part() -> None:
    pair = behind(partitions=2)
    for number in (0, 1, 0, 1):
        pair.source.append(kafka(["a"], partition=ints(number)))
    ends = pair.copy.end_offsets()
    units, is_all = arrivals(pair, mirror_units=2)
    assert not is_all
    assert spans(units) == [(0, ends[0], ends[0] + 1), (0, ends[0] + 1, ends[0] + 2)]
    units, is_all = arrivals(pair, mirror_bytes=1)
    assert not is_all
    assert len(units) == 1
    assert arrivals(pair, mirror_units=4)[1]


def test_offsets_below_the_log_start() -> None:
    pair = behind()
    fill(pair.source, 2)
    pair.source.delete_records({0: 6})
    with pytest.raises(InvalidRequestError, match=r"\[3, 6\) of partition 0 before they were cop"):
        arrivals(pair, allow_gaps=False)
    (unit,), _ = arrivals(pair)
    assert (unit.start, unit.end) == (3, 9)
    assert unit.whole is not None
    pair.source.delete_records({0: 7})
    (unit,), _ = arrivals(pair)
    assert (unit.start, unit.end, unit.whole, unit.pieces[0].start) == (3, 9, None, 7)
    pair.source.delete_records({0: None})
    assert arrivals(pair) == ([CopyUnit(0, 3, 9, ())], True)


def test_a_file_that_covers_more_offsets_than_it_did() -> None:
    pair = Pair()
    fill(pair.source, 1)
    make_holes(pair.source, kept={1, 2})
    (entry,) = pair.source.segments().to_pylist()
    segment = next(iter(_segments(pair.source)))
    assert placed(segment, 0) is segment
    high = msgspec.structs.replace(segment, base_offset=10, end_offset=13, shift=10)
    low = placed(high, 4)
    assert (low.base_offset, low.end_offset, low.shift) == (4, 13, 10)
    assert low.row_groups == tuple(at + 6 for at in segment.row_groups)
    empty = msgspec.structs.replace(high, records=0, row_groups=())
    assert placed(empty, 4).row_groups == ()
    assert entry["path"] == low.path


def _segments(topic: Topic) -> list[Segment]:
    return [tile for tile in topic.at().snapshot.partitions[0].tiles if isinstance(tile, Segment)]


def test_a_commit_after_another_mirror() -> None:
    pair = behind()
    copy, source = states(pair)
    mark = copy.mirror
    assert mark is not None
    state = pair.copy._log.manifest.state(copy)
    (segment,) = _segments(pair.source)
    with pytest.raises(
        OvertakenError, match="from offset 0 on were copied, and the copy ends at 3"
    ):
        plan_arrival_commit(state, source, mark, [segment], [], is_all=True)
    assert plan_arrival_commit(state, source, mark, [], [], is_all=True) is None
    noted = plan_arrival_commit(state, source, mark, [], [], is_all=True, is_news=True)
    assert noted is not None
    assert noted.mirror == mark


def test_a_commit_after_another_mirror_has_altered_the_copy() -> None:
    pair = behind()
    copy, _ = states(pair)
    pair.source.alter(partitions=2)
    _, source = states(pair)
    assert copy.mirror is not None
    state = pair.copy._log.manifest.state(copy)
    with pytest.raises(OvertakenError, match="has altered the copy"):
        plan_arrival_commit(state, source, copy.mirror, [], [], is_all=True)


def test_a_part_moves_neither_the_version_nor_txns() -> None:
    pair = behind()
    fill(pair.source, 1)
    copy, source = states(pair)
    assert copy.mirror is not None
    segments = _segments(pair.source)[1:]
    txn = MirroredTxn(app_id="x", version=1)
    state = pair.copy._log.manifest.state(copy)
    part = plan_arrival_commit(state, source, copy.mirror, segments, [txn], is_all=False)
    assert part is not None
    assert part.mirrored_txns == ()
    seen = {"seen": source.version, "commit_id": source.commit_id}
    assert part.mirror == msgspec.structs.replace(copy.mirror, partial=True, **seen)
    whole = plan_arrival_commit(state, source, copy.mirror, segments, [txn], is_all=True)
    assert whole is not None
    assert whole.mirrored_txns == (txn,)
    shown = {"version": source.version, "commit_id": source.commit_id}
    assert whole.mirror == msgspec.structs.replace(copy.mirror, **shown)


def test_a_new_copy() -> None:
    pair = Pair(partitions=2, start_offsets={1: 7}, config=IN_COMMITS)
    source = pair.source.at().snapshot
    mark = Mirror(source_id=source.topic_id)
    change = new_copy(None, source, mark, {"retention.ms": 5}, "there")
    assert change.ends == {1: 7}
    assert change.topic is not None
    assert change.topic.config == {**source.info.config, "retention.ms": "5"}
    assert change.protocol is not None
    assert {GIVEN_OFFSETS, MIRROR, INLINE_BATCHES} <= {*change.protocol.reader_features}
    with pytest.raises(TopicExistsError, match="already exists at there"):
        new_copy(source, source, mark, {}, "there")


def test_a_compacted_copy_needs_a_key() -> None:
    source = Pair(schema={"n": pa.int64()}).source.at().snapshot
    mark = Mirror(source_id=source.topic_id)
    with pytest.raises(InvalidRequestError, match="needs a key, and the source has none"):
        new_copy(None, source, mark, {"cleanup.policy": "compact"}, "there")


def test_a_copy_with_more_partitions_than_its_source() -> None:
    pair = behind()
    copy, source = states(pair)
    wide = replace(copy, partitions=copy.partitions * 2)
    with pytest.raises(InvalidRequestError, match="has 2 partitions, and its source has 1"):
        check_copy(wide, source, "there")


def test_a_topic_that_needs_no_change() -> None:
    pair = behind()
    copy, source = states(pair)
    assert copy.mirror is not None
    assert plan_topic(copy, source, copy.mirror) is None
    assert plan_promotion(copy).mirror == msgspec.structs.replace(
        copy.mirror, ended=copy.version + 1
    )


def test_a_unit_of_several_pieces_is_no_file() -> None:
    pair = behind()
    (segment,) = _segments(pair.source)
    piece = Piece(segment, 0, 3, None)
    assert CopyUnit(0, 0, 3, (piece,)).whole is segment
    assert CopyUnit(0, 0, 3, (piece, piece)).whole is None
    assert CopyUnit(0, 0, 3, ()).whole is None
    assert CopyUnit(0, 0, 3, (Piece(segment, 1, 3, None),)).whole is None
