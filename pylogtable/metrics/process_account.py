"""What this process did: jobs, requests, copies and errors. Safe in threads; reads no clock."""

from __future__ import annotations

from bisect import bisect_left
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
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
from pylogtable.times import is_within

#: The bounds of the latency of requests, in seconds: from a local disk to a store in trouble.
LATENCIES = (0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)

#: What `run` calls a topic that could not be read. That is no job: it is never told that it could.
LOOK = "look"

#: A job is not forgotten sooner after it was told of: its topic may have come since the last look,
#: or it is an import that cannot create its topic, which tries again and again.
FORGET_MS = 300_000
#: If nobody has scraped for so long, what is older is forgotten.
UNSEEN_MS = 24 * 3_600_000

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
    """How far an import or a mirror is, since it began."""

    @property
    def records(self) -> int: ...
    @property
    def size_bytes(self) -> int: ...
    @property
    def lag(self) -> dict[int, int]: ...


@runtime_checkable
class CopyReport(CopyProgress, Protocol):
    """What a mirror did. It has no `source_version` if it was given up."""

    @property
    def source_version(self) -> int | None: ...


@dataclass
class _Job:
    """What is known of a job of a topic, and when it was last told of."""

    told_ms: int
    values: dict[tuple[Metric, _Labels], float] = field(default_factory=dict)

    def add(self, metric: Metric, labels: _Labels, amount: int) -> None:
        key = (metric, labels)
        self.values[key] = self.values.get(key, 0) + amount


class ProcessAccount:
    """Counts what happens. `store` is the one that jobs and copies are about."""

    def __init__(self, store: str) -> None:
        self._store = store
        self._lock = Lock()
        #: By topic and name. The one that was told of last is at the end.
        self._jobs: OrderedDict[tuple[str, str], _Job] = OrderedDict()
        self._seen_ms: int | None = None
        self._errors: defaultdict[_Labels, int] = defaultdict(int)
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
            self._errors[(_code_of(error),)] += 1

    def job_ran(self, run: JobRun) -> None:
        """Count a job that has ended, and what it has copied if it is a mirror. An import has told
        that itself by `progress_of`."""
        if run.error is not None:
            self.failed(run.error)
        if run.job == LOOK and run.error is not None:
            return
        labels = (self._store, run.topic, run.job)
        ended = run.began_ms / 1000 + run.seconds
        with self._lock:
            job = self._told(run.topic, run.job, int(ended * 1000))
            job.values[JOB_DURATION, labels] = run.seconds
            # How far behind a copy is that has failed or was given up, nobody knows. Another
            # process may have it now, and tells that.
            job.values.pop((COPY_LAG, labels), None)
            if run.error is not None:
                job.add(JOB_RUNS, (*labels, "failed"), 1)
                job.values[JOB_FAILURE, labels] = ended
                return
            job.add(JOB_RUNS, (*labels, "ok"), 1)
            job.values[JOB_SUCCESS, labels] = ended
            if isinstance(run.report, CopyReport):
                job.add(COPIED_RECORDS, labels, run.report.records)
                job.add(COPIED_BYTES, labels, run.report.size_bytes)
                if run.report.source_version is not None:
                    job.values[COPY_LAG, labels] = sum(run.report.lag.values())
            else:  # an import was stopped
                job.values.pop((COPY_PROGRESS, labels), None)

    def progress_of(
        self, job: str, topic: str, clock: Callable[[], int]
    ) -> Callable[[CopyProgress], None]:
        """What an import or a mirror calls with its progress. Each of them needs its own."""
        labels = (self._store, topic, job)
        records = size = 0

        def tell(at: CopyProgress) -> None:
            nonlocal records, size
            now_ms = clock()
            with self._lock:
                mine = self._told(topic, job, now_ms)
                mine.add(COPIED_RECORDS, labels, at.records - records)
                mine.add(COPIED_BYTES, labels, at.size_bytes - size)
                mine.values[COPY_LAG, labels] = sum(at.lag.values())
                mine.values[COPY_PROGRESS, labels] = now_ms / 1000
            records, size = at.records, at.size_bytes

        return tell

    def forget(self, is_asked_for: Callable[[str, str], bool], now_ms: int) -> None:
        """Forget the jobs that nobody asks for any more: their topics are gone, or have other
        settings. `is_asked_for` takes a topic and a job."""
        with self._lock:
            self._seen_ms = now_ms
            for (topic, name), job in list(self._jobs.items()):
                if is_within(job.told_ms, now_ms, FORGET_MS):
                    continue
                if not is_asked_for(topic, name):
                    del self._jobs[topic, name]
                # A copy that is behind tells so again, unless another process has it.
                elif job.values.get(lag := (COPY_LAG, (self._store, topic, name))):
                    del job.values[lag]

    def samples(self) -> list[Sample]:
        """The values now."""
        with self._lock:
            return [*self._numbers(), *self._latencies()]

    def _told(self, topic: str, name: str, at_ms: int) -> _Job:
        """The job, which is told of now."""
        key = (topic, name)
        job = self._jobs.setdefault(key, _Job(at_ms))
        job.told_ms = at_ms
        self._jobs.move_to_end(key)
        if self._seen_ms is None or at_ms - self._seen_ms >= UNSEEN_MS:
            while at_ms - next(iter(self._jobs.values())).told_ms >= UNSEEN_MS:
                self._jobs.popitem(last=False)
        return job

    def _numbers(self) -> Iterator[Sample]:
        for job in self._jobs.values():
            for (metric, labels), value in job.values.items():
                yield Sample(metric, labels, value)
        for labels, count in self._errors.items():
            yield Sample(ERRORS, labels, count)

    def _latencies(self) -> Iterator[Sample]:
        for labels, counts in self._requests.items():
            seconds = self._request_seconds[labels]
            yield Sample(
                REQUESTS, labels, Distribution(LATENCIES, list(accumulate(counts)), seconds)
            )


def _code_of(error: Exception) -> str:
    return str(getattr(error, "code", type(error).__name__))
