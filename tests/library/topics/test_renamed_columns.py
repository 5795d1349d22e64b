"""Renamed and dropped columns, through every way to write and to read them."""

from __future__ import annotations

import io
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from msgspec.structs import replace

from pylogtable import (
    CorruptTopicError,
    InvalidRequestError,
    SchemaMismatchError,
    UnsupportedFormatError,
)
from pylogtable.engine import Scan, plan_append
from pylogtable.format import json_codec
from pylogtable.storage.memory import MemoryStore
from pylogtable.store import Store
from pylogtable.topic import Topic
from tests.builders import make_store, replace_file, rows

pytestmark = pytest.mark.records_in("commits", "files")

SCHEMA = {"id": pa.int64(), "a": pa.string(), "b": pa.int32(), "c": pa.float64()}


def make(store: Store, key: str | None = "id", **config: Any) -> Topic:
    topic = store.create_topic(
        "t", partitions=1, schema=SCHEMA, key=key, config={"segment.bytes": 1 << 20, **config}
    )
    topic.append(table(id=[1, 2], a=["x", "y"], b=[10, 20], c=[0.5, None]))
    return topic


def table(**columns: list[Any]) -> pa.Table:
    types = {"id": pa.int64(), "a": pa.string(), "b": pa.int32(), "c": pa.float64()}
    return pa.table({name: pa.array(given, types.get(name)) for name, given in columns.items()})


def stored_columns(objects: MemoryStore, topic: Topic) -> list[list[str]]:
    """The columns of each live file, without the log's own."""
    found = []
    for path in rows(topic.segments(), "path"):
        data = objects.read(f"t/{path}")
        assert data is not None
        found.append(pq.ParquetFile(io.BytesIO(data)).schema_arrow.names[2:])
    return found


def test_a_renamed_column_shows_old_and_new_records_under_its_new_name(store: Store) -> None:
    topic = make(store)
    altered = topic.alter(rename_columns={"a": "name"})
    assert altered.schema.names[3:] == ["id", "name", "b", "c"]
    topic.append(pa.table({"id": [3], "name": ["z"]}))
    assert rows(topic.read(), "id", "name") == [(1, "x"), (2, "y"), (3, "z")]
    assert rows(topic.read(columns=["name"]), "name") == ["x", "y", "z"]
    assert sorted(rows(topic.latest(keys=[1, 3], columns=["name"]), "name")) == ["x", "z"]
    assert rows(topic.latest(), "name") == ["x", "y", "z"]
    with pytest.raises(InvalidRequestError, match="no column 'a'"):
        topic.read(columns=["a"])
    assert topic.verify(data=True)


def test_an_older_version_keeps_its_names_and_columns(store: Store) -> None:
    topic = make(store)
    before = topic.version
    topic.alter(rename_columns={"a": "name"}, drop_columns=["b"])
    topic.alter(add_columns={"b": pa.string()})
    old = topic.read(version=before).read_all()
    assert old.column_names[3:] == ["id", "a", "b", "c"]
    assert rows(old, "a", "b") == [("x", 10), ("y", 20)]
    middle = topic.read(version=before + 1).read_all()
    assert middle.column_names[3:] == ["id", "name", "c"]


def test_names_can_be_swapped_in_one_call(store: Store) -> None:
    topic = make(store)
    topic.alter(widen_columns={"b": pa.int64()})
    topic.alter(rename_columns={"a": "b", "b": "a"})
    topic.append(pa.table({"id": [3], "a": [30], "b": ["z"]}))
    assert rows(topic.read(), "a", "b") == [(10, "x"), (20, "y"), (30, "z")]
    assert topic.verify(data=True)


@pytest.mark.records_in("files")
def test_a_column_that_is_added_under_a_dropped_name_shows_no_old_values(
    store: Store, objects: MemoryStore
) -> None:
    topic = make(store)
    topic.alter(drop_columns=["a"])
    assert topic.schema.names[3:] == ["id", "b", "c"]
    topic.append(pa.table({"id": [3], "b": pa.array([30], pa.int32())}))
    topic.alter(add_columns={"a": pa.string()})
    topic.append(pa.table({"id": [4], "a": ["new"]}))
    assert rows(topic.read(), "id", "a") == [(1, None), (2, None), (3, None), (4, "new")]
    assert stored_columns(objects, topic) == [
        ["id", "a", "b", "c"],
        ["id", "b", "c"],
        ["id", "b", "c", "a-20"],
    ]
    assert topic.verify(data=True)


def test_a_rewritten_file_has_the_stored_names_and_leaves_dropped_columns_out(
    store: Store, objects: MemoryStore
) -> None:
    topic = make(store)
    topic.append(table(id=[1], a=["second"]))
    topic.alter(rename_columns={"a": "name"}, drop_columns=["c"], add_columns={"c": pa.string()})
    topic.append(pa.table({"id": [5], "name": ["v"], "c": ["new"]}))
    before = rows(topic.read())
    topic.merge()
    assert rows(topic.read()) == before
    assert stored_columns(objects, topic) == [["id", "a", "b", "c-20"]]
    assert topic.verify(data=True)


def test_a_compaction_reads_renamed_columns(store: Store, objects: MemoryStore) -> None:
    topic = make(store, **{"cleanup.policy": "compact", "delete.retention.ms": 0})
    topic.alter(rename_columns={"a": "name", "b": "a"})
    topic.append(
        pa.table({"id": [1, 2], "name": [None, "w"], "a": pa.array([None, 5], pa.int32())})
    )
    topic.compact(force=True)
    assert rows(topic.read(), "id", "name", "a", "c") == [(1, None, None, None), (2, "w", 5, None)]
    topic._log.runtime.clock.tick(1000)  # type: ignore[attr-defined]
    topic.compact(force=True)
    assert rows(topic.read(), "id") == [2]
    assert stored_columns(objects, topic)[-1] == ["id", "a", "b", "c"]
    assert topic.verify(data=True)


def test_files_that_were_staged_before_an_alteration_are_committed_after_it(store: Store) -> None:
    topic = make(store)
    staged = plan_append(topic).stage(table(id=[7], a=["staged"], b=[70], c=[7.0]))
    other = store.topic("t")
    other.alter(rename_columns={"a": "name"}, drop_columns=["b"])
    other.alter(add_columns={"b": pa.int32(), "a": pa.string()})
    plan_append(topic).commit([staged])
    assert rows(topic.read(start=2), "id", "name", "c", "b", "a") == [
        (7, "staged", 7.0, None, None)
    ]
    assert topic.verify(data=True)


def test_a_read_that_began_before_an_alteration_ends_with_its_own_columns(store: Store) -> None:
    topic = make(store)
    view = topic.at()
    reader = Scan(view).reader()
    topic.alter(rename_columns={"a": "b", "b": "a"}, drop_columns=["c"])
    assert rows(view.read(), "a", "b", "c") == [("x", 10, 0.5), ("y", 20, None)]
    (part,) = Scan(view).parts()
    assert pa.Table.from_batches(reader.read(part))["a"].to_pylist() == ["x", "y"]


def test_a_scan_refuses_columns_that_the_version_does_not_have(store: Store) -> None:
    topic = make(store)
    schema = topic.schema
    topic.alter(drop_columns=["a"])
    with pytest.raises(SchemaMismatchError, match=r"has no column\(s\) a at version"):
        Scan(topic.at()).reader(schema)


def test_an_append_with_the_old_name_says_what_became_of_it(store: Store) -> None:
    topic = make(store)
    topic.alter(rename_columns={"a": "name"}, drop_columns=["b"])
    with pytest.raises(SchemaMismatchError, match="it was renamed to 'name'"):
        topic.append(table(id=[1], a=["x"]))
    with pytest.raises(SchemaMismatchError, match="it was dropped"):
        topic.append(table(id=[1], b=[1]))


def test_a_producer_goes_on_after_columns_were_renamed_and_dropped(store: Store) -> None:
    topic = make(store)
    producer = topic.producer(linger_ms=0)
    store.topic("t").alter(rename_columns={"a": "name"}, drop_columns=["c"])
    producer.send(id=3, b=30).result()
    refused = producer.send(id=4, a="old name")
    with pytest.raises(SchemaMismatchError, match="renamed to 'name'"):
        refused.result()
    producer.send(id=5, name="new name").result()
    producer.close()
    assert rows(topic.read(start=2), "id", "name", "b") == [(3, None, 30), (5, "new name", None)]


def test_a_consumer_goes_on_with_the_new_columns(store: Store) -> None:
    topic = make(store)
    with topic.consumer("all") as everything, topic.consumer("some", columns=["a"]) as some:
        assert everything.poll(max_records=1).column_names[3:] == ["id", "a", "b", "c"]
        assert rows(some.poll(max_records=1), "a") == ["x"]
        topic.alter(rename_columns={"a": "name"})
        topic.append(pa.table({"id": [3], "name": ["z"]}))
        # It ends what it began.
        assert rows(everything.poll(), "a") == ["y"]
        assert rows(some.poll(), "a") == ["y"]
        assert rows(everything.poll(), "id", "name") == [(3, "z")]
        with pytest.raises(InvalidRequestError, match="no column 'a'"):
            some.poll()


def test_only_value_columns_can_be_renamed_and_dropped(store: Store) -> None:
    topic = make(store)
    version = topic.version
    for change, message in (
        ({"rename_columns": {"id": "key"}}, "belongs to the key"),
        ({"drop_columns": ["id"]}, "belongs to the key"),
        ({"drop_columns": ["offset"]}, "has a meaning of its own"),
        ({"rename_columns": {"a": "timestamp"}}, "has a meaning of its own"),
        ({"rename_columns": {"a": "headers"}}, "has a meaning of its own"),
        ({"rename_columns": {"a": "b"}}, "already has a column 'b'"),
        ({"rename_columns": {"a": "n", "b": "n"}}, "already has a column 'n'"),
        ({"rename_columns": {"a": "a"}}, "already has this name"),
        ({"drop_columns": ["a", "a"]}, "dropped twice"),
        ({"drop_columns": ["nope"]}, "Columns to drop: a, b, c"),
        ({"drop_columns": ["a", "b", "c"]}, "no value column would be left"),
        ({"drop_columns": ["a"], "rename_columns": {"a": "n"}}, "dropped and changed"),
        ({"drop_columns": "a"}, "must be a list of names"),
        ({"rename_columns": ["a"]}, "must be a dict"),
        ({"rename_columns": {"a": 1}}, "must be a string"),
    ):
        with pytest.raises(InvalidRequestError, match=message):
            topic.alter(**change)  # type: ignore[arg-type]
    assert topic.version == version


def test_a_drop_never_makes_tombstones_of_records_in_a_compacted_topic(store: Store) -> None:
    topic = make(store)
    topic.alter(drop_columns=["a"])
    with pytest.raises(InvalidRequestError, match=r"removed as tombstones \[META-8\]"):
        topic.alter(config={"cleanup.policy": "compact"})
    compacted = store.create_topic(
        "u",
        partitions=1,
        schema=pa.schema([("id", pa.int64()), ("a", pa.string()), ("b", pa.int32())]),
        key="id",
        config={"cleanup.policy": "compact"},
    )
    with pytest.raises(InvalidRequestError, match="removed as tombstones"):
        compacted.alter(drop_columns=["a"])
    compacted.alter(rename_columns={"a": "name"})
    required = store.create_topic(
        "v",
        partitions=1,
        schema=pa.schema(
            [("id", pa.int64()), ("a", pa.string()), pa.field("b", pa.int32(), nullable=False)]
        ),
        key="id",
        config={"cleanup.policy": "compact"},
    )
    required.alter(drop_columns=["a"])
    assert required.schema.names[3:] == ["id", "b"]


def test_tombstones_of_a_file_are_counted_by_its_own_columns(store: Store) -> None:
    topic = make(store)
    topic.append(table(id=[1, 2], a=["only", None], b=[None, None], c=[None, None]))
    assert rows(topic.segments(), "tombstones") == [0, 1]
    topic.alter(drop_columns=["a"])
    assert topic.verify(data=True)
    topic.merge()
    assert rows(topic.segments(), "tombstones") == [2]
    assert topic.verify(data=True)


@pytest.mark.records_in("files")
def test_the_first_rename_turns_on_the_feature_and_an_addition_does_not(store: Store) -> None:
    topic = make(store)
    topic.alter(add_columns={"d": pa.string()})
    assert topic.at().snapshot.protocol.reader_features == ()
    topic.alter(rename_columns={"a": "name"})
    for _ in range(2):
        protocol = topic.at().snapshot.protocol
        assert protocol.reader_features == ("column-mapping",)
        assert set(protocol.writer_features) == {"column-mapping", "combined-appends"}
        topic.alter(drop_columns=["d" if "d" in topic.schema.names else "b"])


@pytest.mark.records_in("files")
def test_a_version_that_does_not_know_the_feature_refuses_the_topic(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    make(store).alter(drop_columns=["a"])
    monkeypatch.setattr(json_codec, "READER_FEATURES", frozenset())
    with pytest.raises(UnsupportedFormatError, match=r"column-mapping. Upgrade pylogtable"):
        store.topic("t")


def test_a_topic_from_before_ids_can_be_renamed(objects: MemoryStore, store: Store) -> None:
    topic = make(store)
    first = objects.read("t/_manifest/00000000000000000000.json")
    assert first is not None
    commit = json_codec.decode_commit(first, 0)
    old = json_codec.encode(_without_ids(commit))
    assert b'"id":16' not in old
    objects.delete("t/_manifest/00000000000000000000.json")
    objects.write("t/_manifest/00000000000000000000.json", old)
    topic = make_store(objects).topic("t")
    assert topic.at().column_ids["a"] == 17
    topic.append(table(id=[3], a=["z"]))
    topic.alter(rename_columns={"a": "name"})
    assert rows(topic.read(), "name") == ["x", "y", "z"]
    assert topic.at().column_ids["name"] == 17
    assert topic.verify(data=True)


def _without_ids(commit: Any) -> Any:
    fields = tuple(replace(field, id=None) for field in commit.topic.fields)
    return replace(commit, topic=replace(commit.topic, fields=fields, last_field_id=None))


def test_ids_of_columns_tell_whether_a_name_means_the_same(store: Store) -> None:
    topic = make(store)
    assert topic.at().column_ids == {
        "partition": 1,
        "offset": 2,
        "timestamp": 3,
        "id": 16,
        "a": 17,
        "b": 18,
        "c": 19,
    }
    topic.alter(rename_columns={"a": "b", "b": "a"})
    assert (topic.at().column_ids["a"], topic.at().column_ids["b"]) == (18, 17)


@pytest.mark.records_in("files")
@pytest.mark.parametrize("wrong", [{"a": 18}, {"b": 99}])
def test_a_file_with_another_id_is_corrupt(
    store: Store, objects: MemoryStore, wrong: dict[str, int]
) -> None:
    topic = make(store)
    (path,) = rows(topic.segments(), "path")
    data = objects.read(f"t/{path}")
    assert data is not None
    whole = pq.read_table(io.BytesIO(data))
    fields = [
        field.with_metadata({"PARQUET:field_id": str(wrong[field.name])})
        if field.name in wrong
        else field
        for field in whole.schema
    ]
    sink = io.BytesIO()
    pq.write_table(whole.cast(pa.schema(fields)), sink, store_schema=False)
    topic = replace_file(objects, "t", path, sink.getvalue())
    with pytest.raises(CorruptTopicError, match=r"META-6"):
        topic.read().read_all()
    assert topic.read(columns=["id"]).read_all().num_rows == 2


def test_history_says_that_the_topic_was_altered(store: Store) -> None:
    topic = make(store)
    topic.alter(rename_columns={"a": "name"})
    assert rows(topic.history(1), "operation") == ["alter"]


def test_old_name_is_answered_with_the_new_one(store: Store) -> None:
    topic = make(store)
    topic.alter(rename_columns={"a": "name", "b": "c", "c": "b"})
    said = r"'a'.* it was renamed to 'name'$"
    for call in (
        lambda: topic.append(table(id=[3], a=["z"])),
        lambda: topic.read(columns=["a"]),
        lambda: topic.latest(columns=["a"]),
        lambda: topic.consumer("g", columns=["a"]),
        lambda: topic.producer().send(id=3, a="z"),
        lambda: topic.alter(drop_columns=["a"]),
        lambda: topic.alter(rename_columns={"a": "other"}),
        lambda: topic.alter(widen_columns={"a": pa.binary()}),
    ):
        with pytest.raises((InvalidRequestError, SchemaMismatchError), match=said):
            call()


def test_refusal_to_compact_is_true_after_a_column_was_added_again(store: Store) -> None:
    topic = make(store)
    topic.alter(drop_columns=["a"])
    topic.alter(add_columns={"a": pa.string()})
    with pytest.raises(InvalidRequestError, match=r"columns were dropped \(in files: a\)"):
        topic.alter(config={"cleanup.policy": "compact"})
