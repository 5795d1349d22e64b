"""Processes for the tests that need real ones: a warm parent that forks a child for each order.

Started as `python -m tests.faults.worker`. It reads one order per line (JSON), forks, and the child
runs the order and writes its answers, a JSON line each, in one `write` each: a child that is killed
never leaves half a line. The parent answers with the child's pid, and with its end.
"""

from __future__ import annotations

import itertools
import json
import os
import random
import signal
import subprocess
import sys
import traceback
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet  # so that a child need not

import pylogtable
from pylogtable.errors import (
    CommitConflictError,
    CommitUnknownError,
    InvalidRequestError,
    StorageError,
    TopicExistsError,
    UnsupportedFormatError,
)
from pylogtable.format import json_codec
from pylogtable.format.model import INLINE_BATCHES
from pylogtable.runtime import Runtime
from pylogtable.storage.local import LocalStore
from pylogtable.store import Store
from tests.stores import FaultyStore

PARTITIONS = 4
SCHEMA = {"n": pa.int64(), "batch": pa.int64()}
#: Where records are in files, and where those of small appends are in their commits.
WHERE = {"files": {"inline.max.bytes": 0}, "commits": {"inline.max.bytes": 4096}}
#: A batch's records are numbered from its number times this.
STRIDE = 100


def batch_rows(batch: int) -> pa.Table:
    """The rows of a batch depend only on its number; every third batch is in all partitions."""
    count = 1 + batch % 7
    numbers = [batch * STRIDE + i for i in range(count)]
    spread = PARTITIONS if batch % 3 == 0 else 1
    return pa.table(
        {
            "n": pa.array(numbers, pa.int64()),
            "batch": pa.array([batch] * count, pa.int64()),
            "partition": pa.array([(batch + i % spread) % PARTITIONS for i in range(count)]),
        }
    )


def tell(**answer: Any) -> None:
    os.write(sys.stdout.fileno(), (json.dumps(answer) + "\n").encode())


def append_until_killed(url: str, first: int) -> None:
    """Append batches from `first` on, each with a txn; the first may be in the log already."""
    topic = pylogtable.open(url).topic("t")
    batch = first
    parent = os.getppid()
    while os.getppid() == parent:
        result = topic.append(batch_rows(batch), txn=("app", batch))
        told = {str(number): span for number, span in result.offsets.items()}
        tell(batch=batch, version=result.version, offsets=told, repeated=result.repeated)
        batch += 1


def append_and_die(url: str, batch: int, at: int) -> None:
    """Append one batch and die before operation number `at` on the store, or after the last."""
    operations = itertools.count(-(10**9))

    def decide(verb: str, key: str) -> None:
        if next(operations) == at:
            os.kill(os.getpid(), signal.SIGKILL)

    topic = Store(FaultyStore(LocalStore(url), decide), Runtime()).topic("t")
    operations = itertools.count()
    topic.append(batch_rows(batch), txn=("app", batch))
    os.kill(os.getpid(), signal.SIGKILL)


def maintain_until_killed(url: str, seed: int) -> None:
    """Merge, erase, delete records and vacuum, in any order; versions are kept for no time."""
    topic = pylogtable.open(url).topic("t")
    chance = random.Random(seed)
    parent = os.getppid()
    while os.getppid() == parent:
        work = chance.choice(["merge", "merge", "erase", "delete", "vacuum"])
        if work == "merge":
            topic.merge(threads=1)
        elif work == "erase":
            topic.erase(where=pc.field("n") == chance.randrange(5_000), threads=1)
        elif work == "delete":
            number, end = chance.choice([*topic.end_offsets().items()])
            topic.delete_records({number: chance.randrange(end + 1)})
        else:
            topic.vacuum(dry_run=False, retention_ms=0, force=True)


def mirror_until_killed(url: str, to: str) -> None:
    """Mirror again and again, as a process that follows."""
    topic, store = pylogtable.open(url).topic("t"), pylogtable.open(to)
    parent = os.getppid()
    while os.getppid() == parent:
        report = topic.mirror(store)
        tell(version=report.version, shows=report.source_version)


def produce_until_killed(url: str, app_id: str | None, flush_every: int) -> None:
    """Send one number per record and report the places after each flush. With an app id it goes on
    after the last number in the log."""
    topic = pylogtable.open(url).topic("t")
    with topic.producer(linger_ms=1, app_id=app_id) as producer:
        first = producer.sequence or 0
        futures = []
        parent = os.getppid()
        for number in itertools.count(first):
            futures.append(producer.send(n=number, batch=0))
            if len(futures) == flush_every:
                producer.flush()
                assert all(future.done() for future in futures)
                places = [future.result()[:2] for future in futures]
                tell(first=first, places=places)
                first, futures = number + 1, []
                if os.getppid() != parent:
                    return


def consume(url: str, name: str, lease_ms: int) -> None:
    """Consume as a dynamic member until the group has read all; report what was committed."""
    topic = pylogtable.open(url).topic("t")
    group, ends = topic.group("g"), topic.end_offsets()
    consumer = topic.consumer("g", name, lease_ms=lease_ms, max_records=20)
    parent = os.getppid()
    _wait_for_start()
    while group.positions() != ends and os.getppid() == parent:
        table = consumer.poll(timeout=0.05)
        try:
            consumer.commit()
        except CommitConflictError:
            tell(name=name, conflict=True)
            continue
        places = zip(table["partition"].to_pylist(), table["offset"].to_pylist(), strict=True)
        if table.num_rows:
            tell(name=name, places=list(places))
    consumer.close()


def work_until_killed(url: str, name: str, lease_ms: int) -> None:
    """Poll once as a dynamic member, tell it, and work on that until killed."""
    consumer = pylogtable.open(url).topic("t").consumer("g", name, lease_ms=lease_ms)
    tell(name=name, polled=consumer.poll().num_rows)
    signal.pause()


def squared(batch: pa.Table) -> pa.Table:
    """What `transform_until_killed` makes of a batch: fewer rows, in the partitions they are in."""
    kept = batch.filter(pc.not_equal(pc.bit_wise_and(batch["n"], 3), 0))
    return pa.table({"n": pc.multiply(kept["n"], kept["n"]), "partition": kept["partition"]})


def transform_until_killed(url: str, stop_before: int | None, is_zombie: bool = False) -> None:
    """Read topic `t`, and write to topic `out` what `squared` makes of it, exactly once. Stops
    itself right before it puts commit number `stop_before`, until it is told to continue. A zombie
    ends when it has told what became of that commit."""
    commits, has_stopped = itertools.count(), False

    def decide(verb: str, key: str) -> None:
        nonlocal has_stopped
        is_commit = verb == "create" and key.startswith("out/_manifest/")
        if is_commit and next(commits) == stop_before:
            tell(stopped=True)
            os.kill(os.getpid(), signal.SIGSTOP)
            has_stopped = True

    store = Store(FaultyStore(LocalStore(url), decide), Runtime())
    out, parent = store.topic("out"), os.getppid()
    with store.topic("t").consumer("job", max_records=7) as consumer:
        sink = out.sink(consumer)
        while os.getppid() == parent and not (is_zombie and has_stopped):
            batch = consumer.poll(timeout=0.05)
            try:
                last = sink.append(squared(batch))
            except CommitConflictError:
                tell(fenced=True)
                sink = out.sink(consumer)
                continue
            if batch.num_rows and last is not None:
                tell(number=last.number)


def append_many(url: str, first: int, count: int) -> None:
    topic = pylogtable.open(url).topic("t")
    _wait_for_start()
    for batch in range(first, first + count):
        result = topic.append(batch_rows(batch))
        told = {str(number): span for number, span in result.offsets.items()}
        tell(batch=batch, version=result.version, offsets=told)


def append_as_an_older_release(url: str, first: int) -> None:
    """Append until that is refused, as a process that does not know records in commits."""
    json_codec.READER_FEATURES -= {INLINE_BATCHES}
    json_codec.WRITER_FEATURES -= {INLINE_BATCHES}
    topic = pylogtable.open(url).topic("t")
    parent = os.getppid()
    try:
        for batch in itertools.count(first):
            result = topic.append(batch_rows(batch))
            told = {str(number): span for number, span in result.offsets.items()}
            tell(batch=batch, version=result.version, offsets=told)
            if os.getppid() != parent:
                return
    except UnsupportedFormatError as error:
        tell(refused=str(error))
    # The setting alone refuses the append. The rest is refused once records are in a commit.
    while not _tell_refusal(lambda: topic.read().read_all()):
        if os.getppid() != parent:
            return
    _tell_refusal(topic.merge)
    _tell_refusal(lambda: topic.alter(partitions=9))


def _tell_refusal(step: Callable[[], object]) -> bool:
    try:
        step()
    except UnsupportedFormatError as error:
        tell(refused=str(error))
        return True
    return False


def append_stubbornly(url: str, first: int, count: int, tries: int) -> None:
    """Append batches with a txn each, again after every failure of the store."""
    topic = pylogtable.open(url).topic("t")
    _wait_for_start()
    for batch in range(first, first + count):
        for left in reversed(range(tries)):
            try:
                result = topic.append(batch_rows(batch), txn=(f"app{first}", batch))
                break
            except (StorageError, CommitUnknownError) as error:
                tell(failed=str(error), batch_tried=batch)
                if not left:
                    raise
        told = {str(number): span for number, span in result.offsets.items()}
        tell(batch=batch, version=result.version, offsets=told, repeated=result.repeated)


def create_many(url: str, me: int, count: int) -> None:
    store = pylogtable.open(url)
    _wait_for_start()
    for number in range(count):
        try:
            topic = store.create_topic(f"new-{number}", partitions=me, schema=SCHEMA)
        except TopicExistsError:
            continue
        tell(won=number, topic_id=topic.topic_id, me=me)


def administer(url: str, up_to: int) -> None:
    """Add partitions one by one, and move the log starts forward."""
    topic = pylogtable.open(url).topic("t")
    _wait_for_start()
    for partitions in range(PARTITIONS + 1, up_to + 1):
        try:
            topic.alter(partitions=partitions)
        except InvalidRequestError as error:
            tell(refused=str(error))
        ends = topic.end_offsets()
        wanted = {number: end // 2 for number, end in ends.items() if number < PARTITIONS}
        starts = topic.delete_records(wanted)
        tell(partitions=partitions, wanted=list(wanted.values()), starts=list(starts.values()))


def commit_positions(url: str, me: int, count: int) -> None:
    """Count up the position of my own partition, and of one that all processes share."""
    topic = pylogtable.open(url).topic("t")
    mine, shared = topic.group("g"), topic.group("g")
    _wait_for_start()
    for number in range(1, count + 1):
        mine.commit({me: number})
        while True:
            wanted = shared.positions().get(PARTITIONS, 0) + 1
            try:
                shared.commit({PARTITIONS: wanted})
                break
            except CommitConflictError:
                continue
        tell(shared=wanted)


def torture(role: str, url: str, seed: int) -> None:
    from tests.faults.test_torture import play

    _wait_for_start()
    play(role, url, seed)


def _wait_for_start() -> None:
    """Wait until all processes are up: then the parent closes its end of the pipe."""
    os.read(_gate, 1)


_gate = -1
_ORDERS = {
    "append_until_killed": append_until_killed,
    "append_and_die": append_and_die,
    "maintain_until_killed": maintain_until_killed,
    "mirror_until_killed": mirror_until_killed,
    "produce_until_killed": produce_until_killed,
    "transform_until_killed": transform_until_killed,
    "consume": consume,
    "work_until_killed": work_until_killed,
    "append_many": append_many,
    "append_as_an_older_release": append_as_an_older_release,
    "append_stubbornly": append_stubbornly,
    "create_many": create_many,
    "administer": administer,
    "commit_positions": commit_positions,
    "torture": torture,
}


def serve() -> None:
    """Run the orders of each line at the same time."""
    global _gate
    batch_rows(0)  # pyarrow looks for pandas at its first array, for 0.3 s: not once per child
    for line in sys.stdin:
        _gate, opener = os.pipe()
        pids = []
        for name, arguments in json.loads(line):
            pid = os.fork()
            if pid == 0:
                os.close(opener)
                status = 1
                try:
                    _ORDERS[name](*arguments)
                    status = 0
                except BaseException:
                    traceback.print_exc()
                finally:
                    os._exit(status)
            pids.append(pid)
        tell(pids=pids)
        os.close(opener)
        os.close(_gate)
        statuses = [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in pids]
        tell(statuses=statuses)


class Crew:
    """The parent process as a test sees it."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._process = process
        self._early: deque[dict[str, Any]] = deque()

    def order(self, *orders: tuple[str, list[Any]]) -> list[int]:
        """Start these at the same time; returns their pids."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(orders).encode() + b"\n")
        self._process.stdin.flush()
        while "pids" not in (answer := self._receive()):
            self._early.append(answer)
        pids: list[int] = answer["pids"]
        return pids

    def answer(self) -> dict[str, Any]:
        return self._early.popleft() if self._early else self._receive()

    def until_end(self) -> tuple[list[dict[str, Any]], list[int]]:
        """The remaining answers, and the exit codes."""
        answers = []
        while "statuses" not in (answer := self.answer()):
            answers.append(answer)
        return answers, answer["statuses"]

    def _receive(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line.endswith(b"\n"), "the crew is gone"
        answer: dict[str, Any] = json.loads(line)
        return answer


@contextmanager
def crew() -> Iterator[Crew]:
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.faults.worker"],
        cwd=Path(__file__).parents[2],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    with process.stdin, process.stdout:
        try:
            yield Crew(process)
        finally:
            process.kill()
            process.wait()


if __name__ == "__main__":
    serve()
