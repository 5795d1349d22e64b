"""Planning a DataFrame of a topic with 100,000 segments: quickly, and without opening any."""

from __future__ import annotations

import pickle
import time
from pathlib import Path

import pytest

import pylogtable
from benchmarks.generate import RECORDS, grow
from pyspark_pylogtable import DefaultSource

SEGMENTS = 100_000
PARTITIONS = 6
TRIES = 5


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """There are no data files: who opens one fails."""
    path = tmp_path_factory.mktemp("large")
    grow(pylogtable.open(path).create_topic("t", partitions=PARTITIONS), 100, SEGMENTS // 100)
    return path / "t"


def _planned(path: Path, **options: str) -> list[bytes]:
    """What Spark's planner sends to the tasks, by the calls that it makes in two processes."""
    source = DefaultSource({"path": str(path), **options})
    schema = source.schema()
    reader = pickle.loads(pickle.dumps(source)).reader(schema)
    return [pickle.dumps(part) for part in reader.partitions()]


def _seconds(path: Path, **options: str) -> float:
    """Of this process and not of the clock: the machine may be busy with something else. That
    still slows a process down, by its share of caches and cores."""
    began = time.process_time()
    _planned(path, **options)
    return time.process_time() - began


def test_a_plan_of_all_segments_takes_under_three_seconds(large: Path) -> None:
    parts = [pickle.loads(part).value.what for part in _planned(large)]
    assert sum(len(part.tasks) for part in parts) == SEGMENTS
    assert sum(part.end - part.start for part in parts) == SEGMENTS * RECORDS
    assert any(_seconds(large) < 3 for _ in range(TRIES))


def test_a_plan_of_a_small_range_does_not_look_at_all_segments(large: Path) -> None:
    small = {"startingOffsets": '{"*":500000}', "endingOffsets": '{"*":500100}'}
    assert len(_planned(large, **small)) == PARTITIONS
    assert _seconds(large, **small) < _seconds(large)


def test_a_task_does_not_unpack_the_whole_topic(large: Path) -> None:
    """Spark sends the source and the reader with each task."""
    source = DefaultSource({"path": str(large)})
    sent = pickle.dumps((source, source.reader(source.schema())))
    arrived, _ = pickle.loads(sent)
    (view,) = arrived._pinned.views.values()
    assert "snapshot" not in vars(view)
