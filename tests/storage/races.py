"""Many writers race for many keys: exactly the one whose `create` returns YES put the object."""

from __future__ import annotations

import threading

from pylogtable.storage.base import Created, ObjectStore

KEYS = [f"_manifest/{n:020d}.json" for n in range(60)]


def body(writer: int, key: str) -> bytes:
    """Data long enough to notice if only half of it is there."""
    return f"{writer}:{key}:".encode() * 400


def create_all(store: ObjectStore, writer: int) -> list[str]:
    """The keys this writer won."""
    return [key for key in KEYS if store.create(key, body(writer, key)) is Created.YES]


def race_in_threads(store: ObjectStore, writers: int) -> dict[int, list[str]]:
    barrier = threading.Barrier(writers)
    won: dict[int, list[str]] = {}

    def run(writer: int) -> None:
        barrier.wait()
        won[writer] = create_all(store, writer)

    threads = [threading.Thread(target=run, args=(writer,)) for writer in range(writers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return won


def race_in_process(
    store: ObjectStore, writer: int, barrier: threading.Barrier
) -> tuple[int, list[str]]:
    barrier.wait()
    return writer, create_all(store, writer)


def check_one_winner_each(store: ObjectStore, won: dict[int, list[str]]) -> None:
    winners = {key: writer for writer, keys in won.items() for key in keys}
    assert sorted(key for keys in won.values() for key in keys) == KEYS
    for key, writer in winners.items():
        assert store.read(key) == body(writer, key)
    assert [info.key for info in store.list()] == KEYS
