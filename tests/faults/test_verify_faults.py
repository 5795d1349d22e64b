"""A store that fails is no damage: `verify` says what it could not look at, whatever fails and
whenever, and names no broken rule."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from pylogtable import StorageError, Topic, VerifyReport
from pylogtable.check import loaded_topic
from pylogtable.check.report import Unchecked
from pylogtable.storage.base import ObjectStore
from pylogtable.storage.memory import MemoryStore
from tests.builders import SMALL, Clock, kafka, make_store, rows
from tests.stores import FailingStore, FarStore

Fails = Callable[[str, str], bool]


def fill(inner: ObjectStore) -> str:
    """A topic with roots, index files, records in files and in commits, a clean part, a group and
    a published table. Returns its id."""
    topic = make_store(inner, Clock()).create_topic(
        "t",
        partitions=2,
        config={"cleanup.policy": "compact", "publish.formats": "delta"},
    )
    for number in range(9):
        topic.append(kafka(["a", "b", "c"], [str(number)] * 3), txn=("app", number))
    topic.compact(force=True)
    topic.append(kafka(["d", "e"]))
    topic.group("g").commit({0: 1})
    topic.publish()
    topic.append(kafka(["f"]))
    return topic.topic_id


def opened(inner: ObjectStore, fails: Fails) -> Topic:
    """The topic in a store that is well while it is opened, and then fails."""
    store = FailingStore(inner)
    is_open = False
    store.fails = lambda verb, key: is_open and fails(verb, key)
    topic = make_store(store, Clock()).topic("t")
    is_open = True
    return topic


@pytest.mark.parametrize("far", [False, True], ids=["near", "far"])
def test_any_failure_of_the_store_is_told_as_such(far: bool) -> None:
    inner = (FarStore(Clock()) if far else MemoryStore()).with_limits(SMALL)
    fill(inner)
    seen = 0
    asked: list[str] = []

    def count(verb: str, key: str) -> bool:
        asked.append(f"{verb} {key}")
        return len(asked) == seen

    report = opened(inner, count).verify(data=True)
    assert report, str(report)
    verbs = {request.split()[0] for request in asked}
    assert verbs >= {"read", "list", "open_input", "get"}
    total = len(asked)
    assert total > 40
    for seen in range(1, total + 1):
        asked.clear()
        report = opened(inner, count).verify(data=True)
        assert report.problems == [], (seen, asked[seen - 1])
        assert report.unchecked, (seen, asked[seen - 1])
        assert report.sound is None
        assert not report


def data_files(inner: ObjectStore) -> list[str]:
    """The files that have records."""
    found = rows(make_store(inner, Clock()).topic("t").segments(), "path", "records")
    return [path for path, records in found if path.endswith(".parquet") and records]


def test_file_that_cannot_be_read_is_named_and_the_others_are_checked() -> None:
    inner = MemoryStore().with_limits(SMALL)
    fill(inner)
    lost, *others = data_files(inner)
    assert others
    report = opened(inner, lambda verb, key: key == f"t/{lost}").verify(data=True)
    whole = opened(inner, lambda verb, key: False).verify(data=True)
    assert report.problems == []
    named = {place.path: place.detail for place in report.unchecked}
    assert "ReadTimeout" in named[lost]
    # A check of whole partitions names those that it could not look at.
    assert named.keys() <= {lost, "partition=0", "partition=1"}
    assert 0 < report.records < whole.records
    text = str(report)
    assert "breaks [" not in text
    assert f"{lost} could not be checked: " in text
    assert "because the store failed. No problem in the rest" in text


def test_damage_is_told_beside_what_could_not_be_looked_at() -> None:
    inner = MemoryStore().with_limits(SMALL)
    fill(inner)
    unread, damaged = data_files(inner)[:2]
    inner.delete(f"t/{damaged}")
    report = opened(inner, lambda verb, key: key == f"t/{unread}").verify(data=True)
    assert (report.sound, bool(report)) == (False, False)
    rules = [(problem.rule, problem.path) for problem in report.problems]
    assert rules == [("SEG-1", damaged), ("PUB-1", damaged)]
    assert unread in [place.path for place in report.unchecked]
    assert "2 problem(s) in " in str(report)
    assert "could not look at " in str(report)


def test_file_that_goes_away_meanwhile_is_missing() -> None:
    """The store has answered, so it is a problem of the topic."""
    inner = MemoryStore().with_limits(SMALL)
    fill(inner)
    path = data_files(inner)[0]

    def remove(verb: str, key: str) -> bool:
        if verb == "open_input":
            inner.delete(f"t/{path}")
        return False

    report = opened(inner, remove).verify(data=True)
    assert ("SEG-1", path) in [(problem.rule, problem.path) for problem in report.problems]
    assert report.unchecked == []


def test_store_that_fails_again_and_again_is_asked_no_more() -> None:
    """Each request may take minutes until it fails."""
    inner = MemoryStore().with_limits(SMALL)
    fill(inner)
    topic = make_store(inner, Clock()).topic("t")
    for number in range(3 * loaded_topic.GIVE_UP_AFTER):
        topic.group(f"g{number}").commit({0: 1})
    asked: list[str] = []

    def groups(verb: str, key: str) -> bool:
        if verb == "read" and "_groups" in key:
            asked.append(key)
            return True
        return False

    report = opened(inner, groups).verify(data=True)
    assert len(asked) == loaded_topic.GIVE_UP_AFTER
    assert [place.path for place in report.unchecked[:-1]] == [key[2:] for key in asked]
    assert report.unchecked[-1].path == "all other objects"
    assert report.problems == []


def test_silent_store_is_asked_once() -> None:
    inner = MemoryStore().with_limits(SMALL)
    fill(inner)
    asked: list[str] = []

    def everything(verb: str, key: str) -> bool:
        asked.append(verb)
        return True

    report = opened(inner, everything).verify()
    assert [place.path for place in report.unchecked] == ["_manifest/"]
    assert len(asked) == 1


def test_verify_of_a_sound_topic_writes_nothing() -> None:
    """So it can be verified where nothing may be written."""
    inner = MemoryStore().with_limits(SMALL)
    fill(inner)
    store = FailingStore(inner)
    topic = make_store(store, Clock()).topic("t")
    store.reset()
    assert topic.verify(data=True)
    assert not store.counts.keys() & {"write", "create", "delete", "open_output"}


def test_notebooks_show_the_verdict_and_what_could_not_be_looked_at() -> None:
    report = VerifyReport(unchecked=[Unchecked("<b>", "ReadTimeout")])
    shown = report._repr_html_()
    assert "not known: the store failed" in shown
    assert "could not look at" in shown
    assert "&lt;b&gt;" in shown
    assert "broken rule" not in shown
    assert "sound" in VerifyReport()._repr_html_()


def test_table_that_cannot_be_read_is_not_told_as_absent() -> None:
    """The report of a store would advise to publish it."""
    inner = MemoryStore().with_limits(SMALL)
    fill(inner)
    topic = opened(inner, lambda verb, key: "_delta_log" in key)
    with pytest.raises(StorageError, match="ReadTimeout"):
        topic.describe()
