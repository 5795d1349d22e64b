"""A topic with records without a key becomes compacted."""

from __future__ import annotations

import pyarrow as pa
import pytest

from pylogtable import Topic
from pylogtable.store import Store
from tests.builders import kafka, limited, rows

pytestmark = pytest.mark.records_in("commits", "files")

COMPACT = {"cleanup.policy": "compact"}


@pytest.fixture
def topic(store: Store) -> Topic:
    topic = store.create_topic("t")
    topic.append(kafka(["a", None, None]))
    topic.append(kafka([None, "b"]))
    return topic


def test_altering_to_compact_tells_how_many_records_have_no_key(topic: Topic) -> None:
    with pytest.warns(UserWarning, match=r"'t' has 3 record\(s\) without a key") as told:
        topic.alter(config=COMPACT)
    assert told[0].filename == __file__
    topic.compact(force=True)
    assert rows(topic.read(), "key") == [b"a", b"b"]  # what the warning says


def test_the_count_is_a_bound_if_there_are_many_files(topic: Topic) -> None:
    topic = limited(topic, counted_footers=1)
    with pytest.warns(UserWarning, match=r"has at least 2 record\(s\)"):
        topic.alter(config=COMPACT)


@pytest.mark.records_in("files")
def test_a_key_of_several_columns_is_null_if_all_are(store: Store) -> None:
    schema = {"a": "bigint", "b": "string", "v": "string"}
    topic = store.create_topic("t", schema=schema, key=["a", "b"])
    topic.append(pa.table({"a": [None, None, 1], "b": ["x", None, None], "v": ["1", "2", "3"]}))
    with pytest.warns(UserWarning, match=r"has up to 2 record\(s\)"):
        topic.alter(config=COMPACT)


def test_records_in_commits_are_counted_beside_those_in_files(store: Store) -> None:
    schema = {"a": "bigint", "b": "string", "v": "string"}
    topic = store.create_topic("t", schema=schema, key="a", config={"inline.max.bytes": 16384})
    topic.append(pa.table({"a": [None, 2], "v": ["1", "2"]}))
    topic.alter(rename_columns={"v": "w"})
    with pytest.warns(UserWarning, match=r"has 1 record\(s\)"):
        topic.alter(config=COMPACT)
    topic.alter(config={"cleanup.policy": "delete", "inline.max.bytes": 0})
    topic.append(pa.table({"a": [None, None, 1]}))
    with pytest.warns(UserWarning, match=r"has 3 record\(s\)"):
        topic.alter(config=COMPACT)


@pytest.mark.filterwarnings("error")
def test_nothing_is_told_without_null_keys_or_without_the_change(
    store: Store, topic: Topic
) -> None:
    topic.alter(config={"retention.ms": -1})
    keyed = store.create_topic("keyed")
    keyed.append(kafka(["a", "b"]))
    keyed.alter(config=COMPACT)
    keyed.alter(config={"retention.ms": 5})
    schema = pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("v", pa.string())])
    required = store.create_topic("required", schema=schema, key="id")
    required.append(pa.table({"id": [1], "v": ["x"]}))
    required.alter(config=COMPACT)


@pytest.mark.records_in("files")
def test_file_that_is_gone_does_not_forbid_the_change(topic: Topic) -> None:
    topic._store.delete(topic.segments()["path"][0].as_py())
    assert topic.alter(config=COMPACT).config["cleanup.policy"] == "compact"


@pytest.mark.filterwarnings("error")
def test_error_made_of_the_warning_changes_nothing(topic: Topic) -> None:
    with pytest.raises(UserWarning, match="without a key"):
        topic.alter(config=COMPACT)
    assert topic.version == 2
