"""Topics on a real server behind a proxy that delays, cuts, loses and refuses."""

from __future__ import annotations

import itertools
import random
import sys
import threading
from typing import Any

import pytest

import pylogtable
from pylogtable.errors import CommitUnknownError, StorageError
from tests.builders import IN_FILES
from tests.clouds.servers import Server
from tests.clouds.test_writers import (
    TRIES,
    WRITERS,
    check_all_landed_once,
    start_writers,
)
from tests.depth import new_seed, rounds
from tests.faults.worker import PARTITIONS, SCHEMA, batch_rows, crew
from tests.proxy import Proxy, WireFault

#: What ends a request. A silent server is in `tests/s3/test_silence.py`.
BREAKING = [fault for fault in WireFault if fault is not WireFault.SILENCE]


@pytest.mark.parametrize("fault", BREAKING)
def test_append_lands_once_whichever_request_fails(
    proxy: Proxy, address: str, near: dict[str, Any], far: dict[str, Any], fault: WireFault
) -> None:
    """Each request of an append is hit in turn. The client may hide it; if it does not, the append
    is repeated with its txn."""
    pylogtable.open(address, storage_options=near).create_topic(
        "t", PARTITIONS, SCHEMA, config=IN_FILES
    )
    topic = pylogtable.open(address, storage_options=far).topic("t")
    hit = 0
    for batch, at in enumerate(range(-1, 6)):
        requests = itertools.count()
        proxy.decide = lambda method, path, at=at, requests=requests: (
            fault if next(requests) == at else None
        )
        for _ in range(TRIES):
            try:
                result = topic.append(batch_rows(3 * batch), txn=("app", batch))
                break
            except (StorageError, CommitUnknownError):
                continue
        assert result.version == batch + 1
        hit += next(requests) > at >= 0
    assert proxy.traffic.faults == {fault: hit}
    assert hit >= 3
    proxy.decide = None
    direct = pylogtable.open(address, storage_options=near).topic("t")
    found = direct.read(columns=["n"]).read_all()["n"].to_pylist()
    expected = [n for batch in range(7) for n in batch_rows(3 * batch)["n"].to_pylist()]
    assert sorted(found) == sorted(expected)
    assert direct.verify(data=True)


@pytest.mark.parametrize("fault", BREAKING)
def test_read_gives_every_record_or_an_error(
    proxy: Proxy, address: str, near: dict[str, Any], far: dict[str, Any], fault: WireFault
) -> None:
    """A reply that was cut is never taken for the end of an object."""
    direct = pylogtable.open(address, storage_options=near)
    topic = direct.create_topic("t", PARTITIONS, SCHEMA, config=IN_FILES)
    for batch in range(4):
        topic.append(batch_rows(3 * batch))
    expected = sorted(topic.read(columns=["n"]).read_all()["n"].to_pylist())
    whole = 0
    for at in range(0, 16, 3):
        requests = itertools.count()
        proxy.decide = lambda method, path, at=at, requests=requests: (
            fault if next(requests) == at else None
        )
        store = pylogtable.open(address, storage_options=far)
        try:
            found = store.topic("t").read(columns=["n"]).read_all()["n"].to_pylist()
        except StorageError:
            continue
        assert sorted(found) == expected
        whole += 1
    assert proxy.traffic.faults[fault] >= 4
    assert whole >= 1


@pytest.mark.skipif(sys.platform == "win32", reason="needs fork")
def test_processes_on_a_bad_line_lose_and_duplicate_nothing(
    server: Server, proxy: Proxy, address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    seed = new_seed()
    chance, lock = random.Random(seed), threading.Lock()

    def decide(method: str, path: str) -> WireFault | None:
        with lock:
            return chance.choice(BREAKING) if chance.random() < 0.1 else None

    each = rounds(5, deep=40)
    for name, value in server.environment(proxy.url).items():
        monkeypatch.setenv(name, value)
    with crew() as workers:
        start_writers(workers, address, each)
        proxy.latency_s, proxy.decide = 0.005, decide
        answers, statuses = workers.until_end()
    proxy.decide = None
    assert statuses == [0] * WRITERS, answers
    assert set(proxy.traffic.faults) == set(BREAKING)
    check_all_landed_once(address, [answer for answer in answers if "batch" in answer], each)
