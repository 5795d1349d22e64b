"""A topic that is published in two formats: what stops one table does not stop the other."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

from pylogtable import CorruptTopicError, InvalidRequestError, LogTableError, StorageError, Topic
from tests.builders import Clock, make_store
from tests.publish import plain_delta, plain_iceberg
from tests.publish.damage import make_topic
from tests.publish.plain_iceberg import hide_pyiceberg
from tests.stores import AgingDisk, FailingStore

BOTH = ["delta", "iceberg"]
LOGS = {"delta": "_delta_log", "iceberg": "metadata"}


def append(topic: Topic) -> None:
    topic.append(pa.table({"k": ["a", "b"], "v": [1, 2]}))


def check_newest(topic: Topic, folder: Path, name: str) -> None:
    plain = plain_delta if name == "delta" else plain_iceberg
    plain.check_newest(topic, folder)


def lose_newest(folder: Path, name: str) -> None:
    """The newest entry is no entry any more."""
    log = folder / LOGS[name]
    newest = log.glob("0*.json") if name == "delta" else log.glob("v*.metadata.json")
    max(newest).write_bytes(b"{")


def test_missing_package_stops_only_its_format(
    topic: Topic, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    append(topic)
    with monkeypatch.context() as patch:
        hide_pyiceberg(patch)
        with pytest.raises(InvalidRequestError, match=r"the iceberg table .*: .*pyiceberg is need"):
            topic.publish(BOTH)
        with pytest.raises(InvalidRequestError, match=r"^to publish a topic as an Iceberg table"):
            topic.publish(["iceberg"])
    check_newest(topic, tmp_path / "t", "delta")
    assert not (tmp_path / "t" / "metadata").exists()
    topic.publish(BOTH)
    check_newest(topic, tmp_path / "t", "iceberg")


@pytest.mark.parametrize("broken", BOTH)
@pytest.mark.parametrize("knows_tables", [False, True])
def test_damaged_table_stops_only_its_format(
    topic: Topic, disk: AgingDisk, clock: Clock, tmp_path: Path, broken: str, knows_tables: bool
) -> None:
    (whole,) = {*BOTH} - {broken}
    append(topic)
    topic.publish(BOTH)
    if not knows_tables:
        topic = make_store(disk, clock).topic("t")
    for _ in range(3):
        append(topic)
        lose_newest(tmp_path / "t", broken)
        with pytest.raises(CorruptTopicError, match=f"the {broken} table was not") as caught:
            topic.publish(BOTH)
        assert caught.value.path.startswith(LOGS[broken])
        check_newest(topic, tmp_path / "t", whole)
    topic.unpublish([broken])
    topic.publish(BOTH)
    check_newest(topic, tmp_path / "t", broken)


@pytest.mark.parametrize("broken", BOTH)
@pytest.mark.parametrize("behind", [False, True])
def test_store_that_fails_for_one_table_stops_only_its_format(
    disk: AgingDisk, clock: Clock, tmp_path: Path, broken: str, behind: bool
) -> None:
    """A table that is several steps behind is published by itself."""
    (whole,) = {*BOTH} - {broken}
    failing = FailingStore(disk)
    topic = make_topic(make_store(failing, clock))
    append(topic)
    topic.publish(BOTH)
    path = f"t/{LOGS[broken]}/"
    failing.fails = lambda verb, key: verb in ("create", "write") and key.startswith(path)
    topic = make_store(failing, clock).topic("t")
    for _ in range(3):
        append(topic)
        if behind:
            topic.delete_records({0: topic.end_offsets()[0] - 1})
            append(topic)
        with pytest.raises(StorageError, match=f"the {broken} table was not published: "):
            topic.publish(BOTH)
        check_newest(topic, tmp_path / "t", whole)
    topic = make_store(disk, clock).topic("t")
    topic.publish(BOTH)
    for name in BOTH:
        check_newest(topic, tmp_path / "t", name)


def test_error_of_both_formats_is_raised_and_the_other_one_is_logged(
    topic: Topic, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    append(topic)
    topic.publish(BOTH)
    for name in BOTH:
        lose_newest(tmp_path / "t", name)
    append(topic)
    with pytest.raises(CorruptTopicError, match="the delta table was not published"):
        topic.publish(BOTH)
    assert "the iceberg table was not published" in caplog.text


def test_maintain_fails_after_it_has_published_what_it_could(topic: Topic, tmp_path: Path) -> None:
    topic.alter(config={"publish.formats": "delta,iceberg"})
    append(topic)
    topic.maintain()
    lose_newest(tmp_path / "t", "delta")
    append(topic)
    with pytest.raises(CorruptTopicError, match="the delta table was not published"):
        topic.maintain()
    check_newest(topic, tmp_path / "t", "iceberg")


@pytest.mark.parametrize("make", [ZeroDivisionError, KeyError])
def test_bug_in_one_format_is_raised_as_it_is(
    topic: Topic,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    make: Callable[[str], Exception],
) -> None:
    append(topic)

    def fail(*_: object) -> None:
        raise make("a bug")

    monkeypatch.setattr("pylogtable.publish.delta.table.DeltaTable.show", fail)
    with pytest.raises(type(make("")), match="a bug"):
        topic.publish(BOTH)
    check_newest(topic, tmp_path / "t", "iceberg")


def test_topic_that_is_gone_is_no_error_of_a_format(topic: Topic, disk: AgingDisk) -> None:
    append(topic)
    topic.publish(BOTH)
    make_store(disk).delete_topic("t")
    with pytest.raises(LogTableError, match="topic") as caught:
        topic.publish(BOTH)
    assert "table was not published" not in str(caught.value)
