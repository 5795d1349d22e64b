"""What the library logs: one line for each thing that it does to a topic, with fields."""

from __future__ import annotations

import logging
import subprocess
import sys
from contextvars import Context
from typing import Any

import pytest

from pylogtable.kafka import import_topic
from pylogtable.storage.base import Created
from pylogtable.storage.memory import MemoryStore
from pylogtable.store import Store
from tests.builders import Clock, kafka, make_store
from tests.kafka.mock import mock_cluster
from tests.run.loops import driven


class Lines:
    """The lines of the library."""

    def __init__(self, caplog: pytest.LogCaptureFixture) -> None:
        self._caplog = caplog

    def take(self, level: int = logging.INFO) -> list[dict[str, Any]]:
        """The fields of the lines of this level since the last call, with their messages."""
        records = [one for one in self._caplog.records if one.name.startswith("pylogtable")]
        self._caplog.clear()
        return [{**vars(one), "text": one.getMessage()} for one in records if one.levelno == level]

    def texts(self, level: int = logging.INFO) -> list[str]:
        return [line["text"] for line in self.take(level)]


@pytest.fixture
def lines(caplog: pytest.LogCaptureFixture) -> Lines:
    caplog.set_level(logging.DEBUG, "pylogtable")
    return Lines(caplog)


def has(line: dict[str, Any], **fields: object) -> bool:
    return {name: line.get(name) for name in fields} == fields


def test_topics_that_come_change_and_go_are_logged(store: Store, lines: Lines) -> None:
    topic = store.create_topic("orders", partitions=2)
    [line] = lines.take()
    assert line["text"] == "create of topic orders is version 0"
    assert has(line, operation="create", topic="orders", store=store.url, version=0)
    topic.alter(partitions=3)
    assert lines.texts() == ["alter of topic orders is version 1"]
    store.delete_topic("orders")
    assert lines.texts()[0] == "delete_topic of topic orders is version 2"


def test_append_is_logged_for_debugging_only(store: Store, lines: Lines) -> None:
    topic = store.create_topic("orders")
    lines.take()
    topic.append(kafka(["a", "b"]))
    assert lines.take(logging.INFO) == []
    topic.append(kafka(["a", "b"]))
    [line] = lines.take(logging.DEBUG)
    assert has(line, operation="append", topic="orders", version=2, records=2, segments_out=1)
    assert line["seconds"] >= 0


@pytest.mark.records_in("files")
def test_each_commit_of_a_job_is_logged(store: Store, clock: Clock, lines: Lines) -> None:
    config = {"cleanup.policy": "compact,delete", "retention.ms": 1000, "publish.formats": "delta"}
    topic = store.create_topic("orders", config=config)
    for value in "123":
        topic.append(kafka(["a"], [value]))
    lines.take()
    report = topic.compact(force=True)
    [line] = lines.take()
    assert has(line, operation="compact", version=report.version, records_removed=2)
    assert has(line, segments_in=2, segments_out=1, bytes=report.bytes_out)
    topic.append(kafka(["b"], ["1"]))
    topic.append(kafka(["c"], ["1"]))
    topic.merge()
    topic.erase(keys=[b"b"])
    assert [line["operation"] for line in lines.take()] == ["merge", "erase"]
    with pytest.warns(UserWarning, match="compacted"):
        topic.publish()
    [line] = lines.take()
    assert line["text"] == f"the delta table of topic orders shows version {topic.version}"
    assert has(line, table="delta", files_added=len(topic.segments()))
    clock.tick(2000)
    report = topic.apply_retention()
    [line] = lines.take()
    assert has(line, operation="retention", version=report.version, topic="orders")
    clock.tick(8 * 24 * 3600 * 1000)
    removed = topic.vacuum(dry_run=False)
    commit, root = lines.take()
    assert has(commit, operation="vacuum", files_removed=len(removed.files))
    assert has(commit, bytes_removed=removed.size_bytes)
    assert root["text"] == f"a root of topic orders was written at version {removed.version}"


def test_jobs_of_a_loop_are_logged_once_and_failures_are_warnings(
    objects: MemoryStore, store: Store, clock: Clock, lines: Lines
) -> None:
    topic = store.create_topic("t", config={"publish.formats": "delta"})
    topic.append(kafka(["a"]))
    loop = driven(store, clock)
    lines.take()
    loop.go(1_000)
    texts = lines.texts()
    assert [text for text in texts if "delta" in text] == [
        "the delta table of topic t shows version 1"
    ]
    objects.write("t/_delta_log/00000000000000000000.json", b"{")
    topic.append(kafka(["b"]))
    loop.go(5_000)
    failed = lines.take(logging.WARNING)[0]
    assert has(failed, job="publication", topic="t", store=store.url, error="CorruptTopicError")
    assert failed["text"].startswith("publication of topic t failed, and will be tried again: ")
    assert failed["reason"] in failed["text"]


def test_job_that_has_nothing_to_do_is_logged_for_debugging(store: Store, lines: Lines) -> None:
    topic = store.create_topic("orders")
    lines.take()
    topic.maintain(vacuum=False)
    found = lines.take(logging.DEBUG)
    assert [line["job"] for line in found] == ["retention", "merge"]
    assert "nothing to merge" in found[1]["text"]


class _Contended(MemoryStore):
    """Somebody else is faster, as often as `others` says."""

    others = 0
    rival: Any = None

    def create(self, key: str, data: bytes) -> Created:
        if "_manifest/" in key and self.rival is not None and _Contended.others:
            _Contended.others -= 1
            rival, _Contended.rival = _Contended.rival, None
            try:
                Context().run(rival)  # another program
            finally:
                _Contended.rival = rival
        return super().create(key, data)


@pytest.mark.parametrize(("lost", "told"), [(3, []), (4, [4])])
def test_many_lost_races_are_logged(lines: Lines, clock: Clock, lost: int, told: list[int]) -> None:
    objects = _Contended()
    store = make_store(objects, clock)
    config = {"combined.appends": "false"}
    topic = store.create_topic("orders", config=config)
    rival = store.topic("orders")
    _Contended.others, _Contended.rival = lost, lambda: rival.append(kafka(["b"]))
    lines.take()
    try:
        result = topic.append(kafka(["a"]))
    finally:
        _Contended.others, _Contended.rival = 0, None
    assert result.version == lost + 1
    found = lines.take()
    assert [line["lost_races"] for line in found] == told
    assert all(has(line, topic="orders", operation="append") for line in found)


def test_root_is_logged(store: Store, lines: Lines) -> None:
    topic = store.create_topic("orders")
    for _ in range(64):
        topic.append(kafka(["a"]))
    assert lines.texts()[-1] == "a root of topic orders was written at version 64"


def test_members_that_come_and_go_are_logged(store: Store, clock: Clock, lines: Lines) -> None:
    topic = store.create_topic("orders", partitions=2)
    lines.take()

    def of_members() -> list[dict[str, Any]]:
        return [line for line in lines.take() if line.get("member")]

    first = topic.consumer("g", member="one", lease_ms=10_000)
    first.assignment()
    [line] = of_members()
    assert line["text"].endswith("has come to group g of topic orders")
    assert line["member"].startswith("one")
    assert has(line, group="g", partitions=[0, 1], lost=[])
    second = topic.consumer("g", member="two", lease_ms=10_000)
    second.assignment()
    of_members()
    clock.tick(5_000)
    first.assignment()
    [line] = of_members()
    assert line["text"].endswith("has other partitions in group g of topic orders")
    assert line["member"].startswith("one")
    assert len(line["lost"]) == 1
    clock.tick(9_000)
    second.assignment()  # the lease of the first lasts
    of_members()
    clock.tick(9_000)
    second.assignment()
    found = {line["member"][:3]: line for line in of_members()}
    assert "was dropped from" in found["one"]["text"]
    assert found["two"]["partitions"] == [0, 1]
    second.close()
    [line] = of_members()
    assert "has gone from" in line["text"]


def test_mirror_is_logged(store: Store, lines: Lines, clock: Clock) -> None:
    topic = store.create_topic("orders")
    topic.append(kafka(["a", "b"]))
    other = make_store(MemoryStore(), clock)
    lines.take()
    topic.mirror(other)
    found = lines.take()
    [line] = [line for line in found if line["text"].startswith("a mirror")]
    assert line["text"] == "a mirror brought 2 records to topic orders"
    assert has(line, store=other.url, source=topic.url, source_version=1, records=2)
    topic.mirror(other)
    assert not [text for text in lines.texts() if text.startswith("a mirror")]


def test_import_is_logged(store: Store, lines: Lines) -> None:
    """A line for each commit, and none if there is nothing new."""
    with mock_cluster() as cluster:
        name = cluster.new_topic()
        cluster.produce(name, 1, [b"a", b"b"])
        for records in (2, 0):
            lines.take()
            import_topic(store, name, bootstrap_servers=cluster.servers, copy_settings=False)
            found = [line for line in lines.take() if line["text"].startswith("an import")]
            assert [line["records"] for line in found] == [records] * bool(records)
            if records:
                (line,) = found
                assert line["text"] == f"an import brought 2 records to topic {name}"
                assert has(line, topic=name, store=store.url, version=store.topic(name).version)
                assert line["bytes"] > 0


def test_library_prints_nothing_by_itself() -> None:
    code = (
        "import logging, pylogtable;"
        "pylogtable.open('memory://x').create_topic('t');"
        "logging.getLogger('pylogtable.log').warning('hello');"
        "assert not logging.getLogger().handlers"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    assert (done.stdout, done.stderr) == ("", "")
