"""Consumers in asynchronous code: nothing is lost where that is cancelled."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import pylogtable
from pylogtable import Consumer, InvalidRequestError, Topic
from pylogtable.groups.errand import Errand
from pylogtable.storage.base import ObjectStore
from pylogtable.storage.delegating import WrappedStore
from pylogtable.storage.memory import MemoryStore
from pylogtable.store import Store
from tests.builders import Clock, ints, kafka, make_store
from tests.library.groups.test_consumer import fill

WAITED_SECONDS = 60


@pytest.fixture
def topic(store: Store) -> Topic:
    topic = store.create_topic("t", partitions=2)
    fill(topic, 5, 5)
    return topic


def run(code: Coroutine[Any, Any, Any]) -> Any:
    return asyncio.run(asyncio.wait_for(code, WAITED_SECONDS))


def values(table: pa.Table) -> list[bytes]:
    found: list[bytes] = table["value"].to_pylist()
    return found


def test_batches_and_records_come_in_async_loops(topic: Topic) -> None:
    async def read() -> tuple[list[bytes], list[bytes]]:
        consumer = topic.consumer("g", max_records=3)
        batches = [value async for batch in consumer for value in values(batch)]
        await consumer.acommit()
        consumer.close()
        records = []
        with topic.consumer("h", max_records=3) as consumer:
            async for record in consumer.records():
                records.append(record.value)
                assert (await consumer.acommit())[record.partition] == record.offset + 1
        return batches, records

    batches, records = run(read())
    assert sorted(batches) == sorted(records) == sorted(values(topic.read().read_all()))
    assert topic.group("g").positions() == topic.group("h").positions() == {0: 5, 1: 5}


def test_apoll_takes_what_poll_takes(topic: Topic) -> None:
    async def read() -> list[int]:
        consumer = topic.consumer("g")
        counts = [(await consumer.apoll(max_records=4)).num_rows for _ in range(4)]
        with pytest.raises(InvalidRequestError, match="timeout must be a number of seconds"):
            await consumer.apoll("1")  # type: ignore[arg-type]
        return [*counts, (await consumer.apoll(0.01)).num_rows]

    assert run(read()) == [4, 4, 2, 0, 0]


def test_waiting_is_cancelled_at_once_and_loses_nothing(topic: Topic) -> None:
    async def read() -> bytes:
        consumer = topic.consumer("g", follow=True)
        assert (await consumer.apoll()).num_rows == 10
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(consumer.apoll(), 0.02)
        topic.append(kafka(["late"], partition=ints(1)))
        (key,) = (await consumer.apoll())["key"].to_pylist()
        assert isinstance(key, bytes)
        return key

    assert run(read()) == b"late"


@pytest.mark.parametrize("is_on_disk", [False, True])
def test_consumers_that_wait_need_no_threads(
    topic: Topic, tmp_path: Path, is_on_disk: bool
) -> None:
    """There are few, and reads of other consumers need them."""

    async def read() -> int:
        asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(1))
        quiet = pylogtable.open(tmp_path).create_topic("t") if is_on_disk else topic
        consumers = [quiet.consumer(f"g{n}", follow=True) for n in range(20)]
        for consumer in consumers:
            consumer.poll(0)
        waiting = [asyncio.create_task(consumer.apoll()) for consumer in consumers]
        await asyncio.sleep(0.05)
        polled = [await topic.consumer("other").apoll(max_records=1) for _ in range(20)]
        quiet.append(kafka(["late"]))
        tables = await asyncio.gather(*waiting)
        return sum(table.num_rows for table in [*polled, *tables])

    assert run(read()) == 40


@dataclass
class Gate:
    """Lets requests of threads other than the test's wait until it is opened."""

    thread: int = field(default_factory=threading.get_ident)
    is_shut: bool = False
    has_begun: threading.Event = field(default_factory=threading.Event)
    opened: threading.Event = field(default_factory=threading.Event)


class Gated(WrappedStore):
    def __init__(self, inner: ObjectStore, gate: Gate) -> None:
        super().__init__(inner)
        self._gate = gate

    def below(self, prefix: str) -> Gated:
        return Gated(self._inner.below(prefix), self._gate)

    def read(self, key: str) -> bytes | None:
        if self._gate.is_shut and threading.get_ident() != self._gate.thread:
            self._gate.has_begun.set()
            assert self._gate.opened.wait(WAITED_SECONDS)
        return self._inner.read(key)


@pytest.fixture
def gate() -> Gate:
    return Gate()


@pytest.fixture
def gated(topic: Topic, clock: Clock, objects: MemoryStore, gate: Gate) -> Consumer:
    """A consumer whose next poll in a thread is held up in the store."""
    consumer = make_store(Gated(objects, gate), clock).topic("t").consumer("g")
    gate.is_shut = True
    return consumer


async def begin(consumer: Consumer, gate: Gate) -> asyncio.Task[pa.Table]:
    reading = asyncio.create_task(consumer.apoll())
    assert await asyncio.to_thread(gate.has_begun.wait, WAITED_SECONDS)
    return reading


async def cancel(reading: asyncio.Task[Any]) -> None:
    reading.cancel()
    with pytest.raises(asyncio.CancelledError):
        await reading


def test_read_that_is_cancelled_gives_its_records_back(gated: Consumer, gate: Gate) -> None:
    async def read() -> None:
        await cancel(await begin(gated, gate))
        gate.opened.set()
        assert (await gated.apoll()).num_rows == 10
        assert (await gated.apoll()).num_rows == 0

    run(read())


def test_other_methods_wait_for_a_read_that_was_cancelled(gated: Consumer, gate: Gate) -> None:
    """Also after the loop is gone. And they commit nothing of it."""

    async def read() -> None:
        await cancel(await begin(gated, gate))
        threading.Timer(0.2, gate.opened.set).start()
        assert gated.positions() == {0: 0, 1: 0}
        assert gate.opened.is_set()

    run(read())
    assert gated.commit() == {0: 0, 1: 0}
    assert gated.poll().num_rows == 10


def test_loop_that_ends_meanwhile_loses_nothing(gated: Consumer, gate: Gate) -> None:
    async def read() -> None:
        await begin(gated, gate)
        threading.Timer(0.01, gate.opened.set).start()

    run(read())  # cancels what still runs, and waits for its threads
    assert gated.poll().num_rows == 10


def test_read_that_is_cancelled_before_there_is_a_thread_for_it(topic: Topic) -> None:
    async def read() -> int:
        consumer = topic.consumer("g")
        pool, is_free = ThreadPoolExecutor(1), threading.Event()
        pool.submit(is_free.wait, WAITED_SECONDS)
        asyncio.get_running_loop().set_default_executor(pool)
        reading = asyncio.create_task(consumer.apoll())
        await asyncio.sleep(0)
        await cancel(reading)
        is_free.set()
        return int((await consumer.apoll()).num_rows)

    assert run(read()) == 10


def test_result_that_came_together_with_the_cancellation_is_given_back() -> None:
    given_back: list[str] = []

    async def work() -> None:
        errand = Errand(lambda: "records", given_back.append)
        reading = asyncio.create_task(errand.result())
        await asyncio.sleep(0)
        errand.wait()  # the thread is done, and the loop does not know
        await cancel(reading)

    run(work())
    assert given_back == ["records"]


def test_half_of_a_batch_is_kept_when_a_loop_is_cancelled(topic: Topic) -> None:
    async def read() -> list[bytes]:
        consumer = topic.consumer("g")
        seen: list[bytes] = []

        async def loop() -> None:
            async for record in consumer.records():
                seen.append(record.value)
                if len(seen) == 4:
                    await asyncio.sleep(WAITED_SECONDS)

        reading = asyncio.create_task(loop())
        while len(seen) < 4:
            await asyncio.sleep(0)
        reading.cancel()
        with pytest.raises(asyncio.CancelledError):
            await reading
        return seen + [value async for batch in consumer for value in values(batch)]

    assert sorted(run(read())) == sorted(values(topic.read().read_all()))


def test_tasks_take_turns(topic: Topic) -> None:
    async def read() -> list[bytes]:
        with topic.consumer("g", max_records=1) as consumer:
            await consumer.apoll(max_records=1)
            consumer.seek(0, 0)
            consumer.seek(1, 0)
            tables = await asyncio.gather(*(consumer.apoll() for _ in range(10)))
            await asyncio.gather(*(consumer.acommit() for _ in range(3)))
            return [value for table in tables for value in values(table)]

    assert sorted(run(read())) == sorted(values(topic.read().read_all()))
    assert topic.group("g").positions() == {0: 5, 1: 5}
