"""Appends that say which txn they know as the last one: refused if the log has moved on."""

from __future__ import annotations

import pytest

from pylogtable import CommitConflictError, InvalidRequestError
from pylogtable.engine import plan_append
from pylogtable.storage.memory import MemoryStore
from pylogtable.store import Store
from pylogtable.topic import Topic
from tests.builders import IN_FILES, data_files, kafka, make_store
from tests.stores import CountingStore, FarStore

APP = "loader"


@pytest.fixture
def topic(store: Store) -> Topic:
    return store.create_topic("t", config=IN_FILES)


def test_a_writer_that_knows_the_last_txn_goes_on(topic: Topic) -> None:
    last = topic.last_txn(APP)
    assert last is None
    for number in (3, 4, 9):
        topic.append(kafka([str(number)]), txn=(APP, number), expected_last=last)
        last = topic.last_txn(APP)
    assert topic.count() == 3


@pytest.mark.parametrize("last", [None, 2])
def test_an_append_is_refused_if_another_one_has_landed(
    topic: Topic, objects: MemoryStore, last: int | None
) -> None:
    topic.append(kafka(["a"]), txn=(APP, 3))
    before = data_files(objects)
    with pytest.raises(CommitConflictError, match=rf"last_txn\('{APP}'\) again"):
        topic.append(kafka(["a", "b"]), txn=(APP, 5), expected_last=last)
    assert topic.count() == 1
    assert data_files(objects) == before
    assert topic.append(kafka(["b"]), txn=(APP, 5), expected_last=3).records == 1


def test_without_expected_last_any_txn_may_be_the_last(topic: Topic) -> None:
    topic.append(kafka(["a"]), txn=(APP, 3))
    assert topic.append(kafka(["b"]), txn=(APP, 5)).records == 1


def test_txns_of_other_app_ids_do_not_count(topic: Topic) -> None:
    topic.append(kafka(["a"]), txn=("another", 3))
    assert topic.append(kafka(["b"]), txn=(APP, 5), expected_last=None).records == 1


def test_the_same_call_again_is_a_repeat_also_after_later_ones(topic: Topic) -> None:
    """Whoever did not learn the outcome of an append makes the same call again."""
    first = topic.append(kafka(["a"]), txn=(APP, 3), expected_last=None)
    again = topic.append(kafka(["a"]), txn=(APP, 3), expected_last=None)
    topic.append(kafka(["b"]), txn=(APP, 5), expected_last=3)
    later = topic.append(kafka(["a"]), txn=(APP, 3), expected_last=None)
    assert first.offsets == again.offsets == later.offsets
    assert (first.repeated, again.repeated, later.repeated) == (False, True, True)
    assert topic.count() == 2


def test_a_loop_from_the_start_may_say_what_it_appended_before(topic: Topic) -> None:
    for _ in range(2):
        last = None
        for number in range(3):
            topic.append(kafka([str(number)]), txn=(APP, number), expected_last=last)
            last = number
    assert topic.count() == 3


def test_a_smaller_number_that_was_never_used_is_a_conflict_if_the_log_has_moved_on(
    topic: Topic,
) -> None:
    """Otherwise it is the mistake that it always was: numbers have to grow."""
    topic.append(kafka(["a"]), txn=(APP, 9))
    with pytest.raises(CommitConflictError, match="is 9 in version 1, and expected_last is 2"):
        topic.append(kafka(["b"]), txn=(APP, 5), expected_last=2)
    with pytest.raises(InvalidRequestError, match="was never applied, but a later one was"):
        topic.append(kafka(["b"]), txn=(APP, 5), expected_last=9)
    assert topic.count() == 1


def test_a_txn_without_records_is_guarded_too(topic: Topic) -> None:
    topic.append(kafka([]), txn=(APP, 1), expected_last=None)
    with pytest.raises(CommitConflictError, match="is 1 in version 1, and expected_last is None"):
        topic.append(kafka([]), txn=(APP, 2), expected_last=None)
    assert topic.last_txn(APP) == 1


@pytest.mark.parametrize("is_far", [False, True])
def test_a_handle_that_knows_less_than_its_caller_looks_before_it_refuses(is_far: bool) -> None:
    """Where requests are slow, an append begins with the state that it knows."""
    objects = CountingStore(FarStore(lambda: None) if is_far else MemoryStore())
    stale = make_store(objects).create_topic("t")
    make_store(objects).topic("t").append(kafka(["a"]), txn=(APP, 3))
    assert stale.append(kafka(["b"]), txn=(APP, 5), expected_last=3).records == 1
    staged = plan_append(stale).stage(kafka(["c"]))
    make_store(objects).topic("t").append(kafka(["a"]), txn=(APP, 7))
    assert (
        plan_append(stale, refresh=False).commit([staged], txn=(APP, 8), expected_last=7).records
        == 1
    )


def test_staged_files_are_refused_and_removed(topic: Topic, objects: MemoryStore) -> None:
    topic.append(kafka(["a"]), txn=(APP, 3))
    before = data_files(objects)
    staged = plan_append(topic).stage(kafka(["b"]))
    with pytest.raises(CommitConflictError, match="expected_last is None"):
        plan_append(topic, refresh=False).commit([staged], txn=(APP, 4), expected_last=None)
    assert data_files(objects) == before
    with pytest.raises(CommitConflictError, match="expected_last is None"):
        plan_append(topic, refresh=False).find_txn(APP, 4, expected_last=None)
    assert plan_append(topic, refresh=False).find_txn(APP, 4, expected_last=3) is None
    found = plan_append(topic, refresh=False).find_txn(APP, 3, expected_last=None)
    assert found is not None
    assert found.repeated
