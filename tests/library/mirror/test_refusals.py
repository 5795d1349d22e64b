"""What a mirror refuses: each error names the thing, the values and the way out, and nothing is
written."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from pylogtable.errors import CommitConflictError, InvalidRequestError, TopicNotFoundError
from pylogtable.jobs import erase
from pylogtable.store import Store
from pylogtable.topic import Topic
from tests.builders import IN_FILES, contents, fill, kafka, runtime
from tests.mirrors import Pair


def refused(
    pair: Pair, *texts: str, error: type[Exception] = InvalidRequestError, **options: Any
) -> None:
    before = contents(pair.far)
    with pytest.raises(error) as caught:
        pair.mirror(**options)
    for text in texts:
        assert text in str(caught.value)
    assert contents(pair.far) == before


def filled() -> Pair:
    pair = Pair()
    fill(pair.source, 2)
    return pair


def test_a_topic_that_is_no_copy() -> None:
    pair = filled()
    pair.target.create_topic("t", 1)
    refused(pair, pair.copy.url, "is no copy", pair.source.topic_id, "another store", "name")


def test_a_copy_of_another_topic() -> None:
    pair, other = filled(), filled()
    other.far = pair.far
    other.mirror()
    source = f"{other.source.url} (topic id {other.source.topic_id})"
    refused(pair, "is a copy of", source, pair.source.topic_id)


def test_a_source_that_was_created_again() -> None:
    pair = filled()
    pair.mirror()
    store = Store(pair.near, runtime(pair.clock))
    old = pair.source.topic_id
    store.delete_topic("t")
    with pytest.raises(TopicNotFoundError, match="has been deleted"):
        pair.mirror()
    pair.source = store.create_topic("t", 1, config=IN_FILES)
    refused(pair, "is a copy of", old, pair.source.topic_id)


def test_the_topic_itself() -> None:
    pair = filled()
    pair.far = pair.near
    refused(pair, "cannot be a copy of itself", pair.source.url, "another name")
    refused(pair, "cannot be a copy of itself", name="t")


@pytest.mark.parametrize("folder", ["partition=0", "_manifest", "_groups", "deeper/down"])
def test_a_copy_inside_of_its_source(folder: str) -> None:
    """Whoever deletes the source would delete the copy with it."""
    pair = filled()
    pair.far = pair.near.below(f"t/{folder}")
    refused(pair, "cannot have a copy at", "in the folder of the other")
    assert pair.near.below(f"t/{folder}").list_folders() == []


def test_under_another_name_in_the_same_store() -> None:
    pair = filled()
    pair.far = pair.near
    pair.mirror(name="t2")
    assert pair.target.topic("t2").count() == 6
    refused(pair, "topic name 'a/b' is not allowed", name="a/b")


def test_a_store_that_is_a_topic() -> None:
    pair = filled()
    pair.mirror()
    inside = Store(pair.far.below("t"), runtime(pair.clock))
    before = contents(pair.far)
    with pytest.raises(InvalidRequestError, match="which is a topic and not a store"):
        pair.source.mirror(inside)
    assert contents(pair.far) == before


@pytest.mark.parametrize(
    ("target", "text"),
    [
        (lambda pair: pair.source, "must be a store"),
        (lambda pair: "s3://bucket/logs", "pylogtable.open('s3://bucket/logs')"),
        (lambda pair: None, "not None"),
    ],
)
def test_something_that_is_no_store(target: Callable[[Pair], Any], text: str) -> None:
    pair = filled()
    with pytest.raises(InvalidRequestError) as caught:
        pair.source.mirror(target(pair))
    assert text in str(caught.value)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"retention": "both"}, "'both'"),
        ({"groups": 1}, "`groups` must be"),
        ({"follow": "yes"}, "'yes'"),
        ({"allow_gaps": None}, "None"),
        ({"poll_seconds": "1"}, "`poll_seconds` must be a number"),
        ({"poll_seconds": True}, "True"),
        ({"config": ["retention.ms"], "retention": "own"}, "`config`"),
    ],
)
def test_bad_options(options: dict[str, Any], text: str) -> None:
    refused(filled(), text, **options)


def append(copy: Topic) -> None:
    copy.append(kafka(["own"]))


def append_with_given_offsets(copy: Topic) -> None:
    table = kafka(["own"]).append_column("partition", [[0]]).append_column("offset", [[100]])
    copy.append(table, keep_offsets=True)


def append_with_txn(copy: Topic) -> None:
    copy.append(kafka(["own"]), txn=("own", 1))


def append_in_a_commit(copy: Topic) -> None:
    copy.promote()
    copy.alter(config={"inline.max.bytes": 4096})
    copy.append(kafka(["own"]))


TAKING_OVER = [
    append,
    append_with_given_offsets,
    append_with_txn,
    append_in_a_commit,
    Topic.promote,
]


@pytest.mark.parametrize("take_over", TAKING_OVER)
def test_a_copy_that_somebody_has_taken_over(take_over: Callable[[Topic], None]) -> None:
    pair = filled()
    pair.mirror()
    first_own = pair.copy.version + 1
    take_over(pair.copy)
    fill(pair.source, 1)
    refused(
        pair,
        f"has records of its own since its version {first_own}",
        pair.copy.url,
        "another store",
        error=CommitConflictError,
    )
    copy = pair.copy
    for work in (copy.apply_retention, copy.maintain, lambda: copy.delete_records({0: 1})):
        work()
    copy.alter(partitions=2, config={"cleanup.policy": "compact,delete"})
    copy.compact(force=True)
    copy.erase(keys=["a"])
    assert copy.verify(data=True)


def test_an_empty_append_takes_nothing_over() -> None:
    pair = filled()
    pair.mirror()
    pair.copy.append(kafka([]))
    fill(pair.source, 1)
    pair.mirror()
    pair.check()


def test_promotion_is_for_copies_and_happens_once() -> None:
    pair = filled()
    with pytest.raises(InvalidRequestError, match="is no copy of another one"):
        pair.source.promote()
    pair.mirror()
    pair.copy.promote()
    version = pair.copy.version
    pair.copy.promote()  # a runbook may be run again
    assert pair.copy.version == version


@pytest.mark.parametrize(
    ("work", "name"),
    [
        (lambda copy: copy.apply_retention(), "retention"),
        (lambda copy: copy.compact(force=True), "compaction"),
        (lambda copy: copy.erase(keys=["a"]), "erase"),
        (lambda copy: copy.delete_records({0: 1}), "delete_records"),
    ],
)
def test_only_the_source_removes_records(work: Callable[[Topic], object], name: str) -> None:
    pair = Pair(config={"cleanup.policy": "compact,delete"})
    fill(pair.source)
    pair.mirror()
    before = contents(pair.far)
    with pytest.raises(InvalidRequestError) as caught:
        work(pair.copy)
    for text in (f"{name} is refused", pair.source.url, "retention='own'", "promote()"):
        assert text in str(caught.value)
    assert contents(pair.far) == before
    report = pair.copy.maintain()
    assert report.error is None
    pair.check()


@pytest.mark.parametrize(
    "options", [{"partitions": 3}, {"config": {"retention.ms": 5}}, {"drop_columns": ["headers"]}]
)
def test_only_the_source_is_altered(options: dict[str, Any]) -> None:
    pair = filled()
    pair.mirror()
    before = contents(pair.far)
    with pytest.raises(InvalidRequestError, match="partitions, columns and settings"):
        pair.copy.alter(**options)
    assert contents(pair.far) == before


def test_a_source_that_has_lost_commits() -> None:
    """Somebody has put an older backup in its place."""
    pair = filled()
    backup = contents(pair.near)
    fill(pair.source, 1)
    newest = pair.source.version
    pair.mirror()
    pair.restore(backup)
    text = f"has seen version {newest} of its source, which is at version {newest - 1}"
    refused(pair, text, "lost commits")
    # With other commits in their place their ids tell.
    pair.source.append(kafka(["x"]))
    for _ in range(2):
        refused(pair, f"has seen version {newest} of its source", "restored from an older state")
        pair.source.alter(config={"retention.ms": pair.source.version})


def test_a_copy_that_has_lost_records() -> None:
    """A job of a version that does not know the rule."""
    pair = Pair(config={"cleanup.policy": "compact,delete", "inline.max.bytes": 0})
    fill(pair.source)
    pair.mirror()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(erase, "check_may_remove", lambda *_: None)
        pair.copy.erase(keys=["a", "b"])
    pair.source.erase(keys=["b"])
    refused(pair, "partition 0", "somebody has removed records from the copy", "another store")
