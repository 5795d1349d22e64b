"""What the operations of a topic cost, and what is refused, is the same on every store."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest

import pylogtable
from pylogtable.errors import InvalidRequestError, StorageError
from tests.builders import IN_FILES, kafka
from tests.clouds.servers import Server
from tests.proxy import Proxy

DAY_MS = 86_400_000
MISSING = "no-such-bucket"


def test_operations_cost_the_same_requests(
    proxy: Proxy, address: str, near: dict[str, Any], far: dict[str, Any]
) -> None:
    """The numbers are those of `benchmarks/README.md`."""
    direct = pylogtable.open(address, storage_options=near)
    other = direct.create_topic("t", 2)
    direct.create_topic("files", config=IN_FILES)
    store = pylogtable.open(address, storage_options=far)
    topic, files = store.topic("t"), store.topic("files")
    one, group = kafka(["k"]), topic.group("g")
    consumer = topic.consumer("c")

    def append_and_read() -> None:
        files.append(one)
        assert files.read().read_all().num_rows == 1

    def found(rows: int) -> None:
        assert consumer.poll().num_rows == rows

    operations: list[tuple[str, int, Callable[[], object]]] = [
        ("append", 1, lambda: topic.append(one)),
        ("append of a file, and a read that looks for more", 4, append_and_read),
        ("look", 1, topic.end_offsets),
        ("the first poll", 4, lambda: found(1)),
        ("idle poll", 1, lambda: found(0)),
        ("the first commit of a group", 2, lambda: group.commit({0: 1})),
        ("group commit", 1, lambda: group.commit({0: 2})),
        ("the other process appends", 0, lambda: other.append(one)),
        ("poll of one commit", 3, lambda: found(1)),
    ]
    cost = {}
    for name, _, operation in operations:
        proxy.traffic.reset()
        operation()
        cost[name] = proxy.traffic.requests
    assert cost == {name: requests for name, requests, _ in operations}


@pytest.mark.parametrize("days", [-3, 3])
def test_clock_that_is_days_off_is_refused(address: str, near: dict[str, Any], days: int) -> None:
    right = pylogtable.open(address, storage_options=near).create_topic("t")

    def clock() -> int:
        return time.time_ns() // 1_000_000 + days * DAY_MS

    wrong = pylogtable.open(address, storage_options=near, clock=clock)
    for action in (
        lambda: wrong.topic("t").append(kafka(["k"])),
        lambda: wrong.create_topic("other"),
        lambda: wrong.topic("t").vacuum(dry_run=False),
    ):
        with pytest.raises(InvalidRequestError, match="this machine's clock says"):
            action()
    assert right.count() == 0
    assert wrong.topics() == ["t"]


def test_missing_bucket_is_named(server: Server, near: dict[str, Any]) -> None:
    address = f"{server.scheme}://{MISSING}/logs"
    store = pylogtable.open(address, storage_options=near)
    for action in (
        store.topics,
        lambda: store.topic("t"),
        lambda: store.create_topic("t"),
        lambda: pylogtable.open_topic(f"{address}/t", storage_options=near),
        lambda: store._store.write("key", b"x"),
        lambda: store._store.create("key", b"x"),
    ):
        with pytest.raises(StorageError, match=f"(bucket|container) '{MISSING}' does not exist"):
            action()


def test_doctor_names_a_missing_bucket(server: Server, near: dict[str, Any]) -> None:
    report = pylogtable.diagnose(f"{server.scheme}://{MISSING}/logs", storage_options=near)
    assert not report
    assert MISSING in str(report)
