"""Listeners are told of each request to a store on the local disk."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from pylogtable.errors import StorageError
from pylogtable.observe import Request, listen_to_requests
from pylogtable.storage.base import Created
from pylogtable.storage.local import LocalStore


@pytest.fixture
def seen() -> Iterator[list[Request]]:
    requests: list[Request] = []
    stop = listen_to_requests(requests.append)
    yield requests
    stop()


def told(seen: list[Request], step: Callable[[], object]) -> list[tuple[str, str]]:
    seen.clear()
    step()
    assert all(request.seconds >= 0 for request in seen)
    return [(request.kind, request.outcome) for request in seen]


def test_each_verb_is_told_with_its_outcome(seen: list[Request], tmp_path: Path) -> None:
    store, other = LocalStore(tmp_path / "a"), LocalStore(tmp_path / "b")

    def stream() -> None:
        with store.open_output("f/data") as sink:
            sink.write(b"12345")

    assert told(seen, lambda: store.read("f/1")) == [("get", "missing")]
    assert told(seen, lambda: store.size_of("f/1")) == [("head", "missing")]
    assert told(seen, lambda: store.create("f/1", b"x")) == [("put", "ok")]
    assert store.create("f/1", b"x") is Created.EXISTS
    assert told(seen, lambda: store.create("f/1", b"x")) == [("put", "exists")]
    assert told(seen, lambda: store.write("f/1", b"y")) == [("put", "ok")]
    assert told(seen, lambda: store.read("f/1")) == [("get", "ok")]
    assert told(seen, stream) == [("put", "ok")]
    assert told(seen, lambda: store.open_input("f/data", 5).read()) == [("get", "ok")]
    assert told(seen, lambda: list(store.list())) == [("list", "ok")]
    assert told(seen, lambda: next(iter(store.list()))) == [("list", "ok")]
    assert told(seen, store.list_folders) == [("list", "ok")]
    assert ("copy", "ok") in told(seen, lambda: other.copy_from(store, "f/data", 5))
    assert told(seen, lambda: store.delete("f/1")) == [("delete", "ok")]


def test_failure_of_a_disk_is_told_as_such(seen: list[Request], tmp_path: Path) -> None:
    store = LocalStore(tmp_path)
    with pytest.raises(StorageError):
        store.read("too long" * 100)
    assert [(request.kind, request.outcome) for request in seen] == [("get", "failed")]


def test_nothing_is_told_after_the_end(tmp_path: Path) -> None:
    first: list[Request] = []
    second: list[Request] = []
    store = LocalStore(tmp_path)
    stop, stop_other = listen_to_requests(first.append), listen_to_requests(second.append)
    store.read("1")
    stop()
    stop()
    store.read("1")
    stop_other()
    store.read("1")
    assert (len(first), len(second)) == (1, 2)


def test_a_listener_that_raises_harms_nobody(
    seen: list[Request], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(request: Request) -> None:
        raise ValueError("broken listener")

    store = LocalStore(tmp_path)
    stop = listen_to_requests(fail)
    later: list[Request] = []
    stop_later = listen_to_requests(later.append)
    for _ in range(3):
        assert store.create("1", b"x") in Created
    stop()
    stop_later()
    assert len(seen) == len(later) == 3
    assert [record.levelno for record in caplog.records] == [logging.WARNING]
    assert "broken listener" in caplog.text


def test_requests_are_logged_for_debugging(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, "pylogtable.requests")
    LocalStore(tmp_path).read("f/1")
    [record] = caplog.records
    assert record.getMessage() == f"get file://{tmp_path}/f/1: missing"
    assert vars(record)["key"] == f"file://{tmp_path}/f/1"
    assert vars(record)["seconds"] >= 0
