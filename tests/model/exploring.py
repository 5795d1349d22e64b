"""Runs the checker on some writers, and says whether what has to hold does."""

from __future__ import annotations

from collections.abc import Callable

from tests.model.checker import Checker, Faults, Outcome, Told, Writer
from tests.model.replay import FAR_MS, Objects
from tests.model.writers import Append, judge, start

Judge = Callable[[Objects, tuple[Told, ...]], str | None]


def explore(
    writers: tuple[Writer, ...],
    appends: tuple[Append, ...],
    faults: Faults,
    *,
    may_tick: bool = False,
    may_stand_still: bool = False,
    first_violation_only: bool = False,
    judged_by: Judge | None = None,
    empty_commits: int = 0,
    committed: tuple[Append, ...] = (),
    store_ms: int = FAR_MS,
    settled: Callable[[str], bool] | None = None,
    combined: bool = False,
) -> Outcome:
    names = [w.name for w in writers] + [w.recovery.name for w in writers if w.recovery]
    incarnations = [name + attempt for name in names for attempt in "abc"]
    checker = Checker(
        start(appends, incarnations, empty_commits, committed, combined=combined),
        writers,
        faults,
        judged_by or judge((*committed, *appends)),
        may_tick=may_tick,
        may_stand_still=may_stand_still,
        first_violation_only=first_violation_only,
        store_ms=store_ms,
        settled=settled,
    )
    outcome = checker.explore()
    print(
        f"{outcome.schedules} schedules over {outcome.states} states, {outcome.ends} ends, "
        f"{len(outcome.violations)} violations"
    )
    return outcome


def holds(outcome: Outcome, schedules: int) -> None:
    assert not outcome.violations, outcome.violations[0]
    assert outcome.schedules >= schedules


def found(outcome: Outcome, wrong: str) -> None:
    assert outcome.violations, "the checker did not find the bug"
    assert wrong in outcome.violations[0], outcome.violations[0]
