"""A report of a store: every topic is measured, and what was found becomes one page of HTML."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

from pylogtable.errors import LogTableError
from pylogtable.report.advise import advise, advise_failed
from pylogtable.report.health import FailedTopic, TopicHealth
from pylogtable.report.measure import measure
from pylogtable.report.page.document import page
from pylogtable.results.groups import GroupLag
from pylogtable.store import Store
from pylogtable.topic import Topic

#: How many of a topic's newest commits are read.
COMMITS_READ = 500
#: At a time: each may hold the entries of a million segments.
TOPICS_AT_A_TIME = 4


def report_html(store: Store, *, now_ms: int | None = None) -> str:
    """One self-contained page of HTML about all topics of a store: how large they are and how they
    grow, their segments, dirty ratios and groups, and what to run. It needs no network to be looked
    at. Of the data only a record or two is read for each group's lag."""
    moment = store._runtime.clock() if now_ms is None else now_ms
    names = store.topics()
    with ThreadPoolExecutor(TOPICS_AT_A_TIME) as pool:
        topics = list(pool.map(lambda name: _examine(store, name, moment), names))
    advice = {
        topic.name: advise(topic, store.url)
        if isinstance(topic, TopicHealth)
        else advise_failed(topic, store.url)
        for topic in topics
    }
    return page(store.url, topics, advice, moment)


def _examine(store: Store, name: str, now_ms: int) -> TopicHealth | FailedTopic:
    try:
        topic = store.topic(name)
        view = topic.at()
        return measure(
            name,
            view.snapshot,
            view.segments(),
            view.history(COMMITS_READ),
            _lags(topic),
            now_ms,
        )
    except LogTableError as error:
        return FailedTopic(name, f"{type(error).__name__}: {error}")


def _lags(topic: Topic) -> dict[str, GroupLag | str]:
    """The lag of each group, or why it is not known: one that fails does not hide the others."""
    try:
        return {name: _lag(topic, name) for name in topic.groups()}
    except LogTableError as error:
        return {"": f"{type(error).__name__}: {error}"}


def _lag(topic: Topic, group: str) -> GroupLag | str:
    try:
        return topic.group(group).lag()
    except LogTableError as error:
        return f"{type(error).__name__}: {error}"
