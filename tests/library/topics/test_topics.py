"""Creating, opening, listing, describing, altering and deleting topics."""

from __future__ import annotations

import pickle
import warnings
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import pylogtable
from pylogtable import InvalidRequestError, TopicExistsError, TopicNotFoundError
from pylogtable.storage.memory import MemoryStore
from pylogtable.store import Store
from tests.builders import T0, Clock, ints, kafka, make_store, rows, runtime, topic_of_older_writer


def test_topic_is_created_opened_and_listed(store: Store) -> None:
    assert store.topics() == []
    created = store.create_topic("b", partitions=3)
    store.create_topic("a")
    assert store.topics() == ["a", "b"]
    opened = store.topic("b")
    assert (opened.name, opened.version, opened.topic_id) == ("b", 0, created.topic_id)
    assert opened.end_offsets() == {0: 0, 1: 0, 2: 0}
    assert opened.count() == 0
    assert rows(opened.read()) == []


@pytest.mark.parametrize("name", ["a", "A-Z_0.9", "a" * 249, "__internal", "...", "-"])
def test_kafkas_names_are_allowed(store: Store, name: str) -> None:
    store.create_topic(name)
    assert store.topics() == [name]


@pytest.mark.parametrize(("one", "other"), [("a.b", "a_b"), ("a_b", "a.b"), ("a.b_c", "a_b.c")])
def test_names_that_differ_only_in_dot_and_underscore_collide(
    store: Store, one: str, other: str
) -> None:
    store.create_topic(one)
    with pytest.raises(InvalidRequestError, match="collides with existing topic"):
        store.create_topic(other)
    store.delete_topic(one)
    store.create_topic(other)


def test_topic_inside_a_topic_is_refused(store: Store, objects: MemoryStore) -> None:
    store.create_topic("outer")
    with pytest.raises(InvalidRequestError, match=r"outer, which is a topic and not a store"):
        make_store(objects.below("outer")).create_topic("inner")
    assert not list(objects.below("outer").list("inner/"))


def test_topic_may_have_the_name_of_a_folder_of_the_format(store: Store) -> None:
    for name in ("_manifest", "_groups", "other"):
        store.create_topic(name).append(kafka(["a"]))
    assert [store.topic(name).count() for name in store.topics()] == [1, 1, 1]


def test_default_topic_is_kafka_shaped(store: Store) -> None:
    described = store.create_topic("t").describe()
    assert described.key == ("key",)
    assert described.schema.names == ["partition", "offset", "timestamp", "key", "value", "headers"]
    assert described.schema.field("key").type == pa.binary()


def test_describe_shows_schema_settings_and_sizes(store: Store, clock: Clock) -> None:
    topic = store.create_topic(
        "t", partitions=2, schema={"id": pa.int64()}, key="id", config={"retention.ms": -1}
    )
    clock.tick(10)
    topic.append(pa.table({"id": [1, 2, 3], "partition": ints(1, 1, 0)}))
    described = topic.describe()
    assert (described.name, described.version, described.created_at_ms) == ("t", 1, T0)
    assert described.url == topic.url
    assert described.topic_id == topic.topic_id
    assert described.config["retention.ms"] == "-1"
    assert described.config["segment.bytes"] == "1073741824"
    assert described.config["cleanup.policy"] == "delete"
    one = described.partitions[1]
    assert (one.partition, one.log_start, one.end, one.segments, one.records) == (1, 0, 2, 1, 2)
    assert one.size_bytes > 0
    assert "t" in repr(topic)
    assert topic.url in repr(topic)
    assert store.url in repr(store)


def test_segments_are_a_table_in_partition_and_offset_order(store: Store) -> None:
    topic = store.create_topic("t", partitions=2)
    for _ in range(3):
        topic.append(kafka(["a", "b"], partition=ints(1, 0)))
    found = rows(topic.segments(), "partition", "base_offset", "end_offset", "records")
    assert found == [(p, n, n + 1, 1) for p in (0, 1) for n in range(3)]
    assert topic.segments(version=1).num_rows == 2


def test_adding_partitions_leaves_old_records_where_they_are(store: Store) -> None:
    topic = store.create_topic("t")
    keys = [f"k{n}" for n in range(20)]
    topic.append(kafka(keys))
    described = topic.alter(partitions=5)
    assert len(described.partitions) == 5
    assert topic.end_offsets() == {0: 20, 1: 0, 2: 0, 3: 0, 4: 0}
    topic.append(kafka(keys))
    assert sum(end > 0 for end in topic.end_offsets().values()) == 5
    assert rows(topic.read(0, end=20), "key") == [key.encode() for key in keys]


def test_settings_can_be_changed_and_reset_to_defaults(store: Store) -> None:
    topic = store.create_topic("t", config={"retention.ms": 5, "segment.bytes": 99})
    described = topic.alter(config={"retention.ms": None, "cleanup.policy": ["delete", "compact"]})
    assert described.config["retention.ms"] == "604800000"
    assert described.config["segment.bytes"] == "99"
    assert described.config["cleanup.policy"] == "compact,delete"
    assert store.topic("t").describe().config == described.config


def test_other_handle_sees_an_alteration_at_once(store: Store) -> None:
    topic, other = store.create_topic("t"), store.topic("t")
    topic.alter(partitions=2, add_columns={"n": pa.int64()})
    assert other.schema.names[-1] == "n"
    other.append(kafka(["a"], partition=ints(1), n=pa.array([4])))
    assert rows(topic.read(1), "n") == [4]


@pytest.mark.records_in("files")
def test_deleted_topic_and_its_data_are_gone(store: Store, objects: MemoryStore) -> None:
    topic = store.create_topic("t", partitions=2)
    topic.append(kafka(["a", "b"]))
    store.create_topic("other").append(kafka(["a"]))
    store.delete_topic("t")
    assert store.topics() == ["other"]
    assert not [info.key for info in objects.list("t/") if "partition=" in info.key]
    assert [info.key for info in objects.list("other/") if "partition=" in info.key]
    for call in (topic.count, topic.end_offsets, lambda: topic.append(kafka(["a"]))):
        with pytest.raises(TopicNotFoundError, match="deleted"):
            call()
    with pytest.raises(TopicNotFoundError):
        store.topic("t")
    with pytest.raises(TopicNotFoundError):
        store.delete_topic("t")


def test_recreated_topic_starts_at_offset_zero_with_another_id(
    store: Store, objects: MemoryStore
) -> None:
    old = store.create_topic("t")
    old.append(kafka(["a"] * 5), txn=("app", 9))
    store.delete_topic("t")
    new = store.create_topic("t", partitions=2)
    assert new.topic_id != old.topic_id
    assert new.end_offsets() == {0: 0, 1: 0}
    assert new.version > 2
    assert not new.append(kafka(["b"]), txn=("app", 1)).repeated
    assert new.count() == 1
    assert new.verify(data=True)
    with pytest.raises(TopicNotFoundError, match="was created in its place; open the topic again"):
        old.append(kafka(["c"]))
    with pytest.raises(InvalidRequestError, match="no longer kept"):
        new.count(version=1)


@pytest.mark.parametrize("how", ["deleted", "removed"])
def test_old_handle_does_not_answer_for_the_topic_created_in_its_place(
    store: Store, objects: MemoryStore, how: str
) -> None:
    old = store.create_topic("t")
    old.append(kafka(["a"]))
    if how == "deleted":
        store.delete_topic("t")
    else:
        for entry in list(objects.list("t/")):
            objects.delete(entry.key)
    new = store.create_topic("t")
    new.append(kafka(["b"]))
    commit_id = rows(new.history(), "commit_id")[0]
    for call in (
        old.verify,
        lambda: old.verify(data=True),
        lambda: old.find_commit(commit_id),
        lambda: old.find_commit(commit_id, new.version),
        lambda: old.find_commit("other", new.version),
        lambda: old.find_commit("other", new.version + 1),
    ):
        with pytest.raises(TopicNotFoundError, match="was created in its place"):
            call()
    assert new.verify(data=True)


def test_other_folders_are_not_listed_as_topics(store: Store, objects: MemoryStore) -> None:
    store.create_topic("t")
    objects.write("stray/file.txt", b"x")
    objects.write("bad name/_manifest/x.json", b"x")
    objects.write("loose.txt", b"x")
    assert store.topics() == ["t"]


@pytest.mark.parametrize("slash", ["", "/"])
def test_open_and_open_topic_find_the_same_topic(tmp_path: Path, slash: str) -> None:
    clock = Clock()
    for url in (str(tmp_path), tmp_path, f"file://{tmp_path}", f"memory://{tmp_path.name}/x"):
        store = pylogtable.open(url, clock=clock)
        if store.topics() == []:
            store.create_topic("t").append(kafka(["a"]))
        topic = pylogtable.open_topic(f"{url}/t{slash}", clock=clock)
        assert topic.count() == 1
        assert topic.describe().created_at_ms == T0


@pytest.mark.parametrize("url", ["memory://", "s3://", "/", "file:///"])
def test_open_topic_refuses_the_url_of_a_store(url: str) -> None:
    with pytest.raises(InvalidRequestError):
        pylogtable.open_topic(url)


def test_topic_on_local_disk_end_to_end(tmp_path: Path) -> None:
    store = pylogtable.open(tmp_path / "logs", clock=Clock())
    topic = store.create_topic("t", partitions=2)
    for number in range(70):
        topic.append(kafka(["a", "b"], [str(number)] * 2, partition=ints(0, 1)))
    again = pylogtable.open_topic(tmp_path / "logs" / "t")
    assert again.end_offsets() == {0: 70, 1: 70}
    assert rows(again.latest(["a"]), "value") == [b"69"]
    assert again.verify(data=True)
    with pytest.raises(TopicExistsError):
        store.create_topic("t")
    store.delete_topic("t")
    assert store.topics() == []


def test_store_without_put_if_absent_is_refused(objects: MemoryStore) -> None:
    class Overwriting(MemoryStore):
        def below(self, prefix: str) -> Any:
            below = Overwriting(self._name, self._full(prefix.rstrip("/")) + "/")
            below._space = self._space
            return below

        def create(self, key: str, data: bytes) -> Any:
            self.write(key, data)
            return pylogtable.storage.base.Created.YES

    with pytest.raises(pylogtable.UnsupportedFormatError, match="conditional puts"):
        make_store(Overwriting()).create_topic("t")


@pytest.mark.parametrize("repeats", [1, 3])
def test_topic_created_again_never_has_the_id_of_the_deleted_one(repeats: int) -> None:
    """Even if the source of ids repeats itself [META-5]."""
    objects = MemoryStore()
    store = make_store(objects)
    deleted = store.create_topic("t").topic_id
    store.delete_topic("t")
    ids = [*[deleted] * repeats, *(f"fresh{number}" for number in range(9))]
    poor = Store(objects, replace(runtime(), new_id=lambda: ids.pop(0)))
    assert poor.create_topic("t").topic_id == "fresh0"


def test_topic_is_not_created_under_the_id_of_the_deleted_one(store: Store) -> None:
    deleted = store.create_topic("t").topic_id
    store.delete_topic("t")
    stuck = Store(store._store, replace(runtime(), new_id=lambda: deleted))
    with pytest.raises(InvalidRequestError, match="the id of the deleted topic"):
        stuck.create_topic("t")
    assert store.topics() == []
    assert store.create_topic("t").topic_id != deleted


def test_pickled_topic_is_not_taken_for_one_created_in_its_place(tmp_path: Path) -> None:
    store = pylogtable.open(tmp_path)
    topic = store.create_topic("t")
    topic.append(kafka(["a"]))
    pickled = pickle.dumps(topic)
    assert pickle.loads(pickled).count() == 1
    store.delete_topic("t")
    store.create_topic("t")
    with pytest.raises(TopicNotFoundError, match="another one was created in its place"):
        pickle.loads(pickled)


# --- names that differ only in case ----------------------------------------------------------


@pytest.mark.parametrize(
    ("schema", "why"),
    [
        ({"name": pa.string(), "Name": pa.string()}, "'name' differs only in case from 'Name'"),
        ({"n": pa.int64(), "OFFSET": pa.int64()}, "'OFFSET' differs only in case from 'offset'"),
        ({"Topic": pa.string()}, "Names with a meaning of their own are headers, partition"),
        (
            {"s": pa.list_(pa.struct({"x": pa.int64(), "X": pa.int64()}))},
            "column 's' has a struct with the fields 'x' and 'X', which differ only in case",
        ),
    ],
)
def test_new_names_that_differ_only_in_case_are_refused(
    store: Store, schema: dict[str, pa.DataType], why: str
) -> None:
    with pytest.raises(InvalidRequestError, match=why):
        store.create_topic("t", schema=schema)
    topic = store.create_topic("u", schema={"id": pa.int64()})
    with pytest.raises(InvalidRequestError, match=why):
        topic.alter(add_columns=schema)
    assert topic.version == 0


def test_topic_of_an_older_writer_with_such_names_goes_on(store: Store) -> None:
    names = {"a": pa.int64(), "A": pa.int64(), "Offset": pa.int64()}
    topic = topic_of_older_writer(store, "t", names)
    topic.append(pa.table({"a": [1], "A": [2], "Offset": [3]}))
    topic.alter(config={"retention.ms": -1}, add_columns={"b": pa.int64()})
    with pytest.raises(InvalidRequestError, match="'B' differs only in case from 'b'"):
        topic.alter(add_columns={"B": pa.int64()})
    topic.alter(rename_columns={"A": "other", "Offset": "place"})
    topic.append(pa.table({"a": [1], "other": [2], "place": [3], "b": [4]}))
    assert rows(topic.read(), "a", "other", "place", "b") == [(1, 2, 3, None), (1, 2, 3, 4)]
    assert topic.verify(data=True)


def test_an_existing_topic_is_opened_if_asked_and_what_differs_is_told(store: Store) -> None:
    nested = {"tags": "array<struct<a:int,b:string>>"}
    schema = {"id": "int", "name": "string", **nested}
    asked: dict[str, Any] = {"partitions": 3, "schema": schema, "key": "id"}
    asked["config"] = {"retention.ms": 5, "cleanup.policy": "delete,compact"}
    made = store.create_topic("t", **asked, if_not_exists=True)
    made.append(pa.table({"id": pa.array([1], pa.int32()), "name": ["a"]}))
    made.alter(add_columns={"more": "string"})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        same = store.create_topic("t", **asked, if_not_exists=True)
        defaults = store.create_topic("t", schema=schema, key="id", if_not_exists=True)
    assert same.topic_id == defaults.topic_id == made.topic_id
    assert same.count() == 1
    with pytest.raises(TopicExistsError):
        store.create_topic("t", **asked)
    with pytest.warns(
        UserWarning, match="topic 't' in .* exists already and stays as it is"
    ) as told:
        store.create_topic(
            "t",
            5,
            {"id": "int", "name": "int", "lost": "date"},
            ["id", "name"],
            {"retention.ms": -1, "cleanup.policy": "compact,delete"},
            if_not_exists=True,
        )
    (warning,) = told
    assert warning.filename == __file__
    assert str(warning.message).partition("as it is: ")[2] == (
        "3 partition(s) (asked: 5), the key is id (asked: id, name), column 'name' is string "
        "(asked: int), there is no column 'lost' (asked: date), retention.ms=5 (asked: -1). "
        "topic.alter(...) changes it"
    )
    assert made.at().partition_count == 3
    with pytest.warns(UserWarning, match="there is no column 'key' .asked: binary."):
        store.create_topic("t", if_not_exists=True)
    with pytest.raises(InvalidRequestError, match=r"retention\.m"):
        store.create_topic("t", config={"retention.m": 1}, if_not_exists=True)
    with pytest.raises(InvalidRequestError, match="if_not_exists"):
        store.create_topic("t", if_not_exists="yes")  # type: ignore[arg-type]


def test_wider_columns_are_no_difference(store: Store) -> None:
    topic = store.create_topic("t", schema={"id": "int", "n": "int"}, key="id")
    topic.alter(widen_columns={"n": "bigint"})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        store.create_topic("t", schema={"id": "int", "n": "int"}, key="id", if_not_exists=True)


def test_of_two_who_create_a_topic_at_once_both_get_it_if_asked(store: Store) -> None:
    with ThreadPoolExecutor(4) as pool:
        made = [pool.submit(store.create_topic, "t", 2, if_not_exists=True) for _ in range(4)]
    assert len({future.result().topic_id for future in made}) == 1


def test_a_store_exists_once_it_has_a_folder(tmp_path: Path) -> None:
    store = pylogtable.open(tmp_path / "logs")
    assert not store.exists()
    store.create_topic("t")
    assert store.exists()
    assert pylogtable.open("memory://anything").exists()
