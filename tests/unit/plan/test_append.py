"""Txns: what counts as a repeat, and when a producer is fenced."""

from __future__ import annotations

import pytest

from pylogtable.errors import CommitConflictError
from pylogtable.format.model import Change, Txn, TxnMark
from pylogtable.format.snapshot import Snapshot
from pylogtable.plan.append import Repeated, find_txn, plan_append, plan_fenced_append
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
    assert plan_fenced_append(snapshot, (), txn, TxnMark(5, 2)).txn is not None
    for last in (None, TxnMark(4, 1)):
        with pytest.raises(CommitConflictError, match="the log has 5 in version 2"):
            plan_fenced_append(snapshot, (), txn, last)
