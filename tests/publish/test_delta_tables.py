"""Publishing a topic as a Delta table, as a user does it."""

from __future__ import annotations

import json

import pyarrow as pa
import pytest

from pylogtable import CorruptTopicError, InvalidRequestError, Store, Topic
from pylogtable.engine import plan_append
from pylogtable.storage.base import ObjectStore
from pylogtable.storage.memory import MemoryStore
from tests.builders import Clock, make_store, topic_of_older_writer
from tests.publish.plain_delta import action, actions, check_table, entries, shown_version
from tests.stores import CountingStore, Fault, FaultyStore

HINT = "t/_delta_log/_last_checkpoint"


@pytest.fixture
def objects() -> MemoryStore:
    return MemoryStore()


@pytest.fixture
def store(objects: MemoryStore, clock: Clock, in_files: bool) -> Store:
    return make_store(objects, clock, in_files=in_files)


@pytest.fixture
def topic(store: Store) -> Topic:
    topic = store.create_topic("t", 2, {"id": pa.int64(), "name": pa.string()}, "id")
    append(topic)
    return topic


@pytest.fixture
def folder(objects: MemoryStore) -> ObjectStore:
    return objects.below("t")


def append(topic: Topic, rows: int = 4) -> None:
    names = [f"n{number}" for number in range(rows)]
    topic.append(pa.table({"id": list(range(rows)), "name": names}))


@pytest.mark.records_in("files")
def test_report_says_what_was_done(topic: Topic) -> None:
    report = topic.publish(["delta"])
    (table,) = report.tables
    assert (table.format, table.version, table.table_version) == ("delta", 1, 0)
    assert (table.steps, table.files_added, table.files_removed) == (1, 2, 0)
    assert str(report).startswith(
        "t: delta version 0 shows version 1 of the topic: 2 files added, 0 removed, 0 sealed; "
    )


@pytest.mark.records_in("files")
def test_second_publication_has_nothing_to_do(topic: Topic, folder: ObjectStore) -> None:
    topic.publish()
    before = [info.key for info in folder.list()]
    (table,) = topic.publish().tables
    assert (table.steps, table.version, table.table_version) == (0, 1, 0)
    assert [info.key for info in folder.list()] == before


@pytest.mark.parametrize(("inline_bytes", "most"), [(0, 20), (16384, 34)])
def test_publication_costs_what_has_changed(clock: Clock, inline_bytes: int, most: int) -> None:
    """The requests of a publication after one append do not grow with the topic, apart from the
    commits since the last root. Records that are in a commit are written to a file first,
    and a root is written, so that a vacuum can remove the commit [INL-6]."""
    costs = []
    for appends in (5, 70, 133):  # 5 commits after the root of 0, 64 and 128
        objects = MemoryStore()
        topic = make_store(objects, clock).create_topic(
            "t", schema={"n": pa.int64()}, config={"inline.max.bytes": inline_bytes}
        )
        for number in range(appends):
            topic.append(pa.table({"n": [number]}))
        topic.publish()
        topic.append(pa.table({"n": [0]}))
        counting = CountingStore(objects)
        opened = make_store(counting, clock).topic("t")
        counting.reset()
        (table,) = opened.publish().tables
        assert (table.steps, table.files_added) == (1, 1)
        costs.append(dict(counting.counts))
    assert max(sum(cost.values()) for cost in costs) <= most


def test_shifted_segments_are_sealed_in_the_topic_too(topic: Topic, folder: ObjectStore) -> None:
    rows = pa.table({"id": [7, 8], "name": ["x", "y"]})
    for staged in [plan_append(topic).stage(rows), plan_append(topic).stage(rows)]:
        plan_append(topic).commit([staged])
    (table,) = topic.publish().tables
    assert table.segments_sealed >= 1
    assert not any(topic.segments()["shift"].to_pylist())
    (again,) = topic.publish().tables
    assert again.segments_sealed == 0
    check_table(topic, folder)


@pytest.mark.records_in("files")
def test_merge_changes_no_data_and_compaction_does(store: Store, objects: MemoryStore) -> None:
    topic = store.create_topic("c", 1, {"id": pa.int64(), "n": pa.int64()}, "id",
                               config={"cleanup.policy": "compact"})  # fmt: skip
    for number in range(3):
        topic.append(pa.table({"id": [1, number], "n": [number, number]}))
    topic.publish()
    topic.merge()
    topic.publish()
    topic.compact(force=True)
    topic.publish()
    _, merged, compacted = check_table(topic, objects.below("c"))
    assert {a["dataChange"] for n in ("add", "remove") for a in actions(merged, n)} == {False}
    assert {a["dataChange"] for n in ("add", "remove") for a in actions(compacted, n)} == {True}


@pytest.mark.records_in("files")
def test_new_and_vanished_records_are_never_in_one_step(topic: Topic, folder: ObjectStore) -> None:
    topic.publish()
    append(topic)
    topic.delete_records({0: 1})
    append(topic)
    (table,) = topic.publish().tables
    assert table.steps == 3
    for entry in check_table(topic, folder):
        removes = any(gone["dataChange"] for gone in actions(entry, "remove"))
        adds_only = {add["dataChange"] for add in actions(entry, "add")} == {True}
        assert not removes or shown_version(entry) == 3 or not adds_only


def test_columns_that_are_added_are_in_the_schema(topic: Topic, folder: ObjectStore) -> None:
    topic.publish()
    topic.alter(add_columns={"when": pa.timestamp("us")})
    topic.publish()
    first, second = entries(folder)
    assert action(first, "protocol") == {
        "minReaderVersion": 1,
        "minWriterVersion": 7,
        "writerFeatures": ["invariants", "pylogtable"],
    }
    assert action(second, "protocol") == {
        "minReaderVersion": 3,
        "readerFeatures": ["timestampNtz"],
        "minWriterVersion": 7,
        "writerFeatures": ["timestampNtz", "invariants", "pylogtable"],
    }
    fields = json.loads(action(second, "metaData")["schemaString"])["fields"]
    assert [field["name"] for field in fields] == [
        *("partition", "offset", "timestamp", "id", "name", "when")
    ]
    assert fields[-1] == {
        "name": "when",
        "type": "timestamp_ntz",
        "nullable": True,
        "metadata": {},
    }


@pytest.mark.records_in("files")
def test_widened_column_says_what_it_was(store: Store, objects: MemoryStore) -> None:
    topic = store.create_topic("w", schema={"n": pa.int16()})
    topic.append(pa.table({"n": pa.array([1], pa.int16())}))
    topic.alter(widen_columns={"n": pa.int32()})
    topic.publish()
    topic.alter(widen_columns={"n": pa.int64()})
    topic.publish()
    first, second = check_table(topic, objects.below("w"))
    assert action(first, "protocol")["readerFeatures"] == ["typeWidening"]
    (column,) = json.loads(action(second, "metaData")["schemaString"])["fields"][3:]
    assert column["metadata"]["delta.typeChanges"] == [
        {"fromType": "short", "toType": "integer"},
        {"fromType": "integer", "toType": "long"},
    ]


def test_unpublish_removes_the_table_and_nothing_else(topic: Topic, folder: ObjectStore) -> None:
    rows = topic.read().read_all()
    topic.publish()
    assert topic.unpublish() == 2  # an entry and a checkpoint
    assert not list(folder.list("_delta_log/"))
    assert topic.read().read_all() == rows
    assert topic.publish().tables[0].table_version == 0


def test_topic_that_was_created_again_takes_over_the_table(
    topic: Topic, store: Store, folder: ObjectStore
) -> None:
    topic.publish()
    table_objects = {info.key: folder.read(info.key) for info in folder.list("_delta_log/")}
    store.delete_topic("t")
    assert not list(folder.list("_delta_log/"))
    for key, data in table_objects.items():  # as if the deletion had been interrupted
        folder.write(key, data or b"")
    again = store.create_topic("t", 1, {"other": pa.string()})
    again.append(pa.table({"other": ["x"]}))
    (table,) = again.publish().tables
    shown = entries(folder)
    assert table.files_added == 1
    assert [gone["dataChange"] for gone in actions(shown[-1], "remove")] == [True, True]
    assert action(shown[-1], "metaData")["configuration"]["pylogtable.topicId"]


def test_setting_makes_maintain_publish(topic: Topic, folder: ObjectStore) -> None:
    assert topic.maintain().publication is None
    assert not list(folder.list("_delta_log/"))
    topic.alter(config={"publish.formats": ["delta"]})
    report = topic.maintain()
    assert report.publication is not None
    assert report.publication.tables[0].version >= 2
    assert "published delta version 0 shows version" in str(report)


@pytest.mark.records_in("files")
def test_describe_says_how_far_the_table_is_behind(topic: Topic, clock: Clock) -> None:
    topic.alter(config={"publish.formats": "delta"})
    assert topic.describe().published == ()
    topic.publish()
    (status,) = topic.describe().published
    assert (status.version, status.lag_records, status.lag_ms) == (2, 0, 0)
    assert str(status) == "delta: version 2, up to date"
    clock.tick(5000)
    append(topic, 3)
    (status,) = topic.describe().published
    assert (status.lag_records, status.lag_ms) == (3, 4998)  # commits are 1 ms apart or more
    assert "behind" in topic.describe()._repr_html_()


def test_log_of_somebody_else_is_left_alone(topic: Topic, objects: MemoryStore) -> None:
    objects.write("t/_delta_log/00000000000000000000.json", b'{"commitInfo":{}}\n')
    with pytest.raises(InvalidRequestError, match=r"has not published .*move it away"):
        topic.publish()
    with pytest.raises(InvalidRequestError, match="move it away"):
        topic.unpublish()
    assert [info.key for info in objects.below("t").list("_delta_log/")] == [
        "_delta_log/00000000000000000000.json"
    ]


def test_damaged_entry_is_named(topic: Topic, objects: MemoryStore) -> None:
    topic.publish()
    objects.write("t/_delta_log/00000000000000000000.json", b"\xff{")
    for use in (topic.publish, topic.vacuum):
        with pytest.raises(
            CorruptTopicError, match=r"PUB-1.*unpublish the topic and publish it again"
        ):
            use()
    topic.unpublish()
    assert topic.publish().tables[0].version == topic.version


@pytest.mark.records_in("files")
@pytest.mark.parametrize("hint", [b"", b"{", b'{"version":-1}', b'{"version":7}', b"[]"])
def test_hint_may_be_wrong(topic: Topic, objects: MemoryStore, hint: bytes) -> None:
    for _ in range(3):
        topic.publish()
        append(topic)
    objects.write(HINT, hint)
    assert topic.publish().tables[0].version == topic.version
    check_table(topic, objects.below("t"))


def test_checkpoint_that_cannot_be_written_does_not_matter(
    topic: Topic, objects: MemoryStore, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(verb: str, key: str) -> Fault | None:
        return Fault.REFUSE if verb == "write" and "_delta_log" in key else None

    opened = make_store(FaultyStore(objects, refuse), clock).topic("t")
    assert opened.publish().tables[0].version == 1
    assert "no checkpoint at entry 0" in caplog.text
    check_table(topic, objects.below("t"))


@pytest.mark.parametrize("formats", [["parquet"], [], ["delta", "csv"]])
def test_unknown_format_is_refused(topic: Topic, formats: list[str]) -> None:
    with pytest.raises(InvalidRequestError, match="the formats are delta"):
        topic.publish(formats)


@pytest.mark.parametrize(
    "key",
    [
        pa.array([5_000_000], pa.int32()).cast(pa.date32()),
        pa.array([2**60], pa.int64()).cast(pa.timestamp("us", "UTC")),
        pa.array([2**60], pa.int64()).cast(pa.timestamp("us")),
    ],
)
def test_keys_beyond_the_years_of_python_have_no_statistics(
    store: Store, objects: MemoryStore, key: pa.Array
) -> None:
    topic = store.create_topic("far", schema={"day": key.type, "n": pa.int64()}, key="day")
    topic.append(pa.table({"day": key, "n": [1]}))
    topic.publish()
    (entry,) = entries(objects.below("far"))
    assert "day" not in json.loads(actions(entry, "add")[0]["stats"])["minValues"]


def test_columns_that_differ_only_in_case_are_refused(store: Store, objects: MemoryStore) -> None:
    topic = topic_of_older_writer(store, "u", {"Name": pa.string(), "name": pa.string()})
    with pytest.raises(InvalidRequestError, match="'Name' and 'name' differ only in case"):
        topic.publish()
    assert not list(objects.below("u").list("_delta_log/"))


def test_end_offsets_that_add_up_to_more_than_64_bits(store: Store) -> None:
    topic = store.create_topic("far", 2, start_offsets={0: 2**62, 1: 2**62})
    for _ in range(2):
        topic.append(pa.table({"key": [b"a", b"b", b"c"], "value": [b"1", b"2", b"3"]}))
        topic.publish(["delta", "iceberg"])
    assert topic.verify()
