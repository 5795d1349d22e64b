"""Reads and writes `_delta_log/`, the log of a topic's published Delta table.

An entry is put if it is absent, as a commit is: of two publications one is first, and the other
plans again. Checkpoints and the hint only save readers work; if one cannot be written, that is only
logged [PUB-6].
"""

from __future__ import annotations

import json
import logging
import re
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any

import pyarrow as pa

from pylogtable.errors import CorruptTopicError, InvalidRequestError
from pylogtable.lazy_arrow import pq
from pylogtable.publish.delta.actions import Action, decode, encode, publish_id_of, state_of
from pylogtable.publish.delta.checkpoint import TableState, empty_state, state_in_checkpoint
from pylogtable.publish.delta.schema import CHECKPOINT_INTERVAL
from pylogtable.publish.table import Published, damaged, put_entry
from pylogtable.runtime import Runtime
from pylogtable.storage.base import ObjectInfo, ObjectStore
from pylogtable.storage.numbered import NumberedObjects

_logger = logging.getLogger(__name__)

LOG_DIR = "_delta_log/"
HINT_PATH = f"{LOG_DIR}_last_checkpoint"
_ENTRY = re.compile(r"_delta_log/([0-9]{20})\.json")
_CHECKPOINT = re.compile(r"_delta_log/([0-9]{20})\.checkpoint\.parquet")

#: How many entries are held in memory at a time.
READ_ENTRIES = 100

#: What Python and Arrow say about an action that has not the fields or the types of one.
_WRONG_ACTIONS = (KeyError, TypeError, AttributeError, ValueError, OverflowError, pa.ArrowException)


def entry_path(version: int) -> str:
    return f"{LOG_DIR}{version:020d}.json"


def checkpoint_path(version: int) -> str:
    return f"{LOG_DIR}{version:020d}.checkpoint.parquet"


@dataclass(frozen=True)
class _Listed:
    """The numbers of the entries in the log, and the size of each checkpoint by its number."""

    entries: frozenset[int]
    checkpoints: dict[int, int]
    #: True if it begins with the checkpoint that the hint names.
    is_hinted: bool = False

    @property
    def top(self) -> int | None:
        """The greatest number; None if there is no table."""
        return max((*self.entries, *self.checkpoints), default=None)


class DeltaLog:
    """The log of the Delta table of the topic at the root of `store`."""

    def __init__(self, store: ObjectStore) -> None:
        self._store = store
        self._entries = NumberedObjects(store, entry_path)
        self._newest: tuple[int, bytes] | None = None
        self._lacks_checkpoint = False
        #: The whole table at an entry, if it is known, and the entries that were put after it.
        self._table: TableState | None = None
        self._table_at = -1
        self._later: list[list[Action]] = []

    def newest(self) -> Published | None:
        """The newest entry; None if the topic has no Delta table. Raises if somebody else wrote it,
        and if an entry that readers need is missing: then the log is no whole table."""
        listed = self._looked()
        self._forget_table()
        while (top := listed.top) is not None:
            found = deque(self._entries.read_forward(top), maxlen=1)
            if found:
                self._newest = found[0]
                return self._published(*found[0], listed)
            before, listed = listed, self._listed()  # it may have been removed meanwhile
            if listed == before:
                raise _missing(top)
        self._table = empty_state()
        return None

    def _published(self, number: int, data: bytes, listed: _Listed) -> Published:
        state = state_of(data, entry_path(number))
        if state is None:
            raise InvalidRequestError(
                f"{LOG_DIR} in the folder of the topic is the log of a Delta table that pylogtable "
                f"has not published ({entry_path(number)}). Nothing was changed; move it away "
                "to publish the topic"
            )
        checkpoints = self._good_checkpoints(listed)
        for at in range(max(checkpoints, default=-1) + 1, listed.top or 0):
            # An entry that is put during a listing need not be in it.
            if at not in listed.entries and self._entries.read(at) is None:
                raise _missing(at)
        before = None if state.follows is None else self._publish_id(number - 1)
        if before is not None and before != state.follows:
            detail = "it follows an entry of a table that was removed, and not the one before it"
            raise damaged(entry_path(number), detail)
        return Published(number, state)

    @property
    def newest_id(self) -> str | None:
        """The id of the publication that has put the newest known entry."""
        return None if self._newest is None else publish_id_of(self._newest[1], LOG_DIR)

    def topic_id(self) -> str | None:
        """The id of the topic that the newest entry is of; None if that cannot be told."""
        for number in sorted(self._listed().entries, reverse=True):
            data = self._entries.read(number)
            with suppress(CorruptTopicError):
                state = None if data is None else state_of(data, entry_path(number))
                return None if state is None else state.topic_id
        return None

    def commit(
        self, number: int, actions: Iterable[Action], publish_id: str, runtime: Runtime
    ) -> bool:
        """Put an entry; False if another publication was faster."""
        actions = [*actions]
        data = encode(actions)
        is_ours = put_entry(
            lambda: self._entries.create(number, data),
            lambda: self._publish_id(number),
            (entry_path(number), number),
            publish_id,
            runtime,
        )
        if not is_ours:
            return False
        if number and (number - 1, self._entries.read(number - 1)) != self._newest:
            # The table was removed meanwhile: an entry must not stand on one that is gone.
            self._store.delete(entry_path(number))
            return False
        self._newest = number, data
        if self._table is not None and number == self._table_at + len(self._later) + 1:
            self._later.append(actions)
        else:
            self._forget_table()
        return True

    def take_back(self, number: int) -> None:
        """Remove an entry that this has put a moment ago."""
        self._store.delete(entry_path(number))
        self._newest = None
        self._forget_table()

    def _forget_table(self) -> None:
        self._table, self._table_at, self._later = None, -1, []

    def _publish_id(self, number: int) -> str | None:
        data = self._entries.read(number)
        return None if data is None else publish_id_of(data, entry_path(number))

    def table(self, number: int) -> TableState:
        """The whole table at an entry. The first time it is read from the newest checkpoint and the
        entries after it."""
        if self._table is not None and number == self._table_at + len(self._later):
            self._table = self._table.after(chain.from_iterable(self._later))
            self._table_at, self._later = number, []
        if self._table is None or number != self._table_at:
            self._forget_table()
            self._table, self._table_at = self._read_table(number), number
        return self._table

    def _read_table(self, number: int) -> TableState:
        begin, state = self._read_checkpoint(number)
        for at, data in self._read_entries(begin, number + 1):
            if data is None:
                raise _missing(at)
            try:
                state = state.after(decode(data, entry_path(at)))
            except _WRONG_ACTIONS as error:
                raise damaged(entry_path(at), f"an action is wrong ({error!r})") from error
        try:
            state.check()
        except _WRONG_ACTIONS as error:
            raise damaged(entry_path(number), f"the log up to here is wrong ({error!r})") from error
        return state

    def _read_entries(self, begin: int, end: int) -> Iterator[tuple[int, bytes | None]]:
        """Entries in order, a block at a time: there may be many, or the first may be missing."""
        for at in range(begin, end, READ_ENTRIES):
            numbers = range(at, min(at + READ_ENTRIES, end))
            yield from zip(numbers, self._entries.read_many(numbers), strict=True)

    def write_checkpoint(self, number: int, removed_since_ms: int, *, even_so: bool) -> None:
        """Write a checkpoint at an entry, if one is due, or if readers do not find the last one, or
        `even_so`."""
        if number % CHECKPOINT_INTERVAL and not self._lacks_checkpoint and not even_so:
            return
        self._write_checkpoint(number, removed_since_ms)

    def remove_old_block(self, number: int) -> None:
        """Remove entries that are not among the newest ones, at every so many entries and so many
        at once, if what stays can be read from a checkpoint [PUB-7]."""
        limits = self._store.limits
        first, size = number - limits.table_entries_kept, limits.table_entries_removed
        if number % size or first <= 0:
            return
        gone = range(max(0, first - size), first)
        keys = [
            *(entry_path(at) for at in gone),
            *(checkpoint_path(at) for at in gone if at % CHECKPOINT_INTERVAL == 0),
        ]
        try:
            if self._store.size_of(checkpoint_path(first)) is not None:
                self._store.delete_many(keys)
        except Exception as error:  # any error: the entry has already landed
            _logger.warning("old entries of %s were not removed: %s", self._store.url, error)

    def mend(self, number: int, removed_since_ms: int) -> None:
        """Write a checkpoint at an entry if readers do not find the last one."""
        if self._lacks_checkpoint:
            self._write_checkpoint(number, removed_since_ms)

    def _write_checkpoint(self, number: int, removed_since_ms: int) -> None:
        try:
            self._table = self.table(number).forgetting(removed_since_ms)
            rows = self._table.checkpoint()
            sink = pa.BufferOutputStream()
            pq.write_table(rows, sink, compression="snappy")
            data = sink.getvalue().to_pybytes()
            self._store.write(checkpoint_path(number), data)
            if self._entries.read(number) is None:  # the table was removed meanwhile
                self._store.delete(checkpoint_path(number))
                return
            hint = {"version": number, "size": rows.num_rows, "sizeInBytes": len(data)}
            self._store.write(HINT_PATH, json.dumps(hint).encode())
            self._lacks_checkpoint = False
        except Exception as error:  # any error: the entry has already landed
            _logger.warning("no checkpoint at entry %s of %s: %s", number, self._store.url, error)

    def remove(self) -> int:
        """Remove the log, and so the table; the topic's files stay. The newest entry goes first,
        and a checkpoint after its entry: until the last is gone, readers see an older version of
        the topic. What a publication puts meanwhile is removed, too, and so is a damaged log."""
        with suppress(CorruptTopicError):
            self.newest()  # raises if the table is somebody else's
        self._newest = None
        self._store.delete(HINT_PATH)
        removed = 0
        while (listed := self._listed()).top is not None:
            for number in sorted({*listed.entries, *listed.checkpoints}, reverse=True):
                if number in listed.entries:
                    self._store.delete(entry_path(number))
                if number in listed.checkpoints:
                    self._store.delete(checkpoint_path(number))
            removed += len(listed.entries) + len(listed.checkpoints)
        self._store.delete(HINT_PATH)  # a publication may have written it meanwhile
        self._store.remove_empty_folders(LOG_DIR)
        return removed

    def old_entries(self, listing: Iterable[ObjectInfo], before_ms: int) -> list[ObjectInfo]:
        """The objects of the log that no version from `before_ms` on needs: all below the newest
        checkpoint that was written before [PUB-7]."""
        objects = [info for info in listing if info.key.startswith(LOG_DIR)]
        numbers = [
            number
            for info in objects
            if info.modified_ms < before_ms
            and (number := _number(_CHECKPOINT, info.key)) is not None
        ]
        if not numbers:
            return []
        after, _ = self._read_checkpoint(max(numbers))
        return [
            info
            for info in objects
            for number in [_number(_ENTRY, info.key), _number(_CHECKPOINT, info.key)]
            if number is not None and number < after - 1 and info.modified_ms < before_ms
        ]

    def at_or_since(
        self, kept: Iterable[ObjectInfo], since_ms: int
    ) -> tuple[int, TableState] | None:
        """When the entry was put that was the newest at a time, and the table at it. If it is not
        among these objects, or cannot be read, the first later one that can be. None if there is
        none."""
        entries: dict[int, int] = {}
        checkpoints: set[int] = set()
        for info in kept:
            if (number := _number(_ENTRY, info.key)) is not None:
                entries[number] = info.modified_ms
            elif (number := _number(_CHECKPOINT, info.key)) is not None:
                checkpoints.add(number)
        begin = max((n for n, put_ms in entries.items() if put_ms < since_ms), default=0)
        later = (n for n in entries.keys() & checkpoints if n > begin)
        for number in [*entries.keys() & {begin}, *sorted(later)]:
            with suppress(CorruptTopicError):
                return entries[number], self._read_table(number)
        return None

    def _looked(self) -> _Listed:
        """The part of the log that readers of the newest entry need: from the checkpoint on that
        the hint names. The whole log, if that checkpoint is not there, or not as the hint says."""
        hint = self._hint()
        named = hint.get("version")
        if isinstance(named, int) and 0 <= named < 10**20:
            listed = self._listed(named)
            if listed.checkpoints.get(named) == hint.get("sizeInBytes", -1):
                return replace(listed, is_hinted=True)
        return self._listed()

    def _listed(self, begin: int = 0) -> _Listed:
        """The log from the entry and the checkpoint of a number on."""
        entries: set[int] = set()
        checkpoints: dict[int, int] = {}
        for info in self._store.list_after(LOG_DIR, f"{LOG_DIR}{begin:020d}"):
            if (number := _number(_ENTRY, info.key)) is not None:
                entries.add(number)
            elif (number := _number(_CHECKPOINT, info.key)) is not None:
                checkpoints[number] = info.size_bytes
        return _Listed(frozenset(entries), checkpoints)

    def _good_checkpoints(self, listed: _Listed) -> list[int]:
        """The checkpoints in the listing, without one that the hint names and that is damaged."""
        if listed.is_hinted:
            self._lacks_checkpoint = False
            return [*listed.checkpoints]
        hint = self._hint()
        named = hint.get("version")
        size = listed.checkpoints.get(named) if isinstance(named, int) else None
        self._lacks_checkpoint = size is None or size != hint.get("sizeInBytes", size)
        if not isinstance(named, int) or size is None or not self._lacks_checkpoint:
            return [*listed.checkpoints]
        # Between writing a checkpoint again and writing the hint, the sizes differ.
        is_good = self._state_at(named) is not None
        return [number for number in listed.checkpoints if is_good or number != named]

    def _hint(self) -> dict[str, Any]:
        """What the hint says; nothing if it cannot be read."""
        data = self._store.read(HINT_PATH)
        try:
            hint = json.loads(data) if data else {}
        except (ValueError, RecursionError):
            return {}
        return hint if isinstance(hint, dict) else {}

    def _read_checkpoint(self, at_most: int) -> tuple[int, TableState]:
        """The state of the newest checkpoint up to an entry, and the number after its own; the
        empty state and 0 if there is none."""
        for listed in (self._looked, self._listed):
            for number in sorted(listed().checkpoints, reverse=True):
                if number <= at_most and (state := self._state_at(number)) is not None:
                    return number + 1, state
        return 0, empty_state()

    def _state_at(self, number: int) -> TableState | None:
        """The state of a checkpoint; None if it cannot be read."""
        data = self._store.read(checkpoint_path(number))
        if data is None:
            return None
        try:
            return state_in_checkpoint(pq.read_table(pa.BufferReader(data)))
        except (pa.ArrowException, KeyError, ValueError, OSError) as error:
            _logger.warning("%s is ignored: %s", checkpoint_path(number), error)
            return None


def _missing(number: int) -> CorruptTopicError:
    return damaged(entry_path(number), "it is missing")


def _number(pattern: re.Pattern[str], key: str) -> int | None:
    match = pattern.fullmatch(key)
    return int(match[1]) if match else None
