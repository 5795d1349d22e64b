"""How a mirror runs: until it has all, until it is to stop, or until others are always faster."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest

from pylogtable import MirrorProgress, MirrorReport
from pylogtable.errors import CommitConflictError, StorageError, TopicNotFoundError
from pylogtable.limits import Limits
from pylogtable.mirror import sync
from pylogtable.mirror.plan import OvertakenError
from pylogtable.store import Store
from tests.builders import fill, runtime
from tests.mirrors import DAY_MS, Pair, after_steps
from tests.stores import Fault, FaultyStore


def test_it_follows_until_it_is_to_stop() -> None:
    pair = Pair()
    fill(pair.source, 1)
    seen: list[MirrorProgress] = []

    def progress(told: MirrorProgress) -> None:
        seen.append(told)
        if len(seen) in {1, 3}:
            fill(pair.source, 1)

    report = pair.mirror(
        follow=True,
        poll_seconds=0.001,
        on_progress=after_steps(progress),
        stop=lambda: len(seen) == 5,
    )
    assert [told.records for told in seen] == [3, 6, 6, 9, 9]
    assert report.records == 9
    assert report.lag == {0: 0}
    assert report.source_version == pair.source.version
    pair.check()


def test_it_stops_before_it_has_begun() -> None:
    pair = Pair()
    fill(pair.source, 1)
    report = pair.mirror(stop=lambda: True)
    assert report.source_version is None
    assert report.lag == {0: 3}
    assert "3 offsets behind" in str(report)
    pair.mirror()
    pair.check()


def test_it_stops_between_two_commits() -> None:
    pair = Pair(limits=Limits(mirror_units=1, mirror_first_units=1))
    fill(pair.source, 3)
    seen: list[MirrorProgress] = []
    report = pair.mirror(on_progress=after_steps(seen.append), stop=lambda: len(seen) == 2)
    assert report.source_version is None
    assert report.lag == {0: 3}
    assert pair.copy.end_offsets() == {0: 6}
    pair.mirror()
    pair.check()


def test_a_report_and_how_it_prints() -> None:
    pair = Pair(config={"cleanup.policy": "compact,delete", "inline.max.bytes": 0})
    fill(pair.source, 2)
    report = pair.mirror()
    assert (report.records, report.files_copied, report.commits) == (6, 2, 1)
    assert report.source == pair.source.url
    assert report.copy == pair.copy.url
    assert report.version == pair.copy.version
    assert str(report).startswith("t: 6 records copied, ")
    assert "in 2 files as they are, up to date" in str(report)
    pair.source.erase(keys=["a"])
    assert "2 records removed" in str(pair.mirror())
    assert report.megabytes_per_second >= 0


def test_others_that_are_always_faster() -> None:
    pair = Pair()
    pair.mirror()
    fill(pair.source, 1)
    rounds = []

    def overtake(verb: str, key: str) -> None:
        if verb == "create" and "_manifest" in key:
            rounds.append(key)
            pair.mirror()
            fill(pair.source, 1)

    target = Store(FaultyStore(pair.far, overtake), runtime(pair.clock))
    with pytest.raises(OvertakenError, match="another mirror was faster"):
        pair.source.mirror(target)
    assert len(rounds) == sync.MAX_OVERTAKEN
    pair.mirror()
    pair.check()


def test_copying_that_takes_days_begins_anew() -> None:
    """A vacuum may have removed the first files [COMMIT-8]."""
    pair = Pair()
    pair.mirror()
    fill(pair.source, 2)
    slow = [1]

    def wait(verb: str, key: str) -> None:
        if verb == "copy_from" and slow:
            slow.pop()
            pair.clock.tick(4 * DAY_MS)

    target = Store(FaultyStore(pair.far, wait), runtime(pair.clock))
    report = pair.source.mirror(target)
    assert report.records == 6
    pair.check()


def test_a_topic_that_goes_away_meanwhile() -> None:
    for which in ("near", "far"):
        pair = Pair()
        fill(pair.source, 1)
        store = pair.target if which == "far" else Store(pair.near, runtime(pair.clock))
        with pytest.raises((TopicNotFoundError, CommitConflictError), match="deleted"):
            pair.mirror(
                follow=True,
                poll_seconds=0.001,
                on_progress=after_steps(lambda _, s=store: s.delete_topic("t")),
            )


@pytest.mark.parametrize("follow", [True, False])
def test_a_store_that_fails_for_a_while(follow: bool) -> None:
    """A mirror that follows goes on. Another one raises, and is to be called again."""
    pair = Pair()
    pair.mirror()
    fill(pair.source, 1)
    failures = [Fault.REFUSE] * 3
    seen: list[MirrorProgress] = []

    def fail(verb: str, key: str) -> Fault | None:
        return failures.pop() if verb == "copy_from" and failures else None

    target = Store(FaultyStore(pair.far, fail), runtime(pair.clock))

    def run() -> MirrorReport:
        return pair.source.mirror(
            target,
            follow=follow,
            poll_seconds=0.001,
            on_progress=after_steps(seen.append),
            stop=lambda: bool(seen),
        )

    if not follow:
        with pytest.raises(StorageError):
            run()
    else:
        assert run().records == 3
        assert not failures
        pair.check()


def test_a_store_that_fails_for_too_long() -> None:
    pair = Pair()
    pair.mirror()
    fill(pair.source, 1)
    seconds = itertools.count(step=10)
    impatient = replace(runtime(pair.clock), monotonic=lambda: next(seconds))
    target = Store(
        FaultyStore(pair.far, lambda verb, _: Fault.REFUSE if verb == "copy_from" else None),
        impatient,
    )
    with pytest.raises(StorageError):
        pair.source.mirror(target, follow=True)
