"""Runs of one application that may die with an append on its way, in every interleaving.

The txn of a run says how many of the appends are in the log. A run asks for the last txn, and
commits what is missing in one commit, with `expected_last`. In the end no append is in the log
twice, and if a run came to its end, none is missing.
"""

from __future__ import annotations

import pytest

from pylogtable.engine import NOT_GIVEN, plan_append
from pylogtable.errors import CommitConflictError, CommitUnknownError, StorageError
from pylogtable.storage.base import ObjectStore
from pylogtable.topic import Topic
from tests.depth import rounds
from tests.model.checker import Faults, Outcome, Program, Told, Writer
from tests.model.exploring import explore, found, holds
from tests.model.replay import FAR_MS, Objects, ObjectsStore, ReplayStore
from tests.model.writers import Append, LocalTime, is_commit_or_data, judge, writer
from tests.stores import SerialPool

APP = "loader"
PARTS = Append("a1"), Append("a2", ((0, 1),)), Append("a3", ((1, 2),))
OTHER = Append("b1", ((0, 1),), txn=("b", 1))
EVERYTHING = (*PARTS, OTHER)
PUTS = frozenset({"lost", "self_retry", "late", "denied"})


def loading(name: str, end: int, *, guarded: bool = True) -> Program:
    """A run that brings the first `end` appends into the log, with three tries. After an unknown
    outcome it makes the same call again, after a refusal it asks what is missing."""

    def program(store: ObjectStore, told: list[Told]) -> None:
        try:
            topic = Topic("t", store, LocalTime().runtime(name, -1))
            done, asks = None, True
            for attempt in "abc":
                if asks:
                    done = topic.last_txn(APP)
                if (done or 0) >= end:
                    told.append(("loaded", end))
                    return
                missing = PARTS[done or 0 : end]
                staged = [part.staged(name + attempt, 0, "topic") for part in missing]
                last = done if guarded else NOT_GIVEN
                try:
                    plan_append(topic, refresh=False).commit(
                        staged, txn=(APP, end), expected_last=last, keep_files=True
                    )
                except CommitUnknownError:
                    asks = False
                except CommitConflictError as error:
                    why = "failed", name + attempt, str(error)
                    told.extend((part.name, why) for part in missing)
                    asks = True
                else:
                    told.append(("loaded", end))
                    return
        except StorageError:
            return

    return program


def run(name: str, end: int, **how: bool) -> Writer:
    """After a crash another run begins, which knows nothing of the first one."""
    again = Writer(f"{name}again", loading(f"{name}again", end, **how))
    return Writer(name, loading(name, end, **how), recovery=again)


def wrong(objects: Objects, told: tuple[Told, ...]) -> str | None:
    usual = judge(EVERYTHING)(objects, tuple(one for one in told if one[0] != "loaded"))
    if usual is not None:
        return usual
    topic = Topic("t", ObjectsStore(objects), LocalTime().runtime("judge", 1))
    last = topic.last_txn(APP) or 0
    loaded = max((answer for name, answer in told if name == "loaded"), default=0)
    if last < loaded:
        return f"{loaded} appends should be in the log, and the last txn is {last}"
    others = [OTHER] if topic.last_txn("b") else []
    records = sum(count for part in (*PARTS[:last], *others) for _, count in part.records)
    has = sum(topic.end_offsets().values())
    return None if has == records else f"the log has {has} records, and should have {records}"


def explored(
    writers: tuple[Writer, ...], faults: Faults, *, fails: bool = False, store_ms: int = FAR_MS
) -> Outcome:
    return explore(
        writers,
        EVERYTHING,
        faults,
        judged_by=wrong,
        settled=is_commit_or_data,
        first_violation_only=fails,
        store_ms=store_ms,
    )


class TestExpectedLast:
    @pytest.mark.parametrize("ends", [(1, 2), (2, 1), (2, 2)])
    def test_two_runs_of_which_one_dies_or_has_a_late_put(self, ends: tuple[int, int]) -> None:
        writers = tuple(run(name, end) for name, end in zip("cd", ends, strict=True))
        faults = Faults(rounds(1, deep=2), PUTS | {"crash", "unread"})
        holds(explored(writers, faults), 1_000_000)

    def test_three_runs_with_a_late_put(self) -> None:
        writers = tuple(run(name, end) for name, end in (("c", 1), ("d", 2), ("e", 3)))
        holds(explored(writers, Faults(1, frozenset({"late"}))), 1_000_000)

    def test_two_runs_beside_another_application(self) -> None:
        writers = run("c", 1), run("d", 2), writer("b", [OTHER])
        holds(explored(writers, Faults(1, frozenset({"late", "crash"}))), 1_000_000)

    def test_far_away(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Where requests are slow, a writer puts its commit without asking for newer ones."""
        monkeypatch.setattr(ReplayStore, "is_remote", True)
        monkeypatch.setattr(ReplayStore, "concurrency", 2)
        monkeypatch.setattr("pylogtable.storage.threads.Threads", SerialPool)
        faults = Faults(1, PUTS | {"crash"})
        holds(explored((run("c", 1), run("d", 2)), faults, store_ms=0), 10_000)


class TestTheCheckerFinds:
    def test_runs_that_do_not_say_what_they_expect(self) -> None:
        writers = run("c", 1, guarded=False), run("d", 2, guarded=False)
        found(explored(writers, Faults(0), fails=True), "append a1 is in the log twice")

    def test_a_dead_run_whose_put_lands_late_and_a_successor_that_does_not_say_it(self) -> None:
        writers = run("c", 1), run("d", 2, guarded=False)
        faults = Faults(1, frozenset({"late"}))
        found(explored(writers, faults, fails=True), "append a1 is in the log twice")
