"""Five topics come over at once while they are written to, however often the import is killed.

`PYLOGTABLE_DEEP=1 make test-kafka` does it with a million records and 20 kills.
"""

from __future__ import annotations

import random
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

import pylogtable
from pylogtable import InvalidRequestError
from pylogtable.kafka import ImportProgress, import_topics
from tests.builders import kafka, limited
from tests.depth import new_seed, rounds
from tests.kafka.test_import import check, following
from tests.kafka.test_proof import write_some

KILLS = rounds(5, deep=20)
RECORDS = rounds(25_000, deep=1_000_000)
TOPICS = 5


def created(admin: AdminClient, *names: str) -> None:
    topics = [NewTopic(name, 3, 1, config={"retention.ms": "-1"}) for name in names]
    for reply in admin.create_topics(topics).values():
        reply.result(30)


def ends_of(folder: Path) -> dict[str, int]:
    store = pylogtable.open(folder)
    return {name: sum(store.topic(name).end_offsets().values()) for name in store.topics()}


def test_five_topics_come_over_whole_however_often_the_import_is_killed(
    servers: str, admin: AdminClient, tmp_path: Path
) -> None:
    """The last topic is created while the import runs. Somebody tries to append all the time."""
    folder = tmp_path / "logs"
    chance = random.Random(new_seed())
    prefix = f"five{chance.randrange(10**6)}"
    names = [f"{prefix}.{number}" for number in range(TOPICS)]
    created(admin, *names[:-1])
    each = RECORDS // KILLS // TOPICS
    with ThreadPoolExecutor(TOPICS) as pool:
        for kill in range(KILLS):
            if kill == KILLS // 2:
                created(admin, names[-1])
            there = names if kill >= KILLS // 2 else names[:-1]
            before = ends_of(folder)
            written = [pool.submit(write_some, servers, one, each, f"w{kill}") for one in there]
            with following(servers, rf"{prefix}\..*", folder, pattern=True) as process:
                deadline = time.monotonic() + 120
                while (now := ends_of(folder)) == before:
                    assert process.poll() is None
                    assert time.monotonic() < deadline
                    time.sleep(0.01)
                for name in now:
                    with pytest.raises(InvalidRequestError, match="is a copy of Kafka's topic"):
                        pylogtable.open(folder).topic(name).append(kafka("x"))
                time.sleep(chance.uniform(0.0, 1.0))  # then it is killed in the middle of its work
            for one in written:
                one.result()
    store = pylogtable.open(folder)
    done = import_topics(store, pattern=rf"{prefix}\..*", bootstrap_servers=servers)
    assert done, done.errors
    assert sorted(done.reports) == names
    for name in names:
        check(store, servers, name)
    for name in names:
        store.topic(name).promote()
        store.topic(name).append(kafka("x"))
        assert store.topic(name).verify(data=True)


def test_topic_that_is_created_later_is_found_and_followed(
    servers: str, admin: AdminClient, tmp_path: Path
) -> None:
    store = limited(pylogtable.open(tmp_path / "logs"), kafka_look_seconds=1)
    names = ["later.a", "later.b"]
    created(admin, names[0])
    write_some(servers, names[0], 2_000, "w")
    latest: dict[str, ImportProgress] = {}
    enough = threading.Event()

    def is_through(name: str) -> bool:
        at = latest.get(name)
        return at is not None and at.records > 0 and not any(at.lag.values())

    def until(name: str) -> None:
        deadline = time.monotonic() + 120
        while not is_through(name):
            assert not running.done(), running.result()
            assert time.monotonic() < deadline
            time.sleep(0.05)

    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(
            import_topics,
            store,
            pattern=r"later\..*",
            bootstrap_servers=servers,
            follow=True,
            linger_ms=100,
            on_progress=latest.__setitem__,
            stop=enough.is_set,
        )
        try:
            until(names[0])
            created(admin, names[1])
            write_some(servers, names[1], 2_000, "w")
            until(names[1])
        finally:
            enough.set()
    assert running.result()
    for name in names:
        check(store, servers, name)
