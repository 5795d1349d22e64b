"""What this process did: jobs, requests, copies and errors. Safe in threads; reads no clock."""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator
from itertools import accumulate
from threading import Lock
from typing import Any, Protocol, runtime_checkable

from pylogtable.metrics.catalog import (
    COPIED_BYTES,
    COPIED_RECORDS,
    COPY_LAG,
    COPY_PROGRESS,
    ERRORS,
    JOB_DURATION,
    JOB_FAILURE,
    JOB_RUNS,
    JOB_SUCCESS,
    REQUESTS,
    Metric,
)
from pylogtable.metrics.sample import Distribution, Sample
from pylogtable.observe import Request

#: The bounds of the latency of requests, in seconds: from a local disk to a store in trouble.
LATENCIES = (0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)

#: What `run` calls a topic that could not be read. That is no job: it is never told that it could.
LOOK = "look"

_Labels = tuple[str, ...]


class JobRun(Protocol):
    """A job that has ended, as `run` tells it."""

    @property
    def topic(self) -> str: ...
    @property
    def job(self) -> str: ...
    @property
    def began_ms(self) -> int: ...
    @property
    def seconds(self) -> float: ...
    @property
    def report(self) -> Any: ...
    @property
    def error(self) -> Exception | None: ...


@runtime_checkable
class CopyProgress(Protocol):
    """How far an import or a mirror is, since it began. The report of a mirror is one, too."""

    @property
    def records(self) -> int: ...
    @property
    def size_bytes(self) -> int: ...
    @property
    def lag(self) -> dict[int, int]: ...


class ProcessAccount:
    """Counts what happens. `store` is the one that jobs and copies are about."""

    def __init__(self, store: str) -> None:
        self._store = store
        self._lock = Lock()
        self._values: defaultdict[Metric, dict[_Labels, float]] = defaultdict(dict)
        self._requests: dict[_Labels, list[int]] = {}
        self._request_seconds: defaultdict[_Labels, float] = defaultdict(float)

    def request(self, request: Request) -> None:
        """Count a request to a store."""
        labels = (request.kind, request.outcome)
        bucket = bisect_left(LATENCIES, request.seconds)
        with self._lock:
            counts = self._requests.setdefault(labels, [0] * (len(LATENCIES) + 1))
            counts[bucket] += 1
            self._request_seconds[labels] += request.seconds

    def failed(self, error: Exception) -> None:
        """Count an error by its code."""
        with self._lock:
            self._add(ERRORS, (_code_of(error),), 1)

    def job_ran(self, run: JobRun) -> None:
        """Count a job that has ended, and what it has copied if it is a mirror. An import has told
        that itself by `progress_of`."""
        labels = (self._store, run.topic, run.job)
        ended = run.began_ms / 1000 + run.seconds
        if run.job == LOOK and run.error is not None:
            self.failed(run.error)
            return
        with self._lock:
            self._values[JOB_DURATION][labels] = run.seconds
            if run.error is not None:
                self._add(JOB_RUNS, (*labels, "failed"), 1)
                self._add(ERRORS, (_code_of(run.error),), 1)
                self._values[JOB_FAILURE][labels] = ended
                return
            self._add(JOB_RUNS, (*labels, "ok"), 1)
            self._values[JOB_SUCCESS][labels] = ended
            if isinstance(run.report, CopyProgress):
                self._add(COPIED_RECORDS, labels, run.report.records)
                self._add(COPIED_BYTES, labels, run.report.size_bytes)
                self._values[COPY_LAG][labels] = sum(run.report.lag.values())
            else:  # an import was stopped: how it goes on is told by the process that has it now
                self._values[COPY_LAG].pop(labels, None)
                self._values[COPY_PROGRESS].pop(labels, None)

    def progress_of(
        self, job: str, topic: str, clock: Callable[[], int]
    ) -> Callable[[CopyProgress], None]:
        """What an import or a mirror calls with its progress. Each of them needs its own."""
        labels = (self._store, topic, job)
        records = size = 0

        def tell(at: CopyProgress) -> None:
            nonlocal records, size
            with self._lock:
                self._add(COPIED_RECORDS, labels, at.records - records)
                self._add(COPIED_BYTES, labels, at.size_bytes - size)
                self._values[COPY_LAG][labels] = sum(at.lag.values())
                self._values[COPY_PROGRESS][labels] = clock() / 1000
            records, size = at.records, at.size_bytes

        return tell

    def forget(self, topics: Collection[str]) -> None:
        """Forget the jobs and copies of topics that are gone."""
        with self._lock:
            for metric, values in self._values.items():
                if "topic" in metric.labels:
                    at = metric.labels.index("topic")
                    for labels in [one for one in values if one[at] in topics]:
                        del values[labels]

    def samples(self) -> list[Sample]:
        """The values now."""
        with self._lock:
            return [*self._numbers(), *self._latencies()]

    def _add(self, metric: Metric, labels: _Labels, amount: int) -> None:
        values = self._values[metric]
        values[labels] = values.get(labels, 0) + amount

    def _numbers(self) -> Iterator[Sample]:
        for metric, values in self._values.items():
            for labels, value in values.items():
                yield Sample(metric, labels, value)

    def _latencies(self) -> Iterator[Sample]:
        for labels, counts in self._requests.items():
            seconds = self._request_seconds[labels]
            yield Sample(
                REQUESTS, labels, Distribution(LATENCIES, list(accumulate(counts)), seconds)
            )


def _code_of(error: Exception) -> str:
    return str(getattr(error, "code", type(error).__name__))
