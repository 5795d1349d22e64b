"""The topics of a store, looked at when somebody asks, and not more often than every few seconds.

What a look costs: a request for each topic if nothing has come, and every 30 s a listing of the
store, and of the groups of each topic with a request for each group, and what its tables need.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from concurrent.futures import Future, wait
from functools import partial
from threading import Lock

from pylogtable.errors import LogTableError
from pylogtable.metrics.catalog import STORE_UP
from pylogtable.metrics.sample import Sample
from pylogtable.metrics.topic_samples import topic_samples
from pylogtable.metrics.topic_watch import TopicWatch
from pylogtable.operation import Threads, new_operation
from pylogtable.store import Store
from pylogtable.times import is_within

#: No look begins sooner after the last one has ended.
LOOK_MS = 10_000
#: The same for what is around topics: new ones, groups and published tables.
AROUND_MS = 30_000
#: How often a folder that is no topic, such as that of a deleted one, is asked again.
RETRY_MS = 60_000
#: A look waits so long for a store that does not answer.
SILENCE_SECONDS = 5.0
#: A scrape waits so long for a look, and then shows what was found before. Prometheus gives up
#: after 10 s, and takes what it does not get for gone.
WAIT_SECONDS = 7.0
#: What was found is not shown for longer: then Prometheus is to see that it gets nothing.
OLD_MS = 300_000
MOST_THREADS = 32


class StoreWatch:
    """The topics of a store, or only those that `topics` names. `on_error` is told of each topic
    that cannot be read. `on_around` is called after each look around with a function and the time:
    whether a topic is there and its settings ask for a job.

    One that `topics` names and that is not there is not up. Names may be added to it: these are of
    copies, which are not missed before they have been there."""

    def __init__(
        self,
        store: Store,
        topics: Collection[str] | None = None,
        *,
        per_partition: bool = False,
        wait_seconds: float = WAIT_SECONDS,
        on_error: Callable[[LogTableError], object] = lambda error: None,
        on_around: Callable[[Callable[[str, str], bool], int], object] = lambda asks, at: None,
    ) -> None:
        self._store = store
        self._runtime = store._runtime
        self._only = topics
        self._missed = set(topics or ())
        self._per_partition = per_partition
        self._wait_seconds = wait_seconds
        self._on_error = on_error
        self._on_around = on_around
        self._watched: dict[str, TopicWatch] = {}
        self._is_up = True
        self._has_had_topics = False
        self._looked_ms: int | None = None
        self._around_ms: int | None = None
        self._tried_ms: dict[str, int] = {}
        #: The look that is under way, or the last one; and what was found when it had ended.
        self._looking: Future[None] = Future()
        self._looking.set_result(None)
        self._known: list[Sample] | None = None
        self._lock = Lock()
        self._measuring = Lock()

    def samples(self, *, at_once: bool = False) -> list[Sample]:
        """What is known of the topics, after a look if the last one was a while ago. If that takes
        long it goes on, and this returns what was known before. With `at_once`, everything is
        measured before this returns. Raises if the store is a topic."""
        with self._lock:
            now_ms = self._runtime.clock()
            is_due = self._looking.done() and not is_within(self._looked_ms, now_ms, LOOK_MS)
            if is_due:
                self._looking = Future()
            look = self._looking
        if is_due:
            work = partial(self._work, look, at_once)
            work() if at_once else self._runtime.later(work)
        may_be_old = is_within(self._looked_ms, now_ms, OLD_MS)
        wait([look], self._wait_seconds if may_be_old else None)
        if look.done():
            look.result()
        with self._lock:
            if self._looking.done():  # segments may have been measured since
                self._known = list(self._samples())
            assert self._known is not None
            return self._known

    def _work(self, look: Future[None], at_once: bool) -> None:
        """Do a look. Whoever waits for it is told of an error."""
        now_ms = self._runtime.clock()
        try:
            self._look(now_ms)
            self._measure(now_ms, at_once=at_once)
            self._known = list(self._samples())
            self._looked_ms = self._runtime.clock()
        except BaseException as error:
            look.set_exception(error)
        else:
            look.set_result(None)

    def _samples(self) -> Iterator[Sample]:
        url = self._store.url
        if self._only is None:
            yield Sample(STORE_UP, (url,), int(self._is_up))
        for _, watch in sorted(self._watched.items()):
            if watch.is_there or watch.name in self._missed:
                yield from topic_samples(url, watch, per_partition=self._per_partition)

    def _look(self, now_ms: int) -> None:
        around = not is_within(self._around_ms, now_ms, AROUND_MS)
        is_known = False
        with new_operation(SILENCE_SECONDS):
            if around:
                is_known = self._find_topics()
                self._around_ms = now_ms
            watched = [one for one in self._watched.values() if self._is_due(one, now_ms, around)]
            threads = min(MOST_THREADS, self._store._store.concurrency, len(watched))
            with Threads(max(1, threads)) as pool:
                list(pool.map(lambda watch: watch.look(around=around), watched))
        for watch in watched:
            self._tried_ms[watch.name] = now_ms
            if watch.error is not None:
                self._on_error(watch.error)
        if self._only is not None:
            self._missed |= {name for name, watch in self._watched.items() if watch.is_there}
        if is_known:
            self._on_around(self._asks_for, self._runtime.clock())

    def _asks_for(self, topic: str, job: str) -> bool:
        return topic in self._watched and self._watched[topic].asks_for(job)

    def _is_due(self, watch: TopicWatch, now_ms: int, around: bool) -> bool:
        """False for what is no topic, or could not be opened, shortly before."""
        if watch.is_open or watch.name not in self._tried_ms:
            return True
        if watch.is_there or self._only is not None:
            return around
        return not is_within(self._tried_ms[watch.name], now_ms, RETRY_MS)

    def _find_topics(self) -> bool:
        """Watch new topics, and no longer those whose folder is gone. False if the store cannot say
        which there are."""
        if self._only is not None:
            names = [*self._only]
        else:
            try:
                names = self._store._folders()
                self._has_had_topics |= bool(names)
                is_there = not self._has_had_topics and self._store._store.is_there()
                self._is_up = bool(names) or is_there
            except LogTableError as error:
                self._is_up = False
                self._on_error(error)
                return False
            self._store._refuse_topic(names)
        for name in self._watched.keys() - set(names):
            del self._watched[name]
            self._tried_ms.pop(name, None)
        for name in names:
            if name not in self._watched:
                self._watched[name] = TopicWatch(self._store, name)
        return True

    def _measure(self, now_ms: int, *, at_once: bool) -> None:
        due = [watch for watch in self._watched.values() if watch.is_due(now_ms)]
        slow = [] if at_once else [watch for watch in due if watch.needs_leaves]
        self._measure_all([watch for watch in due if watch not in slow], now_ms)
        if slow and self._measuring.acquire(blocking=False):

            def work() -> None:
                try:
                    with new_operation():
                        self._measure_all(slow, now_ms)
                finally:
                    self._measuring.release()

            self._runtime.later(work)

    def _measure_all(self, due: Iterable[TopicWatch], now_ms: int) -> None:
        """One after the other: each may have a million segments in memory."""
        for watch in due:
            try:
                watch.measure(now_ms)
            except LogTableError as error:  # noqa: PERF203 (one topic does not stop the others)
                self._on_error(error)
