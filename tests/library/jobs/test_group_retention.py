"""Retention and maintenance that spare what a consumer group has not read."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

import pylogtable
from pylogtable import InvalidRequestError, Store, Topic
from pylogtable.__main__ import main
from pylogtable.engine import Compaction, run_job
from pylogtable.format.paths import commit_path, group_path
from pylogtable.storage.memory import MemoryStore
from tests.builders import Clock, ints, kafka, make_store, rows, runtime, times
from tests.stores import Fault, FaultyStore

DAY = 86_400_000


def put(topic: Topic, appends: int, *, partition: int = 0, at_ms: int = 0) -> None:
    """Segments of two records."""
    for _ in range(appends):
        topic.append(
            kafka(["a", "b"], partition=ints(*[partition] * 2), timestamp=times(at_ms, at_ms))
        )


@pytest.fixture
def old(store: Store, clock: Clock) -> Topic:
    """Two partitions of three segments each, offsets 0 to 6, all expired."""
    topic = store.create_topic("t", partitions=2, config={"retention.ms": 1000})
    put(topic, 3)
    put(topic, 3, partition=1)
    clock.tick(DAY)
    return topic


def test_unread_records_of_a_group_are_kept(old: Topic) -> None:
    old.group("slow").commit({0: 3, 1: 6})
    report = old.apply_retention(groups=["slow"])
    assert report.log_starts == {0: 2, 1: 6}
    assert old.start_offsets() == {0: 2, 1: 6}
    assert old.apply_retention(groups=["slow"]).log_starts == {}
    old.group("slow").commit({0: 4})
    assert old.apply_retention(groups=["slow"]).log_starts == {0: 4}
    assert old.apply_retention().log_starts == {0: 6}
    assert old.verify(data=True)


def test_the_slowest_group_decides(old: Topic) -> None:
    old.group("slow").commit({0: 2, 1: 4})
    old.group("fast").commit({0: 6, 1: 2})
    assert old.apply_retention(groups=["fast", "slow"]).log_starts == {0: 2, 1: 2}


def test_group_without_a_position_has_read_nothing(old: Topic) -> None:
    old.group("g").commit({0: 6})
    assert old.apply_retention(groups=["g"]).log_starts == {0: 6}


def test_a_position_below_the_log_start_protects_everything_left(old: Topic) -> None:
    old.delete_records({0: 3})
    old.group("g").commit({0: 1, 1: 6})
    assert old.apply_retention(groups=["g"]).log_starts == {1: 6}


def test_offsets_to_keep_and_groups_both_protect_records(old: Topic) -> None:
    old.group("g").commit({0: 2, 1: 6})
    assert old.apply_retention({0: 4, 1: 4}, ["g"]).log_starts == {0: 2, 1: 4}


@pytest.mark.parametrize("groups", [["g", "typo"], ["gone"]])
def test_unknown_group_is_an_error_and_nothing_is_removed(old: Topic, groups: list[str]) -> None:
    old.group("g").commit({0: 6, 1: 6})
    old.group("gone").commit({0: 6, 1: 6})
    old.group("gone").delete()
    for use in (
        lambda: old.apply_retention(groups=groups),
        lambda: old.maintain(protect_groups=groups),
    ):
        with pytest.raises(InvalidRequestError, match=f"'{groups[-1]}'.*existing groups: g$"):
            use()
    assert old.start_offsets() == {0: 0, 1: 0}


def test_one_name_instead_of_a_list_is_refused(old: Topic, store: Store) -> None:
    old.group("g").commit({0: 6})
    for use in (
        lambda: old.apply_retention(groups="g"),
        lambda: store.maintain(protect_groups="g"),
    ):
        with pytest.raises(InvalidRequestError, match=r"must be a list of names: \['g'\]"):
            use()


def test_retention_by_size_keeps_unread_records_too(store: Store) -> None:
    topic = store.create_topic("t", config={"retention.ms": -1, "retention.bytes": 0})
    put(topic, 3)
    topic.group("g").commit({0: 2})
    assert topic.apply_retention(groups=["g"]).log_starts == {0: 2}


def test_maintain_keeps_unread_records_of_protected_groups(old: Topic) -> None:
    old.group("g").commit({0: 4, 1: 0})
    report = old.maintain(protect_groups=["g"])
    assert report.retention is not None
    assert report.retention.log_starts == {0: 4}
    assert old.count() == 2 + 6


@pytest.mark.records_in("files")
def test_compaction_keeps_old_records_that_a_group_has_not_read(store: Store, clock: Clock) -> None:
    """Of `compact,delete` a compaction drops single records that expired, in segments that stay."""
    config = {"cleanup.policy": "compact,delete", "retention.ms": DAY}
    topic = store.create_topic("t", partitions=2, config=config)
    for partition in (0, 1):
        topic.append(
            kafka(
                ["a", "b", "a", "c"],
                partition=ints(*[partition] * 4),
                timestamp=times(0, 0, 2 * DAY, 2 * DAY),
            )
        )
    clock.tick(2 * DAY)
    topic.group("g").commit({0: 4, 1: 1})
    topic.maintain(protect_groups=["g"])
    left = rows(topic.read(), "partition", "offset")
    assert left == [(0, 2), (0, 3), (1, 1), (1, 2), (1, 3)]  # (1, 0) was superseded
    topic.group("g").commit({1: 4})
    topic.append(kafka(["d"] * 4, partition=ints(*[1] * 4), timestamp=times(*[2 * DAY] * 4)))
    topic.group("g").commit({1: 8})
    topic.maintain(protect_groups=["g"])
    assert (1, 1) not in rows(topic.read(), "partition", "offset")


def test_a_group_reset_while_retention_commits_keeps_its_records(clock: Clock) -> None:
    inner = MemoryStore()
    old = make_store(inner, clock).create_topic("t", config={"retention.ms": 1000})
    put(old, 3)
    clock.tick(DAY)
    old.group("slow").commit({0: 6})
    commit = f"t/{commit_path(old.version + 1)}"
    waiting = [lambda: old.group("slow").reset("earliest")]

    def before(verb: str, key: str) -> None:
        if (verb, key) == ("create", commit) and waiting:
            waiting.pop()()

    report = (
        make_store(FaultyStore(inner, before), clock).topic("t").apply_retention(None, ["slow"])
    )
    assert not waiting
    assert report.log_starts == {}
    assert old.group("slow").positions() == {0: 0}
    assert old.history()["operation"].to_pylist()[0] == "reset"


def test_a_group_reset_while_retention_was_faster_moves_to_the_log_start(clock: Clock) -> None:
    inner = MemoryStore()
    old = make_store(inner, clock).create_topic("t", config={"retention.ms": 1000})
    put(old, 3)
    clock.tick(DAY)
    old.group("slow").commit({0: 6})
    waiting = [lambda: old.apply_retention(groups=["slow"])]

    def before(verb: str, key: str) -> None:
        if (verb, key) == ("create", f"t/{group_path('slow', 1)}") and waiting:
            waiting.pop()()

    group = make_store(FaultyStore(inner, before), clock).topic("t").group("slow")
    with pytest.warns(UserWarning, match="offset 0 was removed while.*its position is 6"):
        (move,) = group.reset("earliest")
    assert (move.old, move.new) == (6, 6)
    assert group.positions() == {0: 6} == old.start_offsets()


def test_a_group_reset_forward_adds_no_commit_to_the_topic(old: Topic) -> None:
    old.group("g").commit({0: 0, 1: 0})
    before = old.version
    old.group("g").reset("latest")
    assert old.version == before


def test_a_reset_is_done_though_the_topic_takes_no_commit(clock: Clock) -> None:
    inner = MemoryStore()
    old = make_store(inner, clock).create_topic("t")
    put(old, 1)
    old.group("g").commit({0: 2})

    def refuse(verb: str, key: str) -> Fault | None:
        return Fault.REFUSE if verb == "create" and "_manifest" in key else None

    hasty = replace(runtime(clock), patience_seconds=0)
    group = Store(FaultyStore(inner, refuse), hasty).topic("t").group("g")
    with pytest.warns(UserWarning, match="is reset, but a retention that runs"):
        group.reset("earliest")
    assert group.positions() == {0: 0}


def test_compaction_drops_its_work_if_a_group_is_reset_into_expired_records(clock: Clock) -> None:
    inner = MemoryStore()
    config = {"cleanup.policy": "compact,delete", "retention.ms": DAY}
    topic = make_store(inner, clock).create_topic("t", config=config)
    topic.append(kafka(["a", "b"], timestamp=times(0, 2 * DAY)))
    clock.tick(2 * DAY)
    topic.group("g").commit({0: 2})
    waiting = [lambda: topic.group("g").reset("earliest")]

    def before(verb: str, key: str) -> None:
        if verb == "open_output" and waiting:
            waiting.pop()()

    other = make_store(FaultyStore(inner, before), clock).topic("t")
    job = Compaction(force=True, protect_groups=["g"])
    report = run_job(other, job, lambda worker, units: map(worker, units))
    assert not waiting
    assert (report.units, report.skipped) == (0, 1)
    assert rows(topic.read(), "offset") == [0, 1]
    report = run_job(other, job, lambda worker, units: map(worker, units))
    assert rows(topic.read(), "offset") == [0, 1]


# --- a whole store --------------------------------------------------------------------------------


@pytest.fixture
def two(store: Store, old: Topic, clock: Clock) -> Store:
    other = store.create_topic("u", config={"retention.ms": 1000})
    put(other, 2)
    clock.tick(DAY)
    old.group("g").commit({0: 0, 1: 0})
    return store


def test_each_topic_protects_the_groups_it_has(two: Store) -> None:
    reports = two.maintain(protect_groups=["g"])
    assert [report.error for report in reports] == [None, None]
    assert two.topic("t").start_offsets() == {0: 0, 1: 0}
    assert two.topic("u").start_offsets() == {0: 4}
    assert two.maintain(protect_groups=[])[0].error is None
    assert two.topic("t").start_offsets() == {0: 6, 1: 6}


def test_group_that_no_topic_has_is_an_error_before_anything_is_changed(two: Store) -> None:
    with pytest.raises(InvalidRequestError, match="'typo' to protect; existing groups: g"):
        two.maintain(protect_groups=["g", "typo"])
    assert two.topic("u").start_offsets() == {0: 0}


def test_the_command_protects_groups(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store = pylogtable.open(tmp_path)
    for name in ("t", "u"):
        put(store.create_topic(name, config={"retention.ms": 1}), 2)
    store.topic("t").group("g").commit({0: 2})
    command = ["maintain", str(tmp_path), "--no-vacuum", "--output", "json"]
    assert main([*command, "--protect-group", "typo"]) == 1
    assert "no topic has a group 'typo'" in capsys.readouterr().err
    assert main([*command, "--protect-group", "g"]) == 0
    found = {r["topic"]: r["retention"]["log_starts"] for r in json.loads(capsys.readouterr().out)}
    assert found == {"t": {"0": 2}, "u": {"0": 4}}
