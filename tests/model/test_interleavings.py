"""The real commit code is right in every interleaving; the checker finds planted bugs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import msgspec
import pytest

import pylogtable.append.committer
import pylogtable.log.topic_log
from pylogtable.append.committer import Committer
from pylogtable.append.stager import Staged, discard
from pylogtable.engine import plan_append
from pylogtable.errors import CommitConflictError, CommitUnknownError, LogTableError
from pylogtable.format.log_state import LogState
from pylogtable.format.model import Change
from pylogtable.format.snapshot import Snapshot
from pylogtable.log.commits import Commits
from pylogtable.storage.base import Created, ObjectStore
from pylogtable.topic import Topic
from tests.depth import DEEP, rounds
from tests.model.checker import Faults, Program, Told, Writer
from tests.model.exploring import explore, found, holds
from tests.model.replay import ObjectsStore, ReplayStore
from tests.model.writers import (
    Append,
    LocalTime,
    appending,
    cleaning,
    hasty_cleaning,
    is_commit_or_data,
    rooting,
    start,
    writer,
)
from tests.stores import SerialPool

Create = Callable[[], Created]
ReadId = Callable[[], str | None]

PUTS = frozenset({"lost", "self_retry", "late", "denied"})
ALL = PUTS | {"unread", "crash"}

A1, A2 = Append("a1"), Append("a2")
B1, B2 = Append("b1"), Append("b2", ((1, 3),))
C1 = Append("c1", ((0, 1),))
#: The same, known to the log by their txn.
TA1, TA2 = replace(A1, txn=("a", 1)), replace(A2, txn=("a", 2))
TB1 = replace(B1, txn=("b", 1))
TC1 = replace(C1, txn=("c", 1))
#: Records of another log, which bring their offsets.
G1, G2 = Append("g1", given_from=3), Append("g2", given_from=7)


LATE = Faults(1, frozenset({"late"}))


def _repeating(store: ObjectStore, told: list[Told]) -> None:
    """Append without a txn; after an unknown outcome, again only if `find_commit` returns None."""
    topic = Topic("t", store, LocalTime().runtime("a", -1))
    for attempt in ("a", "b"):
        try:
            plan_append(topic, refresh=False).commit(
                [Staged(A1.files("a" + attempt), 0, "topic")], keep_files=True
            )
        except CommitUnknownError as error:
            try:
                if topic.find_commit(error.commit_id, error.version) is None:
                    continue
            except CommitUnknownError:
                return
        return


class TestCommitProtocolHolds:
    def test_append_without_txn_is_repeated_only_after_a_certain_failure(self) -> None:
        others = writer("b", [B1])
        holds(explore((Writer("a", _repeating), others), (A1, B1), LATE), 100)

    def test_two_writers_of_two_appends_without_faults(self) -> None:
        writers = writer("a", [A1, A2]), writer("b", [B1, B2])
        holds(explore(writers, (A1, A2, B1, B2), Faults(0)), 700)

    def test_two_writers_of_two_appends_with_faulty_puts(self) -> None:
        writers = writer("a", [A1, A2]), writer("b", [B1, B2])
        faults = Faults(rounds(1, deep=2), PUTS)
        outcome = explore(writers, (A1, A2, B1, B2), faults, settled=is_commit_or_data)
        holds(outcome, rounds(5_000_000, deep=90_000_000))

    def test_three_writers_with_a_faulty_put(self) -> None:
        writers = writer("a", [A1]), writer("b", [B1]), writer("c", [C1])
        outcome = explore(writers, (A1, B1, C1), Faults(1, PUTS), settled=is_commit_or_data)
        holds(outcome, 1_500_000_000)

    def test_three_writers_that_crash_or_are_late_repeat_with_their_txn(self) -> None:
        writers = writer("a", [TA1]), writer("b", [TB1]), writer("c", [TC1])
        faults = Faults(1, frozenset({"crash", "late"} if DEEP else {"crash"}))
        outcome = explore(writers, (TA1, TB1, TC1), faults, settled=is_commit_or_data)
        holds(outcome, 1_000_000_000)

    def test_crashes_and_every_other_fault_with_txns(self) -> None:
        writers = writer("a", [TA1, TA2]), writer("b", [TB1])
        faults = Faults(rounds(1, deep=2), ALL)
        holds(explore(writers, (TA1, TA2, TB1), faults), 10_000_000_000)

    def test_several_faults_on_one_append_each(self) -> None:
        writers = writer("a", [TA1]), writer("b", [TB1])
        faults = Faults(rounds(2, deep=3), ALL)
        outcome = explore(writers, (TA1, TB1), faults, settled=is_commit_or_data)
        holds(outcome, rounds(1_000_000, deep=100_000_000))

    def test_impatient_writers_repeat_unknown_commits_with_their_txn(self) -> None:
        how: dict[str, Any] = {"patience_seconds": -1, "repeats_doubtful": True}
        writers = writer("a", [TA1, TA2], **how), writer("b", [B1], patience_seconds=-1)
        faults = Faults(rounds(1, deep=2), ALL - {"crash"})
        holds(explore(writers, (TA1, TA2, B1), faults), rounds(1_000_000, deep=100_000_000))

    def test_unknown_commit_without_txn_lands_at_most_once(self) -> None:
        writers = tuple(
            writer(name, appends, patience_seconds=-1)
            for name, appends in (("a", [A1, A2]), ("b", [B1]))
        )
        holds(explore(writers, (A1, A2, B1), Faults(2, PUTS | {"unread"})), 2_500_000)

    def test_copies_with_given_offsets_are_in_the_log_once_and_in_their_places(self) -> None:
        """Two processes copy the same records, and begin again after a crash. What is there is
        refused, so the ends of the partitions are all that a copy has to know."""
        writers = writer("a", [G1, G2]), writer("z", [G1, G2])
        holds(explore(writers, (G1, G2), Faults(1, ALL), settled=is_commit_or_data), 1_000_000)

    def test_copy_beside_a_usual_writer_keeps_its_offsets_or_fails(self) -> None:
        writers = writer("a", [G1, G2]), writer("b", [B1, B2])
        faults, everything = Faults(1, PUTS), (G1, G2, B1, B2)
        holds(explore(writers, everything, faults, settled=is_commit_or_data), 1_000_000)

    def test_old_and_new_process_with_the_same_txn_append_once(self) -> None:
        writers = tuple(Writer(name, appending(name, [TA1, TA2])) for name in ("a", "z"))
        faults = Faults(rounds(1, deep=2), PUTS)
        outcome = explore(writers, (TA1, TA2), faults, settled=is_commit_or_data)
        holds(outcome, rounds(1_000_000, deep=10_000_000))

    def test_no_sleeping_writer_takes_a_version_that_vacuum_freed(self) -> None:
        faults = Faults(1, PUTS if DEEP else frozenset({"late"}))
        holds(explore(*sleepers(), faults, may_tick=True), rounds(10_000, deep=1_000_000))

    def test_vacuum_that_does_not_wait_harms_no_writer(self) -> None:
        """It writes a root and removes the commits below it at once, while others open the topic.
        They may begin too early, but their commits do not count there [COMMIT-9]."""
        outcome = explore(*sleepers(hasty_cleaning), Faults(0), may_tick=True)
        holds(outcome, rounds(10_000, deep=1_000_000))

    def test_txn_that_is_checked_only_in_the_first_attempt_is_refused_by_replay(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        right = Committer._plan

        def once(self: Committer, *args: Any) -> Any:
            plan = right(self, *args)
            attempts = 0

            def attempt(state: LogState) -> Any:
                nonlocal attempts
                attempts += 1
                forgetful = replace(state, snapshot=replace(state.snapshot, txns={}))
                return plan(state if attempts == 1 else forgetful)

            return attempt

        monkeypatch.setattr(Committer, "_plan", once)
        writers = tuple(Writer(name, appending(name, [TA1])) for name in ("a", "z"))
        holds(explore(writers, (TA1,), Faults(0)), 1_000)

    def test_hint_from_before_the_first_root_does_no_harm(self) -> None:
        cleaner = Writer("cleaner", hasty_cleaning, after_tick=True)
        writers = Writer("a", appending("a", [A1, A2])), cleaner
        faults = Faults(1, frozenset({"denied"}))
        holds(explore(writers, (A1, A2), faults, may_tick=True), 5)

    def test_commit_that_cannot_be_replayed_does_not_land(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        right = Committer._plan

        def stubborn(self: Committer, *args: Any) -> Any:
            plan = right(self, *args)
            first: list[Change] = []

            def attempt(state: LogState) -> Any:
                first.append(plan(state))
                return first[0]

            return attempt

        monkeypatch.setattr(Committer, "_plan", stubborn)
        writers = writer("a", [A1]), writer("b", [B1])
        holds(explore(writers, (A1, B1), Faults(0)), 50)


def sleepers(cleaner: Program = cleaning) -> tuple[tuple[Writer, ...], tuple[Append, ...]]:
    """One writer that sleeps, one that goes on, one that writes a root, and a vacuum after the
    retention time."""
    others = (B1, B2)[: rounds(1, deep=2)]
    writers = (
        Writer("a", appending("a", [A1], rests=True)),
        Writer("b", appending("b", [*others], rests=True)),
        Writer("rooter", rooting),
        Writer("cleaner", cleaner, after_tick=True),
    )
    return writers, (A1, *others)


class TestCommitProtocolHoldsFarAway:
    """Where requests are slow, a writer does not ask for newer commits before it puts its own, and
    takes a fresh state for proven."""

    @pytest.fixture(autouse=True)
    def far_away(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(ReplayStore, "is_remote", True)
        monkeypatch.setattr(ReplayStore, "concurrency", 2)
        monkeypatch.setattr("pylogtable.storage.threads.Threads", SerialPool)

    def test_nobody_asks_before_a_put(self) -> None:
        asked: list[str] = []

        class Asked(ObjectsStore):
            last_reply_ms = 0

            def _ask(self, verb: str, key: str, data: bytes = b"") -> Any:
                asked.append(verb)
                return super()._ask(verb, key, data)

        told: list[Told] = []
        appending("a", [A1, A2])(Asked(start((A1, A2), ["aa"])), told)
        assert [name for name, _ in told] == ["a1", "a2"]
        assert asked[-2:] == ["create", "create"]

    def test_two_writers_of_two_appends_with_faulty_puts(self) -> None:
        writers = writer("a", [A1, A2]), writer("b", [B1, B2])
        faults = Faults(rounds(1, deep=2), PUTS)
        holds(explore(writers, (A1, A2, B1, B2), faults, store_ms=0), 1_000_000)

    def test_crashes_and_every_other_fault_with_txns(self) -> None:
        writers = writer("a", [TA1, TA2]), writer("b", [TB1])
        holds(explore(writers, (TA1, TA2, TB1), Faults(1, ALL), store_ms=0), 1_000_000)

    def test_old_and_new_process_with_the_same_txn_append_once(self) -> None:
        writers = tuple(Writer(name, appending(name, [TA1, TA2])) for name in ("a", "z"))
        holds(explore(writers, (TA1, TA2), Faults(1, PUTS), store_ms=0), 100_000)


@pytest.mark.parametrize("kinds", [PUTS | {"crash"}, {"unread", "late"}])
def test_reads_that_do_not_wait_for_their_turn_lead_to_the_same_ends(kinds: set[str]) -> None:
    """The checker saves most of its work by that, where nobody removes what was read."""
    writers, faults = (writer("a", [TA1]), writer("b", [TB1])), Faults(1, frozenset(kinds))
    every = explore(writers, (TA1, TB1), faults)
    few = explore(writers, (TA1, TB1), faults, settled=is_commit_or_data)
    assert few.results == every.results
    assert len(few.results) > 5
    assert few.schedules * 100 < every.schedules


class TestTheCheckerFinds:
    """Each test puts one bug into the code, and the bug has to be found."""

    @pytest.mark.usefixtures("no_second_guard")
    def test_a_lost_reply_that_is_not_read_back(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def put(create: Create, *rest: object) -> bool:
            return create() is Created.YES

        monkeypatch.setattr(pylogtable.log.topic_log, "put_numbered", put)
        writers = writer("a", [A1]), writer("b", [B1])
        faults = Faults(1, frozenset({"lost"}))
        found(explore(writers, (A1, B1), faults, first_violation_only=True), "is in the log twice")

    @pytest.mark.usefixtures("no_second_guard")
    def test_a_self_retry_that_is_not_read_back(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def put(create: Create, *rest: object) -> bool:
            return create() is Created.YES

        monkeypatch.setattr(pylogtable.log.topic_log, "put_numbered", put)
        writers = writer("a", [A1]), writer("b", [B1])
        faults = Faults(1, frozenset({"self_retry"}))
        found(explore(writers, (A1, B1), faults, first_violation_only=True), "is in the log twice")

    def test_an_existing_commit_taken_for_my_own(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def put(create: Create, *rest: object) -> bool:
            return create() in (Created.YES, Created.EXISTS)

        monkeypatch.setattr(pylogtable.log.topic_log, "put_numbered", put)
        writers = writer("a", [A1]), writer("b", [B1])
        outcome = explore(writers, (A1, B1), Faults(0), first_violation_only=True)
        found(outcome, "was told")

    def test_an_abort_that_deletes_on_any_exception(self, monkeypatch: pytest.MonkeyPatch) -> None:
        careful = Committer._commit

        def careless(self: Committer, staged: Staged, *rest: Any, **more: Any) -> Any:
            try:
                return careful(self, staged, *rest, **more)
            except LogTableError:
                discard(self.store, staged.files)
                raise

        monkeypatch.setattr(Committer, "_commit", careless)
        writers = (writer("a", [A1], patience_seconds=-1), writer("b", [B1]))
        faults = Faults(1, frozenset({"late"}))
        outcome = explore(writers, (A1, B1), faults, first_violation_only=True)
        found(outcome, "is committed and has been deleted")

    def test_given_offsets_that_move_after_a_lost_race(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        right = pylogtable.append.committer.plan_append

        def moving(snapshot: Snapshot, staged: Any, *more: Any) -> Any:
            try:
                return right(snapshot, staged, *more)
            except CommitConflictError:
                usual = [msgspec.structs.replace(file, given_end=None) for file in staged]
                return right(snapshot, usual, *more)

        monkeypatch.setattr(pylogtable.append.committer, "plan_append", moving)
        early = replace(G1, given_from=1)
        writers = writer("a", [early]), writer("b", [B1])
        outcome = explore(writers, (early, B1), Faults(0), first_violation_only=True)
        found(outcome, "brought the offset 1 and is at")

    def test_a_vacuum_that_leaves_an_old_hint(self) -> None:
        """Another limit: a reader trusts a hint whose root exists, and takes the first missing
        commit after it for the end."""
        cleaner = Writer("cleaner", hasty_cleaning, after_tick=True)
        writers = Writer("a", appending("a", [A1, A2])), Writer("rooter", rooting), cleaner
        holds(explore(writers, (A1, A2), Faults(0), may_tick=True), 10)
        faults = Faults(1, frozenset({"denied"}))
        outcome = explore(writers, (A1, A2), faults, may_tick=True, first_violation_only=True)
        found(outcome, "cannot be reached")

    @pytest.mark.usefixtures("no_second_guard")
    def test_a_writer_that_goes_on_while_its_put_may_still_land(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def put(
            create: Create, read_id: ReadId, unknown: CommitUnknownError, *rest: object
        ) -> bool:
            return create() is Created.YES or read_id() == unknown.commit_id

        monkeypatch.setattr(pylogtable.log.topic_log, "put_numbered", put)
        writers = writer("a", [A1]), writer("b", [B1])
        # A reply that is merely lost is survived...
        faults = Faults(2, frozenset({"lost", "self_retry"}))
        holds(explore(writers, (A1, B1), faults), 100)
        # ...and a put that lands after it was looked for is not.
        faults = Faults(1, frozenset({"late"}))
        found(explore(writers, (A1, B1), faults, first_violation_only=True), "is in the log twice")

    def test_a_repeat_without_txn_while_the_version_is_still_free(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """While the version of an unknown commit is absent its put may still land. The bug:
        `find_commit` returns None for an absent version."""
        monkeypatch.setattr(Commits, "find_at", lambda *_: None)
        outcome = explore((Writer("a", _repeating),), (A1,), LATE, first_violation_only=True)
        found(outcome, "append a1 is in the log twice")
