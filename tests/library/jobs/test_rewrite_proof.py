"""A merge or compaction that would lose or add records commits nothing and leaves no file."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pylogtable import CorruptTopicError, Store, Topic
from pylogtable.engine import Compaction, Merge, Rewritten, RunUnits, Worker, run_job
from pylogtable.format.leaf import segments_of
from pylogtable.format.model import Segment
from pylogtable.jobs.replace_plan import Swap
from pylogtable.storage.memory import MemoryStore
from tests.builders import contents, kafka, make_holes, replace_file, rows, times

pytestmark = pytest.mark.records_in("files")

JOBS = {"merge": Merge(), "compaction": Compaction(force=True)}


@pytest.fixture
def topic(store: Store) -> Topic:
    topic = store.create_topic("t", config={"cleanup.policy": "compact"})
    for first in (0, 3, 6):
        topic.append(kafka(["a", "b", f"c{first}"], timestamp=times(first, first + 1, first + 2)))
    return topic


Tamper = Callable[[tuple[Segment, ...]], tuple[Segment, ...]]


def changed(**numbers: int) -> Tamper:
    return lambda outputs: (msgspec.structs.replace(outputs[0], **numbers), *outputs[1:])


TAMPERS: dict[str, Tamper] = {
    "a record fewer": lambda o: changed(records=o[0].records - 1)(o),
    "a record more": lambda o: changed(records=o[0].records + 1)(o),
    "begins later": lambda o: changed(base_offset=o[0].base_offset + 1)(o),
    "ends earlier": lambda o: changed(end_offset=o[0].end_offset - 1)(o),
    "nothing": lambda o: (),
    "other times": lambda o: changed(min_timestamp_us=0)(o),
}


def tampering(tamper: Tamper) -> RunUnits:
    """Workers whose results say something else than what they wrote."""

    def run(worker: Worker, units: Sequence[Any]) -> Iterable[Rewritten]:
        for unit in units:
            done = worker(unit)
            (swap, *others) = done.swaps
            yield replace(done, swaps=(Swap(swap.inputs, tamper(swap.outputs)), *others))

    return run


@pytest.mark.parametrize("job", JOBS.values(), ids=JOBS.keys())
@pytest.mark.parametrize("tamper", TAMPERS.values(), ids=TAMPERS.keys())
def test_result_with_other_records_is_not_committed(
    topic: Topic, objects: MemoryStore, job: Any, tamper: Tamper
) -> None:
    before, version = topic.read().read_all(), topic.version
    files = set(contents(objects))
    with pytest.raises(CorruptTopicError) as caught:
        run_job(topic, job, tampering(tamper))
    assert caught.value.rule == "LOG-10"
    assert topic.version == version
    assert topic.read().read_all().equals(before)
    if tamper is not TAMPERS["nothing"]:  # whose files nobody knows
        assert set(contents(objects)) == files


@pytest.mark.parametrize("job", JOBS.values(), ids=JOBS.keys())
def test_honest_result_is_committed(topic: Topic, job: Any) -> None:
    newest = rows(topic.latest(), "key", "offset")
    report = run_job(topic, job, tampering(lambda outputs: outputs))
    assert report.units == 1
    assert rows(topic.latest(), "key", "offset") == newest
    assert topic.verify(data=True)


def test_input_whose_rows_differ_from_its_footer_stops_a_merge(
    topic: Topic, objects: MemoryStore
) -> None:
    """Bounds and counts of the footer are right, but an offset between them stands there twice."""
    path = rows(topic.segments(), "path")[1]
    table = pq.read_table(pa.BufferReader(objects.read(f"t/{path}")))
    twice = table.set_column(0, table.schema.field(0), pa.array([3, 3, 5]))
    sink = pa.BufferOutputStream()
    pq.write_table(twice, sink, store_schema=False)
    topic = replace_file(objects, "t", path, sink.getvalue().to_pybytes())
    before = contents(objects)
    with pytest.raises(CorruptTopicError) as caught:
        topic.merge()
    assert caught.value.path == path
    assert contents(objects) == before


def test_merge_below_a_log_start_in_a_segment_with_holes_keeps_the_rest(store: Store) -> None:
    topic = store.create_topic("t")
    for _ in range(2):
        topic.append(kafka(["k"] * 8))
    make_holes(topic, {0, 1, 3, 4, 6, 9, 15}, row_group_rows=2)
    topic.delete_records({0: 4})
    report = topic.merge()
    assert (report.records_in, report.records_removed) == (7, 3)
    assert rows(topic.read(), "offset") == [4, 6, 9, 15]
    assert topic.verify(data=True)


def test_swap_of_no_records_is_sound(topic: Topic) -> None:
    inputs = tuple(segments_of(topic.segments()))
    empty = msgspec.structs.replace(
        inputs[0], end_offset=9, records=0, min_timestamp_us=0, max_timestamp_us=0
    )
    Swap(inputs, (empty,)).check(0)
    with pytest.raises(CorruptTopicError, match="0 records, where 1 of 9"):
        Swap(inputs, (empty,)).check(1)
