"""The topics that a read asks for, opened and pinned to a version."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime

import pyarrow as pa

import pylogtable
from pylogtable import InvalidRequestError, Store, Topic, TopicNotFoundError, View
from pyspark_pylogtable.request.options import Options
from pyspark_pylogtable.request.subscription import Assign, Subscribe, Subscription, named


@dataclass(frozen=True)
class Pinned:
    """The topics of a read at fixed versions, and the partitions to read of each.

    `is_subscribed` is true if the topics were chosen from a store, so there may be several.
    `groups` has the consumer groups of each topic; it is filled for `view=groups` only.
    """

    views: Mapping[str, View]
    assigned: Mapping[str, tuple[int, ...]]
    is_subscribed: bool
    groups: Mapping[str, pa.Table] = field(default_factory=dict)


def pin(options: Options) -> Pinned:
    """Open the topics that the options name, at the version that they name."""
    path = options.require_path()
    version: int | datetime | None = options.version_as_of
    if version is None:
        version = options.timestamp_as_of
    if options.subscription is None:
        topic = _open_topic(path, options)
        view = topic.at(version)
        assigned = {topic.name: _all_partitions(view)}
        groups = _groups([topic], options)
        return Pinned({topic.name: view}, assigned, False, groups)
    store = pylogtable.open(path, storage_options=options.storage_options)
    names = _subscribed(store, options.subscription)
    if options.version_as_of is not None and len(names) > 1:
        raise InvalidRequestError(
            f"versionAsOf is a version of one topic, and {len(names)} topics are read: "
            f"{', '.join(names)}; use timestampAsOf"
        )
    topics = [_topic(store, name) for name in names]
    views = {topic.name: topic.at(version) for topic in topics}
    if isinstance(options.subscription, Assign):
        wanted = options.subscription.partitions
        assigned = {name: _existing(view, wanted[name]) for name, view in views.items()}
    else:
        assigned = {name: _all_partitions(view) for name, view in views.items()}
    return Pinned(views, assigned, is_subscribed=True, groups=_groups(topics, options))


def _groups(topics: Iterable[Topic], options: Options) -> dict[str, pa.Table]:
    if options.view != "groups":
        return {}
    return {topic.name: topic.describe_groups().to_table() for topic in topics}


def _open_topic(path: str, options: Options) -> Topic:
    try:
        return pylogtable.open_topic(path, storage_options=options.storage_options)
    except InvalidRequestError as error:
        # The path may be that of a store, which does not say which topic to read.
        topics = pylogtable.open(path, storage_options=options.storage_options).topics()
        if not topics:
            raise
        raise InvalidRequestError(
            f"{path} is a store with the topic(s) {named(topics)}. One of the following "
            "options must be specified: assign, subscribe, subscribePattern; or give the "
            f"path of a topic, such as {path.rstrip('/')}/{topics[0]}"
        ) from error


def _topic(store: Store, name: str) -> Topic:
    try:
        return store.topic(name)
    except TopicNotFoundError as error:
        near = difflib.get_close_matches(name, store.topics(), n=1)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        raise TopicNotFoundError(f"{error}{hint}") from None


def _subscribed(store: Store, subscription: Subscription) -> list[str]:
    if isinstance(subscription, Subscribe):
        return list(subscription.topics)
    if isinstance(subscription, Assign):
        return list(subscription.partitions)
    every = store.topics()
    names = [name for name in every if subscription.matches(name)]
    if not names:
        raise TopicNotFoundError(
            f"no topic of {store.url} matches subscribePattern {subscription.pattern!r} (a Python "
            f"regular expression for the whole name); its topics: {', '.join(every) or 'none'}"
        )
    return names


def _all_partitions(view: View) -> tuple[int, ...]:
    return tuple(range(view.partition_count))


def _existing(view: View, numbers: tuple[int, ...]) -> tuple[int, ...]:
    missing = [number for number in numbers if number >= view.partition_count]
    if missing:
        raise InvalidRequestError(
            f"assign names partition(s) {', '.join(map(str, missing))} of topic {view.name!r}, "
            f"which has only 0 to {view.partition_count - 1}"
        )
    return numbers
