"""The numbers that applications gave to their appends go with the records: a repeat after a
failover appends nothing."""

from __future__ import annotations

import pytest

from pylogtable.append.report import AppendResult
from pylogtable.engine import plan_append
from pylogtable.errors import CommitConflictError, InvalidRequestError
from pylogtable.limits import DEFAULT_LIMITS, Limits
from pylogtable.topic import Topic
from tests.builders import fill, kafka
from tests.mirrors import Pair, last_txns


def pair_with_txns(limits: Limits = DEFAULT_LIMITS) -> Pair:
    pair = Pair(partitions=2, limits=limits)
    pair.source.append(kafka(["a", "b", "c"]), txn=("x", 1))
    pair.source.append(kafka(["d"]), txn=("y", 7))
    pair.source.append(kafka(["e", "f", "g"]), txn=("x", 4))
    return pair


def test_a_repeat_after_a_failover_appends_nothing() -> None:
    pair = pair_with_txns()
    pair.mirror()
    copy = pair.copy
    ends = copy.end_offsets()
    for app, version, count in (("x", 4, 3), ("y", 7, 1)):
        first = pair.source.append(kafka(["r"] * count), txn=(app, version))
        repeat = copy.append(kafka(["r"] * count), txn=(app, version))
        assert repeat.repeated
        assert (repeat.offsets, repeat.records) == (first.offsets, count)
    assert copy.end_offsets() == ends
    assert copy.last_txn("x") == 4
    # That was no append: the mirror goes on.
    fill(pair.source, 1)
    pair.mirror()
    pair.check()


def test_applications_go_on_after_a_failover() -> None:
    pair = pair_with_txns()
    pair.mirror()
    copy = pair.copy
    new = copy.append(kafka(["h"]), txn=("x", 5))
    assert not new.repeated
    assert copy.append(kafka(["h"]), txn=("x", 5)).offsets == new.offsets
    assert copy.append(kafka(["e", "f", "g"]), txn=("x", 4)).repeated
    assert last_txns(copy) == {"x": 5, "y": 7}
    assert copy.verify(data=True)


def test_an_older_txn_is_no_new_one_in_a_copy() -> None:
    """A mirror brings the last txn only, so the result of an older one is not known there."""
    pair = pair_with_txns()
    pair.mirror()
    with pytest.raises(InvalidRequestError, match="brings the last txn of an app id only"):
        pair.copy.append(kafka(["a", "b", "c"]), txn=("x", 1))
    assert pair.copy.end_offsets() == pair.source.end_offsets()


def test_the_origin_of_a_txn_is_kept() -> None:
    """Another run that uses the same number for other data is refused [TXN-4]."""
    pair = Pair()

    def commit(topic: Topic, origin: str) -> AppendResult:
        return plan_append(topic).commit(
            [plan_append(topic).stage(kafka(["a"]))], txn=("x", 1), origin=origin
        )

    commit(pair.source, "run-1")
    pair.mirror()
    repeat = commit(pair.copy, "run-1")
    assert repeat.repeated
    assert repeat.origin == "run-1"
    with pytest.raises(InvalidRequestError, match="was applied by 'run-1'"):
        commit(pair.copy, "run-2")


def test_txns_without_new_records() -> None:
    """The newest txn may be of records that are gone, or that were there before."""
    pair = pair_with_txns()
    pair.mirror()
    pair.source.append(kafka([]), txn=("z", 2))
    pair.source.append(kafka(["z"]), txn=("y", 9))
    pair.source.delete_records({0: None, 1: None})
    pair.mirror()
    pair.check()


def test_the_result_of_a_txn_whose_commit_is_gone() -> None:
    pair = pair_with_txns()
    commits = pair.source._log.manifest.commits
    path = f"t/_manifest/{commits.read(3).version:020d}.json"
    for _ in range(64):  # a root, so that the commit is not needed
        fill(pair.source, 1)
    pair.near.delete(path)
    pair.mirror()
    assert last_txns(pair.copy) == {"x": 4, "y": 7}
    repeat = pair.copy.append(kafka(["e"]), txn=("x", 4))
    assert repeat.repeated
    assert repeat.offsets == {}
    pair.check()


def test_many_txns_between_two_mirrors_and_none() -> None:
    pair = Pair()
    for version in range(5):
        pair.source.append(kafka(["a"]), txn=("x", version))
        if version % 2:
            pair.mirror()
            pair.check()
    pair.mirror()
    before = pair.copy.version
    pair.mirror()
    assert pair.copy.version == before
    pair.check()


def test_an_append_without_records_but_with_a_txn_ends_the_mirroring() -> None:
    """Otherwise the source could use its number for records that a repeat here would not find."""
    pair = pair_with_txns()
    pair.mirror()
    copy = pair.copy
    copy.append(kafka([]), txn=("x", 9))
    mirror = copy.describe().mirror
    assert mirror is not None
    assert mirror.ended == copy.version
    with pytest.raises(CommitConflictError, match="has records of its own"):
        pair.mirror()


def test_a_copy_in_the_middle_of_a_mirror_is_not_taken_over_by_mistake() -> None:
    """It has records, and not yet their txns: a repeat would append them twice."""
    pair = pair_with_txns(Limits(mirror_units=1, mirror_first_units=1))
    for n in range(2):  # the first mirror, and a later one
        almost_all = pair.source.count() - 3
        pair.mirror(stop=lambda enough=almost_all: _count(pair) >= enough)
        status = pair.copy.describe().mirror
        assert status is not None
        assert status.is_partial
        with pytest.raises(InvalidRequestError, match=r"middle of a mirror.*force=True"):
            pair.copy.promote()
        before = pair.copy.version, pair.copy.end_offsets()
        with pytest.raises(InvalidRequestError, match=r"append is refused.*promote\(force=True\)"):
            pair.copy.append(kafka(["x"]), txn=("x", 99))
        assert (pair.copy.version, pair.copy.end_offsets()) == before
        if n == 0:
            pair.mirror()
            pair.check()
            pair.source.append(kafka(["h", "i", "j", "k"]), txn=("x", 8))
            pair.source.append(kafka(["l", "m", "n"]), txn=("y", 9))
    pair.copy.promote(force=True)
    status = pair.copy.describe().mirror
    assert status is not None
    assert status.ended == pair.copy.version
    assert pair.copy.append(kafka(["x"]), txn=("x", 99)).records == 1


def _count(pair: Pair) -> int:
    return pair.copy.count() if "t" in pair.target.topics() else 0
