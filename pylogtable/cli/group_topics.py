"""Finds consumer groups, and the topics in which they have positions."""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING

from pylogtable import InvalidRequestError, LogTableError
from pylogtable.cli.messages import continue_on_error

if TYPE_CHECKING:
    from pylogtable import Store
    from pylogtable.cli.session import Session

_TOPICS_AT_A_TIME = 8


def topics_by_group(session: Session, store: Store) -> dict[str, list[str]]:
    """All groups, sorted, with their topics. A topic that cannot be read is reported, and left
    out."""
    found: dict[str, list[str]] = {}
    for topic, groups in _groups_by_topic(store).items():
        with continue_on_error(session, topic):
            for name in groups.result():
                found.setdefault(name, []).append(topic)
    return dict(sorted(found.items()))


def topics_of_group(store: Store, group: str) -> list[str]:
    """Every topic in which the group has a position; raises if a topic cannot be read, because the
    group may have a position in it."""

    def has_group(topic: str, groups: Future[list[str]]) -> bool:
        try:
            return group in groups.result()
        except LogTableError as error:
            raise InvalidRequestError(
                f"topic {topic!r} cannot be read: {error}; name the other topics with --topic"
            ) from error

    loaded = _groups_by_topic(store)
    topics = [topic for topic, groups in loaded.items() if has_group(topic, groups)]
    if not topics:
        raise InvalidRequestError(
            f"there is no group {group!r} in {store.url}; to start one, name a topic with --topic"
        )
    return topics


def _groups_by_topic(store: Store) -> dict[str, Future[list[str]]]:
    def load(topic: str) -> list[str]:
        return store.topic(topic).groups()

    with ThreadPoolExecutor(_TOPICS_AT_A_TIME) as pool:
        return {topic: pool.submit(load, topic) for topic in store.topics()}
