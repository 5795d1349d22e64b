"""What a mirror costs where both stores are far away. A copy of a file is a `read` at the source,
and a `write` at the copy; where the servers do it, it is one request."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable

import pytest

from pylogtable.runtime import Runtime
from pylogtable.store import Store
from tests.builders import Clock, limited
from tests.cost.round_trips import Cost, WiredStore
from tests.cost.test_round_trips import opened, records

FILES = 6
#: Of a topic with few commits.
OPENING = {"read": 14}
OPENING_TRIPS = 4


class Sides:
    def __init__(self) -> None:
        self.clock = Clock()
        self.near, self.far = WiredStore(self.clock), WiredStore(self.clock)
        config = {"inline.max.bytes": 0, "cleanup.policy": "compact,delete"}
        self.source = opened(self.near, self.clock).create_topic("t", FILES, config=config)
        self.append()
        self.target = opened(self.far, self.clock)
        self.source.mirror(self.target)

    def append(self) -> None:
        self.source.append(records(100))

    def cost_of(self, action: Callable[[], object]) -> tuple[Cost, Counter[str]]:
        """At the copy, and the requests at the source."""
        self.near._line.verbs.clear()
        cost = self.far.cost_of(action)
        return cost, Counter(self.near._line.verbs)

    def mirror(self) -> tuple[Cost, Counter[str]]:
        return self.cost_of(lambda: self.source.mirror(self.target))

    def follow(self, *works: Callable[[], object]) -> list[tuple[Counter[str], Counter[str]]]:
        """What each step of a mirror that follows asks, at the copy and at the source. It does one
        of these works before each step."""
        left, costs = list(works), []
        waited = itertools.count()

        def pause(_: object) -> None:
            """Once after each step: time goes on whenever it is asked for."""
            costs.append((Counter(self.far._line.verbs), Counter(self.near._line.verbs)))
            if left:
                left.pop(0)()
            self.far._line.verbs.clear()
            self.near._line.verbs.clear()

        self.source.mirror(
            Store(
                self.target._store,
                Runtime(clock=self.clock, monotonic=lambda: next(waited), pause=pause),
            ),
            follow=True,
            poll_seconds=1.5,
            stop=lambda: len(costs) > len(works),
        )
        return costs[1:]


@pytest.fixture
def sides() -> Sides:
    return Sides()


def test_an_append_of_some_files(sides: Sides) -> None:
    sides.append()
    cost, near = sides.mirror()
    # A mirror that was killed may have left files of these names.
    assert cost.requests == {**OPENING, "look": FILES, "write": FILES, "create": 1}
    assert cost.round_trips == OPENING_TRIPS + 5
    # The commit and whether there is more, and the files; the commit is read for removals, too.
    assert near == {"read": FILES + 3}


def test_nothing_new(sides: Sides) -> None:
    for _ in range(2):
        cost, near = sides.mirror()
        assert cost.requests == OPENING
        assert cost.round_trips == OPENING_TRIPS
        assert near == {"read": 2}


def test_folders_are_listed_only_if_many_files_come(sides: Sides) -> None:
    sides.target = limited(sides.target, mirror_few_files=FILES - 1)
    sides.append()
    cost, _ = sides.mirror()
    assert cost.requests == {**OPENING, "list": FILES, "write": FILES, "create": 1}


def test_a_mirror_that_follows_looks_for_files_at_most_once(sides: Sides) -> None:
    first, second, idle = sides.follow(sides.append, sides.append, lambda: None)
    assert first[0]["look"] == FILES
    assert second[0] == {"read": 1, "write": FILES, "create": 1}
    assert second[1] == {"read": FILES + 2}
    assert idle == ({"read": 1}, {"read": 1})


def test_records_that_are_gone_are_looked_for_once(sides: Sides) -> None:
    sides.append()
    compacted, idle = sides.follow(lambda: sides.source.compact(force=True), lambda: None)
    assert compacted[0]["create"] == 2
    assert compacted[0]["write"] <= FILES
    assert idle == ({"read": 1}, {"read": 1})


def test_commits_that_change_no_record_are_read_a_few_times_at_most(sides: Sides) -> None:
    """Then the copy notes the version."""
    for _ in range(3):
        sides.append()
    sides.mirror()
    works = [sides.source.merge, *[lambda: None] * 2]
    for _, near in sides.follow(*works):
        assert near["read"] <= 2 + FILES
    for number in range(20):
        sides.source.alter(config={"retention.ms": number})
    sides.mirror()
    _, near = sides.mirror()
    assert near == {"read": 2}
