"""The table formats that a topic can be published in, and what jobs ask about its tables."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from threading import Lock

from pylogtable.errors import CorruptTopicError, LogTableError
from pylogtable.format.config import PUBLISH_FORMATS, TABLES_KEEP_MS
from pylogtable.format.snapshot import Snapshot
from pylogtable.jobs.job import MaintainedTopic, TableObjects
from pylogtable.publish.delta.table import DeltaTable
from pylogtable.publish.iceberg.manifests import need_pyiceberg
from pylogtable.publish.iceberg.table import IcebergTable
from pylogtable.publish.known_files import KnownFiles
from pylogtable.publish.plan import Shown
from pylogtable.publish.table import Published, Table
from pylogtable.publish.written_files import WrittenFiles
from pylogtable.read.plan import Span
from pylogtable.runtime import Runtime
from pylogtable.storage.base import ObjectInfo, ObjectStore

_logger = logging.getLogger(__name__)

#: What another process publishes is looked at again after this time.
SEEN_MS = 60_000

_TABLES: dict[str, Callable[[ObjectStore, Runtime], Table]] = {
    "delta": DeltaTable,
    "iceberg": IcebergTable,
}


def check_installed(name: str) -> None:
    """Raise if a package is missing that this format needs."""
    if name == "iceberg":
        need_pyiceberg()


def table_of(name: str, store: ObjectStore, runtime: Runtime) -> Table:
    """The table of this format of the topic at the root of `store`."""
    return _TABLES[name](store, runtime)


def tables_in(listing: Iterable[str], store: ObjectStore, runtime: Runtime) -> list[Table]:
    """The tables that have objects among the keys of a listing."""
    folders = {f"{key.partition('/')[0]}/" for key in listing}
    made = (make(store, runtime) for make in _TABLES.values())
    return [table for table in made if folders.intersection(table.folders)]


@dataclass
class OpenTable:
    """A table, and what it shows: its newest entry, what that shows if it is known, and when a
    listing or the like has last said so."""

    table: Table
    published: Published | None = None
    shown: Shown | None = None
    looked_ms: int = 0


class TopicTables:
    """The published tables of the topic at the root of `store`. What a publication has learned of
    a table is known to the next one. Threads may share it."""

    def __init__(self, name: str, store: ObjectStore, runtime: Runtime) -> None:
        self.name = name
        self.store = store
        self.runtime = runtime
        #: Where a publication writes files, and reads their footers.
        self.files = WrittenFiles(store)
        #: Where it looks up keys.
        self.known = KnownFiles(self.files)
        self._open: dict[str, OpenTable] = {}
        #: What each table has shown last, as far as this process knows, and since when it does.
        self._seen: dict[str, tuple[Published | None, int]] = {}
        self._lock = Lock()

    @contextmanager
    def opened(self, names: Sequence[str]) -> Iterator[dict[str, OpenTable]]:
        """The tables of these formats, for one publication. It takes out those that have failed. If
        it fails as a whole, or if another thread has the tables meanwhile, the next one begins
        without knowing them."""
        self.files.forget()
        with self._lock:
            found = [self._open.pop(name, None) for name in names]
        tables = {
            name: known or OpenTable(table_of(name, self.files, self.runtime))
            for name, known in zip(names, found, strict=True)
        }
        yield tables
        now_ms = self.runtime.clock()
        with self._lock:
            self._open.update(tables)
            self._seen.update((name, (one.published, now_ms)) for name, one in tables.items())

    def showing_before(self, topic_id: str, version: int) -> tuple[str, ...]:
        """The formats of the tables that show a version of the topic before this one. A table that
        cannot be read counts as well: what it shows is not known."""
        found = []
        for name in PUBLISH_FORMATS:
            try:
                published = table_of(name, self.store, self.runtime).newest()
            except LogTableError as error:
                _logger.warning("the %s table of %s cannot be read: %s", name, self.name, error)
                found.append(name)
                continue
            if published is None or published.state.topic_id != topic_id:
                continue
            if published.state.version < version:
                found.append(name)
        return tuple(found)

    def copied(self, newest: Snapshot) -> list[Span]:
        """The offsets that tables show by copies which are not the topic's [PUB-2]. A process that
        publishes knows them; another one looks from time to time. A table that cannot be read has
        none."""
        spans = []
        for name in newest.config.publish_formats:
            published = self._seen_last(name)
            if published is not None and published.state.topic_id == newest.topic_id:
                for files in published.state.copies.values():
                    first, last = files[0], files[-1]
                    spans.append(Span(first.partition, first.base_offset, last.end_offset))
        return spans

    def _seen_last(self, name: str) -> Published | None:
        now_ms = self.runtime.clock()
        published, seen_ms = self._seen.get(name, (None, None))
        if seen_ms is None or not 0 <= now_ms - seen_ms <= SEEN_MS:
            try:
                published = table_of(name, self.store, self.runtime).newest()
            except LogTableError:
                published = None  # the publication says so
            with self._lock:
                self._seen[name] = published, now_ms
        return published

    def objects(
        self, topic_id: str, listing: Sequence[ObjectInfo], since_ms: int, old_before_ms: int
    ) -> TableObjects:
        """Which files the tables show from `since_ms` on, and which objects of their own only
        versions before `old_before_ms` need [PUB-7]."""
        shown: set[str] = set()
        old: list[ObjectInfo] = []
        tables = tables_in((entry.key for entry in listing), self.store, self.runtime)
        for table in tables:
            try:
                shown |= table.needed_files(since_ms)
            except CorruptTopicError:
                if table.topic_id() in (None, topic_id):
                    raise
                continue  # of a topic that was deleted: nobody can read it
            old += table.old_objects(listing, old_before_ms)
        return TableObjects(frozenset(shown), tuple(old), TABLES_KEEP_MS if tables else 0)


def tables_of(topic: MaintainedTopic) -> TopicTables:
    """The tables of a topic that a job works on."""
    if isinstance(topic.tables, TopicTables):
        return topic.tables
    return TopicTables(topic.name, topic.store, topic.runtime)
