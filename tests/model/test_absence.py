"""Commits that are gone: vacuum removed them under a writer, or the topic was removed and created
again. What a writer is told is true all the same [COMMIT-9], [COMMIT-11]."""

from __future__ import annotations

from typing import Any

import pytest

import pylogtable.format.snapshot
import pylogtable.log.manifest
import pylogtable.log.topic_log
from pylogtable.format.paths import root_path
from pylogtable.format.snapshot import Snapshot
from pylogtable.log.commits import Commits
from pylogtable.log.manifest import Manifest
from tests.depth import DEEP
from tests.model.checker import Faults, Outcome, Program, Told, Writer
from tests.model.exploring import explore, found, holds
from tests.model.replay import Objects
from tests.model.writers import Append, appending, cleaning, growing, judge, removing

A1, B1 = Append("a1"), Append("b1", ((0, 1),))
C1, C2 = Append("c1", ((0, 2),)), Append("c2", ((0, 3),))
NO_FAULTS = Faults(0)
LATE = Faults(1, frozenset({"late"}))


def _vacuumed(**how: Any) -> Outcome:
    """Two writers whose clocks stand still, or who stand still themselves, and a vacuum after the
    retention time."""
    asleep: dict[str, Any] = {"rests": True, "knows_time": False}
    if not DEEP:  # only what happens after the root was written
        asleep["waits_for"] = root_path(4)
    writers = (
        Writer("a", appending("a", [A1], **asleep)),
        Writer("b", appending("b", [B1], **asleep)),
        Writer("g", growing(4)),
        Writer("cleaner", cleaning, after_tick=True),
    )
    return explore(writers, (A1, B1), NO_FAULTS, may_tick=True, may_stand_still=DEEP, **how)


def _standing_still(**how: Any) -> Outcome:
    writers = (
        Writer("a", appending("a", [A1])),
        Writer("g", growing(3)),
        Writer("cleaner", cleaning, after_tick=True),
    )
    return explore(writers, (A1,), NO_FAULTS, may_tick=True, may_stand_still=True, **how)


def _recreated(appends: list[Append], *, anew: bool = True, **how: Any) -> Outcome:
    """A handle of a topic that is removed, and created again by another process with some appends.
    The handle appends once the old topic is gone."""
    judged = judge((A1, *appends), may_leave_strays=True)

    def judged_gone(objects: Objects, told: tuple[Told, ...]) -> str | None:
        wrong = [answer for _, answer in told if answer[:1] != ("failed",)]
        return f"an append to no topic was told {wrong}" if wrong else None

    old: Program = appending("a", [A1], waits_for="removed")
    writers = Writer("a", old), Writer("r", removing("r", appends, anew=anew))
    how = {"faults": NO_FAULTS, "judged_by": judged if anew else judged_gone, **how}
    how["empty_commits"] = 1
    return explore(writers, (A1, *appends), **how)


class TestTheProofHolds:
    def test_writers_with_frozen_clocks_beside_a_vacuum(self) -> None:
        holds(_vacuumed(), 1_000_000)

    def test_writer_that_stands_still_for_days_in_the_middle_of_a_commit(self) -> None:
        holds(_standing_still(), 10_000)

    @pytest.mark.parametrize(
        "appends", [[], [C1], [C1, C2]], ids=["fewer commits", "as many", "more"]
    )
    def test_handle_of_a_topic_that_was_removed_and_created_again(
        self, appends: list[Append]
    ) -> None:
        holds(_recreated(appends), 10)

    def test_late_put_into_a_topic_that_was_created_again(self) -> None:
        holds(_recreated([C1, C2], faults=LATE), 100)

    def test_handle_of_a_topic_that_was_removed(self) -> None:
        holds(_recreated([], anew=False), 10)


class TestTheCheckerFinds:
    def test_commit_without_a_proof_beside_a_vacuum(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(pylogtable.log.topic_log, "_is_next", lambda *_: True)
        found(_standing_still(first_violation_only=True), "was told")

    def test_commit_without_a_proof_on_a_topic_that_was_created_again(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(pylogtable.log.topic_log, "_is_next", lambda *_: True)
        monkeypatch.setattr(Manifest, "advance", _trusting_advance)
        found(_recreated([C1], first_violation_only=True), "append a1 was told")

    def test_commit_without_a_proof_on_a_topic_that_is_gone(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(pylogtable.log.topic_log, "_is_next", lambda *_: True)
        monkeypatch.setattr(Manifest, "advance", _trusting_advance)
        found(_recreated([], anew=False, first_violation_only=True), "an append to no topic")

    def test_stray_commit_that_another_stale_writer_builds_on(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(Manifest, "advance", _trusting_advance)
        found(_vacuumed(first_violation_only=True), "was told")

    def test_foreign_commit_that_makes_the_new_topic_corrupt(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(Manifest, "advance", _trusting_advance)
        monkeypatch.setattr(pylogtable.format.snapshot, "is_void", lambda *_: False)
        monkeypatch.setattr(pylogtable.log.manifest, "is_void", lambda *_: False)
        found(_recreated([C1], first_violation_only=True), "does not open")

    def test_new_topic_whose_commits_are_taken_for_void_ones(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(Commits, "stand", lambda *_: True)
        found(_recreated([C1, C2], first_violation_only=True), "append a1 was told")

    @pytest.mark.usefixtures("no_second_guard")
    def test_doubtful_commit_that_is_simply_planned_again(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(Commits, "count", lambda *_: False)
        found(_standing_still(first_violation_only=True), "is in the log twice")


def _trusting_advance(
    self: Manifest, snapshot: Snapshot, *, is_old: bool = False, first_wave: int = 1
) -> Snapshot | None:
    return self._forward(snapshot, first_wave)
