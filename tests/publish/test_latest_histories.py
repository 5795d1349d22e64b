"""A table with `publish.view=latest` shows exactly what `latest` finds at its version, without
tombstones and records that have no key, whatever has happened to the topic."""

from __future__ import annotations

import random
import warnings
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa

import pylogtable
from pylogtable import Topic
from pylogtable.storage.base import ObjectStore
from pylogtable.storage.memory import MemoryStore
from tests.builders import contents, make_store
from tests.depth import new_seed, rounds
from tests.publish.latest_engines import ENGINES
from tests.publish.latest_histories import OPERATIONS, LatestHistory, expected, view_at
from tests.publish.plain_delta import action, entries, rows, shown_version
from tests.publish.plain_iceberg import open_table
from tests.publish.plain_iceberg import rows as iceberg_rows

#: What needs features of Delta that not all of its other readers have.
UNKNOWN = {"widen", "rename"}


def histories(usual: int, deep: int) -> Iterator[tuple[int, list[str]]]:
    """Seeds and operations, all different. Hypothesis makes some, and then varies them."""
    first = new_seed()
    for seed in range(first, first + rounds(usual, deep=deep)):
        rng = random.Random(seed)
        operations = rng.choices(OPERATIONS, k=rng.randint(3, 25))
        print(seed, operations)
        yield seed, operations


def run(history: LatestHistory, operations: list[str]) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # of records, where the view was changed
        for operation in ("publish", *operations, "publish"):
            history.do(operation)


def test_every_delta_entry_shows_what_latest_finds(tmp_path: Path) -> None:
    for seed, operations in histories(10, deep=1500):
        objects = MemoryStore()
        history = LatestHistory(make_store(objects), seed)
        if asks_others := seed % 2 == 0:
            operations = [name for name in operations if name not in UNKNOWN]
        check_delta(history, operations, objects.below("orders"))
        if asks_others:
            _copy(objects, tmp_path / f"{seed}")
            check_engines(history.topic, tmp_path / f"{seed}" / "orders", "delta")


def check_delta(history: LatestHistory, operations: list[str], folder: ObjectStore) -> None:
    wanted: list[pa.Table] = []

    def note() -> None:
        for entry in entries(folder)[len(wanted) :]:
            state = action(entry, "commitInfo")["pylogtable"]
            view = state.get("view", "records")
            assert state.get("format", 1) == (2 if view == "latest" else 1)
            wanted.append(expected(history.topic, shown_version(entry), view))

    history.before_restore = note
    run(history, operations)
    note()
    log = entries(folder)
    for number, found in enumerate(wanted):
        assert rows(folder, log[: number + 1], found.schema) == found.to_pylist()
    topic, state = history.topic, action(log[-1], "commitInfo")["pylogtable"]
    if state.get("view") == "latest":
        assert state.get("hidden_rows", 0) == topic.count() - wanted[-1].num_rows
    assert topic.verify(data=True)


def test_every_iceberg_snapshot_shows_what_latest_finds(tmp_path: Path) -> None:
    for seed, operations in histories(6, deep=1000):
        history = LatestHistory(pylogtable.open(str(tmp_path / f"{seed}")), seed, ("iceberg",))
        folder = tmp_path / f"{seed}" / "orders"
        check_iceberg(history, operations, folder)
        check_engines(history.topic, folder, "iceberg")


def check_iceberg(history: LatestHistory, operations: list[str], folder: Path) -> None:
    wanted: dict[int, pa.Table] = {}

    def note() -> None:
        for snapshot in open_table(folder).snapshots():
            if snapshot.snapshot_id not in wanted:
                version = int(snapshot.summary["pylogtable.version"])
                view = view_at(history.topic, version)
                wanted[snapshot.snapshot_id] = expected(history.topic, version, view)

    history.before_restore = note
    run(history, operations)
    note()
    table = open_table(folder)
    for snapshot in table.snapshots():
        found, right = (
            table.scan(snapshot_id=snapshot.snapshot_id).to_arrow(),
            wanted[snapshot.snapshot_id],
        )
        if found.column_names != right.column_names:  # a merge that came with other columns
            assert snapshot.summary.operation.value == "replace"
            continue
        assert iceberg_rows(found, right.schema) == right.to_pylist()
    assert history.topic.verify(data=True)


def check_engines(topic: Topic, folder: Path, name: str) -> None:
    """Readers of others find the same in the newest version."""
    wanted = expected(topic, topic.version, view_at(topic, topic.version))
    for engine, read in ENGINES.items():
        if name in engine:
            assert iceberg_rows(read(folder), wanted.schema) == wanted.to_pylist(), engine


def _copy(objects: ObjectStore, folder: Path) -> None:
    for key, data in contents(objects).items():
        assert data is not None
        (folder / key).parent.mkdir(parents=True, exist_ok=True)
        (folder / key).write_bytes(data)
