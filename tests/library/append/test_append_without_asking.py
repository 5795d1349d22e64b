"""On a store that is far away, an append does not ask first whether there are newer commits. What
others have done in the meantime is found out by the put, and counts as if it had asked."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
import pytest

from pylogtable.engine import plan_append
from pylogtable.errors import InvalidRequestError, SchemaMismatchError, TopicNotFoundError
from pylogtable.store import Store
from pylogtable.topic import Topic
from tests.builders import Clock, kafka, make_store
from tests.stores import CountingStore, FarStore

pytestmark = pytest.mark.records_in("commits", "files")

MINUTE_MS = 60_000


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def counting(clock: Clock) -> CountingStore:
    return CountingStore(FarStore(clock))


@pytest.fixture
def store(counting: CountingStore, clock: Clock, in_files: bool) -> Store:
    return make_store(counting, clock, in_files=in_files)


@pytest.fixture
def requests(in_files: bool) -> dict[str, int]:
    """Of an append that asks nothing."""
    return {"open_output": 1, "create": 1} if in_files else {"create": 1}


@pytest.fixture
def mine(store: Store) -> Topic:
    """A topic that is open here; `theirs` is the same one, open elsewhere."""
    topic = store.create_topic("t", partitions=2, config={"cleanup.policy": "delete"})
    topic.append(kafka(["first"]))
    return topic


@pytest.fixture
def theirs(store: Store, mine: Topic) -> Topic:
    return store.topic("t")


def files(counting: CountingStore) -> set[str]:
    return {entry.key for entry in counting.list("t/partition=0/")} | {
        entry.key for entry in counting.list("t/partition=1/")
    }


def test_an_append_of_another_writer_is_followed(mine: Topic, theirs: Topic) -> None:
    theirs.append(kafka(["theirs"]))
    result = mine.append(kafka(["mine"]))
    assert result.version == 3
    assert mine.read().read_all().num_rows == 3


def test_a_column_that_somebody_has_just_added_can_be_appended(mine: Topic, theirs: Topic) -> None:
    theirs.alter(add_columns={"country": "string"})
    rows = pa.table({"key": [b"k"], "value": [b"v"], "country": ["nl"]})
    mine.append(rows)
    assert mine.read(columns=["country"]).read_all()["country"].to_pylist() == [None, "nl"]


def test_a_column_that_somebody_has_just_dropped_is_refused(store: Store) -> None:
    mine = store.create_topic("d", schema={"a": "bigint", "b": "bigint"})
    store.topic("d").alter(drop_columns=["b"])
    with pytest.raises(SchemaMismatchError, match="b"):
        mine.append(pa.table({"a": [1], "b": [2]}))
    assert mine.count() == 0


def test_partitions_that_somebody_has_just_added_are_used(mine: Topic, theirs: Topic) -> None:
    theirs.alter(partitions=50)
    mine.append(kafka([f"k{n}" for n in range(200)]))
    segments = mine.segments()
    assert set(segments["hashed_over"].to_pylist()[1:]) == {50}
    assert max(segments["partition"].to_pylist()) > 1


def test_a_partition_that_somebody_has_just_added_can_be_named(mine: Topic, theirs: Topic) -> None:
    theirs.alter(partitions=3)
    rows = pa.table({"key": [b"k"], "value": [b"v"], "partition": pa.array([2], pa.int32())})
    assert mine.append(rows).offsets == {2: (0, 1)}


def test_a_missing_key_is_refused_once_the_topic_is_compacted(
    mine: Topic, theirs: Topic, counting: CountingStore
) -> None:
    theirs.alter(config={"cleanup.policy": "compact"})
    before = files(counting)
    with pytest.raises(InvalidRequestError, match="key"):
        mine.append(pa.table({"key": pa.array([None], pa.binary()), "value": [b"v"]}))
    assert files(counting) == before


@pytest.mark.records_in("files")
def test_files_that_were_shaped_for_the_topic_as_it_was_are_removed(
    mine: Topic, theirs: Topic, counting: CountingStore
) -> None:
    before = files(counting)
    theirs.alter(config={"message.timestamp.type": "LogAppendTime"})
    mine.append(kafka(["k"]))
    assert len(files(counting) - before) == 1
    assert mine.segments()["append_time"].to_pylist() == [False, True]


def test_a_topic_that_somebody_has_just_deleted_is_gone(
    store: Store, mine: Topic, counting: CountingStore
) -> None:
    store.delete_topic("t")
    with pytest.raises(TopicNotFoundError, match="deleted"):
        mine.append(kafka(["k"]))
    assert files(counting) == set()


def test_a_topic_that_was_created_again_is_another_one(store: Store, mine: Topic) -> None:
    store.delete_topic("t")
    store.create_topic("t", partitions=2)
    with pytest.raises(TopicNotFoundError, match="created in its place"):
        mine.append(kafka(["k"]))
    assert store.topic("t").count() == 0


def test_a_txn_that_somebody_has_just_applied_is_a_repeat(mine: Topic, theirs: Topic) -> None:
    first = theirs.append(kafka(["k"]), txn=("app", 1))
    again = mine.append(kafka(["k"]), txn=("app", 1))
    assert again.repeated
    assert again.offsets == first.offsets
    assert mine.count() == 2


def test_a_known_txn_is_a_repeat_without_a_file(mine: Topic, counting: CountingStore) -> None:
    mine.append(kafka(["k"]), txn=("app", 1))
    counting.reset()
    assert mine.append(kafka(["k"]), txn=("app", 1)).repeated
    assert counting.counts == {"read": 1}  # the commit, for its offsets


@pytest.mark.parametrize(
    "rows",
    [
        lambda: kafka(["k"]),
        lambda: kafka(["k"]).to_batches()[0],
        lambda: kafka(["k"]).to_batches(),
    ],
    ids=["table", "batch", "list"],
)
def test_nothing_is_asked_for_rows_that_can_be_shaped_again(
    mine: Topic,
    counting: CountingStore,
    rows: Callable[[], object],
    requests: dict[str, int],
) -> None:
    counting.reset()
    mine.append(rows())
    assert counting.counts == requests


def test_the_newest_state_is_asked_for_rows_that_come_once(
    mine: Topic, theirs: Topic, counting: CountingStore
) -> None:
    theirs.alter(partitions=50)
    counting.reset()
    mine.append(iter(kafka([f"k{n}" for n in range(200)]).to_batches()))
    assert counting.by_key["create", "t/_manifest/00000000000000000003.json"] == 1
    assert counting.counts["create"] == 1
    assert max(mine.segments()["partition"].to_pylist()) > 1


def test_a_writer_that_was_idle_for_a_minute_asks_first(
    mine: Topic, clock: Clock, counting: CountingStore
) -> None:
    clock.tick(MINUTE_MS)
    counting.reset()
    mine.append(kafka(["k"]))
    assert counting.counts["read"] > 0


def test_an_append_of_nothing_sees_the_newest_version(mine: Topic, theirs: Topic) -> None:
    newest = theirs.append(kafka(["k"])).version
    assert mine.append(kafka([])).version == newest


def test_a_producer_asks_nothing_and_follows_an_alter(
    mine: Topic, theirs: Topic, counting: CountingStore, requests: dict[str, int]
) -> None:
    with mine.producer(linger_ms=0) as producer:
        counting.reset()
        producer.send(key="k", value="v").result()
        assert counting.counts == requests
        theirs.alter(add_columns={"country": "string"})
        rows = pa.table({"key": [b"k"], "value": [b"v"], "country": ["nl"]})
        producer.send_batch(rows).result()
    assert mine.read(columns=["country"]).read_all()["country"].to_pylist()[-1] == "nl"


def test_staged_files_name_a_partition_that_the_committer_does_not_know(
    mine: Topic, theirs: Topic
) -> None:
    theirs.alter(partitions=3)
    rows = pa.table({"key": [b"k"], "value": [b"v"], "partition": pa.array([2], pa.int32())})
    staged = plan_append(theirs).stage(rows)
    assert plan_append(mine, refresh=False).commit([staged]).offsets == {2: (0, 1)}
