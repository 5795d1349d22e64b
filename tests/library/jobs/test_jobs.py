"""The job protocol: what a new maintenance job has to bring, and what it gets."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, ClassVar

import pytest

import pylogtable
from pylogtable import MaintainReport, SegmentGoneError, Store, Topic
from pylogtable.engine import Compaction, Job, Merge, Rewritten, Worker, run_job
from pylogtable.format.config import parse_config
from pylogtable.jobs.job import MaintainedTopic, MaintainOptions
from pylogtable.jobs.merge_plan import MergeUnit
from pylogtable.jobs.replace_plan import Swap
from pylogtable.jobs.rewrite import rewrite_segments
from pylogtable.jobs.rewrite_job import RewriteJob
from pylogtable.jobs.work import RunUnits, in_threads
from pylogtable.maintain import JOBS
from pylogtable.storage.base import ObjectStore
from pylogtable.storage.memory import MemoryStore
from tests.builders import data_files, ints, kafka, rows

pytestmark = pytest.mark.records_in("files")


@dataclass(frozen=True)
class Touch:
    """The smallest job: it has no units of work, and its report is the topic's name."""

    name: ClassVar[str] = "touch"

    def run(self, topic: MaintainedTopic, run_units: RunUnits) -> str:
        return topic.name


@dataclass(frozen=True)
class RewriteAll(RewriteJob[MergeUnit]):
    """A job with units of work: rewrite every segment by itself."""

    name: ClassVar[str] = "rewrite_all"
    operation: ClassVar[str] = "merge"

    def plan(self, topic: MaintainedTopic) -> list[MergeUnit]:
        state = topic.newest()
        return [
            MergeUnit(state.snapshot.info, 0, (segment,))
            for number in range(len(state.snapshot.partitions))
            for segment in state.segments(number)
        ]

    def rewrite(self, store: ObjectStore, unit: MergeUnit, new_id: Callable[[], str]) -> Rewritten:
        outputs = rewrite_segments(store, unit.topic, unit.inputs, 0, new_id)
        records = sum(segment.records for segment in outputs)
        return Rewritten(unit.partition, (Swap(unit.inputs, outputs),), records, records)


@pytest.fixture
def topic(store: Store) -> Topic:
    return filled(store)


def filled(store: Store) -> Topic:
    topic = store.create_topic("t", partitions=2, config={"cleanup.policy": "compact"})
    for number in range(3):
        topic.append(kafka(["a", "b"], [str(number)] * 2, partition=ints(0, 1)))
    return topic


def one_by_one(worker: Worker, units: Any) -> list[Rewritten]:
    return [worker(unit) for unit in units]


def test_job_without_units_runs(topic: Topic) -> None:
    job: Job[str] = Touch()
    assert run_job(topic, job, one_by_one) == "t"


def test_new_rewrite_job_needs_only_plan_and_rewrite(topic: Topic) -> None:
    before = rows(topic.read(), "partition", "offset", "value")
    paths = set(topic.segments()["path"].to_pylist())
    report = run_job(topic, RewriteAll(), one_by_one)
    assert (report.units, report.skipped, report.segments_out) == (6, 0, 6)
    assert rows(topic.read(), "partition", "offset", "value") == before
    assert not paths & set(topic.segments()["path"].to_pylist())
    assert topic.verify(data=True)


def test_every_job_of_maintain_has_a_field_in_the_report() -> None:
    config = parse_config({"cleanup.policy": "compact,delete"})
    jobs = [make(config, MaintainOptions()) for make in JOBS.values()]
    assert [job.name for job in jobs if job] == ["retention", "compaction", "merge", "vacuum"]
    assert {job.name for job in jobs if job} <= {field.name for field in fields(MaintainReport)}


@pytest.mark.parametrize("job", [Compaction(force=True), Merge()], ids=lambda job: job.name)
def test_units_workers_and_results_pickle(tmp_path: Path, job: RewriteJob[Any]) -> None:
    """An engine sends them to other machines and back."""
    topic = filled(pylogtable.open(tmp_path))

    def run_units(worker: Worker, units: Any) -> list[Rewritten]:
        sent = [pickle.dumps((worker, unit)) for unit in units]
        results = [pickle.dumps(there(unit)) for there, unit in map(pickle.loads, sent)]
        return [pickle.loads(result) for result in results]

    assert run_job(topic, job, run_units).units == 2
    assert topic.verify(data=True)


def test_failing_unit_removes_the_files_of_the_others(topic: Topic, objects: MemoryStore) -> None:
    lost = topic.segments().to_pylist()[-1]["path"]
    objects.delete(f"t/{lost}")
    before = data_files(objects)
    with pytest.raises(SegmentGoneError):
        run_job(topic, Merge(), in_threads(2))
    assert data_files(objects) == before
