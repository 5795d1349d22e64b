"""From options to topics: which a read means, pinned to a version, and which a write goes to."""

from __future__ import annotations

import difflib
import warnings
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial

import pyarrow as pa

import pylogtable
from pylogtable import (
    InvalidRequestError,
    SchemaMismatchError,
    Store,
    Topic,
    TopicExistsError,
    TopicNotFoundError,
    View,
    split_topic_url,
)
from pylogtable.engine import check_log_columns
from pyspark_pylogtable.options import Options
from pyspark_pylogtable.subscription import Assign, Subscribe, Subscription

_LOG_COLUMNS = ("partition", "timestamp")
_KAFKA_COLUMNS = frozenset({"key", "value", "headers"})


@dataclass(frozen=True)
class Pinned:
    """The topics of a read as they were when it was loaded, and the partitions it wants of each.
    `subscribed` says that they were named as topics of a store, so there may be several. `groups`
    has their consumer groups, if it is these that are to be shown."""

    views: Mapping[str, View]
    assigned: Mapping[str, tuple[int, ...]]
    subscribed: bool
    groups: Mapping[str, pa.Table] = field(default_factory=dict)


def pin(options: Options) -> Pinned:
    """Open what the options name, at the version they name."""
    # What is only for writing is refused before anything is opened for a read.
    options.refuse_for("read")
    path = options.require_path()
    version: int | datetime | None = options.version_as_of
    if version is None:
        version = options.timestamp_as_of
    if options.subscription is None:
        topic = _open_topic(path, options)
        view = topic.at(version)
        assigned = {topic.name: _all_partitions(view)}
        groups = _groups([topic], options)
        return Pinned({topic.name: view}, assigned, subscribed=False, groups=groups)
    store = pylogtable.open(path, storage_options=options.storage_options)
    names = _subscribed(store, options.subscription)
    if options.version_as_of is not None and len(names) > 1:
        raise InvalidRequestError(
            f"versionAsOf is a version of one topic, and these are {len(names)}: "
            f"{', '.join(names)}; use timestampAsOf"
        )
    topics = [_topic(store, name) for name in names]
    views = {topic.name: topic.at(version) for topic in topics}
    if isinstance(options.subscription, Assign):
        wanted = options.subscription.partitions
        assigned = {name: _existing(view, wanted[name]) for name, view in views.items()}
    else:
        assigned = {name: _all_partitions(view) for name, view in views.items()}
    return Pinned(views, assigned, subscribed=True, groups=_groups(topics, options))


def _groups(topics: Iterable[Topic], options: Options) -> dict[str, pa.Table]:
    if options.view != "groups":
        return {}
    return {topic.name: topic.describe_groups().to_table() for topic in topics}


@dataclass(frozen=True)
class Creation:
    """How a write makes a topic that is not there: only if it says how many `partitions`."""

    partitions: int | None
    key: tuple[str, ...] | None
    config: Mapping[str, str]
    columns: pa.Schema

    def open(self, store: Store, name: str) -> Topic:
        """The topic, made if it is missing; of several writers that miss it one makes it."""
        try:
            topic = store.topic(name)
        except TopicNotFoundError as error:
            if self.partitions is None:
                raise TopicNotFoundError(
                    f'{error}, or let this write create it: .option("partitions", <how many>), '
                    'and .option("key", "<column>") if its rows have a key'
                ) from None
            try:
                return self._create(store, name, self.partitions)
            except TopicExistsError:
                topic = store.topic(name)
        self.check_same(topic)
        return topic

    def _create(self, store: Store, name: str, partitions: int) -> Topic:
        check_log_columns(self.columns)
        own = [column for column in self.columns if column.name not in _LOG_COLUMNS]
        names = {column.name for column in own}
        if "value" in names <= _KAFKA_COLUMNS and self.key in (None, ("key",)):
            check_text(self.columns, ("key", "value"))
            return store.create_topic(name, partitions, config=self.config)
        schema = pa.schema([column.with_nullable(True) for column in own])
        return store.create_topic(name, partitions, schema, self.key, self.config)

    def check_same(self, topic: Topic) -> None:
        """The options are about a topic to be made; one that is there is as it is."""
        has = topic.describe()
        if self.key is not None and self.key != has.key:
            raise InvalidRequestError(
                f"topic {topic.name!r} exists and its key is {', '.join(has.key) or 'none'}, not "
                f"{', '.join(self.key)}: a topic's key cannot be changed. Leave the option out."
            )
        differ = [
            f"{name} is {has.config[name]}, not {value}"
            for name, value in self.config.items()
            if has.config.get(name) != value
        ]
        if self.partitions is not None and self.partitions != len(has.partitions):
            differ.append(f"partitions is {len(has.partitions)}, not {self.partitions}")
        if differ:
            warnings.warn(
                f"topic {topic.name!r} exists, so the options that would create it are not used: "
                f"{'; '.join(differ)}. Use topic.alter(...) to change it.",
                stacklevel=2,
            )


@dataclass(frozen=True)
class Destination:
    """Where a write goes: the topic called `name`, or, if that is None, those of the store that the
    rows name in their `topic` column."""

    store: Store
    name: str | None
    creation: Creation
    # What was opened to find out, for use in the same process: a stream plans each batch anew.
    found: Topic | None = None

    def __getstate__(self) -> dict[str, object]:
        return {**vars(self), "found": None}

    def open(self, name: str) -> Topic:
        if self.found is not None and self.found.name == name:
            self.creation.check_same(self.found)
            return self.found
        return self.creation.open(self.store, name)

    def existing(self, name: str) -> Topic:
        """The topic that files were staged for: if it was deleted since, it stays so."""
        if self.found is not None and self.found.name == name:
            return self.found
        return self.store.topic(name)


def destination(options: Options, columns: pa.Schema) -> Destination:
    """What `path`, the option `topic` and a `topic` column mean together, as in the Kafka sink: the
    option wins over the column. A path may also be a topic's own."""
    path = options.require_path()
    own = pa.schema([column for column in columns if column.name != "topic"])
    creation = Creation(options.partitions, options.key, options.config, own)
    opened = partial(pylogtable.open, storage_options=options.storage_options)
    if options.topic is not None:
        return Destination(opened(path), options.topic, creation)
    if (found := _find_topic(path, options)) is not None:
        parent, name = split_topic_url(path)
        return Destination(opened(parent), name, creation, found)
    if "topic" in columns.names:
        return Destination(opened(path), None, creation)
    if topics := opened(path).topics():
        raise InvalidRequestError(
            "topic option required when no 'topic' attribute is present: "
            f"{path} is a store with the topic(s) {', '.join(topics[:10])}. Use the option "
            "'topic', add a 'topic' column, or give the path of a topic."
        )
    parent, name = split_topic_url(path)
    return Destination(opened(parent), name, creation)


def check_text(columns: pa.Schema, names: Iterable[str]) -> None:
    """Refuse what is neither text nor bytes, in the Kafka sink's words."""
    for column in columns:
        if column.name in names and not _is_text(column.type):
            raise SchemaMismatchError(
                f"{column.name} must be a(n) string or binary, and is {column.type}; cast it"
            )


def _is_text(arrow: pa.DataType) -> bool:
    types = pa.types
    return any(
        is_kind(arrow)
        for is_kind in (
            types.is_string,
            types.is_binary,
            types.is_large_string,
            types.is_large_binary,
            types.is_null,
        )
    )


def _find_topic(path: str, options: Options) -> Topic | None:
    """The topic at the path, if there is one; the path of a store may not even name one."""
    try:
        return pylogtable.open_topic(path, storage_options=options.storage_options)
    except InvalidRequestError:
        return None


def _open_topic(path: str, options: Options) -> Topic:
    try:
        return pylogtable.open_topic(path, storage_options=options.storage_options)
    except InvalidRequestError as error:
        # The folder of a store may be no topic, or no name for one: what is missing is a choice.
        topics = pylogtable.open(path, storage_options=options.storage_options).topics()
        if not topics:
            raise
        raise InvalidRequestError(
            f"{path} is a store with the topic(s) {', '.join(topics[:10])}. One of the following "
            "options must be specified for it: assign, subscribe, subscribePattern; or give the "
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
            f"regular expression for the whole name); it has {', '.join(every) or 'none'}"
        )
    return names


def _all_partitions(view: View) -> tuple[int, ...]:
    return tuple(range(view.partition_count))


def _existing(view: View, numbers: tuple[int, ...]) -> tuple[int, ...]:
    missing = [number for number in numbers if number >= view.partition_count]
    if missing:
        raise InvalidRequestError(
            f"assign names partition(s) {', '.join(map(str, missing))} of topic {view.name!r}, "
            f"which has {view.partition_count}: 0 to {view.partition_count - 1}"
        )
    return numbers
