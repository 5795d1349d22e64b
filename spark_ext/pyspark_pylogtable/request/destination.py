"""Finds the topics that a write goes to, and creates them if the options say how."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
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
    split_topic_url,
)
from pylogtable.engine import check_log_columns
from pyspark_pylogtable.request.options import Options
from pyspark_pylogtable.request.subscription import named

_LOG_COLUMNS = ("partition", "offset", "timestamp")
OFFSET_REFUSED = (
    "column 'offset' is given by the log and cannot be written; drop it, or keep the offsets with "
    '.option("keepOffsets", True), or with LogTable.append(..., keep_offsets=True)'
)
_KAFKA_COLUMNS = frozenset({"key", "value", "headers"})


@dataclass(frozen=True)
class Creation:
    """How a write creates a missing topic. It does so only if the option `partitions` is given, and
    if `allowed`: topics that rows name need the option `createTopics`."""

    partitions: int | None
    key: tuple[str, ...] | None
    config: Mapping[str, str]
    columns: pa.Schema
    allowed: bool = True
    keeps_offsets: bool = False

    def open(self, store: Store, name: str) -> Topic:
        """The topic, created if it is missing; several tasks may do this at once."""
        try:
            topic = store.topic(name)
        except TopicNotFoundError as error:
            if self.partitions is None or not self.allowed:
                named = "" if self.allowed else '.option("createTopics", True), '
                raise TopicNotFoundError(
                    f"{error}, or let this write create it: {named}"
                    '.option("partitions", <how many>), and .option("key", "<column>") if its rows '
                    "have a key"
                ) from None
            try:
                return self._create(store, name, self.partitions)
            except TopicExistsError:
                topic = store.topic(name)
        self.check_same(topic)
        return topic

    def _create(self, store: Store, name: str, partitions: int) -> Topic:
        check_offset_column(self.columns, keep_offsets=self.keeps_offsets)
        check_log_columns(self.columns, keep_offsets=self.keeps_offsets)
        own = [column for column in self.columns if column.name not in _LOG_COLUMNS]
        names = {column.name for column in own}
        # Decided by names alone, as the Kafka sink does: text is accepted for key and value.
        if "value" in names <= _KAFKA_COLUMNS and self.key in (None, ("key",)):
            check_text(self.columns, ("key", "value"))
            return store.create_topic(name, partitions, config=self.config)
        schema = pa.schema([column.with_nullable(True) for column in own])
        return store.create_topic(name, partitions, schema, self.key, self.config)

    def check_same(self, topic: Topic) -> None:
        """Compare the options with a topic that exists: another key is an error, other settings are
        a warning, because a write changes no topic."""
        if self.key is None and self.partitions is None and not self.config:
            return
        has = topic.at().describe()
        if self.key is not None and self.key != has.key:
            raise InvalidRequestError(
                f"topic {topic.name!r} exists and its key is {', '.join(has.key) or 'none'}, not "
                f"{', '.join(self.key)}: a topic's key cannot be changed. Remove the option key."
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
                f"topic {topic.name!r} exists, so the options for creating it are not used: "
                f"{'; '.join(differ)}. Use topic.alter(...) to change it.",
                stacklevel=2,
            )


@dataclass(frozen=True)
class Destination:
    """Where a write goes: to a topic of this store, or to several. `by_option` says that the option
    `topic` chose it, which wins over a `topic` column."""

    store: Store
    creation: Creation
    by_option: bool = False
    # Columns that a topic does not have are added to it.
    merges_schema: bool = False
    # Rows bring their partition and their offset.
    keeps_offsets: bool = False


def find_destination(options: Options, columns: pa.Schema) -> tuple[Destination, Topic | None]:
    """Where the rows go, from `path`, the option `topic` and a `topic` column, and the topic, which
    is created if it is missing and the options say how. None if each row names its topic.

    As in the Kafka sink the option wins over the column. The path may be that of a store or that of
    a single topic.
    """
    path = options.require_path()
    own = pa.schema([column for column in columns if column.name != "topic"])
    creation = Creation(
        options.partitions, options.key, options.config, own, keeps_offsets=options.keep_offsets
    )
    to = partial(
        Destination, merges_schema=options.merge_schema, keeps_offsets=options.keep_offsets
    )
    opened = partial(pylogtable.open, storage_options=options.storage_options)
    found = None
    if options.topic is None:
        found = _find_topic(path, options)
    if options.topic is None and found is None and "topic" in columns.names:
        store = opened(path)
        _check_many_topics(store, path, options)
        return to(store, replace(creation, allowed=options.create_topics)), None
    if options.create_topics:
        raise InvalidRequestError(
            "createTopics lets the rows create the topics that their 'topic' column names, and "
            "this write goes to one topic: remove it"
        )
    if options.topic is not None:
        where = to(opened(path), creation, by_option=True)
        return where, creation.open(where.store, options.topic)
    if found is None and (topics := opened(path).topics()):
        raise InvalidRequestError(
            "topic option required when no 'topic' attribute is present: "
            f"{path} is a store with the topic(s) {named(topics)}. Use the option "
            "'topic', add a 'topic' column, or give the path of a topic."
        )
    parent, name = split_topic_url(path)
    where = to(opened(parent), creation)
    if found is None:
        return where, creation.open(where.store, name)
    creation.check_same(found)
    return where, found


def _check_many_topics(store: Store, path: str, options: Options) -> None:
    """Raise if rows that name their topics would surprise: a new store where the path was probably
    meant to be that of a topic, or topics without a number of partitions."""
    if options.create_topics and options.partitions is None:
        raise InvalidRequestError(
            'createTopics needs the number of partitions: .option("partitions", <how many>)'
        )
    if not options.create_topics and not store.topics():
        raise InvalidRequestError(
            f"nothing is at {path}, and the rows have a column 'topic'. If {path} is to be one "
            "topic, drop that column. If it is to be a store, with a topic for each value of "
            'that column: .option("createTopics", True).option("partitions", <how many>)'
        )


def check_offset_column(columns: pa.Schema, *, keep_offsets: bool) -> None:
    """Raise if the rows have an `offset` that the log would have to ignore [APPEND-1]."""
    if "offset" in columns.names and not keep_offsets:
        raise SchemaMismatchError(OFFSET_REFUSED)


def check_text(columns: pa.Schema, names: Iterable[str]) -> None:
    """Raise if one of these columns is neither text nor bytes, in the Kafka sink's words."""
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
    """The topic at the path, or None if the path is a store or does not exist."""
    try:
        return pylogtable.open_topic(path, storage_options=options.storage_options)
    except InvalidRequestError:
        return None
