"""The note of a txn: a JSON value of the application that is there in the same moment as its
records, as long as no later txn of the app id is."""

from __future__ import annotations

import os
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

import pylogtable
from pylogtable import CorruptTopicError, InvalidRequestError, Topic
from pylogtable.append.report import LastTxn
from pylogtable.engine import plan_append
from pylogtable.storage.memory import MemoryStore
from tests.builders import Clock, kafka, make_store
from tests.mirrors import Pair
from tests.stores import AgingDisk

DAY = 86_400_000
NOTE = {"read_to": {"0": 12}, "by": "é", "list": [1, -2.5, True, None, ""]}


@pytest.fixture
def topic() -> Topic:
    return make_store(MemoryStore(), Clock()).create_topic("t", partitions=2)


def test_a_note_is_told_with_its_txn(topic: Topic) -> None:
    assert topic.txn("etl") is None
    first = topic.append(kafka(["a", "b"]), txn=("etl", 8), note=NOTE)
    assert topic.txn("etl") == LastTxn(8, NOTE, first.version, first.offsets, 2)
    topic.append(kafka(["c"]))
    assert topic.txn("etl") == LastTxn(8, NOTE, first.version, first.offsets, 2)
    assert topic.txn("other") is None
    assert topic.last_txn("etl") == 8


def test_a_later_txn_without_a_note_has_none(topic: Topic) -> None:
    topic.append(kafka(["a"]), txn=("etl", 1), note=NOTE)
    topic.append(kafka(["b"]), txn=("etl", 2))
    last = topic.txn("etl")
    assert last is not None
    assert (last.number, last.note) == (2, None)


def test_a_txn_without_records_may_have_a_note(topic: Topic) -> None:
    topic.append(kafka([]), txn=("etl", 1), note=[7])
    assert topic.txn("etl") == LastTxn(1, [7], 1, {}, 0)


def test_the_note_of_a_repeat_is_ignored(topic: Topic) -> None:
    first = topic.append(kafka(["a"]), txn=("etl", 1), note="first")
    again = topic.append(kafka(["a"]), txn=("etl", 1), note="second")
    assert (again.repeated, again.offsets) == (True, first.offsets)
    assert topic.txn("etl") == LastTxn(1, "first", first.version, first.offsets, 1)


def test_a_distributed_append_has_a_note(topic: Topic) -> None:
    plan = plan_append(topic)
    result = plan.commit([plan.stage(kafka(["a"]))], txn=("etl", 1), note=NOTE)
    assert topic.txn("etl") == LastTxn(1, NOTE, result.version, result.offsets, 1)


def test_what_a_caller_does_to_its_note_has_no_effect(topic: Topic) -> None:
    topic.append(kafka(["a"]), txn=("etl", 1), note=NOTE)
    for _ in range(2):
        last = topic.txn("etl")
        assert last is not None
        assert last.note == NOTE
        last.note["list"].clear()


@pytest.mark.parametrize(
    "note",
    [
        float("nan"), [float("inf")], {0: 12}, (1, 2), {"a": {1}}, b"x", Decimal("1.5"),
        datetime(2024, 1, 1), object, "\ud800", {"\udfff": 1}, 1j,
    ],
    ids=repr,
)  # fmt: skip
def test_a_note_that_is_not_json_is_refused(topic: Topic, note: Any) -> None:
    with pytest.raises(InvalidRequestError, match="note of a txn must be a JSON value"):
        topic.append(kafka(["a"]), txn=("etl", 1), note=note)
    assert (topic.version, topic.txn("etl")) == (0, None)


def test_a_note_has_at_most_4_kib_and_64_levels(topic: Topic) -> None:
    topic.append(kafka(["a"]), txn=("etl", 1), note="é" * 2047)
    with pytest.raises(
        InvalidRequestError, match=r"may have 4,096 bytes as JSON, and .* has 4,098"
    ):
        topic.append(kafka(["a"]), txn=("etl", 2), note="é" * 2048)
    deep: Any = 1
    for _ in range(64):
        deep = [deep]
    topic.append(kafka(["a"]), txn=("etl", 2), note=deep)
    with pytest.raises(InvalidRequestError, match="nested 64 levels deep"):
        topic.append(kafka(["a"]), txn=("etl", 3), note=[deep])
    itself: list[Any] = []
    itself.append(itself)
    with pytest.raises(InvalidRequestError, match="nested 64 levels deep"):
        topic.append(kafka(["a"]), txn=("etl", 3), note=itself)
    last = topic.txn("etl")
    assert last is not None
    assert last.note == deep


def test_a_note_needs_a_txn(topic: Topic) -> None:
    with pytest.raises(InvalidRequestError, match="is given without a txn"):
        topic.append(kafka(["a"]), note=NOTE)
    plan = plan_append(topic)
    with pytest.raises(InvalidRequestError, match="is given without a txn"):
        plan.commit([plan.stage(kafka(["a"]))], note=NOTE)
    assert topic.version == 0


def test_notes_survive_roots_vacuum_and_mirrors(tmp_path: Path, clock: Clock) -> None:
    """The commit of the last txn stays, though the commits around it are gone [VAC-1]."""
    store = make_store(AgingDisk(tmp_path, clock), clock, in_files=True)
    topic = store.create_topic("t")
    topic.append(kafka(["a"]), txn=("etl", 1), note="old")
    wanted = topic.append(kafka(["b", "c"]), txn=("etl", 2), note=NOTE)
    for number in range(200):
        topic.append(kafka([str(number)]))
    for path in tmp_path.rglob("*"):
        os.utime(path, (clock() / 1000, clock() / 1000))
    clock.tick(8 * DAY)
    topic.vacuum(dry_run=False)
    commits = sorted(int(path.stem) for path in tmp_path.glob("t/_manifest/*[0-9].json"))
    assert commits[0] == wanted.version == 2 < commits[1] - 100
    again = pylogtable.open(tmp_path, clock=clock).topic("t")
    last = LastTxn(2, NOTE, wanted.version, wanted.offsets, 2)
    assert again._log.known.root_version is not None
    assert again.txn("etl") == last
    backup = make_store(MemoryStore("backup"), clock)
    again.mirror(backup)
    backup.topic("t").mirror(backup, name="third")
    for name in ("t", "third"):
        copied = backup.topic(name).txn("etl")
        assert copied is not None
        assert (copied.number, copied.note, copied.offsets, copied.records) == (
            (last.number, last.note, last.offsets, last.records)
        )


def test_the_deepest_note_can_be_mirrored() -> None:
    pair = Pair()
    deep: Any = 1
    for _ in range(64):
        deep = {"in": deep}
    pair.source.append(kafka(["a"]), txn=("etl", 1), note=deep)
    pair.mirror()
    last = pair.copy.txn("etl")
    assert last is not None
    assert last.note == deep


def test_a_missing_commit_of_the_last_txn_is_damage(tmp_path: Path) -> None:
    topic = pylogtable.open(tmp_path).create_topic("t")
    topic.append(kafka(["a"]), txn=("etl", 1), note=NOTE)
    topic.append(kafka(["b"]))
    topic.txn("etl")
    (tmp_path / "t" / "_manifest" / f"{1:020d}.json").unlink()
    with pytest.raises(CorruptTopicError, match="last txn of app id 'etl'"):
        topic.txn("etl")


def test_history_shows_notes(topic: Topic) -> None:
    topic.append(kafka(["a"]), txn=("etl", 1), note={"to": [1, "é"]})
    topic.append(kafka(["a"]), txn=("etl", 2))
    assert topic.history()["notes"].to_pylist() == [[], [("etl", '{"to":[1,"é"]}')], []]


def test_history_shows_the_notes_that_a_mirror_brought() -> None:
    pair = Pair()
    pair.source.append(kafka(["a"]), txn=("x", 1), note=1)
    pair.source.append(kafka(["b"]), txn=("y", 1), note=2)
    pair.mirror()
    shown = [note for notes in pair.copy.history()["notes"].to_pylist() for note in notes]
    assert shown == [("x", "1"), ("y", "2")]
