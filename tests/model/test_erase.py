"""An erase leaves no record that was there when it began, whatever other jobs and writers do beside
it and in whatever order [ERASE-2]. The checker finds an erase that gives up."""

from __future__ import annotations

from collections import Counter

import pytest

from pylogtable.jobs.erase import Erasure
from pylogtable.topic import Topic
from tests.model.checker import Checker, Faults, Outcome, Told, Writer
from tests.model.exploring import found, holds
from tests.model.publishers import (
    NOW_MS,
    Beginning,
    Work,
    committing,
    compact,
    delete_records,
    job,
    merge,
    open_topic,
)
from tests.model.replay import Objects, ObjectsStore
from tests.model.writers import is_commit_or_data

GONE = "b"


def erase(topic: Topic) -> tuple[str]:
    topic.erase(keys=[GONE], threads=1)
    return ("erased",)


def begun(*, in_files: bool = True) -> Beginning:
    """Three small segments with records of two keys. Of files, the last is shifted."""
    topic = Beginning(in_files=in_files)
    topic.append("ab")
    topic.race("ba")
    return topic


def explore(
    start: Beginning,
    *writers: Writer,
    faults: Faults | None = None,
    stops: bool = False,
    others_stay: bool = True,
) -> Outcome:
    before = _records(start.objects)

    def judge(objects: Objects, told: tuple[Told, ...]) -> str | None:
        after = _records(objects)
        if failed := [answer for _, answer in told if answer[0] == "failed"]:
            return f"a job failed: {failed}"
        if left := [one for one in after if one[1] == GONE and one in before]:
            return f"records are left: {left}"
        if lost := [one for one in before if one[1] != GONE and one not in after and others_stay]:
            return f"other records are gone: {lost}"
        if twice := [one for one, times in after.items() if times > 1]:
            return f"records are there twice: {twice}"
        return None

    outcome = Checker(
        start.objects,
        writers,
        faults or Faults(0),
        judge,
        settled=is_commit_or_data,
        store_ms=NOW_MS,
        first_violation_only=stops,
    ).explore()
    print(f"{outcome.schedules} schedules, {outcome.ends} ends, {outcome.executions} executions")
    return outcome


def _records(objects: Objects) -> Counter[tuple[int, str, int]]:
    table = open_topic(ObjectsStore(objects), "look").read(columns=["offset", "k", "n"]).read_all()
    return Counter(zip(*(table[name].to_pylist() for name in table.column_names), strict=True))


def doing(work: Work) -> Writer:
    return Writer(work.__name__, job(work.__name__, work))


@pytest.mark.records_in("commits", "files")
@pytest.mark.parametrize(
    ("other", "others_stay"),
    [(merge, True), (erase, True), (compact, False), (delete_records, False)],
)
def test_beside_another_job(other: Work, others_stay: bool, in_files: bool) -> None:
    second = Writer("other", job("other", other))
    holds(explore(begun(in_files=in_files), doing(erase), second, others_stay=others_stay), 10_000)


def test_beside_an_append_and_a_merge_with_a_lost_or_late_put() -> None:
    start = begun()
    append = Writer("append", job("append", committing(start.stage("ab"))))
    holds(explore(start, doing(erase), append), 10_000)
    faults = Faults(1, frozenset({"lost", "late"}))
    holds(explore(begun(), doing(erase), doing(merge), faults=faults), 1_000_000)


def test_the_checker_finds_an_erase_that_gives_up_after_a_lost_race(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    right = Erasure._round
    monkeypatch.setattr(Erasure, "_round", lambda *args: right(*args) or True)
    found(explore(begun(), doing(erase), doing(merge), stops=True), "records are left")
