"""Damage ends in an error of ours that names it, and one damaged topic does not stop the others."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
import pytest

import pylogtable
from pylogtable import CorruptTopicError, InvalidRequestError, Store, report_html
from pylogtable.format.paths import HINT_PATH, commit_path, group_path, root_path
from pylogtable.storage.memory import MemoryStore
from tests.builders import kafka, make_store
from tests.stores import Fault, FaultyStore
from tests.tamper import edited

DEEP = b'{"x":' + b"[" * 100_000 + b"]" * 100_000 + b"}"
DAMAGES: dict[str, Callable[[bytes], bytes]] = {
    "not UTF-8": lambda data: data.replace(b'"', b'"\xff', 1),
    "2,000 levels": lambda data: data[:-1] + b',"x":' + b"[" * 2000 + b"]" * 2000 + b"}",
    "another byte": lambda data: data.replace(b'"commit_id":"', b'"commit_id":"f', 1),
    "100,000 levels": lambda data: DEEP,
    "100,000 open brackets": lambda data: b"[" * 100_000,
    "cut": lambda data: data[: len(data) // 2],
    "nothing": lambda data: b"",
    "null": lambda data: b"null",
    "a number": lambda data: b"1e999",
}
damages = pytest.mark.parametrize("damage", DAMAGES.values(), ids=list(DAMAGES))


@pytest.fixture
def objects() -> MemoryStore:
    return MemoryStore()


@pytest.fixture
def store(objects: MemoryStore, in_files: bool) -> Store:
    """Three topics, each with a group."""
    made = make_store(objects, in_files=in_files)
    for name in ("alpha", "bad", "omega"):
        topic = made.create_topic(name)
        topic.append(kafka(["a"]))
        topic.append(kafka(["b"]))
        topic.group("billing").commit({0: 1})
    return made


def spoil(objects: MemoryStore, path: str, damage: Callable[[bytes], bytes]) -> None:
    data = objects.read(f"bad/{path}")
    assert data is not None
    objects.write(f"bad/{path}", damage(data))


@damages
def test_damaged_commit_names_itself_and_stops_no_other_topic(
    store: Store, objects: MemoryStore, damage: Callable[[bytes], bytes]
) -> None:
    spoil(objects, commit_path(1), damage)
    with pytest.raises(CorruptTopicError) as caught:
        store.topic("bad")
    assert caught.value.path == commit_path(1)
    assert store.topics() == ["alpha", "bad", "omega"]
    reports = {report.topic: report for report in store.maintain()}
    assert {name for name, report in reports.items() if report.error is None} == {"alpha", "omega"}
    assert commit_path(1) in str(reports["bad"].error)
    assert commit_path(1) in report_html(store)
    assert store.groups() == {"billing": ["alpha", "omega"]}


@damages
def test_damaged_hint_is_ignored(
    store: Store, objects: MemoryStore, damage: Callable[[bytes], bytes]
) -> None:
    spoil(objects, HINT_PATH, damage)
    assert store.topic("bad").count() == 2


@damages
def test_damaged_root_is_ignored(
    store: Store, objects: MemoryStore, damage: Callable[[bytes], bytes]
) -> None:
    topic = store.topic("bad")
    topic._log.manifest.write_root(topic._log.latest(), lambda: "aa")
    spoil(objects, root_path(2), damage)
    assert store.topic("bad").count() == 2


@damages
def test_damaged_group_names_its_object_and_the_way_out(
    store: Store, objects: MemoryStore, damage: Callable[[bytes], bytes]
) -> None:
    group = store.topic("bad").group("billing")
    assert group.commit({0: 2}) == {0: 2}
    store.topic("bad").group("other").commit({0: 1})
    spoil(objects, group_path("billing", 1), damage)
    topic = store.topic("bad")
    assert topic.groups() == ["billing", "other"]
    assert topic.group("other").positions() == {0: 1}
    for use in (topic.group("billing").positions, topic.group("billing").delete):
        with pytest.raises(CorruptTopicError, match="remove this object to go back") as caught:
            use()
        assert caught.value.path == group_path("billing", 1)
    objects.delete(f"bad/{group_path('billing', 1)}")
    assert store.topic("bad").group("billing").positions() == {0: 1}


def test_records_of_a_damaged_group_stay_protected(store: Store, objects: MemoryStore) -> None:
    store.topic("alpha").group("billing").delete()
    store.topic("omega").group("billing").delete()
    spoil(objects, group_path("billing", 0), DAMAGES["cut"])
    reports = {report.topic: report for report in store.maintain(protect_groups=["billing"])}
    assert reports["alpha"].error is None
    assert group_path("billing", 0) in str(reports["bad"].error)
    assert reports["bad"].retention is None


def test_topic_whose_groups_cannot_be_known_is_not_maintained(
    store: Store, objects: MemoryStore
) -> None:
    spoil(objects, commit_path(1), DAMAGES["cut"])
    reports = {r.topic: r for r in store.maintain(protect_groups=["billing", "only-in-bad"])}
    assert reports["alpha"].error is None
    assert reports["omega"].error is None
    assert commit_path(1) in str(reports["bad"].error)
    with pytest.raises(InvalidRequestError, match="no topic has a group 'nobody'"):
        store.maintain(["alpha"], protect_groups=["nobody"])


def test_topic_that_the_store_cannot_read_stops_no_other_topic(
    store: Store, objects: MemoryStore
) -> None:
    def decide(verb: str, key: str) -> Fault | None:
        return Fault.REFUSE if verb == "read" and key.startswith("bad/") else None

    failing = make_store(FaultyStore(objects, decide))
    assert failing.topics() == ["alpha", "bad", "omega"]
    assert [report.error is None for report in failing.maintain()] == [True, False, True]
    assert "StorageError" in report_html(failing)
    assert failing.groups() == {"billing": ["alpha", "omega"]}


@pytest.mark.parametrize("app_id", ["\ud800", "x" * 1025, "ä" * 513])
def test_app_id_that_cannot_be_stored_is_refused(store: Store, app_id: str) -> None:
    """[TXN-5]"""
    topic = store.topic("alpha")
    with pytest.raises(InvalidRequestError, match="the app id of a txn"):
        topic.append(kafka(["a"]), txn=(app_id, 1))
    with pytest.raises(InvalidRequestError, match="the app id of a txn"):
        topic.producer(app_id=app_id)
    assert topic.append(kafka(["a"]), txn=("ä" * 512, 1)).version == 3


@pytest.mark.records_in("files")
def test_txn_that_leads_back_to_itself_ends_in_an_error(store: Store, objects: MemoryStore) -> None:
    """A repeat follows `previous` from commit to commit [TXN-1]."""
    topic = store.topic("bad")
    for number in (1, 2, 3):
        topic.append(kafka(["a"]), txn=("app", number))
    opened = store.topic("bad")
    spoil(
        objects,
        commit_path(4),
        lambda data: edited(data, lambda body: body["txn"].update(previous=5)),
    )
    with pytest.raises(CorruptTopicError) as caught:
        opened.append(kafka(["a"]), txn=("app", 1))
    assert (caught.value.path, caught.value.rule) == (commit_path(4), "TXN-1")


def test_text_that_is_not_unicode_is_refused(store: Store, objects: MemoryStore) -> None:
    before = {entry.key for entry in objects.list()}
    topic = store.topic("alpha")
    bad = "\ud800"
    calls: list[Callable[[], object]] = [
        lambda: topic.group("g").commit({0: 1}, metadata=bad),
        lambda: topic.alter(config={"compression.type": bad}),
        lambda: topic.alter(config={bad: "1"}),
        lambda: store.create_topic("new", schema={bad: pa.int64()}),
        lambda: store.create_topic(bad),
        lambda: topic.group(bad),
        lambda: topic.consumer("g", member=bad),
        lambda: topic.delete_records({bad: 1}),  # type: ignore[dict-item]
    ]
    for call in calls:
        with pytest.raises(InvalidRequestError):
            call()
    assert {entry.key for entry in objects.list()} == before


def test_lease_that_does_not_fit_is_refused(store: Store) -> None:
    topic = store.topic("alpha")
    with pytest.raises(InvalidRequestError):
        topic.consumer("g", member="m", lease_ms=10**30).poll()


@pytest.mark.parametrize("now", [10**17, 10**30, -1, 1.5, None])
def test_clock_that_gives_no_time_is_refused(now: object, tmp_path: object) -> None:
    store = pylogtable.open(str(tmp_path), clock=lambda: now)  # type: ignore[arg-type, return-value]
    with pytest.raises(InvalidRequestError, match="`clock` must return milliseconds"):
        store.create_topic("t")
    assert pylogtable.open(str(tmp_path)).topics() == []


@pytest.mark.records_in("files")
def test_commit_from_the_far_future_can_still_be_read(store: Store, objects: MemoryStore) -> None:
    """Another writer's clock may give any time."""
    spoil(
        objects,
        commit_path(2),
        lambda data: edited(data, lambda body: body.update(committed_at_ms=10**17)),
    )
    topic = store.topic("bad")
    looks: list[Callable[[], object]] = [
        topic.history,
        topic.describe,
        topic._repr_html_,
        lambda: topic.read().read_all(),
        lambda: report_html(store),
        lambda: topic.at(1),
        lambda: topic.vacuum(dry_run=True),
    ]
    for look in looks:
        assert look() is not None
