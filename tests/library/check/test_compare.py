"""`Topic.compare`: equal content is equal however it is stored, and each difference is named."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

from pylogtable import ComparisonReport, InvalidRequestError, Topic
from pylogtable.engine import plan_append
from pylogtable.storage.memory import MemoryStore
from pylogtable.store import Store
from tests.builders import ints, kafka, limited, make_store, times
from tests.stores import CountingStore

HEADERS = pa.array(
    [[{"key": "h", "value": b"1"}], None, []] * 10,
    pa.list_(pa.struct({"key": pa.string(), "value": pa.binary()})),
)
RECORDS = kafka(
    [f"k{n % 7}" if n % 5 else None for n in range(30)],
    [f"v{n}" if n % 4 else None for n in range(30)],
    partition=ints(*[n % 2 for n in range(30)]),
    timestamp=times(*range(30)),
    headers=HEADERS,
)


def other_store(wrap: Callable[[MemoryStore], Any] = lambda objects: objects) -> Store:
    return make_store(wrap(MemoryStore()))


def make(store: Store, name: str = "t", inline: bool = False, **given: Any) -> Topic:
    given.setdefault("partitions", 2)
    return store.create_topic(name, config={"inline.max.bytes": 10_000 if inline else 0}, **given)


def filled(topic: Topic, step: int = 30) -> Topic:
    for start in range(0, RECORDS.num_rows, step):
        topic.append(RECORDS.slice(start, step))
    return topic


def copied(topic: Topic, **bounds: Any) -> pa.Table:
    return topic.read(**bounds).read_all()


def changed(table: pa.Table, name: str, row: int, value: Any) -> pa.Table:
    index = table.schema.get_field_index(name)
    values = table[name].to_pylist()
    values[row] = value
    return table.set_column(index, table.schema.field(index), pa.array(values, table[name].type))


@pytest.fixture
def topic(store: Store) -> Topic:
    return filled(make(store))


def merged(store: Store) -> Topic:
    topic = filled(make(store), step=3)
    before = topic.segments().num_rows
    topic.merge()
    assert topic.segments().num_rows < before
    return topic


def shifted(store: Store) -> Topic:
    """The files of two appends are staged before either is committed, so those of the second one
    are shifted."""
    topic = make(store)
    for staged in [plan_append(topic).stage(RECORDS.slice(start, 15)) for start in (0, 15)]:
        plan_append(topic).commit([staged])
    assert set(topic.segments()["shift"].to_pylist()) != {0}
    return topic


@pytest.mark.parametrize(
    "store_it",
    [
        lambda store: filled(make(store)),
        lambda store: filled(make(store), step=1),
        lambda store: filled(make(store, inline=True), step=4),
        merged,
        shifted,
    ],
    ids=["one commit", "many commits", "inline", "merged", "shifted"],
)
def test_how_records_are_stored_does_not_matter(
    topic: Topic, store_it: Callable[[Store], Topic]
) -> None:
    again = store_it(other_store())
    report = topic.compare(again)
    assert report, report
    assert report.equal
    assert report.same_so_far
    assert report.differences == []
    assert (report.records_hashed, report.lag) == (60, 0)
    assert report.bytes_hashed > 0
    assert {row.digest for row in report.partitions} == {r.other_digest for r in report.partitions}
    assert again.compare(topic).partitions[0].digest == report.partitions[0].digest


def test_offsets_are_part_of_the_content(topic: Topic) -> None:
    """Records after holes are others than records without."""
    again = make(other_store(), start_offsets={0: 1})
    again.append(
        RECORDS.append_column("offset", [[n // 2 + 1 for n in range(30)]]), keep_offsets=True
    )
    report = topic.compare(again)
    assert not report.same_so_far
    assert report.partitions[0].common == (1, 15)
    assert report.partitions[0].first_difference == 1


@pytest.mark.parametrize(
    ("name", "value"),
    [("value", b"x"), ("value", b""), ("key", None), ("headers", None), ("timestamp", times(9)[0])],
)
def test_one_changed_value_is_found(topic: Topic, name: str, value: Any) -> None:
    table = changed(copied(topic), name, 20, value)
    again = make(other_store())
    again.append(table, keep_offsets=True)
    report = topic.compare(again)
    assert not report
    assert not report.same_so_far
    assert [row.first_difference for row in report.partitions] == [None, 5]
    assert report.differences == [
        f"partition 1: the records from offset 0 to 15 differ; the first that differs is at offset "
        f"5, in column {name!r}"
    ]
    assert topic.compare(again, data=False)


def test_the_first_difference_is_searched_in_its_block(topic: Topic) -> None:
    topic = limited(topic, compared_offsets=4)
    table = changed(changed(copied(topic, partition=0), "value", 9, b"!"), "value", 14, b"!")
    again = make(other_store(), partitions=1)
    again.append(table, keep_offsets=True)
    assert topic.compare(again).partitions[0].first_difference == 9


def test_a_compacted_copy_differs(topic: Topic) -> None:
    again = other_store().create_topic("t", 2, config={"cleanup.policy": "compact"})
    keyed = RECORDS.filter(pa.compute.is_valid(RECORDS["key"]))
    plain = make(other_store())
    for one in (plain, again):
        one.append(keyed)
    assert plain.compare(again)
    again.compact(force=True)
    report = plain.compare(again)
    row = report.partitions[0]
    assert not report.same_so_far
    assert (row.start, row.end) == (row.other_start, row.other_end)
    assert row.other_common_records < row.common_records == 12
    assert "only one of the topics has a record at offset 0" in str(report)
    assert f"partition 0: from offset 0 to 12, {plain.url} has 12 records" in str(report)
    counted = plain.compare(again, data=False)
    assert not counted
    assert counted.partitions[0].other_common_records == row.other_common_records


def test_a_copy_that_lags_is_the_same_so_far(topic: Topic) -> None:
    again = make(other_store())
    again.append(copied(topic, end={0: 15, 1: 10}), keep_offsets=True)
    for data in (True, False):
        report = topic.compare(again, data=data)
        assert not report
        assert report.same_so_far
        assert report.lag == 5
        assert [row.lag for row in report.partitions] == [0, 5]
        assert report.differences == [
            f"partition 1: {topic.url} ends at offset 15, {again.url} at 10: {again.url} lags by 5 "
            "offsets"
        ]
    report = again.compare(topic)
    assert (report.lag, report.partitions[1].lag) == (0, -5)
    assert report.differences == [
        f"partition 1: {again.url} ends at offset 10, {topic.url} at 15: {again.url} lags by 5 "
        "offsets"
    ]


def test_another_log_start_is_a_difference_outside_of_what_both_have(topic: Topic) -> None:
    again = filled(make(other_store()), step=4)
    again.delete_records({0: 7})
    topic.delete_records({1: 3})
    report = topic.compare(again)
    assert not report
    assert report.same_so_far
    assert [row.common for row in report.partitions] == [(7, 15), (3, 15)]
    assert [(row.records, row.other_records) for row in report.partitions] == [(15, 8), (12, 15)]
    assert [row.common_records for row in report.partitions] == [8, 12]
    assert report.differences == [
        f"partition 0: {topic.url} starts at offset 0, {again.url} at 7",
        f"partition 1: {topic.url} starts at offset 3, {again.url} at 0",
    ]


def test_topics_that_share_no_offset(topic: Topic) -> None:
    again = make(other_store(), start_offsets={0: 100, 1: 15})
    report = topic.compare(again)
    assert not report
    assert report.same_so_far
    assert [row.common for row in report.partitions] == [(100, 100), (15, 15)]
    assert report.records_hashed == 0


def test_another_number_of_partitions(topic: Topic) -> None:
    again = make(other_store(), partitions=3)
    again.append(copied(topic), keep_offsets=True)
    report = topic.compare(again)
    assert not report
    assert report.same_so_far
    assert len(report.partitions) == 2
    assert report.differences == [f"{topic.url} has 2 partitions, {again.url} has 3"]


def test_other_columns_are_named_and_no_data_is_read(store: Store) -> None:
    one = make(store, schema={"a": pa.int32(), "b": pa.string(), "c": pa.date32()})
    other = make(other_store(), schema={"b": pa.string(), "a": pa.int64(), "d": pa.date32()})
    for topic in (one, other):
        topic.append(pa.table({"b": ["x"], "partition": ints(0)}))
    report = one.compare(other)
    assert not report
    assert not report.same_so_far
    assert report.differences == [
        f"column 'a' is int32 in {one.url}, and int64 in {other.url}",
        f"column 'c' is only in {one.url}",
        f"column 'd' is only in {other.url}",
    ]
    assert report.records_hashed == 0


def test_the_order_of_columns_does_not_matter(store: Store) -> None:
    one = make(store, schema={"a": pa.int32(), "b": pa.string()}, partitions=1)
    other = make(other_store(), schema={"b": pa.string(), "a": pa.int32()}, partitions=1)
    for topic in (one, other):
        topic.append(pa.table({"a": pa.array([1, 2], pa.int32()), "b": ["x", None]}))
    table = copied(one)
    again = make(other_store(), schema={"b": pa.string(), "a": pa.int32()}, partitions=1)
    again.append(table, keep_offsets=True)
    assert one.compare(again)


def test_without_data_nothing_but_metadata_is_read() -> None:
    objects = [CountingStore(MemoryStore()) for _ in range(2)]
    topics = [filled(make(make_store(one)), step=7) for one in objects]
    for one in objects:
        one.reset()
    report = topics[0].compare(topics[1], data=False)
    assert report
    assert report.records_hashed == 0
    assert [row.digest for row in report.partitions] == [None, None]
    assert objects[0].opened == objects[1].opened == []
    assert topics[0].compare(topics[1])
    assert [len(one.opened) for one in objects] == [topics[0].segments().num_rows] * 2


def test_empty_topics_are_equal(store: Store) -> None:
    assert make(store).compare(make(other_store()))


@pytest.mark.parametrize("wrong", ["t", None, 3])
def test_something_that_is_no_topic_is_refused(topic: Topic, wrong: Any) -> None:
    with pytest.raises(InvalidRequestError, match=f"{wrong!r} is not a topic"):
        topic.compare(wrong)


def shown(report: ComparisonReport) -> str:
    return str(report).partition("; ")[0]


def test_the_report_in_words(topic: Topic) -> None:
    again = filled(make(other_store()))
    report = topic.compare(again)
    assert shown(report).startswith("equal: 2 partitions compared, 60 records (")
    assert shown(report).endswith(") hashed, both sides together")
    counted = topic.compare(again, data=False)
    assert shown(counted) == "equal in offsets and counts: 2 partitions compared, no data was read"
    again.append(RECORDS)
    assert shown(topic.compare(again)).startswith("different, but the same so far: 2 partitions")
    html = topic.compare(again)._repr_html_()
    for part in ("[0,15)", "[0,30)", f"{topic.url} lags by 15 offsets"):
        assert part in html
    digest = report.partitions[0].digest
    assert digest is not None
    assert html.count(f"<td>{digest[:12]}</td>") == 2


def test_a_long_report_shows_the_first_partitions(store: Store) -> None:
    many = make(store, "many", partitions=60)
    html = many.compare(many)._repr_html_()
    assert "… 10 more" in html
