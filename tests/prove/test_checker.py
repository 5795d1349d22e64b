"""The checker: a real history has no anomaly, and each way to damage it is found by its name."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pylogtable.prove.checker import check
from pylogtable.prove.findings import ANOMALIES, MOST_EXAMPLES
from pylogtable.prove.history import (
    APPEND,
    COMMIT,
    ENDS,
    FAILED,
    OK,
    POLL,
    READ,
    UNKNOWN,
    Contents,
    History,
    Operation,
    Run,
    operations_in,
)
from tests.prove.recorded import record

Damaged = tuple[History, Contents]


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> Damaged:
    return record(tmp_path_factory.mktemp("good"), rounds=14)


def names(damaged: Damaged) -> set[str]:
    return {anomaly.name for anomaly in check(*damaged)}


def changed(history: History, old: Operation, **new: Any) -> History:
    operations = [replace(one, **new) if one is old else one for one in history.operations]
    return replace(history, operations=tuple(operations))


def told(history: History, old: Operation, **more: Any) -> History:
    return changed(history, old, told={**old.told, **more})


def last(history: History, kind: str, where: Callable[[Operation], bool] = bool) -> Operation:
    return [one for one in history.operations if one.kind == kind and where(one)][-1]


def first(history: History, kind: str, where: Callable[[Operation], bool] = bool) -> Operation:
    return next(one for one in history.operations if one.kind == kind and where(one))


def has_rows(operation: Operation) -> bool:
    return operation.outcome == OK and bool(operation.told.get("rows"))


def is_acked(operation: Operation) -> bool:
    return operation.outcome == OK and bool(operation.told.get("offsets"))


def with_runs(contents: Contents, runs: Sequence[Run]) -> Contents:
    ends = dict.fromkeys(contents.ends, 0)
    for run in runs:
        ends[run.partition] = max(ends[run.partition], run.offset + run.records)
    return replace(contents, runs=tuple(runs), ends=ends)


def split(contents: Contents) -> list[Run]:
    """A run for each record."""
    return [
        Run(run.partition, run.offset + i, run.sender, run.first + i, 1)
        for run in contents.runs
        for i in range(run.records)
    ]


def holder(history: History, run: Run) -> Operation:
    """The append of a record."""
    return first(
        history,
        APPEND,
        lambda one: (
            one.outcome == OK
            and one.asked["sender"] == run.sender
            and any(n <= run.first < n + count for _, n, count in one.asked["rows"])
        ),
    )


def lost(history: History, contents: Contents) -> Damaged:
    return history, with_runs(contents, split(contents)[:-1])


def doubled(history: History, contents: Contents) -> Damaged:
    runs = split(contents)
    end = contents.ends[runs[0].partition]
    return history, with_runs(contents, [*runs, runs[0]._replace(offset=end)])


def doubled_unknown(history: History, contents: Contents) -> Damaged:
    history, contents = doubled(history, contents)
    one = holder(history, contents.runs[0])
    return changed(history, one, outcome=UNKNOWN, told={}), contents


def other_value_in_a_read(history: History, contents: Contents) -> Damaged:
    read = last(history, READ, has_rows)
    partition, offset, sender, number, _ = read.told["rows"][0]
    other = next(run for run in split(contents) if run.sender != sender)
    rows = [[partition, offset, other.sender, other.first, 1], *read.told["rows"][1:]]
    assert (other.sender, other.first) != (sender, number)
    return told(history, read, rows=rows), contents


def reused(history: History, contents: Contents) -> Damaged:
    one = last(history, APPEND, is_acked)
    offsets = [offset - 1 for offset in one.told["offsets"]]
    return told(history, one, offsets=offsets), contents


def misplaced(history: History, contents: Contents) -> Damaged:
    """The acknowledgement named offsets that nobody got."""
    one = last(history, APPEND, is_acked)
    offsets = [offset + 1000 for offset in one.told["offsets"]]
    return told(history, one, offsets=offsets), contents


def disordered(history: History, contents: Contents) -> Damaged:
    runs = split(contents)
    pairs = [(a, b) for a in runs for b in runs if a.sender == b.sender and a.first < b.first]
    a, b = next((a, b) for a, b in pairs if a.partition == b.partition)
    swap = {a: a._replace(offset=b.offset), b: b._replace(offset=a.offset)}
    moved = sorted(swap.get(run, run) for run in runs)
    return history, with_runs(contents, moved)


def unsent(history: History, contents: Contents) -> Damaged:
    runs = [*contents.runs, Run(0, contents.ends[0], "nobody", 0, 1)]
    return history, with_runs(contents, runs)


def failed_but_there(history: History, contents: Contents) -> Damaged:
    one = holder(history, contents.runs[0])
    return changed(history, one, outcome=FAILED, told={}), contents


def torn(history: History, contents: Contents) -> Damaged:
    one = last(history, APPEND, lambda one: is_acked(one) and len(one.asked["rows"]) > 1)
    sender, (partition, number, count) = one.asked["sender"], one.asked["rows"][0]
    gone = {(sender, partition, number + i) for i in range(count)}
    runs = [run for run in split(contents) if (run.sender, run.partition, run.first) not in gone]
    return changed(history, one, outcome=UNKNOWN, told={}), with_runs(contents, runs)


def read_and_gone(history: History, contents: Contents) -> Damaged:
    one = holder(history, contents.runs[0])
    sender = one.asked["sender"]
    numbers = {n + i for _, n, count in one.asked["rows"] for i in range(count)}
    runs = [r for r in split(contents) if r.sender != sender or r.first not in numbers]
    return changed(history, one, outcome=UNKNOWN, told={}), with_runs(contents, runs)


def skipped_in_a_read(history: History, contents: Contents) -> Damaged:
    read = last(history, READ, lambda one: has_rows(one) and len(one.told["rows"]) > 2)
    return told(history, read, rows=read.told["rows"][1:]), contents


def skipped_in_a_poll(history: History, contents: Contents) -> Damaged:
    """The first poll of a lone consumer did not begin at the start."""
    poll = first(history, POLL, lambda one: has_rows(one) and one.asked["group"] == "alone")
    partition = poll.told["rows"][0][0]
    rows = [row for row in poll.told["rows"] if row[0] == partition]
    left = [row for row in poll.told["rows"] if row not in rows[:1]]
    assert len(rows) > 1
    return told(history, poll, rows=left), contents


def polled_again(history: History, contents: Contents) -> Damaged:
    polls = [one for one in history.operations if one.kind == POLL and has_rows(one)]
    alone = [one for one in polls if one.asked["group"] == "alone"]
    return told(history, alone[-1], rows=alone[0].told["rows"]), contents


def went_back_in_a_read(history: History, contents: Contents) -> Damaged:
    read = last(history, READ, has_rows)
    return told(history, read, rows=[*read.told["rows"], read.told["rows"][-1]]), contents


def real_time(history: History, contents: Contents) -> Damaged:
    """The first append of a partition began after all the others had ended."""
    one = holder(history, min(split(contents)))
    after = max(op.ended for op in history.operations if op.ended < math.inf)
    moved = changed(history, one, begun=after + 1, ended=after + 2)
    return moved, contents


def stale(history: History, contents: Contents) -> Damaged:
    after = max(op.ended for op in history.operations if op.ended < math.inf)
    ends = {str(number): end - 1 for number, end in contents.ends.items()}
    late = Operation("late", 0, ENDS, after + 1, after + 2, OK, {}, {"to": ends})
    return replace(history, operations=(*history.operations, late)), contents


def commits_of(history: History, group: str) -> list[Operation]:
    return [
        one
        for one in history.operations
        if one.kind == COMMIT and one.outcome == OK and one.asked["group"] == group
    ]


def position_back(history: History, contents: Contents) -> Damaged:
    commits = commits_of(history, "alone")
    back = dict.fromkeys(commits[-1].told["positions"], 0)
    assert set(back) & set(commits[0].told["positions"])
    return told(history, commits[-1], positions=back), contents


def position_forgotten(history: History, contents: Contents) -> Damaged:
    return history, replace(contents, positions={**contents.positions, "alone": {}})


def position_unread(history: History, contents: Contents) -> Damaged:
    one = commits_of(history, "alone")[-1]
    ahead = {number: offset + 1000 for number, offset in one.told["positions"].items()}
    positions = {int(number): offset for number, offset in ahead.items()}
    at_end = {**contents.positions, "alone": positions}
    return told(history, one, positions=ahead), replace(contents, positions=at_end)


def two_owners(history: History, contents: Contents) -> Damaged:
    one = commits_of(history, "members")[0]
    other = replace(one, process="other", index=10_000)
    return replace(history, operations=(*history.operations, other)), contents


def hung(history: History, contents: Contents) -> Damaged:
    one = last(history, APPEND)
    return changed(history, one, ended=one.begun + 1000), contents


def stuck(history: History, contents: Contents) -> Damaged:
    poll = last(history, POLL)
    hanging = changed(history, poll, ended=math.inf, outcome=UNKNOWN, told={})
    return replace(hanging, stuck=frozenset({poll.process})), contents


def strange_error(history: History, contents: Contents) -> Damaged:
    poll = last(history, POLL, lambda one: not has_rows(one))
    error = {"error": "CorruptTopicError: a breaks [SEG-1]"}
    return changed(history, poll, outcome=FAILED, told=error), contents


def unsound(history: History, contents: Contents) -> Damaged:
    return history, replace(contents, problems=("[LOG-3] a gap",))


def nothing_done(history: History, contents: Contents) -> Damaged:
    operations = [
        replace(one, outcome=UNKNOWN, told={}) if one.kind == APPEND else one
        for one in history.operations
    ]
    return replace(history, operations=tuple(operations)), contents


DAMAGES: list[tuple[Callable[[History, Contents], Damaged], str]] = [
    (lost, "lost-write"),
    (doubled, "duplicate"),
    (doubled_unknown, "unknown-write-twice"),
    (other_value_in_a_read, "two-values-at-one-offset"),
    (reused, "offset-reused"),
    (misplaced, "misplaced-write"),
    (disordered, "sender-order"),
    (unsent, "never-sent"),
    (failed_but_there, "failed-write-landed"),
    (torn, "torn-append"),
    (read_and_gone, "read-then-gone"),
    (skipped_in_a_read, "poll-skipped"),
    (skipped_in_a_poll, "poll-skipped"),
    (polled_again, "poll-went-back"),
    (went_back_in_a_read, "poll-went-back"),
    (real_time, "real-time-order"),
    (stale, "stale-read"),
    (position_back, "position-went-back"),
    (position_forgotten, "position-went-back"),
    (position_unread, "unread-position"),
    (two_owners, "two-owners"),
    (hung, "hang"),
    (stuck, "hang"),
    (strange_error, "unexpected-error"),
    (unsound, "broken-topic"),
    (nothing_done, "no-progress"),
]


def test_a_real_history_has_no_anomaly(good: Damaged) -> None:
    history, contents = good
    assert check(history, contents) == []
    kinds = {one.kind for one in history.operations if one.outcome == OK}
    assert kinds >= {APPEND, READ, ENDS, POLL, COMMIT}
    assert len(contents.runs) > 50


def test_a_history_with_faults_has_no_anomaly(tmp_path: Path) -> None:
    history, contents = record(tmp_path, 100, ["append", "append-txn"], faults=True)
    assert check(history, contents) == []
    assert history.faults()


@pytest.mark.parametrize(("damage", "name"), DAMAGES, ids=lambda it: getattr(it, "__name__", it))
def test_damage_is_found(
    good: Damaged, damage: Callable[[History, Contents], Damaged], name: str
) -> None:
    assert name in names(damage(*good))


def test_every_anomaly_has_a_damage() -> None:
    assert {name for _, name in DAMAGES} == set(ANOMALIES)


def test_unknown_outcomes_may_be_there_or_not(good: Damaged) -> None:
    history, contents = good
    one = last(history, APPEND, is_acked)
    unknown = changed(history, one, outcome=UNKNOWN, told={}, ended=math.inf)
    assert check(unknown, contents) == []
    sender = one.asked["sender"]
    numbers = {n + i for _, n, count in one.asked["rows"] for i in range(count)}
    readers = [op for op in unknown.operations if op.kind not in (READ, POLL, ENDS, COMMIT)]
    appends = replace(unknown, operations=tuple(readers))
    runs = [r for r in split(contents) if r.sender != sender or r.first not in numbers]
    # Its offsets are free for others.
    at: dict[int, int] = {}
    moved = []
    for run in runs:
        moved.append(run._replace(offset=at.get(run.partition, 0)))
        at[run.partition] = moved[-1].offset + 1
    found = {a.name for a in check(appends, replace(with_runs(contents, moved), positions={}))}
    assert "lost-write" not in found
    assert "torn-append" not in found


def test_random_damage_of_the_contents_is_found(good: Damaged) -> None:
    """Any record that is removed, doubled, moved or replaced is noticed."""
    history, contents = good
    chance = random.Random(25)
    runs = split(contents)
    for number in range(60):
        at = chance.randrange(len(runs))
        damaged = list(runs)
        way = number % 3
        if way == 0:
            del damaged[at]
        elif way == 1:
            damaged[at] = damaged[at]._replace(first=damaged[at].first + 1_000_000)
        else:
            other = chance.randrange(len(runs))
            a, b = damaged[at], damaged[other]
            damaged[at] = a._replace(sender=b.sender, first=b.first)
            damaged[other] = b._replace(sender=a.sender, first=a.first)
            if at == other:
                continue
        assert check(history, replace(contents, runs=tuple(damaged))), (number, at)


def test_a_call_of_a_process_that_was_stopped_does_not_hang(good: Damaged) -> None:
    history, contents = hung(*good)
    [one] = [op for op in history.operations if op.seconds >= 1000]
    stopped = {one.process: ((one.begun + 1, one.ended - 1),)}
    assert names((replace(history, paused=stopped), contents)) == set()


def test_examples_are_few_and_name_operations(good: Damaged) -> None:
    history, contents = good
    [found] = [a for a in check(history, with_runs(contents, [])) if a.name == "lost-write"]
    assert found.times > MOST_EXAMPLES == len(found.examples)
    ids = {one.id for one in history.operations}
    assert all(set(example.operations) & ids for example in found.examples)


def test_a_line_cut_by_a_kill_is_an_unknown_outcome() -> None:
    lines = [
        b'{"do":"append","id":0,"at":1.0,"sender":"a","rows":[[0,0,1]]}',
        b'{"end":"ok","id":0,"at":2.0,"offsets":[0]}',
        b'{"do":"append","id":1,"at":3.0,"sender":"a","rows":[[0,1,1]]}',
        b'{"end":"ok","id":1,"at',
    ]
    done, cut = operations_in("a.0", lines)
    assert (done.outcome, done.ended, done.told) == (OK, 2.0, {"offsets": [0]})
    assert (cut.outcome, cut.ended) == (UNKNOWN, math.inf)


def test_a_topic_that_cannot_be_read_is_one_anomaly_and_not_a_loss_of_everything(
    good: Damaged,
) -> None:
    history, _ = good
    contents = Contents((), {}, problems=("commit 3 breaks [COMMIT-6]",), is_broken=True)
    assert names((history, contents)) == {"broken-topic"}


def test_many_operations_are_checked_without_comparing_pairs() -> None:
    """A loop over pairs would not end in time."""
    operations = []
    runs = []
    for number in range(10_000):
        sender, partition, offset = f"s{number % 8}", number % 3, number // 3 * 4
        asked = {"sender": sender, "rows": [[partition, number * 4, 4]]}
        times = (float(number), number + 0.5)
        operations.append(Operation("a", number, APPEND, *times, OK, asked, {"offsets": [offset]}))
        runs.append(Run(partition, offset, sender, number * 4, 4))
        seen = {"rows": [runs[-1]], "to": {partition: offset + 4}}
        begin = {"from": {partition: offset}}
        operations.append(Operation("b", number, READ, *(t + 0.6 for t in times), OK, begin, seen))
    ends = {p: max(run.offset + 4 for run in runs if run.partition == p) for p in range(3)}
    contents = Contents(tuple(sorted(runs)), ends)
    assert check(History(tuple(operations)), contents) == []
    [found] = check(History(tuple(operations)), replace(contents, problems=("one",)))
    assert found.name == "broken-topic"
