"""Offers land once, in every interleaving [OFFER-3], [OFFER-7]; planted bugs are found."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

import pylogtable.append.combine_plan
import pylogtable.append.combiner
import pylogtable.append.waiting_offers
from pylogtable.append.combine_plan import OneAppend
from pylogtable.append.combiner import Combiner, landed_in
from pylogtable.append.stager import Staged
from pylogtable.engine import plan_append
from pylogtable.errors import CommitUnknownError
from pylogtable.format.offers import Fate
from pylogtable.format.paths import is_segment_path, parse_commit_path, parse_offer_path
from pylogtable.format.recent_commits import RecentCommits
from pylogtable.limits import Limits
from pylogtable.storage.base import ObjectStore
from pylogtable.topic import Topic
from tests.depth import DEEP, rounds
from tests.model.checker import Faults, Outcome, Told, Writer
from tests.model.exploring import explore, found, holds
from tests.model.writers import Append, LocalTime, rooting, writer

#: Everybody offers at once, and gives up waiting for others soon. So all that users meet in hours
#: of contention is in a few steps.
EAGER = Limits(direct_tries=0, quiet_looks=1, looks_per_rank=1, passed_looks=2)
#: As users have it, but for the time that they give each other.
USUAL = Limits(quiet_looks=1, looks_per_rank=1, passed_looks=2)

A1, B1, C1 = Append("a1", ((0, 2),)), Append("b1", ((0, 1),)), Append("c1", ((0, 1),))
A2 = Append("a2", ((0, 1),))
TA1, TB1 = replace(A1, txn=("a", 1)), replace(B1, txn=("b", 1))
PUTS = frozenset({"lost", "late", "denied"})


def settled(key: str) -> bool:
    """What nobody changes or removes here."""
    is_log = parse_commit_path(key) is not None or parse_offer_path(key) is not None
    return is_log or is_segment_path(key)


def offering(
    writers: tuple[Writer, ...], appends: tuple[Append, ...], faults: Faults, **how: Any
) -> Outcome:
    return explore(writers, appends, faults, settled=settled, combined=True, **how)


def two(limits: Limits, *, txns: bool = False, **how: Any) -> tuple[Writer, Writer]:
    first, second = (TA1, TB1) if txns else (A1, B1)
    return writer("a", [first], limits=limits, **how), writer("b", [second], limits=limits, **how)


class TestOffersLandOnce:
    def test_two_writers_that_offer_and_combine(self) -> None:
        outcome = offering(two(EAGER), (A1, B1), Faults(0))
        holds(outcome, 100)
        commits = {
            sum(parse_commit_path(key) is not None for key, _ in objects)
            for objects, _ in outcome.results
        }
        assert commits == {2, 3}  # both in one commit, or one after the other

    def test_two_writers_with_faulty_puts(self) -> None:
        faults = Faults(1, PUTS if DEEP else frozenset({"lost", "late"}))
        holds(offering(two(EAGER), (A1, B1), faults), 1_000)

    def test_two_writers_that_crash_and_repeat_with_their_txn(self) -> None:
        faults = Faults(1, frozenset({"crash"}))
        holds(offering(two(EAGER, txns=True), (TA1, TB1), faults), 1_000)

    def test_writers_as_users_have_them(self) -> None:
        faults = Faults(rounds(0, deep=1), frozenset({"crash", "late"}))
        writers = writer("a", [A1, A2], limits=USUAL), writer("b", [B1], limits=USUAL)
        holds(offering(writers, (A1, A2, B1), faults), 500)

    def test_root_that_is_written_in_between(self) -> None:
        writers = (*two(EAGER), Writer("rooter", rooting))
        holds(offering(writers, (A1, B1), Faults(0)), 1_000)

    def test_three_writers_in_a_deep_run_and_two_in_a_short_one(self) -> None:
        third = (writer("c", [C1], limits=EAGER),) if DEEP else ()
        holds(offering((*two(EAGER), *third), (A1, B1, C1), Faults(0)), rounds(100, deep=10**15))

    def test_impatient_writers_know_that_they_do_not_know(self) -> None:
        faults = Faults(1, PUTS | {"unread"} if DEEP else frozenset({"late"}))
        writers = two(EAGER, txns=True, patience_seconds=-1, repeats_doubtful=True)
        outcome = explore(writers, (TA1, TB1), faults, combined=True)
        holds(outcome, 1_000)

    def test_unknown_append_is_repeated_only_when_its_offer_is_void(self) -> None:
        def repeating(store: ObjectStore, told: list[Told]) -> None:
            store.limits = EAGER
            topic = Topic("t", store, LocalTime().runtime("a", -1))
            for attempt in ("a", "b"):
                try:
                    staged = [Staged(A1.files("a" + attempt), 0, "topic")]
                    plan_append(topic, refresh=False).commit(staged, keep_files=True)
                except CommitUnknownError as error:
                    try:
                        if topic.find_commit(error.commit_id, error.version) is None:
                            continue
                    except CommitUnknownError:
                        return
                return

        writers = Writer("a", repeating), writer("b", [B1], limits=EAGER)
        holds(offering(writers, (A1, B1), Faults(1, PUTS)), 100)


@pytest.mark.usefixtures("no_second_guard")
class TestPlantedBugs:
    def test_offer_that_is_taken_along_although_it_has_landed(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        modules = pylogtable.append.combiner, pylogtable.append.combine_plan
        for module in (*modules, pylogtable.append.waiting_offers):
            monkeypatch.setattr(module, "fate_of", lambda *_: Fate.OPEN)
        writers = writer("a", [A1], limits=EAGER), writer("b", [B1], limits=EAGER)
        others = writer("c", [C1], limits=EAGER)
        outcome = offering((*writers, others), (A1, B1, C1), Faults(0), first_violation_only=True)
        found(outcome, "is in the log twice")

    def test_writer_that_appends_again_while_its_offer_is_open(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        right = Combiner._wait

        def hasty(self: Combiner, own: OneAppend, plan_own: Any) -> Any:
            if "a1x" not in own.files[0].path:
                return right(self, own, plan_own)
            after, commit = self._log.change(plan_own)
            return landed_in(commit, None, after)

        monkeypatch.setattr(Combiner, "_wait", hasty)
        outcome = offering(two(EAGER), (A1, B1), Faults(0), first_violation_only=True)
        found(outcome, "is in the log twice")

    def test_writer_that_takes_the_offsets_of_another_one(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def first_of_all(self: RecentCommits, offer: str, seen: int) -> Any:
            for version, appends in reversed(self.landed):
                if offer in appends:
                    return version, next(iter(appends.values()))
            return None

        monkeypatch.setattr(RecentCommits, "find", first_of_all)
        outcome = offering(two(EAGER), (A1, B1), Faults(0), first_violation_only=True)
        found(outcome, "was told")

    def test_combiner_that_has_not_read_all_commits_since_the_offer(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def forgetful(self: RecentCommits, commit: Any) -> RecentCommits:
            return self

        monkeypatch.setattr(RecentCommits, "after", forgetful)
        writers = (*two(EAGER), writer("c", [C1], limits=EAGER))
        outcome = offering(writers, (A1, B1, C1), Faults(0), first_violation_only=True)
        found(outcome, "is in the log twice")
