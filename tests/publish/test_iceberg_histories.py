"""A published Iceberg table shows exactly one version of the topic, whatever has happened to it."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import pylogtable
from tests.depth import rounds
from tests.publish.histories import MAPPED, History
from tests.publish.plain_iceberg import expected_rows, open_table, places_added, rows

_numbers = itertools.count()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("histories")


@settings(max_examples=rounds(10, deep=1000))
@given(
    seed=st.integers(0, 2**32),
    operations=st.lists(st.sampled_from(MAPPED), min_size=3, max_size=25),
)
def test_every_snapshot_shows_one_version_and_streams_see_each_record_once(
    folder: Path, seed: int, operations: list[str]
) -> None:
    place = folder / f"{next(_numbers)}"
    history = History(pylogtable.open(str(place)), seed, ("iceberg",))
    history.do("publish")
    for operation in operations:
        history.do(operation)
    history.do("publish")
    topic = history.topic
    table = open_table(place / "orders")
    streamed: list[tuple[int, int]] = []
    newest = table.current_snapshot()
    assert newest is not None
    for snapshot in table.snapshots():
        summary = snapshot.summary
        assert summary is not None
        version = int(summary["pylogtable.version"] or 0)
        schema, expected = expected_rows(topic, version)
        found = table.scan(snapshot_id=snapshot.snapshot_id).to_arrow()
        if found.column_names == schema.names:
            assert rows(found, schema) == expected
        else:  # a merge that came with other columns: the same records
            assert summary.operation.value == "replace"
            assert [(r["partition"], r["offset"]) for r in rows(found, found.schema)] == [
                (r["partition"], r["offset"]) for r in expected
            ]
        if summary.operation.value == "append":
            streamed += places_added(table, snapshot)
        else:
            assert summary["deleted-data-files"]
    schema, expected = expected_rows(topic, topic.version)
    assert rows(table.scan().to_arrow(), schema) == expected
    # A stream that skips snapshots with removed data sees every record that was ever appended.
    ends = topic.end_offsets()
    appended = [(number, offset) for number in ends for offset in range(ends[number])]
    assert sorted(streamed) == appended
    assert topic.verify(data=True)
