"""A store of topics: open, list, create, delete."""

from __future__ import annotations

import logging
import os
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pyarrow as pa

from pylogtable.arguments import address, check_flags, checked_clock, names_in
from pylogtable.errors import (
    CorruptTopicError,
    InvalidRequestError,
    LogTableError,
    StorageError,
    TopicExistsError,
    TopicNotFoundError,
    UnsupportedFormatError,
)
from pylogtable.format.model import Change, CopyOf, TopicInfo
from pylogtable.format.paths import (
    HINT_PATH,
    MANIFEST_DIR,
    check_topic_name,
    collide,
    parse_commit_path,
)
from pylogtable.format.snapshot import Snapshot
from pylogtable.groups.store_group import StoreGroup
from pylogtable.jobs.job import MaintainOptions
from pylogtable.jobs.work import RunUnits, in_threads
from pylogtable.log.creation import create_log
from pylogtable.log.manifest import Manifest
from pylogtable.log.topic_log import TopicLog
from pylogtable.maintain import MaintainReport, maintain
from pylogtable.operation import Threads, operations
from pylogtable.runtime import Runtime, patience_in
from pylogtable.storage.base import ObjectStore
from pylogtable.storage.open import open_store
from pylogtable.store_consumers import StoreConsumers
from pylogtable.topic import Topic
from pylogtable.topics.asked import asked_topic, differences
from pylogtable.topics.column_types import GivenType
from pylogtable.topics.overview import overview_html
from pylogtable.topics.plan import (
    check_start_offsets,
    plan_create,
    plan_delete_topic,
)

_logger = logging.getLogger(__name__)

#: A folder that topics have, and stores have not.
_MANIFEST_FOLDER = MANIFEST_DIR.rstrip("/")
#: A topic with one of these errors exists, but cannot be read.
_DAMAGED = (CorruptTopicError, UnsupportedFormatError)


@operations
class Store(StoreConsumers):
    """A store of topics below one URL. `pylogtable.open` makes one.

    >>> store = pylogtable.open("s3://bucket/logs")
    >>> topic = store.create_topic("orders", partitions=6)
    """

    def __init__(self, store: ObjectStore, runtime: Runtime) -> None:
        self._store = store
        self._runtime = runtime

    def __repr__(self) -> str:
        return f"<Store at {self.url}>"

    @property
    def url(self) -> str:
        """Where the store is, for `pylogtable.open`."""
        return self._store.url

    def _repr_html_(self) -> str:
        return overview_html(self.url, self._load_all())

    def topics(self) -> list[str]:
        """The names of all topics, sorted. Damaged topics are included, and so are those that the
        store fails to read: one of them must not hide the others."""
        return list(self._load_all())

    def exists(self) -> bool:
        """False if the store is a local folder that does not exist; the first topic makes it.
        Object stores have no folders: there, every prefix of a bucket exists."""
        return self._store.is_there()

    def topic(self, name: str) -> Topic:
        """Open a topic. Raises `TopicNotFoundError` if it does not exist."""
        check_topic_name(name)
        return Topic(name, self._store.below(name), self._runtime)

    def create_topic(
        self,
        name: str,
        partitions: int = 1,
        schema: pa.Schema | Mapping[str, GivenType] | None = None,
        key: str | Sequence[str] | None = None,
        config: Mapping[str, object] | None = None,
        *,
        start_offsets: Mapping[int, int] | None = None,
        if_not_exists: bool = False,
    ) -> Topic:
        """Create a topic. Raises `TopicExistsError` if it already exists. If two callers create it
        at the same time, one succeeds and the other gets this error.

        With `if_not_exists`, an existing topic is opened instead, as it is. A warning names what is
        asked for and is different there: partitions other than 1, the key, columns that are missing
        or have another type, and settings.

        `schema` has the topic's own columns, and `key` names those that make up the key. Without a
        schema the topic is Kafka-shaped: binary `key` and `value`, and `headers`. A type is an
        Arrow type, or a name as in Spark SQL, such as "bigint" or "array<string>". Partitions begin
        at offset 0, or where `start_offsets` says, for instance `{0: 5000}`.

        >>> store.create_topic(
        ...     "users",
        ...     partitions=6,
        ...     schema={"user_id": pa.int64(), "name": pa.string()},
        ...     key="user_id",
        ...     config={"cleanup.policy": "compact"},
        ... )
        """
        check_flags(if_not_exists=if_not_exists)
        check_topic_name(name)
        info = asked_topic(partitions, schema, key, config, self._runtime.clock())
        try:
            return self._create_topic(name, info, start_offsets)
        except TopicExistsError:
            if not if_not_exists:
                raise
        found = self.topic(name)
        if told := differences(found._log.known.info, info):
            warnings.warn(
                f"topic {name!r} in {self.url} exists already and stays as it is: {told}. "
                "topic.alter(...) changes it",
                stacklevel=3,
            )
        return found

    def _create_copy(
        self,
        source: CopyOf | None,
        name: str,
        partitions: int,
        schema: pa.Schema | Mapping[str, GivenType] | None = None,
        key: str | Sequence[str] | None = None,
        config: Mapping[str, object] | None = None,
        start_offsets: Mapping[int, int] | None = None,
    ) -> Topic:
        """`create_topic`, for a guarded copy of another system's log if a source is given
        [GUARD-1]."""
        check_topic_name(name)
        info = asked_topic(partitions, schema, key, config, self._runtime.clock(), source)
        return self._create_topic(name, info, start_offsets)

    def _create_topic(
        self, name: str, info: TopicInfo, start_offsets: Mapping[int, int] | None
    ) -> Topic:
        starts = {} if start_offsets is None else start_offsets
        check_start_offsets(starts, info.partitions)
        return self._create(name, lambda snapshot, url: plan_create(snapshot, info, url, starts))

    def _create(self, name: str, plan: Callable[[Snapshot | None, str], Change]) -> Topic:
        """Create a topic. `plan` gets what is there, perhaps a deleted topic, and the address."""
        self._refuse_collision(name)
        create_log(self._store.below(name), self._runtime, plan)
        return self.topic(name)

    def _open_copy(
        self, name: str, plan: Callable[[Snapshot | None, str], Change]
    ) -> tuple[Topic, bool]:
        """Open the topic that is to be a copy, or create it; True if it is new."""
        check_topic_name(name)
        with suppress(TopicNotFoundError):
            return self.topic(name), False
        try:
            return self._create(name, plan), True
        except TopicExistsError:
            return self.topic(name), False

    def delete_topic(self, name: str) -> None:
        """Delete a topic and its data files. Its commits stay, so that no version number is used
        twice, and with them the records of small appends. A topic that is later created under this
        name has a different id and starts at offset 0 [META-5]."""
        check_topic_name(name)
        below = self._store.below(name)
        manifest = Manifest(below)
        snapshot = manifest.load()
        if snapshot is None or snapshot.topic is None:
            raise TopicNotFoundError(f"there is no topic at {below.url}")
        # List before deleting, so that the list has no files of a new topic with this name.
        doomed = [
            entry.key
            for entry in below.list()
            if parse_commit_path(entry.key) is None and entry.key != HINT_PATH
        ]
        log = TopicLog(manifest, self._runtime, snapshot)
        deleted, _ = log.change(lambda _: plan_delete_topic())
        manifest.write_root(deleted, self._runtime.new_id)
        with Threads(max(1, below.concurrency)) as pool:
            list(pool.map(below.delete, doomed))

    def groups(self) -> dict[str, list[str]]:
        """The consumer groups of all topics, each with the names of its topics. Topics that cannot
        be read are left out, and logged."""
        found: dict[str, list[str]] = {}
        for topic, groups in self._groups_by_topic(self.topics()).items():
            if isinstance(groups, LogTableError):
                _logger.warning("the groups of topic %r are left out: %s", topic, groups)
                continue
            for group in groups:
                found.setdefault(group, []).append(topic)
        return dict(sorted(found.items()))

    def group(self, name: str) -> StoreGroup:
        """A consumer group over all topics, to inspect, reset or delete it. Opening it writes
        nothing."""
        return StoreGroup(
            name,
            lambda: self.groups().get(name, []),
            lambda topic: self.topic(topic).group(name),
        )

    def maintain(
        self,
        topics: Sequence[str] | None = None,
        *,
        vacuum: bool = True,
        jobs: Sequence[str] | None = None,
        threads: int = 2,
        protect_groups: Sequence[str] = (),
        dry_run: bool = False,
    ) -> list[MaintainReport]:
        """Run `Topic.maintain` on these topics, or on all. Schedule this, for example once an hour.

        If a topic fails, its report has the error, and the others are still maintained. Each topic
        protects the groups of `protect_groups` that it has. If a group is in none of the topics,
        this raises before any work starts. `jobs` names the jobs to run, by the fields of the
        report, such as "merge"; the default is all that the settings ask for. With `dry_run`,
        nothing is changed, and the reports say what would be done.
        """
        names = self.topics() if topics is None else names_in("topics", topics)
        protected = self._protected(protect_groups, names)
        run_units = in_threads(threads)
        return [
            self._maintain(name, run_units, MaintainOptions(vacuum, protected[name], dry_run, jobs))
            for name in names
        ]

    def _protected(self, groups: Sequence[str], topics: Sequence[str]) -> dict[str, list[str]]:
        """For each topic, which of these groups it has; see `engine.protected_groups`. A topic
        whose groups cannot be read may have any of them, so it is given all: its maintenance fails
        then, and removes nothing that they have not read."""
        groups = names_in("groups", groups)
        if not groups:
            return {name: [] for name in topics}
        found = self._groups_by_topic(topics)
        readable = [listed for listed in found.values() if not isinstance(listed, LogTableError)]
        known = {group for listed in readable for group in listed}
        missing = [group for group in groups if group not in known]
        if missing and len(readable) == len(found):
            raise InvalidRequestError(
                f"no topic has a group {', '.join(map(repr, missing))} to protect; existing "
                f"groups: {', '.join(sorted(known)) or 'none'}"
            )
        return {
            name: [g for g in groups if isinstance(listed, LogTableError) or g in listed]
            for name, listed in found.items()
        }

    def _maintain(self, name: str, run_units: RunUnits, options: MaintainOptions) -> MaintainReport:
        try:
            topic = self.topic(name)._maintained
            return maintain(topic, run_units, options, report_errors=True)
        except LogTableError as error:
            return MaintainReport(topic=name, error=f"{type(error).__name__}: {error}")

    def _groups_by_topic(self, topics: Sequence[str]) -> dict[str, list[str] | LogTableError]:
        """The groups of each topic, or the error if they cannot be read."""

        def groups_of(name: str) -> list[str] | LogTableError:
            try:
                return self.topic(name).groups()
            except LogTableError as error:
                return error

        with Threads(max(1, min(8, len(topics)))) as pool:
            return dict(zip(topics, pool.map(groups_of, topics), strict=True))

    def _load_all(self) -> dict[str, Snapshot | LogTableError]:
        """Every topic by name: its state, or the error if it cannot be loaded. Each topic is loaded
        once."""
        folders = self._folders()
        with Threads(max(1, min(8, len(folders)))) as pool:
            loaded = list(pool.map(self._load, folders))
        return {
            name: found
            for name, found in zip(folders, loaded, strict=True)
            if isinstance(found, LogTableError) or (found is not None and found.topic is not None)
        }

    def _folders(self) -> list[str]:
        """The folders that may be topics, or may have been."""
        return [name for name in self._store.list_folders() if _is_topic_name(name)]

    def _refuse_topic(self, folders: Sequence[str]) -> None:
        """Raise if this is a topic, and not a store. `folders` are those in it."""
        if _MANIFEST_FOLDER not in folders:
            return
        found = _loaded(self._store)  # a topic may have the name of that folder
        if found is not None and not isinstance(found, StorageError):
            raise InvalidRequestError(
                f"{self.url} is a topic, and not a store: give the folder that it is in"
            )

    def _load(self, name: str) -> Snapshot | LogTableError | None:
        return _loaded(self._store.below(name))

    def _is_live(self, name: str) -> bool:
        found = self._load(name)
        if isinstance(found, LogTableError):
            if isinstance(found, _DAMAGED):
                return True
            raise found
        return found is not None and found.topic is not None

    def _refuse_collision(self, name: str) -> None:
        folders = self._store.list_folders()
        if _MANIFEST_FOLDER in folders and Manifest(self._store).load() is not None:
            # Deleting that topic would delete the new one with it.
            raise InvalidRequestError(
                f"cannot create topic {name!r} in {self.url}, which is a topic and not a store: "
                "open the folder above it"
            )
        for other in folders:
            if collide(name, other) and _is_topic_name(other) and self._is_live(other):
                raise InvalidRequestError(
                    f"topic name {name!r} collides with existing topic {other!r}: names must "
                    "differ in more than '.' and '_', as in Kafka"
                )


def open(
    url: str | os.PathLike[str],
    *,
    storage_options: Mapping[str, Any] | None = None,
    clock: Callable[[], int] | None = None,
) -> Store:
    """Open the store at a local path, `s3://bucket/prefix`, `gs://…`, `abfs://…` or `memory://`.

    >>> store = pylogtable.open("s3://bucket/logs", storage_options={"anon": False})

    `storage_options` go to the fsspec file system, for credentials and endpoints. One of them is
    for this library: `timeout_seconds`, how long a call waits for a store that does not answer (120
    s). `clock` returns milliseconds since the epoch and replaces the system's clock, for tests.
    This writes nothing.
    """
    if storage_options is not None and not isinstance(storage_options, Mapping):
        raise InvalidRequestError(  # its value may be a secret
            "`storage_options` must be a dict such as {'endpoint_url': 'http://localhost:9000'}, "
            f"not a {type(storage_options).__name__}"
        )
    runtime = Runtime(patience_seconds=patience_in(storage_options or {}))
    if clock:
        runtime = replace(runtime, clock=checked_clock(clock))
    return Store(open_store(url, storage_options, clock), runtime)


def open_topic(
    url: str | os.PathLike[str],
    *,
    storage_options: Mapping[str, Any] | None = None,
    clock: Callable[[], int] | None = None,
) -> Topic:
    """Open the topic at this URL, when you have no `Store` yet. Options are those of `open`.

    >>> topic = pylogtable.open_topic("s3://bucket/logs/orders")
    """
    parent, name = split_topic_url(url)
    return open(parent, storage_options=storage_options, clock=clock).topic(name)


def split_topic_url(url: str | os.PathLike[str]) -> tuple[str, str]:
    """Split a topic's URL into the store's URL and the topic's name.

    >>> pylogtable.split_topic_url("s3://bucket/logs/orders")
    ('s3://bucket/logs', 'orders')
    """
    text = address(url)
    parent, _, name = text.rstrip("/").rpartition("/")
    if not name or parent.endswith((":", ":/")):
        raise InvalidRequestError(f"{text!r} is a store, not a topic: add the topic's name")
    return parent or ("/" if text.startswith("/") else "."), name


def _loaded(store: ObjectStore) -> Snapshot | LogTableError | None:
    """The topic in this folder: its state, or the error if it cannot be loaded."""
    try:
        return Manifest(store).load()
    except LogTableError as error:
        return error


def _is_topic_name(name: str) -> bool:
    try:
        check_topic_name(name)
    except InvalidRequestError:
        return False
    return True
