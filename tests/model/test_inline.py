"""Appends whose records are in their commits: right in every interleaving, also beside a vacuum
that keeps such a commit and removes those around it [INL-6]. The checker finds planted bugs."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import msgspec
import pytest

import pylogtable.format.partition_state
import pylogtable.format.snapshot
import pylogtable.log.topic_log
import tests.model.writers
from pylogtable.append.committer import Committer
from pylogtable.format.log_state import LogState
from pylogtable.format.model import Change
from pylogtable.format.paths import root_path
from pylogtable.format.snapshot import Snapshot
from pylogtable.jobs.vacuum_plan import Garbage, Listed, Needed, plan_vacuum
from pylogtable.log.commits import Commits
from pylogtable.storage.base import Created
from tests.depth import DEEP, rounds
from tests.model.checker import Faults, Outcome, Program, Writer
from tests.model.exploring import explore, found, holds
from tests.model.replay import ReplayStore
from tests.model.writers import (
    Append,
    appending,
    growing,
    hasty_vacuuming,
    is_commit_or_data,
    rooting,
    vacuuming,
    writer,
)
from tests.stores import SerialPool

PUTS = frozenset({"lost", "self_retry", "late", "denied"})
ALL = PUTS | {"unread", "crash"}
NO_FAULTS = Faults(0)
#: A deep run has a second append of each writer, and a second fault.
SECOND = rounds(1, deep=2)

A1, A2 = Append("a1", inline=True), Append("a2", inline=True)
B1, B2 = Append("b1", inline=True), Append("b2", ((1, 3),), inline=True)
TA1, TA2 = replace(A1, txn=("a", 1)), replace(A2, txn=("a", 2))
TB1 = replace(B1, txn=("b", 1))
#: These have files.
F1, F2 = Append("f1"), Append("f2", ((1, 3),))
#: Was there before everything else.
OLD = Append("old", inline=True)
ROOTER = Writer("rooter", rooting)


def two(one: list[Append], other: list[Append], faults: Faults, **how: Any) -> Outcome:
    writers = writer("a", one), writer("b", other)
    return explore(writers, (*one, *other), faults, settled=is_commit_or_data, **how)


class TestRecordsInCommits:
    def test_two_writers_with_faulty_puts(self) -> None:
        outcome = two([A1, A2], [B1, B2][:SECOND], Faults(SECOND, PUTS))
        holds(outcome, rounds(10_000, deep=90_000_000))

    def test_beside_a_writer_of_files_with_a_faulty_put(self) -> None:
        outcome = two([A1, F1], [F2, B1][:SECOND], Faults(SECOND, PUTS))
        holds(outcome, rounds(10_000, deep=90_000_000))

    def test_crashes_and_every_other_fault_with_txns(self) -> None:
        outcome = two([TA1, TA2][:SECOND], [TB1], Faults(SECOND, ALL))
        holds(outcome, 1_000)

    def test_impatient_writer_repeats_unknown_commits_with_its_txn(self) -> None:
        how: dict[str, Any] = {"patience_seconds": -1, "repeats_doubtful": True}
        writers = writer("a", [TA1], **how), writer("b", [B1])
        faults = Faults(SECOND, ALL - {"crash"})
        holds(explore(writers, (TA1, B1), faults), 10_000)

    def test_far_away(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """A writer does not look before it puts: most races are lost at the put."""
        monkeypatch.setattr(ReplayStore, "is_remote", True)
        monkeypatch.setattr(ReplayStore, "concurrency", 2)
        monkeypatch.setattr("pylogtable.storage.threads.Threads", SerialPool)
        outcome = two([A1, F1], [B1, B2], Faults(SECOND, PUTS), store_ms=0)
        holds(outcome, 50_000)


def _vacuumed(**how: Any) -> Outcome:
    """Writers whose clocks stand still, or who stand still themselves. They build on a commit that
    vacuum keeps for its records, while it removes all others below the root."""
    asleep: dict[str, Any] = {"rests": True, "knows_time": False}
    if not DEEP:  # only what happens after the root was written
        asleep["waits_for"] = root_path(4)
    writers = (
        *(Writer(one.name, appending(one.name, [one], **asleep)) for one in (A1, B2)[:SECOND]),
        Writer("g", growing(4)),
        Writer("cleaner", vacuuming, after_tick=True),
    )
    how = {"may_tick": True, "may_stand_still": DEEP, "committed": (OLD,), **how}
    return explore(writers, (A1, B2), NO_FAULTS, **how)


def _standing_still(*more: Writer, **how: Any) -> Outcome:
    writers = (
        *more,
        Writer("a", appending("a", [A1])),
        Writer("g", growing(3)),
        Writer("cleaner", vacuuming, after_tick=True),
    )
    how = {"may_tick": True, "may_stand_still": True, "committed": (OLD,), **how}
    return explore(writers, (A1,), NO_FAULTS, **how)


def _asleep(cleaner: Program, faults: Faults, **how: Any) -> Outcome:
    """One writer that sleeps, one that goes on, one that writes a root, and a vacuum after the
    retention time."""
    writers = (
        Writer("a", appending("a", [A1], rests=True)),
        Writer("b", appending("b", [B1], rests=True)),
        ROOTER,
        Writer("cleaner", cleaner, after_tick=True),
    )
    return explore(writers, (A1, B1), faults, may_tick=True, committed=(OLD,), **how)


class TestBesideAVacuumThatKeepsCommitsForTheirRecords:
    def test_writers_with_frozen_clocks(self) -> None:
        holds(_vacuumed(), 100_000)

    def test_writer_that_stands_still_for_days_in_the_middle_of_a_commit(self) -> None:
        holds(_standing_still(*([ROOTER] if DEEP else [])), 10_000)

    def test_writer_that_sleeps(self) -> None:
        faults = Faults(1, PUTS) if DEEP else NO_FAULTS
        holds(_asleep(vacuuming, faults), 10_000)

    def test_vacuum_that_does_not_wait(self) -> None:
        holds(_asleep(hasty_vacuuming, NO_FAULTS), 10_000)


class TestTheCheckerFinds:
    """Each test puts one bug into the code, and the bug has to be found."""

    def test_kept_commit_taken_for_a_proof_that_all_after_it_are_there(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The bug: only a commit with a txn is known to be kept for itself [COMMIT-9]."""
        right = Commits._stands

        def without_rows(self: Commits, snapshot: Snapshot, data: bytes | None) -> bool:
            at = snapshot.effective_version
            commit = None if data is None else self.decode(data, at)
            if commit is not None and commit.commit_id == snapshot.commit_id and not commit.txn:
                return True
            return right(self, snapshot, data)

        monkeypatch.setattr(Commits, "_stands", without_rows)
        found(_standing_still(first_violation_only=True), "was told")
        found(_vacuumed(first_violation_only=True), "was told")

    def test_vacuum_that_removes_the_commits_of_live_records(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def greedy(listing: list[Listed], needed: Needed, old_before_ms: int) -> Garbage:
            return plan_vacuum(listing, replace(needed, segments=frozenset()), old_before_ms)

        monkeypatch.setattr(tests.model.writers, "plan_vacuum", greedy)
        found(_standing_still(first_violation_only=True), "is committed and has been deleted")

    def test_vacuum_that_leaves_older_roots(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """A state that began at an older root would seem to stand [VAC-3]."""

        def reckless(listing: list[Listed], needed: Needed, old_before_ms: int) -> Garbage:
            return replace(plan_vacuum(listing, needed, old_before_ms), roots=())

        monkeypatch.setattr(tests.model.writers, "plan_vacuum", reckless)
        found(_standing_still(ROOTER, first_violation_only=True), "was told")

    @pytest.mark.usefixtures("no_second_guard")
    def test_a_lost_reply_that_is_not_read_back(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def put(create: Any, *rest: object) -> bool:
            return create() is Created.YES

        monkeypatch.setattr(pylogtable.log.topic_log, "put_numbered", put)
        outcome = two([A1], [B1], Faults(1, frozenset({"lost"})), first_violation_only=True)
        found(outcome, "is in the log twice")

    def test_paths_that_stay_as_they_were_after_a_lost_race(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        right = Committer._plan

        def stubborn(self: Committer, *args: Any) -> Any:
            plan = right(self, *args)
            first: list[Change] = []

            def attempt(state: LogState) -> Any:
                change = plan(state)
                assert isinstance(change, Change)
                first.append(change)
                pairs = zip(change.add, first[0].add, strict=True)
                added = tuple(msgspec.structs.replace(new, path=old.path) for new, old in pairs)
                return msgspec.structs.replace(change, add=added)

            return attempt

        monkeypatch.setattr(Committer, "_plan", stubborn)
        # Replay refuses such a commit before it is put...
        holds(two([A1], [B1], NO_FAULTS), 5)
        # ...and without that it would land.
        monkeypatch.setattr(pylogtable.format.snapshot, "rows_fault", lambda *_: None)
        for name in ("object_of", "commit_path"):
            monkeypatch.setattr(pylogtable.format.partition_state, name, lambda _: "")
        outcome = two([A1], [B1], NO_FAULTS, first_violation_only=True)
        found(outcome, "has no records with the offsets of its entry")
