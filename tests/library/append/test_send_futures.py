"""What `send` takes and gives: its arguments have names, its futures are standard ones that can be
awaited, and `on_delivery` is called for each record."""

from __future__ import annotations

import asyncio
import concurrent.futures
import subprocess
import sys
import threading
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

from pylogtable import (
    InvalidRequestError,
    Producer,
    RecordFuture,
    RecordMetadata,
    SchemaMismatchError,
    Topic,
    TopicNotFoundError,
)
from pylogtable.store import Store
from tests.builders import kafka, rows

FOREVER_MS = 3_600_000


@pytest.fixture
def topic(store: Store) -> Topic:
    return store.create_topic("t", partitions=3)


@pytest.fixture
def producer(topic: Topic) -> Iterator[Producer]:
    """It commits when it is told to."""
    with topic.producer(linger_ms=FOREVER_MS) as made:
        yield made


def soon(producer: Producer) -> None:
    """Flush in another thread, a moment after this one waits."""
    threading.Timer(0.01, producer.flush).start()


@pytest.mark.parametrize("given", [("clicks",), ("clicks", b"v"), (b"k", b"v", None)])
def test_arguments_without_a_name_are_refused(
    topic: Topic, producer: Producer, given: tuple[Any, ...]
) -> None:
    """Clients of Kafka take the topic first. Here it would silently be a key."""
    send: Any = producer.send
    words = r"send\(.*\): name each argument.*value=b'v'.*one topic, 't'.*store\.topic\(name\)"
    with pytest.raises(InvalidRequestError, match=words):
        send(*given)
    producer.flush()
    assert topic.count() == 0


def test_argument_without_a_name_ends_a_producer_that_counts(topic: Topic) -> None:
    producer = topic.producer(app_id="etl")
    send: Any = producer.send
    with pytest.raises(InvalidRequestError, match="name each argument"):
        send("clicks", value=b"v")
    with pytest.raises(InvalidRequestError, match="takes no more records"):
        producer.send(value=b"v")


def test_libraries_are_loaded_before_the_first_record() -> None:
    """Half a second where there is pandas, which pyarrow looks for: too long for a first record."""
    code = """
import sys, tempfile, time, pylogtable
def packages():
    return {name.partition(".")[0] for name in sys.modules} | {"pyarrow.compute"} & {*sys.modules}
with tempfile.TemporaryDirectory() as folder:
    topic = pylogtable.open(folder).create_topic("t")
    assert "pyarrow.compute" not in sys.modules
    with topic.producer() as producer:
        # It is idle when it waits for something to do.
        while sys._current_frames()[producer._thread.ident].f_code.co_name != "wait":
            time.sleep(0.01)
        before = packages()
        producer.send(key=b"k", value=b"v").result()
        print(packages() - before)
"""
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout == "set()\n"


class TestDelivery:
    def test_place_in_the_log_is_told_in_the_thread_of_the_producer(self, topic: Topic) -> None:
        told: list[tuple[Any, Any]] = []
        threads: set[int] = set()

        def note(error: BaseException | None, metadata: RecordMetadata | None) -> None:
            told.append((error, metadata))
            threads.add(threading.get_ident())

        with topic.producer(linger_ms=0) as producer:
            futures = [producer.send(value=str(n), on_delivery=note) for n in range(500)]
            producer.flush()
            assert told == [(None, future.result()) for future in futures]
            producer.send_batch(kafka(["a", "b"]), on_delivery=note)
        assert told[-1][1].records == 2
        assert len(threads) == 1
        assert threading.get_ident() not in threads

    def test_error_is_told_and_flush_does_not_raise_it_again(
        self, store: Store, topic: Topic
    ) -> None:
        told: list[tuple[Any, Any]] = []
        with topic.producer(linger_ms=FOREVER_MS) as producer:
            producer.send(key="a", value="1", on_delivery=lambda *both: told.append(both))
            store.delete_topic("t")
            producer.flush()
        ((error, metadata),) = told
        assert isinstance(error, TopicNotFoundError)
        assert metadata is None

    def test_bad_record_is_told_beside_good_ones(self, store: Store) -> None:
        topic = store.create_topic("typed", 1, {"id": "long"})
        told: list[object] = []

        def note(error: BaseException | None, metadata: RecordMetadata | None) -> None:
            told.append(type(error) if metadata is None else metadata.offset)

        with topic.producer(linger_ms=FOREVER_MS) as producer:
            for value in (1, "no number", 3):
                producer.send(id=value, on_delivery=note)
            producer.flush()
        assert told == [0, SchemaMismatchError, 1]

    def test_record_that_is_refused_at_once_has_no_delivery(self, producer: Producer) -> None:
        told: list[object] = []
        with pytest.raises(SchemaMismatchError):
            producer.send(key=1.5, on_delivery=lambda *both: told.append(both))
        producer.flush()
        assert told == []

    def test_callback_that_fails_is_logged(
        self, topic: Topic, caplog: pytest.LogCaptureFixture
    ) -> None:
        def fail(*_: object) -> None:
            raise ZeroDivisionError

        with topic.producer(linger_ms=FOREVER_MS) as producer:
            producer.send(value="a", on_delivery=fail)
            producer.flush()
            producer.send(value="b")
        assert topic.count() == 2
        assert "a callback of" in caplog.text


class TestStandardFutures:
    def test_wait_and_as_completed(self, producer: Producer) -> None:
        first = [producer.send(key=str(n)) for n in range(50)]
        assert isinstance(first[0], concurrent.futures.Future)
        assert [first[0].running(), first[0].cancel(), first[0].cancelled()] == [True, False, False]
        assert concurrent.futures.wait(first, timeout=0).not_done == set(first)
        soon(producer)
        assert concurrent.futures.wait(first).done == set(first)
        more = [producer.send(key=str(n)) for n in range(50)]
        soon(producer)
        assert set(concurrent.futures.as_completed([*first, *more])) == {*first, *more}
        assert not first[0].running()

    def test_wait_for_the_first_of_several(self, topic: Topic, producer: Producer) -> None:
        usual: concurrent.futures.Future[int] = concurrent.futures.Future()
        with topic.producer(linger_ms=FOREVER_MS) as other:
            stays, comes = other.send(key="a"), producer.send(key="b")
            soon(producer)
            waited = concurrent.futures.wait([stays, comes, usual], return_when="FIRST_COMPLETED")
            assert waited.done == {comes}
            assert waited.not_done == {stays, usual}

    def test_wait_for_the_first_error(self, store: Store) -> None:
        topic = store.create_topic("typed", 1, {"id": "long"})
        with topic.producer(linger_ms=FOREVER_MS) as never, topic.producer(linger_ms=0) as producer:
            good, stays = producer.send(id=1), never.send(id=2)
            assert good.result().offset == 0
            producer.flush()
            bad = producer.send(id="no number")
            waited = concurrent.futures.wait([stays, bad], return_when="FIRST_EXCEPTION")
            assert waited.done == {bad}
            assert isinstance(bad.exception(), SchemaMismatchError)


class TestAwaiting:
    def test_await_gives_the_place_or_raises(self, store: Store) -> None:
        topic = store.create_topic("typed", 1, {"id": "long"})

        async def work() -> None:
            with topic.producer(linger_ms=1) as producer:
                assert (await producer.send(id=1)).offset == 0
                wrapped = asyncio.wrap_future(producer.send(id=2))
                assert (await wrapped).offset == 1
                many: list[RecordFuture] = [producer.send(id=n) for n in range(100)]
                places = await asyncio.gather(*many)
                assert [place.offset for place in places] == list(range(2, 102))
                assert (await many[0]).offset == 2  # it is done
                with pytest.raises(SchemaMismatchError, match="no number"):
                    await producer.send(id="no number")
                assert (await producer.send_batch(pa.table({"id": [7]}))).records == 1

        asyncio.run(work())

    def test_loop_works_while_a_task_waits(self, producer: Producer) -> None:
        async def work() -> int:
            sent = producer.send(key="a")
            waiting = asyncio.ensure_future(sent)
            steps = 0
            while not waiting.done():
                await asyncio.sleep(0)
                steps += 1
                if steps == 3:
                    soon(producer)
            return steps

        assert asyncio.run(work()) > 3

    def test_task_that_is_cancelled_cancels_no_record(
        self, topic: Topic, producer: Producer
    ) -> None:
        async def work() -> None:
            future = producer.send(key="a", value="kept")
            task = asyncio.ensure_future(future)
            await asyncio.sleep(0)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            with pytest.raises(asyncio.TimeoutError):
                await asyncio.wait_for(producer.send(value="kept, too"), 0.001)
            assert not future.done()

        asyncio.run(work())
        producer.flush()
        assert sorted(rows(topic.read(), "value")) == [b"kept", b"kept, too"]
