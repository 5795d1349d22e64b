"""What a task of a write does: it writes the rows to files that a later commit makes visible."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field
from threading import Semaphore
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark import TaskContext
from pyspark.sql.datasource import WriterCommitMessage

from pylogtable import InvalidRequestError
from pylogtable.engine import Staged, Stager, limits_of
from pyspark_pylogtable.tasks.assignment import assign
from pyspark_pylogtable.tasks.planned_write import PlannedWrite
from pyspark_pylogtable.tasks.write_columns import TOPIC, without_log_columns

# Threads of one task; Spark runs as many tasks as there are cores.
ENCODERS = 2
# Limit for the row groups that are being encoded or wait for it. The library has a limit for each
# topic; with a hundred topics in one task that would be too much.
MAX_ENCODING = 4 * ENCODERS


@dataclass
class Written(WriterCommitMessage):
    """What one task staged, by topic, and the id of its streaming query, if any."""

    staged: dict[str, Staged] = field(default_factory=dict)
    query_id: str | None = None


def stage_rows(write: PlannedWrite, batches: Iterator[pa.RecordBatch]) -> Written:
    """Stage all rows of a task; if it fails, its files are removed."""
    task = TaskContext.get()
    number = task.partitionId() if task else 0
    with write.in_task(), _TopicStagings(write, number) as stagings:
        for batch in batches:
            stagings.add(batch)
        return Written(stagings.finish(), query_id())


def query_id() -> str | None:
    """The id of the streaming query that this task runs for. It is kept in the checkpoint."""
    task = TaskContext.get()
    return task.getLocalProperty("sql.streaming.queryId") if task else None


class _TopicStagings:
    """The stagings of one task, one for each topic that its rows go to."""

    def __init__(self, write: PlannedWrite, task: int) -> None:
        self._write = write
        self._task = task
        self._open: dict[str, Stager] = {}
        self._columns: dict[str, pa.Schema] = {}
        self._stack = ExitStack()
        # All topics share one thread pool, because every thread holds memory.
        self._encoders = self._stack.enter_context(_Encoders(ENCODERS))

    def __enter__(self) -> _TopicStagings:
        return self

    def __exit__(self, *failure: object) -> None:
        self._stack.__exit__(*failure)  # type: ignore[arg-type]

    def add(self, batch: pa.RecordBatch) -> None:
        if (plan := self._write.plan) is not None:
            named = None if self._write.where.by_option else plan.name
            rows = without_log_columns(batch, named, keep_offsets=plan.keep_offsets)
            self._add_rows(plan.name, rows)
            return
        for name, rows in _split_by_topic(batch):
            self._add_rows(name, rows)
        waiting = sum(staging.waiting_bytes for staging in self._open.values())
        if waiting > limits_of(self._write.where.store).task_waiting_bytes:
            max(self._open.values(), key=lambda staging: staging.waiting_bytes).flush()

    def finish(self) -> dict[str, Staged]:
        return {name: staging.finish() for name, staging in self._open.items()}

    def _add_rows(self, name: str, rows: pa.RecordBatch) -> None:
        staging = self._staging(name, rows)
        staging.add(assign(rows, self._columns[name]))

    def _staging(self, name: str, rows: pa.RecordBatch) -> Stager:
        if name not in self._open:
            plan = self._write.for_rows(name, rows.schema)
            self._columns[name] = plan.schema
            staging = plan.begin(self._task, self._encoders)
            self._open[name] = self._stack.enter_context(staging)
        return self._open[name]


class _Encoders(ThreadPoolExecutor):
    """A thread pool with a bounded queue: `submit` waits while MAX_ENCODING are under way."""

    def __init__(self, threads: int) -> None:
        super().__init__(threads)
        self._free = Semaphore(MAX_ENCODING)

    def submit(self, *args: Any, **kwargs: Any) -> Future[Any]:
        self._free.acquire()
        try:
            submitted: Future[Any] = super().submit(*args, **kwargs)
        except BaseException:
            self._free.release()
            raise
        submitted.add_done_callback(lambda _: self._free.release())
        return submitted


def _split_by_topic(batch: pa.RecordBatch) -> Iterator[tuple[str, pa.RecordBatch]]:
    names = batch.column(TOPIC)
    if names.null_count:
        raise InvalidRequestError(
            "null topic present in the data. Use the topic option for setting a topic."
        )
    rows = batch.drop_columns([TOPIC])
    for name in names.unique().to_pylist():
        yield name, rows.filter(pc.equal(names, name))
