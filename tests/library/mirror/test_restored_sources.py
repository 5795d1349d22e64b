"""A source that was put back to an older state, or that is an unfinished copy itself: its records
must not be mixed with those that the copy has."""

from __future__ import annotations

import pyarrow as pa
import pytest

from pylogtable.errors import InvalidRequestError
from pylogtable.limits import Limits
from pylogtable.mirror import sync
from pylogtable.storage.memory import MemoryStore
from pylogtable.store import Store
from tests.builders import contents, ints, kafka, runtime
from tests.library.mirror.test_refusals import refused
from tests.mirrors import Pair
from tests.stores import SimulatedCrash


def _killed_before_it_brings(pair: Pair) -> None:
    """What the source has removed is removed, and its columns are there; no more."""
    with pytest.MonkeyPatch.context() as patch:

        def die(*_: object, **__: object) -> None:
            raise SimulatedCrash

        patch.setattr(sync.Mirroring, "_bring", die)
        with pytest.raises(SimulatedCrash):
            pair.mirror()


def test_a_source_that_was_restored_while_its_first_mirror_was_unfinished() -> None:
    pair = Pair(partitions=3, limits=Limits(mirror_first_units=1))
    empty = contents(pair.near)
    rows = kafka(["a", "b", "c"], ["old"] * 3, partition=ints(0, 1, 2))
    pair.source.append(rows)
    pair.mirror(stop=lambda: "t" in pair.target.topics() and pair.copy.count() > 0)
    assert 0 < pair.copy.count() < 3
    pair.restore(empty)
    refused(pair, "has seen version 1 of its source", "version 0", "restored")
    pair.source.append(kafka(["a", "b", "c"], ["new"] * 3, partition=ints(0, 1, 2)))
    refused(pair, "has seen version 1 of its source", "restored from an older state")


def test_a_source_that_was_restored_after_a_mirror_has_removed_records() -> None:
    pair = Pair(config={"cleanup.policy": "compact", "inline.max.bytes": 0})
    pair.source.append(kafka(["a", "b", "c"]))
    pair.mirror()
    before = contents(pair.near)
    pair.source.erase(keys=["a"])
    _killed_before_it_brings(pair)
    assert pair.copy.count() == 2
    pair.restore(before)
    refused(pair, "has seen version 2 of its source", "version 1", "restored")
    pair.source.erase(keys=["b"])
    refused(pair, "has seen version 2 of its source", "restored from an older state")


def test_a_source_that_was_restored_after_a_mirror_has_altered_the_copy() -> None:
    pair = Pair(schema={"key": "string", "y": "string"})
    pair.source.append(pa.table({"key": ["a"], "y": ["b"]}))
    pair.mirror()
    before = contents(pair.near)
    pair.source.alter(drop_columns=["y"])
    _killed_before_it_brings(pair)
    pair.restore(before)
    refused(pair, "has seen version 2 of its source", "version 1", "restored")


def test_a_source_that_is_a_copy_in_the_middle_of_a_mirror() -> None:
    """Its records have no txns yet. A copy of it would take a repeated append for a new one."""
    pair = Pair(partitions=3, limits=Limits(mirror_first_units=1))
    rows = kafka(["a", "b", "c"], partition=ints(0, 1, 2))
    pair.source.append(rows, txn=("etl", 1))
    pair.mirror(stop=lambda: "t" in pair.target.topics() and pair.copy.count() > 0)
    third = Store(MemoryStore(clock=pair.clock), runtime(pair.clock))
    with pytest.raises(InvalidRequestError, match=r"is itself a copy of .* in the middle of a mir"):
        pair.copy.mirror(third)
    assert third.topics() == []
    pair.mirror()
    pair.copy.mirror(third)
    assert third.topic("t").append(rows, txn=("etl", 1)).repeated


def test_a_mirror_that_follows_waits_for_a_source_in_the_middle_of_a_mirror() -> None:
    pair = Pair(partitions=3, limits=Limits(mirror_units=1))
    pair.mirror()
    third = Store(MemoryStore(clock=pair.clock), runtime(pair.clock))
    pair.copy.mirror(third)
    pair.source.append(kafka(["a", "b", "c"], partition=ints(0, 1, 2)))
    pair.mirror(stop=lambda: pair.copy.count() > 0)
    looks: list[int] = []

    def stop() -> bool:
        looks.append(third.topic("t").count())
        if len(looks) == 20:
            pair.mirror()
        return looks[-1] == 3

    report = pair.copy.mirror(third, follow=True, poll_seconds=0.001, stop=stop)
    assert looks[:20] == [0] * 20
    assert report.records == 3
