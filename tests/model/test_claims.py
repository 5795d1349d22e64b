"""The claims of loops, in every order: processes that beat, sleep, die and come back.

An instant is a beat. In each, every process that is awake looks whether others are there, in any
order. No topic has two owners then. Whatever has happened, soon after the last change every topic
has one.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest

from pylogtable.run.members import BEAT_MS, LEASE_MS, Members
from pylogtable.storage.memory import MemoryStore
from tests.builders import Clock, runtime
from tests.depth import rounds

TOPICS = [f"topic-{n}" for n in range(6)]
#: What a process does in an instant. One that is dead begins anew, with another id.
BEATS, SLEEPS, DIES, STAYS_DEAD = "beats", "sleeps", "dies", "stays dead"
#: The order in which the processes come, and what each does.
Instant = tuple[tuple[int, str], ...]
LIVES = 2
SETTLED_INSTANTS = LEASE_MS // BEAT_MS + 2


@dataclass
class World:
    """Some processes over one store, which has the same clock."""

    count: int
    clock: Clock = field(default_factory=Clock)
    alive: dict[int, Members] = field(default_factory=dict)
    lives: list[int] = field(default_factory=list)
    awake: set[int] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.store = MemoryStore(clock=self.clock)
        self.lives = [0] * self.count

    def go(self, instant: Instant) -> None:
        self.clock.tick(BEAT_MS)
        self.awake = {number for number, what in instant if what == BEATS}
        for number, what in instant:
            if what == DIES:
                del self.alive[number]
            if what == BEATS:
                if number not in self.alive:
                    self.lives[number] += 1
                    self.alive[number] = Members(self.store, runtime(self.clock))
                    self._name(number)
                self.alive[number].beat()

    def _name(self, number: int) -> None:
        """Names that do not depend on what was explored before."""
        members = self.alive[number]
        members.id = f"all-{number}{self.lives[number]}"
        members._key = f"run=members/{members.id}.json"

    def _waits(self, key: str) -> bool:
        return bool(json.loads(self.store.read(key) or b"{}")["waits"])

    def owners(self, topic: str) -> list[int]:
        """The processes that would work on the topic now."""
        return [number for number in sorted(self.awake) if self.alive[number].owns(topic)]

    def choices(self) -> Iterator[Instant]:
        what = [
            [BEATS, SLEEPS, DIES]
            if number in self.alive
            else [STAYS_DEAD, *([BEATS] if self.lives[number] < LIVES else [])]
            for number in range(self.count)
        ]
        for doing in itertools.product(*what):
            beating = [number for number, one in enumerate(doing) if one == BEATS]
            rest = tuple((number, one) for number, one in enumerate(doing) if one != BEATS)
            for order in itertools.permutations(beating):
                yield (*rest, *((number, BEATS) for number in order))

    def key(self) -> object:
        """What the future depends on."""
        now = self.clock()
        processes = tuple(
            (
                number,
                tuple(members._members),
                None if members._seen_ms is None else min(now - members._seen_ms, LEASE_MS),
                None if members._starts_ms is None else max(members._starts_ms - now, 0),
                members._has_claimed,
                tuple(sorted((m, max(ms - now, 0)) for m, ms in members._joins_ms.items())),
            )
            for number, members in sorted(self.alive.items())
        )
        beats = tuple(
            (info.key, min(now - info.modified_ms, 2 * LEASE_MS), self._waits(info.key))
            for info in self.store.list()
        )
        return processes, beats, tuple(self.lives)


def after(count: int, history: tuple[Instant, ...]) -> World:
    world = World(count)
    for instant in history:
        world.go(instant)
    return world


def explore(count: int, depth: int, *, first_only: bool = False) -> tuple[int, list[str]]:
    """How many states there are, and what is wrong in them."""
    known: set[object] = set()
    wrong: list[str] = []
    layer: list[tuple[Instant, ...]] = [()]
    for _ in range(depth):
        following = []
        for history in layer:
            for instant in after(count, history).choices():
                longer = (*history, instant)
                world = after(count, longer)
                if (key := world.key()) in known:
                    continue
                known.add(key)
                following.append(longer)
                wrong += [f"{fault} after {longer}" for fault in faults(world)]
                if wrong and first_only:
                    return len(known), wrong
        layer = following
    return len(known), wrong


def faults(world: World) -> Iterator[str]:
    for topic in TOPICS:
        if len(world.owners(topic)) > 1:
            yield f"{topic} belongs to {world.owners(topic)}"
    if not world.alive:
        return
    for at in range(SETTLED_INSTANTS + 2):
        world.go(tuple((number, BEATS) for number in sorted(world.alive)))
        for topic in TOPICS:
            owners = world.owners(topic)
            if len(owners) > 1 or (at >= SETTLED_INSTANTS - 1 and not owners):
                yield f"{topic} belongs to {owners}, {at + 1} beats after the last change"


@pytest.mark.parametrize(("count", "depth"), [(2, rounds(6, deep=9)), (3, rounds(3, deep=5))])
def test_no_topic_has_two_owners_and_each_has_one_soon(count: int, depth: int) -> None:
    states, wrong = explore(count, depth)
    print(f"{states} states, {len(wrong)} violations")
    assert not wrong, wrong[0]
    assert states >= 300


class TestThePlantedBugIsFound:
    def test_process_that_works_as_soon_as_it_has_come(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        right = Members.beat

        def beat(self: Members) -> None:
            right(self)
            self._starts_ms = 0

        monkeypatch.setattr(Members, "beat", beat)
        _, wrong = explore(2, 2, first_only=True)
        assert any("belongs to [0, 1]" in one for one in wrong)

    def test_process_that_trusts_its_claim_a_moment_too_long(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """At the end of the lease to the millisecond, the others count it as gone."""

        def is_seen(self: Members, now_ms: int) -> bool:
            return self._seen_ms is not None and now_ms - self._seen_ms <= LEASE_MS

        monkeypatch.setattr(Members, "_is_seen", is_seen)
        _, wrong = explore(2, 6, first_only=True)
        assert wrong
        assert "belongs to [0, 1]" in wrong[0]

    def test_process_that_counts_the_dead(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(
            "pylogtable.run.members.living",
            lambda beats, now_ms, lease_ms: sorted(beat.member for beat in beats),
        )
        _, wrong = explore(2, 3, first_only=True)
        assert any("belongs to []" in one for one in wrong)
