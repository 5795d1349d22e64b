"""The report of a store: every topic is measured, and the result becomes one page of HTML."""

from __future__ import annotations

from dataclasses import replace

from pylogtable.errors import InvalidRequestError, LogTableError
from pylogtable.groups.report import GroupLag
from pylogtable.operation import Threads
from pylogtable.report.advice import advise, advise_unreadable
from pylogtable.report.health import TopicHealth, UnreadableTopic
from pylogtable.report.measure import measure_topic
from pylogtable.report.page.document import page
from pylogtable.store import Store
from pylogtable.topic import Topic

#: How many of a topic's newest commits are read.
COMMITS_READ = 500
#: How many topics are measured at a time. Each may have a million segments in memory.
TOPICS_AT_A_TIME = 4


def report_html(store: Store, *, now_ms: int | None = None) -> str:
    """A report about all topics of a store, as one HTML page that needs no network. It shows size,
    growth, segments, dirty ratios and consumer groups, and which commands to run. Use it for a
    regular look at a store.

    >>> Path("report.html").write_text(pylogtable.report_html(store))

    It reads manifests, and one or two records per partition for the lag of each group. `now_ms`
    replaces the store's clock, for tests.
    """
    if not isinstance(store, Store):
        raise InvalidRequestError(f"`store` must be what pylogtable.open() returned, not {store!r}")
    moment = store._runtime.clock() if now_ms is None else now_ms
    names = store.topics()
    with Threads(TOPICS_AT_A_TIME) as pool:
        topics = list(pool.map(lambda name: _examine(store, name, moment), names))
    advice = {
        topic.name: advise(topic, store.url)
        if isinstance(topic, TopicHealth)
        else advise_unreadable(topic, store.url)
        for topic in topics
    }
    return page(store.url, topics, advice, moment)


def _examine(store: Store, name: str, now_ms: int) -> TopicHealth | UnreadableTopic:
    try:
        topic = store.topic(name)
        view = topic.at()
        health = measure_topic(
            name,
            view.snapshot,
            view.segments(),
            view.history(COMMITS_READ),
            _lags(topic),
            now_ms,
        )
        return replace(health, published=topic.describe().published)
    except LogTableError as error:
        return UnreadableTopic(name, f"{type(error).__name__}: {error}")


def _lags(topic: Topic) -> dict[str, GroupLag | str]:
    """The lag of each group, or the error. A group that fails does not hide the others."""
    try:
        return {name: _lag(topic, name) for name in topic.groups()}
    except LogTableError as error:
        return {"": f"{type(error).__name__}: {error}"}


def _lag(topic: Topic, group: str) -> GroupLag | str:
    try:
        return topic.group(group).lag()
    except LogTableError as error:
        return f"{type(error).__name__}: {error}"
