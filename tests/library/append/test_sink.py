"""A sink: the positions of the input are in the same commit as the output."""

from __future__ import annotations

import itertools
import json
import random
from collections.abc import Callable
from contextlib import suppress

import pyarrow as pa
import pytest

from pylogtable import (
    CommitConflictError,
    InvalidRequestError,
    OffsetOutOfRangeError,
    SchemaMismatchError,
    Store,
    Topic,
)
from pylogtable.append.sink import Sink
from pylogtable.groups.consumer import Consumer
from pylogtable.storage.memory import MemoryStore
from tests.builders import Clock, ints, make_store
from tests.depth import new_seed, rounds
from tests.stores import Fault, FaultyStore, SimulatedCrash

FAULTS = [
    Fault.CRASH_BEFORE,
    Fault.CRASH_AFTER,
    Fault.LOSE_REPLY,
    Fault.REFUSE,
    Fault.LATE,
    Fault.SELF_RETRY,
]
NUMBERS = {"n": pa.int64()}


class Job:
    """Reads `source` and writes twice each number to `out`."""

    def __init__(self) -> None:
        self.objects = MemoryStore()
        self.clock = Clock()
        self.store: Store = make_store(self.objects, self.clock)
        self.source = self.store.create_topic("source", 2, NUMBERS)
        self.out = self.store.create_topic("out", 1, NUMBERS)

    def send(self, *numbers: int, partition: int = 0) -> None:
        columns = {
            "n": pa.array(numbers, pa.int64()),
            "partition": ints(*[partition] * len(numbers)),
        }
        self.source.append(pa.table(columns))

    def consumer(self) -> Consumer:
        return self.source.consumer("job", max_records=2)

    def run(self, out: Topic | None = None) -> int:
        """To the end of the input; the number of appends."""
        consumer = self.consumer()
        sink = (out or self.out).sink(consumer)
        appends = 0
        for batch in consumer:
            sink.append(doubled(batch))
            appends += 1
        return appends

    def written(self) -> list[int]:
        numbers: list[int] = self.out.read(columns=["n"]).read_all()["n"].to_pylist()
        return numbers


def doubled(batch: pa.Table) -> pa.Table:
    return pa.table({"n": [2 * n for n in batch["n"].to_pylist()]}, pa.schema(NUMBERS))


@pytest.fixture
def job() -> Job:
    return Job()


def test_a_job_goes_on_where_its_output_is(job: Job) -> None:
    job.send(1, 2, 3)
    assert job.run() == 2
    assert job.run() == 0
    job.send(4, 5, partition=1)
    assert job.run() == 1
    assert job.written() == [2, 4, 6, 8, 10]
    last = job.out.txn("job")
    assert last is not None
    assert last.note == {"topic_id": job.source.topic_id, "positions": [3, 2]}
    assert (last.number, last.records) == (2, 2)
    assert job.source.group("job").positions() == {0: 3, 1: 2}


def test_the_note_decides_and_not_the_group(job: Job) -> None:
    job.send(1, 2, 3, 4)
    consumer = job.consumer()
    sink = job.out.sink(consumer)
    sink.append(doubled(consumer.poll()))
    for wrong in (0, 4):
        job.source.group("job").reset({0: wrong})
        consumer = job.consumer()
        job.out.sink(consumer)
        assert consumer.position(0) == 2
    job.run()
    assert job.written() == [2, 4, 6, 8]


def test_a_group_commit_that_is_refused_does_not_disturb(job: Job) -> None:
    job.send(1, 2, 3, 4, 5)
    consumer = job.consumer()
    sink = job.out.sink(consumer)
    sink.append(doubled(consumer.poll()))
    job.source.group("job").reset("earliest")
    for batch in consumer:
        sink.append(doubled(batch))
    assert job.written() == [2, 4, 6, 8, 10]


def test_of_two_runs_one_goes_on(job: Job) -> None:
    job.send(1, 2, 3, 4)
    consumers = [job.consumer() for _ in range(2)]
    first, zombie = (job.out.sink(consumer) for consumer in consumers)
    batches = [doubled(consumer.poll()) for consumer in consumers]
    first.append(batches[0])
    with pytest.raises(CommitConflictError, match=r"app id 'job'.*is fenced"):
        zombie.append(batches[1])
    # A new sink brings the same consumer to where the output is.
    again = job.out.sink(consumers[1])
    for batch in consumers[1]:
        again.append(doubled(batch))
    assert job.written() == [2, 4, 6, 8]


def test_a_failed_first_append_loses_no_batch(job: Job) -> None:
    job.send(1, 2)
    consumer = job.consumer()
    sink = job.out.sink(consumer)
    consumer.poll()
    with pytest.raises(SchemaMismatchError):
        sink.append(pa.table({"other": [1]}))
    sink = job.out.sink(consumer)
    sink.append(doubled(consumer.poll()))
    assert job.written() == [2, 4]


def test_after_a_failed_append_only_the_same_batch_goes_on(job: Job) -> None:
    job.send(1, 2)
    consumer = job.consumer()
    sink = job.out.sink(consumer)
    first = consumer.poll()
    with pytest.raises(SchemaMismatchError):
        sink.append(pa.table({"other": [1]}))
    job.send(3)
    later = consumer.poll()
    with pytest.raises(InvalidRequestError, match="Make a new sink"):
        sink.append(doubled(later))
    sink = job.out.sink(consumer)
    again = consumer.poll()
    with pytest.raises(SchemaMismatchError):
        sink.append(pa.table({"other": [1]}))
    sink.append(doubled(again))
    sink.append(doubled(consumer.poll()))
    assert len(first) == 2
    assert job.written() == [2, 4, 6]


def test_a_consumer_that_went_back_is_refused(job: Job) -> None:
    job.send(1, 2)
    consumer = job.consumer()
    sink = job.out.sink(consumer)
    sink.append(doubled(consumer.poll()))
    consumer.seek(0, 0)
    with pytest.raises(InvalidRequestError, match="would come twice"):
        sink.append(doubled(consumer.poll()))
    assert job.written() == [2, 4]


def test_a_batch_without_an_append_goes_with_the_next_one(job: Job) -> None:
    job.send(1, 2, 3, 4)
    consumer = job.consumer()
    sink = job.out.sink(consumer)
    gathered = [doubled(consumer.poll()), doubled(consumer.poll())]
    assert sink.append(pa.concat_tables(gathered)) == job.out.txn("job")
    assert (sink.last, job.written()) == (job.out.txn("job"), [2, 4, 6, 8])
    assert job.run() == 0


def test_an_append_without_rows_moves_the_positions(job: Job) -> None:
    job.send(1, 2)
    consumer = job.consumer()
    sink = job.out.sink(consumer)
    last = sink.append(doubled(consumer.poll()).slice(0, 0))
    assert last is not None
    assert (last.records, last.note["positions"]) == (0, [2, 0])
    version = job.out.version
    assert sink.append(doubled(consumer.poll())) == last  # the end of the input: nothing to do
    assert job.out.version == version
    assert job.run() == 0


def test_a_second_append_for_one_batch_is_refused(job: Job) -> None:
    job.send(1, 2)
    consumer = job.consumer()
    sink = job.out.sink(consumer)
    rows = doubled(consumer.poll())
    sink.append(rows)
    with pytest.raises(InvalidRequestError, match="returned nothing since the last append"):
        sink.append(rows)
    assert job.written() == [2, 4]


def test_partitions_that_are_added_are_read_from_their_start(job: Job) -> None:
    job.send(1)
    job.run()
    job.source.alter(partitions=3)
    job.send(7, partition=2)
    consumer = job.source.consumer("job", auto_offset_reset="latest")
    sink = job.out.sink(consumer)
    sink.append(doubled(consumer.poll()))
    assert job.written() == [2, 14]


def test_records_that_are_gone_are_skipped_by_the_policy(job: Job) -> None:
    job.send(1, 2, 3)
    consumer = job.consumer()
    job.out.sink(consumer).append(doubled(consumer.poll(max_records=1)))
    job.source.delete_records({0: 2})
    strict = job.source.consumer("job", auto_offset_reset="none")
    with pytest.raises(OffsetOutOfRangeError):
        job.out.sink(strict)
    job.run()
    assert job.written() == [2, 6]


def test_a_position_beyond_the_input_is_refused(job: Job) -> None:
    """The input was restored from an older copy: to read it again from its start would be wrong."""
    job.send(1)
    job.out.append(
        pa.table({"n": [2]}),
        txn=("job", 0),
        note={"topic_id": job.source.topic_id, "positions": [9, 0]},
    )
    with pytest.raises(OffsetOutOfRangeError):
        job.run()


def test_a_job_goes_on_at_copies_of_both_topics(job: Job) -> None:
    job.send(1, 2, 3)
    consumer = job.consumer()
    job.out.sink(consumer).append(doubled(consumer.poll()))
    backup = make_store(MemoryStore("backup-of-sink"), job.clock)
    job.source.mirror(backup)
    job.out.mirror(backup)
    job.source, job.out = backup.topic("source"), backup.topic("out")
    job.run()
    assert job.written() == [2, 4, 6]


def test_the_app_id_of_another_job_is_refused(job: Job) -> None:
    job.send(1)
    job.out.append(pa.table({"n": [2]}), txn=("job", 0), note={"read_to": 1})
    with pytest.raises(InvalidRequestError, match="Give this job an app_id of its own"):
        job.run()
    other = job.store.create_topic("other", 1, NUMBERS)
    other.append(pa.table({"n": [1]}))
    consumer = other.consumer("job")
    sink = job.out.sink(consumer, app_id="other")
    sink.append(doubled(consumer.poll()))
    with pytest.raises(InvalidRequestError, match="has no positions of topic 'source'"):
        job.out.sink(job.consumer(), app_id="other")


def test_a_member_among_others_is_refused(job: Job) -> None:
    for member in ((0, 2), "a"):
        with pytest.raises(InvalidRequestError, match="reads all partitions"):
            job.out.sink(job.source.consumer("job", member))
    with pytest.raises(InvalidRequestError, match="reads all partitions"):
        job.out.sink(job.source)  # type: ignore[arg-type]


def test_too_many_partitions_are_refused(job: Job) -> None:
    wide = job.store.create_topic("wide", 191, NUMBERS)
    with pytest.raises(InvalidRequestError, match="room for the positions of 190"):
        job.out.sink(wide.consumer("job"))
    largest = {"topic_id": wide.topic_id, "positions": [2**63 - 2] * 190}
    assert len(json.dumps(largest, separators=(",", ":"))) <= 4096


def faults_at(at: int, fault: Fault) -> Callable[[str, str], Fault | None]:
    """A fault at commit number `at` of the output. Who has put a late one dies at once."""
    commits, done = itertools.count(), False

    def decide(verb: str, key: str) -> Fault | None:
        nonlocal done
        if done and fault is Fault.LATE:
            return Fault.CRASH_BEFORE
        is_commit = verb == "create" and key.startswith("out/_manifest/")
        is_now = is_commit and next(commits) == at
        done = done or is_now
        return fault if is_now else None

    return decide


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("at", range(4))
def test_a_fault_at_any_commit_of_the_output(fault: Fault, at: int) -> None:
    """A crash, a lost reply, or a put that lands late: before the next run begins, after it began,
    or after it has appended."""
    for lands in range(3):
        decide = faults_at(at, fault)

        job = Job()
        job.send(1, 2, 3)
        job.send(4, 5, 6, partition=1)
        faulty = FaultyStore(job.objects, decide)
        with suppress(SimulatedCrash):
            job.run(make_store(faulty, job.clock).topic("out"))
        if lands == 0:
            faulty.land()
        consumer = job.consumer()
        sink = job.out.sink(consumer)
        if lands == 1:
            faulty.land()
        with suppress(CommitConflictError):
            for batch in consumer:
                sink.append(doubled(batch))
        faulty.land()
        job.run()
        assert sorted(job.written()) == [2, 4, 6, 8, 10, 12], (fault, at, lands)
        assert job.out.verify(data=True)


def test_runs_that_do_not_know_of_each_other_write_everything_once(job: Job) -> None:
    """Several runs at once, in any order of steps: each makes a new sink when it is fenced, and
    some begin anew or gather batches."""
    chance = random.Random(new_seed())
    runs: list[tuple[Consumer, Sink, list[pa.Table]]] = []
    sent = fenced = 0
    for _ in range(rounds(300, deep=2000)):
        step = chance.choice(["send", "begin", "poll", "poll", "append", "append"])
        if step == "send":
            job.send(*range(sent, sent + 3), partition=chance.randrange(2))
            sent += 3
        elif step == "begin" and len(runs) < 4:
            consumer = job.store.topic("source").consumer("job", max_records=2)
            runs.append((consumer, job.store.topic("out").sink(consumer), []))
        elif step == "begin":
            runs.pop(chance.randrange(len(runs)))  # it is dead
        elif runs:
            at = chance.randrange(len(runs))
            consumer, sink, gathered = runs[at]
            if step == "poll":
                gathered.append(doubled(consumer.poll()))
                continue
            try:
                sink.append(pa.concat_tables([pa.schema(NUMBERS).empty_table(), *gathered]))
            except CommitConflictError:
                fenced += 1
                sink = job.out.sink(consumer)
            runs[at] = consumer, sink, []
    job.run()
    assert fenced
    assert sorted(job.written()) == [2 * n for n in range(sent)]
    assert job.out.verify(data=True)
