"""A topic's Delta table. It shows one version of the topic after the other."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import ClassVar

import msgspec

from pylogtable.format.config import LATEST, MANIFEST_RETENTION_MS, TABLES_KEEP_MS
from pylogtable.format.model import MAX_OFFSET, TopicInfo
from pylogtable.format.published_state import PublishedState
from pylogtable.format.schema import WireType, from_arrow, widens
from pylogtable.publish.delta.actions import (
    Action,
    add,
    add_again,
    commit_info,
    remove,
    txn,
)
from pylogtable.publish.delta.checkpoint import VECTOR
from pylogtable.publish.delta.deletion_vectors import (
    VECTORS_DIR,
    Descriptor,
    VectorReader,
    is_vectors,
    objects_of,
    remove_vectors,
    write_vectors,
)
from pylogtable.publish.delta.log import LOG_DIR, DeltaLog
from pylogtable.publish.delta.schema import DELETION_VECTORS, features_of, metadata_of, protocol_of
from pylogtable.publish.hidden_rows import HiddenRows
from pylogtable.publish.plan import Shown, TableChange, TableFile
from pylogtable.publish.roaring import Numbers, numbers
from pylogtable.publish.table import Published, view_of
from pylogtable.runtime import Runtime
from pylogtable.segments.column_bounds import FileFacts, facts_of
from pylogtable.storage.base import ObjectInfo, ObjectStore

#: A table with more new files gets a checkpoint at once.
MANY_FILES = 1000


class DeltaTable:
    """The Delta table of the topic at the root of `store`."""

    format: ClassVar[str] = "delta"
    folder: ClassVar[str] = LOG_DIR
    folders: ClassVar[tuple[str, ...]] = (LOG_DIR, VECTORS_DIR)

    def __init__(self, store: ObjectStore, runtime: Runtime) -> None:
        self._store = store
        self._runtime = runtime
        self._log = DeltaLog(store)
        self._vectors = VectorReader(store)

    def newest(self) -> Published | None:
        """What the table shows now; None if there is no table."""
        return self._log.newest()

    def topic_id(self) -> str | None:
        """The id of the topic that the table is of; None if that cannot be told."""
        return self._log.topic_id()

    def files(self, published: Published) -> dict[str, TableFile]:
        """The files that the table shows, by path."""
        return self._log.table(published.number).files()

    def hidden_rows(self, published: Published, paths: Sequence[str]) -> dict[str, Numbers]:
        """The rows that the table hides in these files of it; a file without any is left out."""
        known = self._log.table(published.number).added(paths)
        with_vectors = {p: body[VECTOR] for p, body in known.items() if VECTOR in body}
        return self._vectors.read(with_vectors)

    def hiding_objects(self, published: Published) -> set[str]:
        """The objects that have the vectors of the files that the table shows."""
        return objects_of(self._log.table(published.number).vectors())

    def show(
        self,
        name: str,
        before: Published | None,
        shown: TopicInfo | None,
        wanted: Shown,
        change: TableChange,
        hidden: HiddenRows | None = None,
    ) -> Published | None:
        """Show a version of the topic, after the entry `before`, whose columns are those of
        `shown`. None if another publication was faster."""
        number = 0 if before is None else before.number + 1
        now_ms, publish_id = self._runtime.clock(), self._runtime.new_id()
        info = wanted.snapshot.info
        facts = facts_of(self._store, [new.file for new in change.added], info)
        state = _state(before, shown, wanted, facts, hidden)
        state = msgspec.structs.replace(state, is_prompt=change.is_prompt)
        if before is not None:
            state = msgspec.structs.replace(state, follows=self._log.newest_id)
        vectors = self._new_vectors(before, hidden, publish_id)
        known = self._touched(before, change, hidden)
        actions = [
            commit_info(state, now_ms, publish_id),
            *_table_actions(name, before, shown, info, state),
            txn(state, now_ms),
            *(
                remove(
                    gone.file,
                    now_ms,
                    is_data=gone.is_data,
                    vector=known.get(gone.file.path, {}).get(VECTOR),
                )
                for gone in change.removed
            ),
            *(
                add(
                    new.file,
                    facts[new.file.path].bounds,
                    now_ms,
                    is_data=new.is_data,
                    vector=vectors.get(new.file.path),
                )
                for new in change.added
            ),
            *_changed_vectors(change, hidden, known, vectors, now_ms),
        ]
        if not self._log.commit(number, actions, publish_id, self._runtime):
            return None
        if number == 0 and not self._has_all(objects_of(vectors.values())):
            self._log.take_back(number)
            return None
        since_ms = now_ms - MANIFEST_RETENTION_MS
        self._log.write_checkpoint(number, since_ms, even_so=len(actions) > MANY_FILES)
        self._log.remove_old_block(number)
        return Published(number, state)

    def _has_all(self, objects: Iterable[str]) -> bool:
        """False if the table was removed before its first entry came, and with it what the entry
        needs. Later entries look at the one before [PUB-1]."""
        return all(self._store.size_of(key) is not None for key in objects)

    def _touched(
        self, before: Published | None, change: TableChange, hidden: HiddenRows | None
    ) -> dict[str, Action]:
        """What the table says about the files that are removed or get another vector."""
        if before is None or hidden is None:
            return {}
        paths = {*hidden.changes, *(gone.file.path for gone in change.removed)}
        return self._log.table(before.number).added(paths)

    def _new_vectors(
        self, before: Published | None, hidden: HiddenRows | None, publish_id: str
    ) -> dict[str, Descriptor]:
        """The vectors of the files in which other rows are hidden from now on. A vector says all
        that is hidden in its file."""
        if hidden is None:
            return {}
        known = {} if before is None else self.hidden_rows(before, [*hidden.changes])
        rows = {
            path: (known.get(path, numbers()) | one.hidden) - one.shown
            for path, one in hidden.changes.items()
        }
        return write_vectors(self._store, {p: of for p, of in rows.items() if of}, publish_id)

    def mend(self, published: Published) -> None:
        """Write a checkpoint if readers do not find the last one."""
        self._log.mend(published.number, self._runtime.clock() - MANIFEST_RETENTION_MS)

    def remove(self) -> int:
        """Remove the table. The topic stays as it is. Returns how many objects were removed."""
        removed = self._log.remove()
        if vectors := remove_vectors(self._store):
            removed += vectors + self._log.remove()  # an entry that came meanwhile needs them
        return removed

    def needed_files(self, since_ms: int) -> set[str]:
        """The files that versions of the table from this time on show [PUB-7]."""
        newest = self._log.newest()
        if newest is None:
            return set()
        table = self._log.table(newest.number)
        return {*table.paths.to_pylist(), *table.removed_since(since_ms).to_pylist()}

    def old_objects(self, listing: Iterable[ObjectInfo], before_ms: int) -> list[ObjectInfo]:
        """The objects of the table that only versions before this time need, or entries that are
        gone [PUB-7], [PUB-9]."""
        listed = [*listing]
        old = self._log.old_entries(listed, before_ms)
        gone = {info.key for info in old}
        kept = [info for info in listed if info.key not in gone]
        return [*old, *self._old_vectors(kept, before_ms)]

    def _old_vectors(self, kept: Iterable[ObjectInfo], before_ms: int) -> list[ObjectInfo]:
        """The first entry that can still be asked for needs the vectors that the table has at it.
        Later ones also need younger vectors: a publication writes them after it has read the entry
        before its own. An hour is added, for stores whose times are not quite in order."""
        kept = [*kept]
        vectors = [info for info in kept if is_vectors(info.key)]
        newest = self._log.newest() if vectors else None
        if newest is None:
            return [info for info in vectors if info.modified_ms < before_ms]
        first = self._log.at_or_since(kept, before_ms)
        if first is None:
            return []
        put_ms, table = first
        needed = objects_of([*table.vectors(), *self._log.table(newest.number).vectors()])
        early_ms = put_ms - TABLES_KEEP_MS
        return [info for info in vectors if info.modified_ms < early_ms and info.key not in needed]


def _state(
    before: Published | None,
    shown: TopicInfo | None,
    wanted: Shown,
    facts: Mapping[str, FileFacts],
    hidden: HiddenRows | None,
) -> PublishedState:
    snapshot = wanted.snapshot
    is_same = before is not None and before.state.topic_id == snapshot.topic_id
    widened = dict(before.state.widened) if before is not None and is_same else {}
    older: list[tuple[str, WireType]] = []
    if shown is not None:
        older += [(field.stored_name, field.type) for field in shown.fields]
    for of in facts.values():
        older += [(column.name, from_arrow(column.type)) for column in of.schema]
    types = {field.stored_name: field.type for field in snapshot.info.fields}
    for name, wire in older:
        if name in types and widens(wire, types[name]) and wire not in widened.get(name, ()):
            widened[name] = _in_order([*widened.get(name, ()), wire])
    features = features_of(snapshot.info, widened)
    if before is not None:
        features |= set(before.state.features)
    if snapshot.config.publish_view == LATEST:
        features.add(DELETION_VECTORS)
    return PublishedState(
        topic_id=snapshot.topic_id,
        version=snapshot.version,
        commit_id=snapshot.commit_id,
        committed_at_ms=snapshot.committed_at_ms,
        offsets=min(sum(state.end for state in snapshot.partitions), MAX_OFFSET),
        copies=dict(wanted.copies),
        features=tuple(sorted(features)),
        widened=widened,
        **view_of(wanted, hidden),
    )


def _changed_vectors(
    change: TableChange,
    hidden: HiddenRows | None,
    known: Mapping[str, Action],
    vectors: Mapping[str, Descriptor],
    now_ms: int,
) -> Iterator[Action]:
    """A file that stays and in which other rows are hidden is removed with its vector, and added
    again with the new one."""
    added = {new.file.path for new in change.added}
    for path, one in ({} if hidden is None else hidden.changes).items():
        if path in added:
            continue
        file = TableFile(path, one.file.partition, one.file.size_bytes)
        yield remove(file, now_ms, is_data=True, vector=known[path].get(VECTOR))
        yield add_again(known[path], vectors.get(path), now_ms)


def _in_order(types: Sequence[WireType]) -> tuple[WireType, ...]:
    """The narrowest type first."""
    return tuple(sorted(types, key=lambda wire: sum(widens(other, wire) for other in types)))


def _table_actions(
    name: str,
    before: Published | None,
    shown: TopicInfo | None,
    info: TopicInfo,
    state: PublishedState,
) -> Iterator[Action]:
    """Protocol and metadata, as far as they differ from those of the entry before."""
    new = metadata_of(name, state.topic_id, info, state.features, state.widened)
    if before is None or shown is None or before.state.features != state.features:
        yield {"protocol": protocol_of(state.features)}
        yield {"metaData": new}
        return
    old_state = before.state
    old = metadata_of(name, old_state.topic_id, shown, old_state.features, old_state.widened)
    if new != old:
        yield {"metaData": new}
