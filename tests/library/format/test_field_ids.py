"""Ids of columns: in the topic, in files, and what readers see of them."""

from __future__ import annotations

import io
import re

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from pylogtable.format.field_ids import field_fault, ids_in_file, numbered, stored_schema
from pylogtable.format.model import Field, TopicInfo
from pylogtable.format.schema import from_arrow
from pylogtable.storage.memory import MemoryStore
from pylogtable.topic import Topic
from tests.builders import IN_FILES, make_store

NESTED = pa.struct(
    [
        ("tags", pa.list_(pa.string())),
        ("counts", pa.map_(pa.string(), pa.int64())),
        ("n", pa.int8()),
    ]
)
SCHEMA = pa.schema([("id", pa.int64()), ("nested", NESTED), ("note", pa.string())])
ROWS = pa.table(
    {
        "id": [1, 2],
        "nested": [{"tags": ["a", None], "counts": [("x", 1)], "n": 1}, None],
        "note": ["one", None],
    },
    schema=SCHEMA,
)


def ids_in_files(objects: MemoryStore, topic: Topic) -> list[dict[str, int]]:
    """For each live file, the id of every field in it, by its Parquet path."""
    found = []
    for path in topic.segments()["path"].to_pylist():
        data = objects.read(f"t/{path}")
        assert data is not None
        text = str(pq.ParquetFile(io.BytesIO(data)).schema)
        fields = re.findall(r"^( +).*field_id=(-?\d+) (\w+)", text, re.MULTILINE)
        stack: list[str] = []
        ids: dict[str, int] = {}
        for indent, number, name in fields:
            stack = [*stack[: len(indent) // 2 - 1], name]
            ids[".".join(stack)] = int(number)
        found.append({where: number for where, number in ids.items() if number >= 0})
    return found


def info(topic: Topic) -> TopicInfo:
    return topic.at().snapshot.info


def test_a_new_topic_gives_each_column_and_each_field_inside_an_id() -> None:
    topic = make_store().create_topic("t", partitions=1, schema=SCHEMA)
    assert [field.id for field in info(topic).fields] == [16, 17, 24]
    assert info(topic).last_field_id == 24


def test_an_added_column_takes_the_next_id() -> None:
    topic = make_store().create_topic("t", partitions=1, schema=SCHEMA)
    topic.alter(add_columns={"more": NESTED})
    topic.alter(add_columns={"last": pa.string()}, widen_columns={})
    assert [field.id for field in info(topic).fields] == [16, 17, 24, 25, 32]
    assert info(topic).last_field_id == 32


def test_files_have_the_ids_as_parquet_field_ids_also_after_a_merge() -> None:
    objects = MemoryStore()
    topic = make_store(objects).create_topic("t", partitions=1, schema=SCHEMA, config=IN_FILES)
    for _ in range(2):
        topic.append(ROWS)
    expected = {
        "offset": 2,
        "timestamp": 3,
        "id": 16,
        "nested": 17,
        "nested.tags": 18,
        "nested.tags.list.element": 19,
        "nested.counts": 20,
        "nested.counts.key_value.key": 21,
        "nested.counts.key_value.value": 22,
        "nested.n": 23,
        "note": 24,
    }
    assert ids_in_files(objects, topic) == [expected, expected]
    topic.merge()
    assert ids_in_files(objects, topic) == [expected]


def test_readers_do_not_see_ids() -> None:
    topic = make_store().create_topic("t", partitions=1, schema=SCHEMA)
    topic.append(ROWS)
    for batch in topic.read():
        assert batch.schema.equals(topic.schema, check_metadata=True)
        for field, column in zip(batch.schema, batch.columns, strict=True):
            assert column.type.equals(field.type, check_metadata=True)
            assert not field.metadata
        assert batch.select(["id", "nested", "note"]).to_pylist() == ROWS.to_pylist()
    assert not topic.schema.field("nested").type.field("tags").metadata


def test_a_topic_without_ids_has_the_ids_that_it_would_have_been_given() -> None:
    fields = tuple(Field(name=f.name, type=from_arrow(f.type)) for f in SCHEMA)
    old = TopicInfo(fields=fields, partitions=1, created_at_ms=0)
    assert field_fault(old) is None
    new = numbered(old)
    assert [field.id for field in new.fields] == [16, 17, 24]
    assert numbered(new) == new
    assert stored_schema(old).equals(stored_schema(new), check_metadata=True)
    assert [ids_in_file(column) for column in stored_schema(old)] == [
        [2],
        [3],
        [16],
        list(range(17, 24)),
        [24],
    ]


def test_a_stored_name_is_the_name_in_files() -> None:
    fields = (Field(name="a", type="string"), Field(name="b", type="string", stored_as="x"))
    topic = TopicInfo(fields=fields, partitions=1, created_at_ms=0)
    assert stored_schema(topic).names == ["offset", "timestamp", "a", "x"]
    assert field_fault(topic) is None
    taken = msgspec.structs.replace(fields[1], stored_as="a")
    fault = field_fault(msgspec.structs.replace(topic, fields=(fields[0], taken)))
    assert fault is not None
    assert fault.rule == "META-7"
