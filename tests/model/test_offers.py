"""Members that offer their commits to each other, in any order of their requests: a commit lands at
most once, only while its member owns the partition, and what a member is told is true [GRP-16]."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import groupby, pairwise

import pytest

from pylogtable.errors import CommitConflictError, CommitUnknownError, InvalidRequestError
from pylogtable.format.group_model import (
    GroupChange,
    GroupMember,
    GroupOffer,
    GroupPosition,
    GroupState,
)
from pylogtable.format.json_codec import decode_group, encode
from pylogtable.format.paths import group_path, parse_group_path
from pylogtable.groups.membership_plan import heartbeat, owned, plan_offer, remove
from pylogtable.log.group_log import GroupLog
from pylogtable.log.offers_plan import has_landed
from pylogtable.storage.base import ObjectStore
from pylogtable.storage.delegating import WrappedStore
from tests.depth import rounds
from tests.model.checker import Checker, Faults, Outcome, Program, Told, Writer
from tests.model.exploring import found, holds
from tests.model.replay import Objects
from tests.model.writers import LocalTime

GROUP, LEASE_MS, TOPIC_ID = "g", 30_000, "t1"
OWNED = {"a": (0,), "b": (1,)}
#: What the next owner of partition 0 commits.
TAKEN_OVER = GroupPosition(offset=50, committed_at_ms=0)


class FarStore(WrappedStore):
    """A store that is far away, where writers look for company."""

    def __init__(self, inner: ObjectStore) -> None:
        super().__init__(inner)
        self.is_remote = True


def start() -> Objects:
    """Two members, each with a partition."""
    members = {
        name: GroupMember(lease_until_ms=LEASE_MS, owned=mine) for name, mine in OWNED.items()
    }
    first = GroupPosition(offset=0, committed_at_ms=0)
    state = GroupState(
        operation="join",
        positions={0: first, 1: first},
        generation=2,
        members=members,
        number=0,
        commit_id="start",
        topic_id=TOPIC_ID,
        committed_at_ms=0,
    )
    return {group_path(GROUP, 0): encode(state)}


def log_of(name: str, store: ObjectStore, time: LocalTime, *, crowded: bool = True) -> GroupLog:
    # Nobody waits until an offer is removed. So here it never is.
    runtime = replace(time.runtime(name, 100.0), later=lambda work: None)
    log = GroupLog(FarStore(store), runtime, GROUP, TOPIC_ID)
    log.newest()
    if crowded:  # it has met others, and lost a race to them
        log._has_company = log._is_crowded = True
    return log


def committing(name: str, offsets: tuple[int, ...]) -> Program:
    """Commits these offsets of its partition, one after the other."""

    def program(store: ObjectStore, told: list[Told]) -> None:
        time = LocalTime()
        log, offered_on_ms = log_of(name, store, time), -1
        for offset in offsets:
            commit = {OWNED[name][0]: offset}

            def plan(state: GroupState | None, now_ms: int) -> GroupChange:
                return heartbeat(state, name, now_ms, LEASE_MS, 2, commit, "", offered_on_ms)  # noqa: B023

            def offer(state: GroupState, now_ms: int) -> GroupOffer:
                nonlocal offered_on_ms
                made = plan_offer(state, name, now_ms, LEASE_MS, commit, "")  # noqa: B023
                offered_on_ms = made.lease_before_ms
                return made

            time.now_ms += 1
            try:
                log.change(plan, offer)
                told.append(("committed", (name, offset)))
            except CommitConflictError:
                told.append(("refused", (name, offset)))
                return
            except CommitUnknownError:
                return

    return program


def giving_up(store: ObjectStore, told: list[Told]) -> None:
    """An administrator removes member `a`, and `b` takes its partition, with a commit of it."""
    time = LocalTime()
    log = log_of("c", store, time, crowded=False)
    try:
        log.change(lambda state, _: remove(state, GROUP, "a"))
    except (InvalidRequestError, CommitUnknownError):
        return
    told.append(("removed", "a"))

    def take_over(state: GroupState | None, now_ms: int) -> GroupChange:
        assert state is not None
        members = {**state.members, "b": GroupMember(lease_until_ms=LEASE_MS * 2, owned=(0, 1))}
        positions = {**state.positions, 0: TAKEN_OVER}
        return GroupChange(operation="commit", positions=positions, generation=3, members=members)

    log.change(take_over)


def wrong(objects: Objects, told: tuple[Told, ...]) -> str | None:
    return next(_faults(objects, told), None)


def _faults(objects: Objects, told: tuple[Told, ...]) -> Iterator[str]:
    states = states_in(objects)
    for partition, member in ((0, "a"), (1, "b")):
        values = [key for key, _ in groupby(s.positions[partition].offset for s in states)]
        if len(values) != len(set(values)) or values != sorted(values):
            yield f"partition {partition} went back: {values}"
        for kind, what in told:
            if kind == "committed" and what[0] == member and what[1] not in values:
                yield f"{what} was committed, and is nowhere"
            if kind == "refused" and what[0] == member and what[1] in values:
                yield f"{what} was refused, and landed"
    for before, after in pairwise(states):
        is_commit = after.positions[0] not in (before.positions[0], TAKEN_OVER)
        if is_commit and not (0 in owned(before, "a") and "a" in after.members):
            yield f"state {after.number} commits for a member that lost its partition"


def states_in(objects: Objects) -> list[GroupState]:
    names = sorted(name for name in objects if parse_group_path(name) is not None)
    return [decode_group(objects[name], GROUP, number) for number, name in enumerate(names)]


def took_along(outcome: Outcome) -> int:
    """How many ends have a state with commits of two members."""
    return sum(
        any(
            all(before.positions[n] != after.positions[n] for n in (0, 1))
            for before, after in pairwise(states_in(dict(objects)))
        )
        for objects, _ in outcome.results
    )


def explore(*programs: Program, faults: Faults, first_only: bool = False) -> Outcome:
    outcome = Checker(
        start(),
        tuple(Writer(f"writer {n}", program) for n, program in enumerate(programs)),
        faults,
        wrong,
        first_violation_only=first_only,
    ).explore()
    print(f"{outcome.schedules} schedules, {outcome.ends} ends, {len(outcome.violations)} wrong")
    return outcome


FAULTS = Faults(rounds(0, deep=1), frozenset({"lost", "late", "self_retry"}))


def test_commits_land_once_and_what_members_are_told_is_true() -> None:
    more = (7,) if rounds(0, deep=1) == 0 else (7, 8)
    outcome = explore(committing("a", (5, 9)), committing("b", more), faults=FAULTS)
    holds(outcome, 1_000)
    assert took_along(outcome)


def test_offer_of_a_removed_member_never_lands_late() -> None:
    outcome = explore(committing("a", (5,)), giving_up, committing("b", (7,)), faults=FAULTS)
    holds(outcome, 1_000)
    assert took_along(outcome)


def test_offer_that_is_taken_twice_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def whatever_its_lease(offer: GroupOffer, state: GroupChange | None, now_ms: int) -> bool:
        return state is not None and offer.member in state.members

    monkeypatch.setattr("pylogtable.log.offers_plan.is_open", whatever_its_lease)
    monkeypatch.setattr("pylogtable.log.group_log.is_open", whatever_its_lease)
    programs = committing("a", (5, 9)), committing("b", (7,))
    found(explore(*programs, faults=Faults(0), first_only=True), "went back")


def test_member_that_does_not_look_back_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """It was removed, and takes its offer for refused, though that landed before."""
    monkeypatch.setattr(
        GroupLog,
        "_landed",
        lambda self, offered, tip: tip if has_landed(offered.offer, tip.state) else None,
    )
    programs = committing("a", (5,)), giving_up, committing("b", (7,))
    found(explore(*programs, faults=Faults(0), first_only=True), "was refused, and landed")
