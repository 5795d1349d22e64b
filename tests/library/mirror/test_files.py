"""Which files a mirror copies, uses or writes, and what happens to those of one that failed."""

from __future__ import annotations

import pyarrow.compute as pc
import pytest

from pylogtable.format.leaf import segments_of
from pylogtable.mirror import copying, sync
from pylogtable.store import Store
from pylogtable.topic import Topic
from tests.builders import contents, fill, ints, kafka, runtime
from tests.faults.support import Plan
from tests.mirrors import DAY_MS, Pair
from tests.stores import Fault, FaultyStore, SerialPool, SimulatedCrash


@pytest.fixture(autouse=True)
def serial(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(copying, "Threads", SerialPool)


def paths(topic: Topic) -> list[str]:
    return [segment.path for segment in segments_of(topic.segments())]


def killed_before_the_commit(pair: Pair) -> None:
    """The files are there, and nothing names them."""
    version = pair.copy.version

    def commit(verb: str, key: str) -> bool:
        return verb == "create" and key.endswith(f"{version + 1:020d}.json")

    plan = Plan(0, Fault.CRASH_BEFORE, commit)
    with pytest.raises(SimulatedCrash):
        pair.source.mirror(Store(FaultyStore(pair.far, plan), runtime(pair.clock)))
    assert plan.hit


def test_files_are_copied_as_they_are() -> None:
    pair = Pair(partitions=2)
    fill(pair.source)
    report = pair.mirror()
    assert report.files_copied == len(paths(pair.source))
    assert report.files_written == 0
    assert pair.copy.segments() == pair.source.segments()
    for path in paths(pair.copy):
        assert pair.far.read(f"t/{path}") == pair.near.read(f"t/{path}")
    pair.check()


def test_nothing_is_written_at_the_source() -> None:
    """Whoever mirrors needs to read there, and no more."""
    pair = Pair(partitions=2, config={"cleanup.policy": "compact,delete"})
    fill(pair.source)
    pair.source.group("g").commit({0: 1})
    pair.mirror(groups=True)
    pair.source.compact(force=True)
    fill(pair.source, 1)
    before = contents(pair.near)
    pair.near.reset()
    pair.mirror(groups=True)
    assert set(pair.near.counts) <= {"read", "list", "open_input", "get", "size_of"}
    assert contents(pair.near) == before
    pair.check()


def test_files_of_a_killed_mirror_are_not_copied_again() -> None:
    pair = Pair()
    pair.mirror()
    fill(pair.source)
    killed_before_the_commit(pair)
    pair.far.reset()
    report = pair.mirror()
    assert pair.far.counts["copy_from"] == 0
    assert report.files_copied == 4
    pair.check()


def test_an_old_file_of_a_killed_mirror_is_not_used() -> None:
    """A vacuum may be about to remove it."""
    pair = Pair()
    pair.mirror()
    fill(pair.source)
    killed_before_the_commit(pair)
    pair.clock.tick(4 * DAY_MS)
    report = pair.mirror()
    assert report.files_copied == 0
    assert report.files_written == 4
    assert not set(paths(pair.copy)) & set(paths(pair.source))
    pair.check()
    pair.clock.tick(4 * DAY_MS)
    gone = pair.copy.vacuum(dry_run=False)
    assert set(paths(pair.source)) <= set(gone.files)
    pair.check()


def test_a_file_of_another_size_is_not_used() -> None:
    pair = Pair()
    pair.mirror()
    fill(pair.source, 2)
    (first, _) = paths(pair.source)
    pair.far.write(f"t/{first}", b"half")
    report = pair.mirror()
    assert (report.files_copied, report.files_written) == (1, 1)
    pair.check()


def test_files_of_a_killed_mirror_are_looked_for_after_records_were_removed() -> None:
    """Both in one run."""
    pair = Pair(config={"cleanup.policy": "compact,delete", "inline.max.bytes": 0})
    fill(pair.source)
    pair.mirror()
    before = set(paths(pair.source))
    fill(pair.source, 2)
    killed_before_the_commit(pair)
    pair.source.erase(where=pc.field("offset") == 0)
    fresh = set(paths(pair.source)) - before
    assert len(fresh) == 3
    pair.far.reset()
    report = pair.mirror()
    assert report.records_removed == 1
    # Only the file that the erase has written: the new records are there already.
    assert pair.far.counts["copy_from"] == 1
    pair.check()


def test_a_copy_in_the_place_of_a_deleted_topic_has_files_of_its_own() -> None:
    """The deletion may still be under way: it removes the files that it found."""
    pair = Pair()
    fill(pair.source, 2)
    pair.mirror()
    old = paths(pair.copy)
    inner = pair.far

    def die(verb: str, key: str) -> Fault | None:
        return Fault.CRASH_BEFORE if verb == "delete" else None

    with pytest.raises(SimulatedCrash):
        Store(FaultyStore(inner, die), runtime(pair.clock)).delete_topic("t")
    pair.mirror()
    assert not set(paths(pair.copy)) & set(old)
    for path in old:  # what the deletion had still to do
        pair.far.delete(f"t/{path}")
    pair.check()


def test_a_mirror_that_was_overtaken_uses_its_files() -> None:
    pair = Pair(partitions=2)
    pair.mirror()
    fill(pair.source)
    fired = []

    def overtake(verb: str, key: str) -> None:
        """Just before the commit, another mirror brings partition 0 and an older part."""
        if verb == "create" and key.endswith(".json") and not fired:
            fired.append(key)
            pair.source.append(kafka(["z"], ["1"], partition=ints(0)))
            pair.mirror()

    pair.source.mirror(Store(FaultyStore(pair.far, overtake), runtime(pair.clock)))
    assert fired
    pair.check()


def test_a_file_that_the_copy_had_once_is_not_taken_for_a_new_one() -> None:
    """A vacuum with a short retention may be about to remove it: it is no file of a failed try."""
    pair = Pair(config={"cleanup.policy": "compact,delete", "inline.max.bytes": 0})
    fill(pair.source, 2)
    pair.mirror()
    first, second = paths(pair.source)
    pair.copy.merge()
    (merged,) = paths(pair.copy)
    pair.source.erase(keys=["c1"])  # only of the second
    assert paths(pair.source)[0] == first
    pair.clock.tick(10)
    doomed = pair.copy.vacuum(retention_ms=0).files
    assert set(doomed) == {first, second}
    pair.mirror()
    for key in doomed:  # what the vacuum had decided before
        pair.far.delete(f"t/{key}")
    assert merged not in paths(pair.copy)
    pair.check()


def test_a_forced_vacuum_beside_a_mirror_takes_no_file_that_it_brings() -> None:
    """The copy had the file of b and c once, merged it, and a vacuum has removed it. An erase
    beside it makes the mirror bring it again: under another name, since the next vacuum knows the
    old one."""
    pair = Pair()
    pair.source.append(kafka(["a"]))
    pair.source.append(kafka(["b", "c"]))
    pair.mirror()

    had = paths(pair.copy)

    def vacuum(_: object = None) -> None:
        pair.clock.tick(1000)
        pair.copy.vacuum(retention_ms=0, force=True, dry_run=False)

    pair.copy.merge()
    vacuum()
    assert not {f"t/{path}" for path in had} & set(contents(pair.far))
    pair.source.erase(keys=["a"])
    report = pair.mirror(on_progress=vacuum)
    assert (report.files_copied, report.files_written) == (1, 1)
    pair.check()
    assert pair.copy.verify(data=True)


@pytest.mark.parametrize("runs", [1, 2])
def test_a_deletion_that_is_under_way_takes_no_file_of_the_next_copy(runs: int) -> None:
    """It has listed the files of the old copy, and removes them one by one. Later runs know as
    well that the copy is in the place of a deleted topic."""
    pair = Pair()
    fill(pair.source)
    pair.mirror()
    doomed = [f"t/{path}" for path in paths(pair.copy)]
    kept = {key: pair.far.read(key) for key in doomed}
    pair.target.delete_topic("t")
    for key, data in kept.items():  # as long as the deletion has not come to them
        assert data is not None
        pair.far.write(key, data)
    if runs == 2:
        seen: list[int] = []
        pair.mirror(stop=lambda: bool(seen.append(1)) or len(seen) > 0)  # only creates the copy
    pair.mirror()
    for key in doomed:
        pair.far.delete(key)
    pair.check()
    assert pair.copy.verify(data=True)
    fill(pair.source, 1)
    assert pair.mirror().files_copied == 0
    pair.check()


def test_a_file_that_an_unfinished_mirror_has_brought_gets_a_new_name(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The mirror was killed between a removal and its last commit. The copy has merged the file
    away since, and a vacuum may be about to remove it [MIR-7]."""
    pair = Pair()
    for key in "xy":
        pair.source.append(kafka([key, "a", "b"]))
    pair.mirror()
    pair.source.erase(keys=["x"])
    brought = paths(pair.source)[0]

    def killed(*_: object, **__: object) -> None:
        raise SimulatedCrash

    with monkeypatch.context() as patch:
        patch.setattr(sync.Mirroring, "_bring", killed)
        with pytest.raises(SimulatedCrash):
            pair.mirror()
    assert brought in paths(pair.copy)
    pair.copy.merge()
    pair.clock.tick(DAY_MS)
    pair.copy.vacuum(dry_run=False, retention_ms=0, force=True)
    assert pair.far.read(f"t/{brought}") is None
    pair.source.erase(keys=["y"])
    pair.mirror()
    assert brought in paths(pair.source)
    assert brought not in paths(pair.copy)
    pair.check()
