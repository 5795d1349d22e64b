"""Lands an append beside other writers, without racing them for ever.

A lone writer puts its commit, and that is all. Who loses some races, or knows that others are
waiting, leaves an offer beside the log and waits. Whoever commits next takes the offers along. A
writer that commits again and again is the one who carries the others; if there is none, the first
in line does it. Any two may try: put-if-absent decides, as always. There is no leader to lose.

Waits are counted in looks at the log, and a look comes about as often as a request takes. All of
this is about time and requests. What may land, and when, is in `combine_plan`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from threading import Lock
from typing import NamedTuple

from pylogtable.append.combine_plan import (
    OneAppend,
    fits,
    is_new,
    may_be_offered,
    may_be_taken,
    offer_of,
    plan_combined,
)
from pylogtable.append.plan import Repeated
from pylogtable.append.report import offsets_of
from pylogtable.append.waiting_offers import WaitingOffers
from pylogtable.errors import CommitUnknownError, LogTableError, StorageError
from pylogtable.format.log_state import LogState
from pylogtable.format.model import Change, CombinedAppend, Commit
from pylogtable.format.offers import MAX_OFFER_BYTES, Fate, encode_offer, fate_of
from pylogtable.format.paths import offer_name, seen_in
from pylogtable.format.snapshot import Snapshot
from pylogtable.log.commit_events import log_lost_races, place_of
from pylogtable.log.commit_loop import LONGEST_PAUSE_AFTER_LOST_RACE
from pylogtable.log.topic_log import TopicLog

#: How many round trips after the offer, and after the last look, the log is looked at. Whoever
#: commits lists the offers, reads them and puts: an offer does not land in less than three.
FIRST_LOOK = 2.5
NEXT_LOOK = 0.75
#: A state is as good as new for so many round trips after a commit of our own.
FRESH = 3.0
#: Whoever is farther back waits as long as this one: those before it may be dead.
LAST_RANK = 4
#: So many commits are requested by a look at most.
LOOK_AHEAD = 4
PlanOwn = Callable[[LogState], Change | Repeated]


class Landed(NamedTuple):
    """An append in the log: the version of its commit, its own part of it, and the state then."""

    version: int
    append: CombinedAppend
    state: Snapshot

    @property
    def records(self) -> int:
        """How many records were appended."""
        return self.append.records


@dataclass(eq=False)
class _Neighbour:
    """An append of another thread of this process, which waits for its turn. It has a name as
    offers have, and needs no object: who commits takes it from memory. `outcome` is where it has
    landed, or why nobody knows that."""

    append: OneAppend
    plan_own: PlanOwn
    outcome: Landed | CommitUnknownError | None = None


class Combiner:
    """Lands the appends of one process on the topic of `log`."""

    def __init__(self, log: TopicLog) -> None:
        self._log = log
        self._runtime = log.runtime
        self._limits = log.store.limits
        self._offers = log.manifest.offers
        self._others = WaitingOffers(log)
        self._lock = Lock()
        self._turn = Lock()
        self._neighbours: list[_Neighbour] = []
        self._is_first = True
        #: How many commits the next look will probably find.
        self._expected = 1
        self._round_trip = 0.0

    def land(
        self, own: OneAppend, plan_own: PlanOwn, *, may_wait: bool = True
    ) -> Landed | Repeated:
        """Commit an append. `plan_own` is called with each state that it may be committed on. It
        returns the commit, or says that the append is a repeat, or raises if it must not be
        committed. Without `may_wait` the append is never offered.

        Once there is an offer, somebody may commit it. So after a failure the outcome is unknown,
        and the error has the name of the offer."""
        while True:
            if own.offer is not None:  # whatever has happened to the topic, it may have landed
                landed = self._wait(own, plan_own)
                if landed is not None:
                    log_lost_races(place_of(self._log.store.url), "append", self._runtime)
                    return landed
                own = replace(own, offer=None)
            state = self._log.first_state()
            if not may_wait or not state.combines_appends:
                after, decided = self._log.change(plan_own, refresh=False)
                return decided if isinstance(decided, Repeated) else landed_in(decided, None, after)
            landed = self._in_turn(own, plan_own, state)
            if landed is not None:
                return landed
            offered = self._offer(own, plan_own)
            if isinstance(offered, Repeated):
                return offered
            may_wait = offered is not None
            own = offered or own

    def _in_turn(
        self, own: OneAppend, plan_own: PlanOwn, state: Snapshot
    ) -> Landed | Repeated | None:
        """Put the append, or let another thread that is about to commit take it along."""
        if self._turn.acquire(blocking=False):
            try:
                return self._directly(own, plan_own, state)
            finally:
                self._turn.release()
        name = offer_name(state.version, self._runtime.new_id())
        neighbour = _Neighbour(replace(own, offer=name), plan_own)
        if may_be_offered(own):
            with self._lock:
                self._neighbours.append(neighbour)
        try:
            with self._turn:
                self._forget(neighbour)
                if neighbour.outcome is None:
                    return self._directly(own, plan_own, self._log.first_state())
        finally:
            self._forget(neighbour)
        if isinstance(neighbour.outcome, CommitUnknownError):
            raise neighbour.outcome
        return neighbour.outcome

    def _forget(self, neighbour: _Neighbour) -> None:
        with self._lock:
            self._neighbours = [one for one in self._neighbours if one is not neighbour]

    def _directly(
        self, own: OneAppend, plan_own: PlanOwn, state: Snapshot
    ) -> Landed | Repeated | None:
        """Put the append, as a lone writer does. None if others were faster, or are in line."""
        tries, last = self._limits.direct_tries, self._others.last_landed
        if self._others.is_crowded:
            tries = 1 if self._is_first else 0
        for number in range(tries):
            landed = self._attempt(own, plan_own, state, self._ready_neighbours(own, state))
            self._is_first = landed is not None
            if landed is not None:
                return landed
            self._others.note_others()
            self._runtime.back_off(number, longest_seconds=LONGEST_PAUSE_AFTER_LOST_RACE)
            newer = self._log.known
            # The winner was read. Whoever has committed just now has missed nothing else.
            is_next = newer.version > state.version and self._since(last) < FRESH * self._round_trip
            state = newer if is_next else self._log.latest(first_wave=2)
        return None

    def _offer(self, own: OneAppend, plan_own: PlanOwn) -> OneAppend | Repeated | None:
        """Put an offer, and return the append with its name. None if the append has to do without:
        it brings its offsets, or is too large, or the store refuses the offer."""
        state = self._log.known
        decided = plan_own(self._log.manifest.state(state))
        if isinstance(decided, Repeated):
            return decided
        if not may_be_offered(own):
            return None
        offer = offer_of(own, state, self._runtime.new_id())
        if len(encode_offer(offer)) > MAX_OFFER_BYTES:
            return None
        began = self._runtime.monotonic()
        try:
            self._offers.put(offer)  # if the outcome is unknown, it may be there
        except StorageError:
            return None
        self._took(began)
        return replace(own, offer=offer.name)

    def _wait(self, own: OneAppend, plan_own: PlanOwn) -> Landed | Repeated | None:
        """Wait until an offer has landed, or land it. None if it never will."""
        assert own.offer is not None
        try:
            landed = self._wait_in_line(own, own.offer, plan_own)
        except Exception as error:
            unknown = CommitUnknownError(own.offer, (seen_in(own.offer) or 0) + 1)
            unknown.reason = str(error)
            raise unknown from error
        self._others.note_crowd()
        return landed

    def _wait_in_line(
        self, own: OneAppend, name: str, plan_own: PlanOwn
    ) -> Landed | Repeated | None:
        state, seen = self._log.known, seen_in(name) or 0
        looks = quiet = 0
        turn: int | None = None
        self._pause(FIRST_LOOK)
        while True:
            before, count = state.version, self._expected
            state = self._log.look(count)
            moved = state.version - before
            recent = self._log.manifest.commits.since(seen, state)
            if recent is None:
                raise StorageError("commits that may have the offer were removed")
            landed = recent.find(name, seen)
            if landed is not None:
                self._is_first = False
                self._expected = max(1, min(LOOK_AHEAD, landed[0] - seen))
                return Landed(*landed, state)
            if fate_of(name, state.version, recent) is Fate.VOID or not is_new(state, own):
                self._others.remove([name])
                return None
            looks += 1
            quiet = 0 if moved else quiet + 1
            is_passed = looks >= self._limits.passed_looks
            turn = None if moved and not is_passed else turn
            is_quiet = quiet >= self._limits.quiet_looks or quiet == looks
            if turn is None and (is_quiet or is_passed):
                rank = min(self._others.rank(name, state), LAST_RANK)
                turn = looks + self._limits.looks_per_rank * rank
            if turn is not None and looks >= turn:
                self._others.fetch(own, state)
                attempted = self._attempt(own, plan_own, state)
                if attempted is not None:
                    self._is_first = True
                    return attempted
                looks, quiet, turn = 0, 0, None
            elif moved < count:
                self._pause(NEXT_LOOK)
            self._expected = 1

    def _attempt(
        self,
        own: OneAppend,
        plan_own: PlanOwn,
        state: Snapshot,
        neighbours: Sequence[OneAppend] = (),
    ) -> Landed | Repeated | None:
        """Put a commit with the append, with the offers that wait, and with neighbours, for whom
        only the thread whose turn it is may commit. None after a lost race."""
        commit_id = self._runtime.new_id()
        decided = plan_own(self._log.manifest.state(state))
        if not isinstance(decided, Change):
            return decided
        others = self._others.takeable(own, state)
        try:
            return self._put(own, [*others, *neighbours], decided, state, commit_id)
        except BaseException as error:
            is_certain = isinstance(error, LogTableError) and not error.may_have_landed
            if not is_certain:
                self._tell_neighbours(neighbours, error)
            if not is_certain or not (others or neighbours):
                raise
        # Nothing was sent: the append of somebody else breaks a rule.
        kept = [one for one in others if fits(state, one)]
        self._others.refuse([one.offer for one in others if one.offer and one not in kept])
        return self._put(own, kept, decided, state, commit_id)

    def _ready_neighbours(self, own: OneAppend, state: Snapshot) -> list[OneAppend]:
        """The appends of other threads that a commit on this state may take along. Whatever speaks
        against one, its own thread finds out."""
        if not self._neighbours or not may_be_offered(own):
            return []
        with self._lock:
            waiting = [one for one in self._neighbours if one.outcome is None]
        ready = []
        for one in waiting:
            with suppress(LogTableError):
                is_planned = isinstance(one.plan_own(self._log.manifest.state(state)), Change)
                if is_planned and may_be_taken(state, one.append, self._runtime.clock()):
                    ready.append(one.append)
        return ready

    def _tell_neighbours(self, taken: Sequence[OneAppend], error: BaseException) -> None:
        """Nobody knows whether the commit has landed that had these appends."""
        names = {one.offer for one in taken}
        for one in self._neighbours:
            if one.append.offer in names:
                name = one.append.offer or ""
                one.outcome = CommitUnknownError(name, (seen_in(name) or 0) + 1)
                one.outcome.reason = str(error)

    def _put(
        self,
        own: OneAppend,
        others: Sequence[OneAppend],
        alone: Change,
        state: Snapshot,
        commit_id: str,
    ) -> Landed | None:
        change = alone
        if others or own.offer is not None:
            change = plan_combined(state, own, others, self._limits)
        began = self._runtime.monotonic()
        self._others.look_beside()
        landed = self._log.attempt(state, change, commit_id)
        if landed is None:
            return None
        self._took(began)
        after, commit = landed
        landed_by_name = {one.offer: one for one in commit.appends if one.offer is not None}
        with self._lock:
            for one in self._neighbours:
                found = landed_by_name.pop(one.append.offer or "", None)
                if found is not None:
                    one.outcome = Landed(commit.version, found, after)
        self._others.note_landed(list(landed_by_name))
        return landed_in(commit, own.offer, after)

    def _since(self, when: float) -> float:
        return self._runtime.monotonic() - when

    def _took(self, began: float) -> None:
        """Remember how long a request takes here. A slow one now and then means little."""
        seconds, known = self._since(began), self._round_trip
        is_faster = not known or seconds < known
        self._round_trip = seconds if is_faster else 0.8 * known + 0.2 * seconds

    def _pause(self, round_trips: float) -> None:
        self._runtime.pause(self._round_trip * round_trips * (0.75 + 0.5 * self._runtime.chance()))


def landed_in(commit: Commit, offer: str | None, after: Snapshot) -> Landed:
    """The append of this writer in its own commit."""
    for one in commit.appends:
        if one.offer == offer:
            return Landed(commit.version, one, after)
    records = sum(segment.records for segment in commit.add)
    append = CombinedAppend(txn=commit.txn, offsets=offsets_of(commit), records=records)
    return Landed(commit.version, append, after)
