"""Positions of consumer groups in a copy."""

from __future__ import annotations

from pylogtable.format.group_model import GroupPosition
from pylogtable.log.group_objects import load_groups
from pylogtable.topic import Topic
from tests.builders import contents, fill
from tests.mirrors import Pair


def positions(topic: Topic, group: str) -> dict[int, GroupPosition]:
    return load_groups(topic._store, topic.topic_id).states[group].positions


def filled() -> Pair:
    pair = Pair(partitions=2)
    fill(pair.source, 4)
    pair.source.group("g").commit({0: 2, 1: 1}, metadata="note")
    pair.clock.tick(1000)
    return pair


def test_positions_come_with_their_times_and_metadata() -> None:
    pair = filled()
    assert pair.mirror().groups == {}
    assert pair.copy.groups() == []
    report = pair.mirror(groups=True)
    assert report.groups == {"g": {0: 2, 1: 1}}
    assert report.left_out == {}
    assert positions(pair.copy, "g") == positions(pair.source, "g")
    assert pair.copy.group("g").lag() == pair.source.group("g").lag()
    before = contents(pair.far)
    pair.mirror(groups=True)
    assert contents(pair.far) == before


def test_positions_follow_also_backwards_and_in_new_partitions() -> None:
    pair = filled()
    pair.mirror(groups=True)
    pair.source.group("g").commit({0: 4})
    pair.source.group("h").commit({1: 1})
    pair.mirror(groups=True)
    assert positions(pair.copy, "g") == positions(pair.source, "g")
    pair.source.group("g").reset("earliest")
    pair.source.alter(partitions=3)
    fill(pair.source)
    pair.source.group("h").commit({2: 1})
    pair.mirror(groups=True)
    for group in ("g", "h"):
        assert positions(pair.copy, group) == positions(pair.source, group)


def test_a_position_beyond_what_was_copied() -> None:
    """It was committed after the mirror had looked at the source."""
    pair = filled()
    moved = []

    def move(progress: object) -> None:
        if not moved:
            moved.append(progress)
            fill(pair.source)
            pair.source.group("g").commit(pair.source.end_offsets())

    ends = pair.source.end_offsets()
    report = pair.mirror(groups=True, on_progress=move)
    assert report.groups == {"g": ends}
    assert positions(pair.copy, "g")[0].metadata == positions(pair.source, "g")[0].metadata
    report = pair.mirror(groups=True)
    assert report.groups == {"g": pair.source.end_offsets()}


def test_a_group_that_is_used_in_the_copy_is_left_alone() -> None:
    pair = filled()
    pair.mirror(groups=True)
    pair.copy.group("g").commit({0: 1})
    pair.source.group("g").commit({0: 3})
    pair.source.group("h").commit({0: 3})
    before = positions(pair.copy, "g")
    report = pair.mirror(groups=True)
    assert report.groups == {"h": {0: 3}}
    assert list(report.left_out) == ["g"]
    assert "keeps its positions" in report.left_out["g"]
    assert positions(pair.copy, "g") == before
    pair.copy.group("g").delete()
    assert list(pair.mirror(groups=True).left_out) == ["g"]
    assert "g" not in pair.copy.groups()


def test_a_consumer_goes_on_in_the_copy() -> None:
    pair = filled()
    seen = []
    with pair.source.consumer("c") as consumer:
        first = consumer.poll()
        seen += list(zip(*(first[n].to_pylist() for n in ("partition", "offset")), strict=True))
        consumer.commit()
    fill(pair.source)
    pair.mirror(groups=True)
    with pair.copy.consumer("c") as consumer:
        rest = consumer.poll()
        seen += list(zip(*(rest[n].to_pylist() for n in ("partition", "offset")), strict=True))
        consumer.commit()
    every = pair.source.read(columns=["partition", "offset"]).read_all()
    expected = list(zip(*(every[n].to_pylist() for n in ("partition", "offset")), strict=True))
    assert sorted(seen) == sorted(expected)
    fill(pair.source, 1)
    assert "c" in pair.mirror(groups=True).left_out


def test_a_damaged_group_of_the_source_is_left_out() -> None:
    pair = filled()
    pair.source.group("h").commit({0: 1})
    (path,) = [i.key for i in pair.near.list() if "/g/" in i.key and "_groups" in i.key]
    pair.near.write(path, b"{")
    report = pair.mirror(groups=True)
    assert report.groups == {"h": {0: 1}}
    assert path.removeprefix("t/") in report.left_out["g"]
