"""The topics of a store, looked at when somebody asks, and not more often than every few seconds.

What a look costs: a request for each topic if nothing has come, and every 30 s a listing of the
store, and of the groups of each topic with a request for each group, and what its tables need.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from threading import Lock

from pylogtable.errors import LogTableError
from pylogtable.metrics.catalog import STORE_UP
from pylogtable.metrics.sample import Sample
from pylogtable.metrics.topic_samples import topic_samples
from pylogtable.metrics.topic_watch import TopicWatch
from pylogtable.operation import Threads, new_operation
from pylogtable.store import Store

#: A scrape shows what was found so long ago, at most.
LOOK_MS = 10_000
#: The same for what is around topics: new ones, groups and published tables.
AROUND_MS = 30_000
#: How often a folder that is no topic, such as that of a deleted one, is asked again.
RETRY_MS = 60_000
#: A scrape waits so long for a store that does not answer. Prometheus gives up after 10 s.
SILENCE_SECONDS = 5.0
MOST_THREADS = 32


class StoreWatch:
    """The topics of a store, or only those that `topics` names. `on_error` is told of each topic
    that cannot be read, and `on_removed` of topics that are gone.

    One that `topics` names and that is not there is not up. Names may be added to it: these are of
    copies, which are not missed before they have been there."""

    def __init__(
        self,
        store: Store,
        topics: Collection[str] | None = None,
        *,
        on_error: Callable[[LogTableError], object] = lambda error: None,
        on_removed: Callable[[Collection[str]], object] = lambda names: None,
    ) -> None:
        self._store = store
        self._runtime = store._runtime
        self._only = topics
        self._missed = set(topics or ())
        self._on_error = on_error
        self._on_removed = on_removed
        self._watched: dict[str, TopicWatch] = {}
        self._is_up = True
        self._looked_ms: int | None = None
        self._around_ms: int | None = None
        self._tried_ms: dict[str, int] = {}
        self._lock = Lock()
        self._measuring = Lock()

    def samples(self, *, per_partition: bool = False, at_once: bool = False) -> list[Sample]:
        """What is known of the topics, after a look if the last one was a while ago. With
        `at_once`, everything is measured before this returns. Raises if the store is a topic."""
        with self._lock:
            now_ms = self._runtime.clock()
            if not _is_recent(self._looked_ms, now_ms, LOOK_MS):
                self._look(now_ms)
                self._measure(now_ms, at_once=at_once)
            return list(self._samples(per_partition=per_partition))

    def _samples(self, *, per_partition: bool) -> Iterator[Sample]:
        url = self._store.url
        if self._only is None:
            yield Sample(STORE_UP, (url,), int(self._is_up))
        for _, watch in sorted(self._watched.items()):
            if watch.is_there or watch.name in self._missed:
                yield from topic_samples(url, watch, per_partition=per_partition)

    def _look(self, now_ms: int) -> None:
        around = not _is_recent(self._around_ms, now_ms, AROUND_MS)
        before = self._there()
        with new_operation(SILENCE_SECONDS):
            if around:
                self._find_topics()
                self._around_ms = now_ms
            watched = [one for one in self._watched.values() if self._is_due(one, now_ms, around)]
            threads = min(MOST_THREADS, self._store._store.concurrency, len(watched))
            with Threads(max(1, threads)) as pool:
                list(pool.map(lambda watch: watch.look(around=around), watched))
        for watch in watched:
            self._tried_ms[watch.name] = now_ms
            if watch.error is not None:
                self._on_error(watch.error)
        there = self._there()
        self._on_removed(before - there)
        if self._only is not None:
            self._missed |= there
        self._looked_ms = now_ms

    def _there(self) -> set[str]:
        return {name for name, watch in self._watched.items() if watch.is_there}

    def _is_due(self, watch: TopicWatch, now_ms: int, around: bool) -> bool:
        """False for what is no topic, or could not be opened, shortly before."""
        if watch.is_open or watch.name not in self._tried_ms:
            return True
        if watch.is_there or self._only is not None:
            return around
        return not _is_recent(self._tried_ms[watch.name], now_ms, RETRY_MS)

    def _find_topics(self) -> None:
        """Watch new topics, and no longer those whose folder is gone."""
        if self._only is not None:
            names = [*self._only]
        else:
            try:
                names = self._store._folders()
                self._is_up = bool(names) or self._store._store.is_there()
            except LogTableError as error:
                self._is_up = False
                self._on_error(error)
                return
            self._store._refuse_topic(names)
        for name in self._watched.keys() - set(names):
            del self._watched[name]
            self._tried_ms.pop(name, None)
        for name in names:
            if name not in self._watched:
                self._watched[name] = TopicWatch(self._store, name)

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


def _is_recent(seen_ms: int | None, now_ms: int, for_ms: int) -> bool:
    """False also if the clock was set back."""
    return seen_ms is not None and 0 <= now_ms - seen_ms < for_ms
