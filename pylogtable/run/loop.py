"""The loop that keeps a store in shape: finds topics, looks at them, and runs the jobs that are
due.

It holds nothing that has to survive. Every job is safe beside writers, readers and other jobs, also
beside the same job of another process, and can be killed at any point [LOG-8].
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from queue import Empty, SimpleQueue

from pylogtable.errors import LogTableError, StorageError, TopicNotFoundError
from pylogtable.events import log_event
from pylogtable.jobs.work import RunUnits, in_threads, small_work_here
from pylogtable.operation import new_operation
from pylogtable.run.job_run import JobRun
from pylogtable.run.kafka_imports import RunningImports
from pylogtable.run.kept_topic import KeptTopic
from pylogtable.run.lanes import APART, LANE_OF, LOOK, WIDTH, Lanes, ThreadLanes
from pylogtable.run.members import Members
from pylogtable.run.options import RunOptions
from pylogtable.store import Store

_logger = logging.getLogger(__name__)

#: How often new topics are looked for, and how often a folder that was no topic is asked again.
DISCOVERY_MS = 30_000
NO_TOPIC_MS = 60_000
#: After a topic could not be read, it is looked at again after this time.
UNREADABLE_MS = 30_000
#: Nothing else is begun, or stopped, while a store is silent that is asked for topics and claims.
SILENCE_SECONDS = 10.0
#: A clock that goes back by less than this makes nothing late that anybody would notice.
SET_BACK_MS = 1_000


class Loop:
    """Looks after the topics of a store. `tick` begins what is due; `run` does so until it is
    stopped."""

    def __init__(
        self,
        store: Store,
        options: RunOptions,
        run_units: RunUnits | None = None,
        lanes: Lanes | None = None,
    ) -> None:
        self._store = store
        self._options = options
        self._runtime = store._runtime
        # No events: a signal's handler that calls `stop` may have come while this very thread holds
        # the lock of one.
        self._has_to_stop = False
        self._wakes: SimpleQueue[None] = SimpleQueue()
        self._run_units = small_work_here(run_units or in_threads(options.threads, self.is_stopped))
        self._run_all = small_work_here(run_units or in_threads(options.threads))
        self._lanes = ThreadLanes() if lanes is None else lanes
        self.members = Members(store._store, store._runtime, options.task)
        self._imports = RunningImports(
            store, options.imports, self.members, self.is_stopped, self._tell
        )
        self._lock = threading.Lock()
        self._telling = threading.Lock()
        self._kept: dict[str, KeptTopic] = {}
        #: When to look at each topic, and at each folder that may become one.
        self._due_ms: dict[str, int] = {}
        #: The lanes that have work for a topic, and those that do it now.
        self._busy: set[tuple[str, str]] = set()
        self._working: set[tuple[str, str]] = set()
        self._discovery_ms = self._now_ms = 0
        self._has_warned = False
        #: The topics that were asked for by name, and are not there.
        self._missed: set[str] = set()

    def stop(self) -> None:
        """End after the running commits. A handler of signals may call it."""
        self._has_to_stop = True
        self._wakes.put(None)

    def is_stopped(self) -> bool:
        """True once `stop` was called, or `run` has ended."""
        return self._has_to_stop

    def run(self) -> None:
        """Look after the topics until `stop` is called."""
        try:
            while not self._has_to_stop:
                sleep_ms = self.tick() - self._runtime.clock()
                self._sleep(max(sleep_ms, 0) / 1000)
        finally:
            self._has_to_stop = True
            self._lanes.close()
            self._imports.close()
            with new_operation(SILENCE_SECONDS):
                self.members.leave()

    def _sleep(self, seconds: float) -> None:
        """Wait so long, or until something has happened."""
        with suppress(Empty):
            self._wakes.get(timeout=seconds)
            while True:
                self._wakes.get_nowait()

    def tick(self) -> int:
        """Begin what is due, and return when the next thing is."""
        is_set_back = self._runtime.clock() < self._now_ms - SET_BACK_MS
        if is_set_back:
            self._forget()
        with new_operation(SILENCE_SECONDS):
            if self._runtime.clock() >= self._discovery_ms:
                self._discover()
            is_beat_due = is_set_back or self._runtime.clock() >= self.members.next_beat_ms
            if is_beat_due and self._has_topics:
                self.members.beat()
        self._imports.tick()
        now_ms = self._now_ms = self._runtime.clock()
        with self._lock:
            due = [name for name in self._idle() if self._due_ms[name] <= now_ms]
        for name in due:
            if not self.members.owns(name):
                self._kept.pop(name, None)
                self._due_ms[name] = self.members.next_beat_ms
            elif self._take(name, LOOK):
                self._lanes.start(LOOK, partial(self._turn, name))
        with self._lock:
            times = [self._due_ms[name] for name in self._idle()]
        if self._has_topics:
            times.append(self.members.next_beat_ms)
        return min([*times, self._discovery_ms])

    @property
    def _has_topics(self) -> bool:
        """False if there is nothing to claim: most likely the address is wrong, and nothing must be
        written there."""
        return bool(self._due_ms) or self._options.imports is not None

    def _forget(self) -> None:
        """Begin anew. The clock was set back, so no time that was noted says when something is due;
        nothing must wait until the clock is there again."""
        with self._lock:
            self._kept.clear()
            self._due_ms = dict.fromkeys(self._due_ms, 0)
        self._discovery_ms = 0

    def _idle(self) -> list[str]:
        """The topics that nobody looks at now."""
        return [name for name in self._due_ms if (name, LOOK) not in self._busy]

    def _discover(self) -> None:
        """Look for new topics. A folder that was no topic is asked again from time to time."""
        now_ms = self._runtime.clock()
        self._discovery_ms = now_ms + DISCOVERY_MS
        names: Sequence[str]
        try:
            if self._options.topics is not None:
                names = self._options.topics
            else:
                names = self._store._folders()
        except LogTableError as error:
            self._tell(JobRun("", "look", now_ms, 0.0, error=error))
            return
        if self._options.topics is None:
            self._store._refuse_topic(names)
        if not names:
            self._warn_of_no_topic()
        with self._lock:
            for name in self._due_ms.keys() - {*names}:
                del self._due_ms[name]
                self._kept.pop(name, None)
            for name in names:
                self._due_ms.setdefault(name, now_ms)

    def _warn_of_no_topic(self) -> None:
        """Say that there is none yet, or any more. A disk that is not mounted looks like that."""
        with self._lock:
            had_topics = bool(self._due_ms)
        if had_topics:
            message = "all topics of %s are gone: is its disk mounted? This looks for new ones"
        elif not self._has_warned:
            message = "there is no topic in %s yet; this goes on and looks for new ones"
        else:
            return
        self._has_warned = True
        _logger.warning(message, self._store.url)

    def _turn(self, name: str) -> None:
        """Look at a topic, begin the jobs that are due, and publish if that is due."""
        look_ms, began_ms = UNREADABLE_MS, self._runtime.clock()
        try:
            with new_operation():
                kept = self._opened(name)
                due = kept.look()
            by_lane: dict[str, list[str]] = {}
            for job in due:
                by_lane.setdefault(LANE_OF[job], []).append(job)
            soon = by_lane.pop(LOOK, [])
            for lane in WIDTH:
                if lane in by_lane and self._take(name, lane):
                    self._lanes.start(lane, partial(self._work, kept, lane, by_lane[lane]))
            self._run_jobs(kept, soon)
            look_ms = kept.look_ms
        except TopicNotFoundError:
            # It was deleted, perhaps another one is in its place by now; or it is no topic.
            look_ms = 0 if self._kept.pop(name, None) else NO_TOPIC_MS
            if look_ms:
                self._miss(name)
        except LogTableError as error:
            if not isinstance(error, StorageError):  # what is known of a topic that is away stays
                self._kept.pop(name, None)
            self._tell(JobRun(name, "look", self._runtime.clock(), 0.0, error=error))
        except Exception:
            _logger.exception("topic %r was not looked after, and will be later", name)
        finally:
            with self._lock:
                self._busy.discard((name, LOOK))
                if name in self._due_ms:
                    # Not from the end: what came during a long publication has waited already.
                    self._due_ms[name] = max(began_ms + look_ms, self._runtime.clock())
            self._wakes.put(None)

    def _opened(self, name: str) -> KeptTopic:
        kept = self._kept.get(name)
        if kept is None:
            topic = self._store.topic(name)
            kept = KeptTopic(
                topic,
                self._options,
                self._run_units,
                self._run_all,
                lambda: self._has_to_stop or not self.members.owns(name),
            )
            self._kept[name] = kept
            self._missed.discard(name)
        return kept

    def _miss(self, name: str) -> None:
        """Say once that a topic is not there, if it was asked for by its name."""
        if self._options.topics is not None and name not in self._missed:
            self._missed.add(name)
            log_event(
                _logger,
                logging.WARNING,
                "there is no topic %(topic)s; it is looked after once it is created",
                topic=name,
                store=self._store.url,
            )

    def _work(self, kept: KeptTopic, lane: str, jobs: Sequence[str]) -> None:
        """Run these jobs, unless they had to wait for another lane: then the next look begins them
        again. What only waits for its turn keeps nobody waiting."""
        try:
            if self._may_work(kept.name, lane):
                self._run_jobs(kept, jobs)
        except TopicNotFoundError:
            pass  # the next look finds that it was deleted
        except Exception:
            _logger.exception("the jobs %s of topic %r ended early", ", ".join(jobs), kept.name)
        finally:
            with self._lock:
                self._busy.discard((kept.name, lane))
                self._working.discard((kept.name, lane))

    def _may_work(self, name: str, lane: str) -> bool:
        with self._lock:
            if (name, APART.get(lane)) in self._working:
                return False
            self._working.add((name, lane))
            return True

    def _run_jobs(self, kept: KeptTopic, jobs: Sequence[str]) -> None:
        for job in jobs:
            if self._has_to_stop or not self.members.owns(kept.name):
                return
            for run in kept.run(job):
                self._tell(run)

    def _tell(self, run: JobRun) -> None:
        if run.error is not None:
            message = "%(job)s of topic %(topic)s failed, and will be tried again: %(reason)s"
            if not run.topic:
                message = "the topics of the store are not known, and will be later: %(reason)s"
            elif run.job == "look":
                message = "topic %(topic)s cannot be read, and will be tried again: %(reason)s"
            log_event(
                _logger,
                logging.WARNING,
                message,
                job=run.job,
                topic=run.topic,
                store=self._store.url,
                seconds=round(run.seconds, 3),
                error=type(run.error).__name__,
                reason=str(run.error),
            )
        if self._options.on_job is not None:
            try:
                with self._telling:  # it is called by one thread at a time
                    self._options.on_job(run)
            except Exception:  # it must not make tables late
                _logger.exception("`on_job` failed after %s of topic %r", run.job, run.topic)

    def _take(self, name: str, lane: str) -> bool:
        """True if nothing of the topic runs in this lane; then something does."""
        with self._lock:
            if (name, lane) in self._busy:
                return False
            self._busy.add((name, lane))
            return True
