"""What tests of damaged tables share: a small topic on a disk, and removals that are disturbed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa

from pylogtable import Store, Topic
from tests.builders import Clock, make_store
from tests.stores import AgingDisk, Fault, FaultyStore


def make_topic(store: Store) -> Topic:
    return store.create_topic("t", 1, {"k": pa.string(), "v": pa.int64()}, key="k")


def publish(topic: Topic, formats: list[str], times: int = 1) -> None:
    """Append and publish, so many times."""
    for number in range(times):
        topic.append(pa.table({"k": ["a", "b"], "v": [number, number]}))
        topic.publish(formats)


def disturbed(
    disk: AgingDisk,
    clock: Clock,
    at: Callable[[str, str], bool],
    happen: Callable[[], Fault | None],
) -> Topic:
    """The topic on this disk. Something happens once, at the first operation that `at` names."""
    done: list[str] = []

    def decide(verb: str, key: str) -> Fault | None:
        if done or not at(verb, key):
            return None
        done.append(key)
        return happen()

    return make_store(FaultyStore(disk, decide), clock).topic("t")


def delete_number(number: int) -> Callable[[str, str], bool]:
    """True at the delete with this number, from 0 on."""
    seen: list[str] = []

    def is_it(verb: str, key: str) -> bool:
        if verb == "delete":
            seen.append(key)
        return verb == "delete" and len(seen) == number + 1

    return is_it


def each_time_restored(folder: Path) -> Iterator[int]:
    """Numbers from 0 on, one for each file of the folder. Before each, the files are as now."""
    kept = {path: path.read_bytes() for path in folder.iterdir()}
    for number in range(len(kept)):
        folder.mkdir(exist_ok=True)
        for path, data in kept.items():
            path.write_bytes(data)
        yield number
