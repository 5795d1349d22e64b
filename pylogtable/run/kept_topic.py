"""One topic that a loop looks after: what is known of it, and its jobs."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection
from dataclasses import replace
from typing import Any

from pylogtable.errors import LogTableError, TopicNotFoundError
from pylogtable.jobs.job import MaintainOptions, run_job
from pylogtable.jobs.work import RunUnits
from pylogtable.maintain import REMOVING, job_for
from pylogtable.operation import new_operation
from pylogtable.publish.publication import Attempt, FollowingPublication, named
from pylogtable.publish.report import PublishReport
from pylogtable.run.due_plan import (
    Failing,
    LastRun,
    Seen,
    due_jobs,
    live_segments,
    look_after_ms,
)
from pylogtable.run.job_run import JobRun
from pylogtable.run.options import RunOptions
from pylogtable.runtime import Runtime
from pylogtable.topic import Topic

_logger = logging.getLogger(__name__)

_ALWAYS = MaintainOptions(again_and_again=True)
_NEVER = LastRun(version=-1, ended_ms=0, took_ms=0)


class KeptTopic:
    """A topic, and what this process has done for it. Nothing of it has to survive the process.
    `run_units` may leave units out when the loop is to stop; `run_all` does not. A mirror ends
    early if `gives_up()`."""

    def __init__(
        self,
        topic: Topic,
        options: RunOptions,
        run_units: RunUnits,
        run_all: RunUnits,
        gives_up: Callable[[], bool] = lambda: False,
    ) -> None:
        self.name = topic.name
        self._topic = topic
        self._options = options
        self._run_units = run_units
        self._run_all = run_all
        self._gives_up = gives_up
        self._runtime: Runtime = topic._log.runtime
        now_ms = self._runtime.clock()
        self._looked_ms = now_ms
        self._seen = Seen(topic._log.known, now_ms, now_ms, now_ms)
        self._last: dict[str, LastRun] = {}

    @property
    def look_ms(self) -> int:
        """The time between looks now."""
        every_ms = round(self._options.every_seconds * 1000)
        wanted = self._options.wanted
        return look_after_ms(self._seen, wanted, every_ms, self._runtime.clock())

    def look(self) -> list[str]:
        """Ask for the newest state, and return the jobs that are due."""
        before, was_seen = self._looked_ms, self._seen
        now_ms = self._runtime.clock()
        snapshot = self._topic._log.latest()
        self._looked_ms = now_ms
        if snapshot.version < was_seen.snapshot.version:
            # Commits were lost: a backup was restored. What was done for them says nothing.
            self._last.clear()
        is_news = snapshot.version > was_seen.snapshot.version
        published = self._last.get("publication")
        shown = -1 if published is None else published.version
        # Whatever is not shown came after the last look at which all was shown.
        was_shown = was_seen.snapshot.version <= shown
        self._seen = Seen(
            snapshot,
            was_seen.opened_ms,
            now_ms if is_news else was_seen.changed_ms,
            before if was_shown else was_seen.unpublished_ms,
        )
        asked = [name for name in self._options.wanted if self._asks_for(name)]
        copies_groups = self._options.mirror_groups
        return due_jobs(
            self._seen, self._last, asked, self.look_ms, now_ms, copies_groups=copies_groups
        )

    def run(self, name: str) -> list[JobRun]:
        """Run a job, and remember how it went. A publication may go well for one format and fail
        for another one: then these are two runs. Raises if the topic was deleted."""
        clock, monotonic = self._runtime.clock, self._runtime.monotonic
        began_ms, began = clock(), monotonic()
        # What others commit meanwhile is news for the next time.
        version = self._topic._log.known.version
        before = self._last.get(name, _NEVER)
        report: Any = None
        error: LogTableError | None = None
        try:
            with new_operation():
                report = self._report_of(name, before.waiting(began_ms))
        except Exception as raised:  # a bug in one job must not end the others
            if isinstance(raised, TopicNotFoundError) and self._is_gone():
                raise
            error = self._told(name, raised)
        failing = {of: before.failing[of] for of in before.waiting(began_ms)}
        failed: list[LogTableError] = []
        if isinstance(report, Attempt):
            for of, reason in report.failed.items():
                failed.append(self._told(name, named(of, reason)))
                failures = 1 + (before.failing[of].failures if of in before.failing else 0)
                failing[of] = Failing(failures, clock())
            report = report.report if report.report.tables else None
        if isinstance(report, PublishReport):  # it may have shown its own commit, too
            version = max(version, min(table.version for table in report.tables))
        seconds = monotonic() - began
        self._last[name] = LastRun(
            version=version,
            ended_ms=clock(),
            took_ms=round(seconds * 1000),
            segments=live_segments(self._topic._log.known),
            found_work=bool(getattr(report, "units", 0)),
            failures=0 if error is None else 1 + before.failures,
            failing=failing,
        )
        done = [JobRun(self.name, name, began_ms, seconds, report, error)]
        runs = [JobRun(self.name, name, began_ms, seconds, error=error) for error in failed]
        return runs if failed and report is None else done + runs

    def _is_gone(self) -> bool:
        """True if the topic was deleted, and not the copy that a mirror writes."""
        try:
            self._topic._log.latest()
        except TopicNotFoundError:
            return True
        except LogTableError:
            return False
        return False

    def _told(self, name: str, raised: Exception) -> LogTableError:
        """What is told of an error of a job. A bug is logged with its place."""
        if isinstance(raised, LogTableError):
            return raised
        _logger.error("the job %s of topic %r failed", name, self.name, exc_info=raised)
        return LogTableError(f"{type(raised).__name__}: {raised}")

    def _asks_for(self, name: str) -> bool:
        """Whether the topic's settings ask for a job."""
        return name == "mirror" or job_for(name, self._seen.snapshot, _ALWAYS) is not None

    def _report_of(self, name: str, waiting: Collection[str]) -> Any:
        if name == "mirror":
            assert self._options.mirror_to is not None
            return self._topic.mirror(
                self._options.mirror_to, groups=self._options.mirror_groups, stop=self._gives_up
            )
        # Only what removes records asks which groups there are.
        groups = self._protected() if name in REMOVING else self._options.protect_groups
        options = replace(_ALWAYS, protect_groups=groups)
        job = job_for(name, self._seen.snapshot, options)
        if job is None:  # the settings were changed since it was due
            return None
        if name == "publication":
            # What it leaves out would be missing in its tables, so it is not cut short.
            following = FollowingPublication(waiting)
            return run_job(following, self._topic._maintained, self._run_all)
        return run_job(job, self._topic._maintained, self._run_units)

    def _protected(self) -> list[str]:
        """The groups to protect that the topic has."""
        wanted = self._options.protect_groups
        known = self._topic.groups() if wanted else ()
        return [group for group in wanted if group in known]
