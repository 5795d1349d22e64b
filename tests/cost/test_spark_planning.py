"""Planning a DataFrame of a topic with many segments: few calls for each, and none is opened.

Seconds are measured in `benchmarks/spark_batch.py`.
"""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest

import pylogtable
from benchmarks.generate import RECORDS, grow
from pyspark_pylogtable import DefaultSource
from tests.cost.calls import calls_of
from tests.depth import rounds

SEGMENTS = rounds(20_000, deep=100_000)
PARTITIONS = 6


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


def _calls_to_plan(path: Path, **options: str) -> int:
    """The calls of planning alone, with the topic opened already."""
    source = DefaultSource({"path": str(path), **options})
    reader = source.reader(source.schema())
    return calls_of(reader.partitions)


def test_a_plan_of_all_segments_opens_none_of_them(large: Path) -> None:
    parts = [one.share for task in _planned(large) for one in pickle.loads(task).value]
    assert sum(len(part.tasks) for part in parts) == SEGMENTS
    assert sum(part.end - part.start for part in parts) == SEGMENTS * RECORDS


def test_a_plan_of_a_small_range_does_not_look_at_all_segments(large: Path) -> None:
    middle = SEGMENTS // PARTITIONS * RECORDS // 2
    small = {
        "startingOffsets": f'{{"*":{middle}}}',
        "endingOffsets": f'{{"*":{middle + 100}}}',
    }
    (task,) = _planned(large, **small)
    assert len(pickle.loads(task).value) == PARTITIONS
    few, many = (_calls_to_plan(large, **options) for options in (small, {}))
    assert few < SEGMENTS / 10
    assert many > SEGMENTS


def test_a_task_does_not_unpack_the_whole_topic(large: Path) -> None:
    """Spark sends the source and the reader with each task."""
    source = DefaultSource({"path": str(large)})
    sent = pickle.dumps((source, source.reader(source.schema())))
    arrived, _ = pickle.loads(sent)
    (view,) = arrived._pinned.views.values()
    assert "snapshot" not in vars(view)
