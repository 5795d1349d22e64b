"""A table with `publish.view=latest` shows exactly what `latest` finds at its version, without
tombstones and records that have no key, whatever has happened to the topic."""

from __future__ import annotations

import itertools
import warnings
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import pylogtable
from pylogtable.storage.memory import MemoryStore
from tests.builders import make_store
from tests.depth import rounds
from tests.publish.latest_histories import (
    OPERATIONS,
    LatestHistory,
    expected,
    expected_rows,
    view_at,
)
from tests.publish.plain_delta import action, entries, rows, shown_version
from tests.publish.plain_iceberg import open_table
from tests.publish.plain_iceberg import rows as iceberg_rows

_numbers = itertools.count()
HISTORIES = st.lists(st.sampled_from(OPERATIONS), min_size=3, max_size=25)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("histories")


def run(history: LatestHistory, operations: list[str]) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # of records, where the view was changed
        for operation in ("publish", *operations, "publish"):
            history.do(operation)


@settings(max_examples=rounds(25, deep=1500))
@given(seed=st.integers(0, 2**32), operations=HISTORIES)
def test_every_delta_entry_shows_what_latest_finds(seed: int, operations: list[str]) -> None:
    objects = MemoryStore()
    history = LatestHistory(make_store(objects), seed)
    run(history, operations)
    topic, folder = history.topic, objects.below("orders")
    log = entries(folder)
    for number, entry in enumerate(log):
        state = action(entry, "commitInfo")["pylogtable"]
        view = state.get("view", "records")
        assert state.get("format", 1) == (2 if view == "latest" else 1)
        wanted = expected(topic, shown_version(entry), view)
        assert rows(folder, log[: number + 1], wanted.schema) == wanted.to_pylist()
        hidden = topic.count() if number == len(log) - 1 else None
        if hidden is not None and view == "latest":
            assert state.get("hidden_rows", 0) == hidden - wanted.num_rows
    assert topic.verify(data=True)


@settings(max_examples=rounds(12, deep=1000))
@given(seed=st.integers(0, 2**32), operations=HISTORIES)
def test_every_iceberg_snapshot_shows_what_latest_finds(
    folder: Path, seed: int, operations: list[str]
) -> None:
    place = folder / f"{next(_numbers)}"
    history = LatestHistory(pylogtable.open(str(place)), seed, ("iceberg",))
    run(history, operations)
    topic, table = history.topic, open_table(place / "orders")
    for snapshot in table.snapshots():
        summary = snapshot.summary
        assert summary is not None
        version = int(summary["pylogtable.version"] or 0)
        view = view_at(topic, version)
        found = table.scan(snapshot_id=snapshot.snapshot_id).to_arrow()
        wanted = expected(topic, version, view)
        if found.column_names != wanted.column_names:  # a merge that came with other columns
            assert summary.operation.value == "replace"
            continue
        assert iceberg_rows(found, wanted.schema) == wanted.to_pylist()
    newest = expected_rows(topic, topic.version, view_at(topic, topic.version))
    assert len(newest) == table.scan().count()
    assert topic.verify(data=True)
