"""A store that accepts connections and never answers: every call ends, and says what was tried."""

from __future__ import annotations

import itertools
import pickle
import re
from collections import Counter
from collections.abc import Callable
from functools import partial

import pytest

import pylogtable
from pylogtable.errors import CommitUnknownError, InvalidRequestError, StorageError
from pylogtable.groups.consumer import Consumer
from pylogtable.store import Store
from pylogtable.topic import Topic
from tests.builders import kafka, limited
from tests.conftest import S3_BUCKET, S3_KEY, S3_SECRET
from tests.depth import DEEP
from tests.proxy import Proxy, Refusal, WireFault

#: In the time of these tests a request is tried that often, at most.
MOST_TRIES = 8
_folders = itertools.count()


def options(endpoint: str, **more: object) -> dict[str, object]:
    return {
        "key": S3_KEY,
        "secret": S3_SECRET,
        "endpoint_url": endpoint,
        **more,
    }


@pytest.fixture
def far(proxy: Proxy, s3_endpoint: str) -> Store:
    place = f"s3://{S3_BUCKET}/silence{next(_folders)}"
    config = {"cleanup.policy": "compact,delete", "inline.max.bytes": 0}
    topic = pylogtable.open(place, storage_options=options(s3_endpoint)).create_topic(
        "t", 2, config=config
    )
    for value in "123":
        topic.append(kafka(["a", "b"], [value, value]))
    topic.group("g").commit({0: 1})
    store = pylogtable.open(place, storage_options=options(proxy.url))
    store.topics()
    return store


def quiet(far: Store, proxy: Proxy) -> Store:
    """The same store for a server that does not answer. A busy machine answers in this time."""
    short = {"config_kwargs": {"read_timeout": 1.5}}
    return pylogtable.open(far.url, storage_options=options(proxy.url, **short))


def make_impatient(store: Store, seconds: float) -> None:
    """This comes last, as `timeout_seconds` would count for what prepares the test as well."""
    client = store._store._client  # type: ignore[attr-defined]
    client.patience_seconds = seconds


@pytest.fixture
def asked(proxy: Proxy) -> Counter[tuple[str, str]]:
    return Counter()


def silence(
    proxy: Proxy, asked: Counter[tuple[str, str]], fault: WireFault | Refusal = WireFault.SILENCE
) -> None:
    def decide(method: str, path: str) -> WireFault | Refusal:
        asked[method, path] += 1
        return fault

    proxy.decide = decide


def _produce(store: Store) -> Callable[[], object]:
    producer = store.topic("t").producer(linger_ms=60_000)
    producer.send(key=b"a", value=b"1")

    def flush() -> None:
        try:
            producer.flush()
        finally:
            producer.close()

    return flush


def _joined(store: Store) -> Consumer:
    consumer = store.topic("t").consumer("g")
    consumer.assignment()
    return consumer


def _of_topic(call: Callable[[Topic], object]) -> Callable[[Store], Callable[[], object]]:
    """The topic is opened before the silence."""
    return lambda store: partial(call, store.topic("t"))


CALLS: dict[str, Callable[[Store], Callable[[], object]]] = {
    "topics": lambda store: store.topics,
    "topic": lambda store: lambda: store.topic("t"),
    "create_topic": lambda store: lambda: store.create_topic("other"),
    "end_offsets": _of_topic(lambda topic: topic.end_offsets()),
    "append": _of_topic(lambda topic: topic.append(kafka(["a"], ["1"]))),
    "flush": _produce,
    "delete_records": _of_topic(lambda topic: topic.delete_records({0: 1})),
    "compact": _of_topic(lambda topic: topic.compact(force=True)),
    "vacuum": _of_topic(lambda topic: topic.vacuum()),
    "group": _of_topic(lambda topic: topic.group("g").commit({0: 2})),
    "poll": lambda store: partial(_joined(store).poll, timeout=0),
    "read": _of_topic(lambda topic: topic.read().read_all()),
}


USUAL = ("create_topic", "append", "flush", "compact", "vacuum", "group", "poll")


def check_ends(
    proxy: Proxy, store: Store, name: str, fault: WireFault | Refusal, seconds: float
) -> None:
    """Requests are repeated in one layer, and none is sent after the store was given up."""
    asked: Counter[tuple[str, str]] = Counter()
    call = CALLS[name](store)
    make_impatient(store, seconds)
    silence(proxy, asked, fault)
    with pytest.raises((StorageError, CommitUnknownError)) as caught:
        call()
    told = str(caught.value if isinstance(caught.value, StorageError) else caught.value.__cause__)
    assert re.search(r"\d+ (try|tries) in \d+ s, the last one: ", told)
    assert max(asked.values()) <= MOST_TRIES
    assert "DELETE" not in {method for method, _ in asked}


@pytest.mark.parametrize("name", CALLS if DEEP else USUAL)
def test_call_on_a_store_that_is_not_able_to_serve_ends(
    proxy: Proxy, far: Store, name: str
) -> None:
    check_ends(proxy, far, name, Refusal(503, "SlowDown"), 1.0)


@pytest.mark.parametrize("name", ["append", "flush"])
def test_call_on_a_store_that_does_not_answer_ends(proxy: Proxy, far: Store, name: str) -> None:
    check_ends(proxy, quiet(far, proxy), name, WireFault.SILENCE, 4.0)


def test_commit_in_doubt_is_looked_for_within_the_same_budget(
    proxy: Proxy, far: Store, asked: Counter[tuple[str, str]]
) -> None:
    """The put is silent, and so is all that looks for it."""
    store = quiet(far, proxy)
    topic = store.topic("t")
    make_impatient(store, 4.0)

    def decide(method: str, path: str) -> WireFault | None:
        is_commit = "_manifest/" in path
        asked[method, path] += is_commit
        return WireFault.SILENCE if is_commit else None

    proxy.decide = decide
    with pytest.raises(CommitUnknownError, match=r"unknown \(.* (try|tries) in ") as caught:
        topic.append(kafka(["a"], ["1"]))
    assert asked.total() <= MOST_TRIES
    proxy.decide = None
    make_impatient(store, 60.0)
    assert topic.find_commit(caught.value.commit_id, caught.value.version - 1) is None
    assert topic.append(kafka(["a"], ["1"])).version == caught.value.version
    assert topic.verify(data=True)


def test_next_call_asks_again(proxy: Proxy, far: Store, asked: Counter[tuple[str, str]]) -> None:
    topic = far.topic("t")
    make_impatient(far, 1.0)
    silence(proxy, asked, Refusal(503, "SlowDown"))
    for _ in range(2):
        before = asked.total()
        with pytest.raises(StorageError):
            topic.end_offsets()
        assert asked.total() > before
    proxy.decide = None
    make_impatient(far, 60.0)
    assert sum(topic.end_offsets().values()) == 6


def test_poll_waits_for_its_own_time_only(
    proxy: Proxy, far: Store, asked: Counter[tuple[str, str]]
) -> None:
    """The store may be silent for a minute here. After the first try of a poll without a timeout
    the time of one request is over, so there is no second one."""
    short = {"timeout_seconds": 60.0, "config_kwargs": {"read_timeout": 1.5}}
    store = pylogtable.open(far.url, storage_options=options(proxy.url, **short))
    consumer = _joined(limited(store, reply_seconds=1.5))
    silence(proxy, asked)
    with pytest.raises(StorageError, match="1 try in"):
        consumer.poll(timeout=0)
    assert set(asked.values()) == {1}
    proxy.decide = None
    assert consumer.poll(timeout=0).num_rows == 5


def test_unused_time_does_not_count(proxy: Proxy, far: Store) -> None:
    """Many slow answers are no silence: only the time without any counts."""
    topic = far.topic("t")
    proxy.latency_s = 0.1
    make_impatient(far, 2.0)
    for value in range(8):
        topic.append(kafka(["a"], [str(value)]))
    topic.compact(force=True)
    assert topic.count() == 2
    assert topic.verify(data=True)


@pytest.mark.parametrize("given", [0, -1, "soon", None])
def test_timeout_that_is_no_time_is_refused(given: object) -> None:
    with pytest.raises(InvalidRequestError, match="timeout_seconds must be a number of seconds"):
        pylogtable.open("s3://bucket/x", storage_options={"timeout_seconds": given})


def test_timeout_of_the_options_goes_with_the_store() -> None:
    store = pylogtable.open("s3://bucket/x", storage_options={"timeout_seconds": "7.5"})
    assert store._runtime.patience_seconds == 7.5
    sent = pickle.loads(pickle.dumps(store._store))
    assert (sent._client.patience_seconds, "timeout_seconds" in sent._client._options) == (
        7.5,
        False,
    )
