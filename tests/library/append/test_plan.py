"""Txns: what counts as a repeat, when an append or a producer comes too late."""

from __future__ import annotations

import pytest

from pylogtable.append.plan import Repeated, find_txn, is_behind, plan_append, plan_fenced_append
from pylogtable.errors import CommitConflictError
from pylogtable.format.model import Change, Txn
from pylogtable.format.snapshot import Snapshot
from pylogtable.store import Store
from tests.builders import kafka


@pytest.fixture
def snapshot(store: Store) -> Snapshot:
    """A topic with txn 5 of app `a` in commit 2."""
    topic = store.create_topic("t")
    topic.append(kafka(["x"]))
    topic.append(kafka(["y"]), txn=("a", 5))
    return topic.at().snapshot


@pytest.mark.parametrize(
    ("app_id", "version", "found"),
    [("a", 4, Repeated(2)), ("a", 5, Repeated(2)), ("a", 6, None), ("b", 5, None)],
)
def test_a_txn_is_found_if_the_log_has_it_or_a_later_one_of_its_app_id(
    snapshot: Snapshot, app_id: str, version: int, found: Repeated | None
) -> None:
    txn = Txn(app_id=app_id, version=version)
    assert find_txn(snapshot, txn) == found
    planned = plan_append(snapshot, (), txn)
    assert planned == found if found else isinstance(planned, Change)


def test_an_append_without_a_txn_is_never_a_repeat(snapshot: Snapshot) -> None:
    assert find_txn(snapshot, None) is None


def test_a_new_txn_names_the_commit_of_the_last_one_of_its_app_id(snapshot: Snapshot) -> None:
    planned = plan_append(snapshot, (), Txn(app_id="a", version=6))
    assert isinstance(planned, Change)
    assert planned.txn == Txn(app_id="a", version=6, previous=2)


def test_a_producer_is_fenced_if_the_log_has_another_last_txn(snapshot: Snapshot) -> None:
    txn = Txn(app_id="a", version=6)
    assert plan_fenced_append(snapshot, (), txn, 5).txn is not None
    for last in (None, 4):
        with pytest.raises(CommitConflictError, match="the log has 5 in version 2"):
            plan_fenced_append(snapshot, (), txn, last)


def test_a_producer_that_is_as_far_as_another_one_does_not_repeat_it(snapshot: Snapshot) -> None:
    """Its number counts records, so the same number does not mean the same records."""
    with pytest.raises(CommitConflictError, match="the last txn known here is none"):
        plan_fenced_append(snapshot, (), Txn(app_id="a", version=5), None)


@pytest.mark.parametrize(("app_id", "last"), [("a", 5), ("b", None)])
def test_an_append_that_expects_the_last_txn_is_planned(
    snapshot: Snapshot, app_id: str, last: int | None
) -> None:
    planned = plan_append(snapshot, (), Txn(app_id=app_id, version=6), expected_last=last)
    assert isinstance(planned, Change)


@pytest.mark.parametrize(
    ("app_id", "last", "message"),
    [
        ("a", None, "of app id 'a' is 5 in version 2, and expected_last is None: another append"),
        ("a", 4, "of app id 'a' is 5 in version 2, and expected_last is 4: another append"),
        ("a", 7, "of app id 'a' is 5 in version 2, and expected_last is 7: this log has no such"),
        ("b", 5, "of app id 'b' is none, and expected_last is 5: this log has no such txn"),
    ],
)
def test_an_append_that_expects_another_last_txn_is_refused(
    snapshot: Snapshot, app_id: str, last: int | None, message: str
) -> None:
    with pytest.raises(CommitConflictError, match=message):
        plan_append(snapshot, (), Txn(app_id=app_id, version=9), expected_last=last)


@pytest.mark.parametrize("last", [None, 0, 4, 5, 6])
def test_a_repeat_is_recognised_whatever_it_expects(snapshot: Snapshot, last: int | None) -> None:
    txn = Txn(app_id="a", version=5)
    assert plan_append(snapshot, (), txn, expected_last=last) == Repeated(2)


@pytest.mark.parametrize(
    ("app_id", "last", "behind"),
    [("a", None, False), ("a", 4, False), ("a", 5, False), ("a", 6, True), ("b", 0, True)],
)
def test_a_state_is_behind_a_writer_that_has_seen_a_later_txn(
    snapshot: Snapshot, app_id: str, last: int | None, behind: bool
) -> None:
    assert is_behind(snapshot, Txn(app_id=app_id, version=9), last) == behind
