"""Reads and writes `_delta_log/`, the log of a topic's published Delta table.

An entry is put if it is absent, as a commit is: of two publications one is first, and the other
plans again. Checkpoints and the hint only save readers work; if one cannot be written, that is only
logged [PUB-6].
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Iterable
from contextlib import suppress

import pyarrow as pa

from pylogtable.errors import (
    CommitUnknownError,
    CorruptTopicError,
    InvalidRequestError,
    StorageError,
)
from pylogtable.lazy_arrow import pq
from pylogtable.log.commit_loop import put_numbered
from pylogtable.publish.delta_actions import Action, decode, encode, state_of
from pylogtable.publish.delta_checkpoint import TableState, empty_state, state_in
from pylogtable.publish.delta_schema import CHECKPOINT_INTERVAL
from pylogtable.publish.table import Published
from pylogtable.runtime import Runtime
from pylogtable.storage.base import ObjectInfo, ObjectStore
from pylogtable.storage.numbered import NumberedObjects

_log = logging.getLogger(__name__)

LOG_DIR = "_delta_log/"
HINT_PATH = f"{LOG_DIR}_last_checkpoint"
_ENTRY = re.compile(r"_delta_log/([0-9]{20})\.json")
_CHECKPOINT = re.compile(r"_delta_log/([0-9]{20})\.checkpoint\.parquet")


def entry_path(version: int) -> str:
    return f"{LOG_DIR}{version:020d}.json"


def checkpoint_path(version: int) -> str:
    return f"{LOG_DIR}{version:020d}.checkpoint.parquet"


class DeltaLog:
    """The log of the Delta table of the topic at the root of `store`."""

    def __init__(self, store: ObjectStore) -> None:
        self._store = store
        self._entries = NumberedObjects(store, entry_path)

    def newest(self) -> Published | None:
        """The newest entry; None if the topic has no Delta table. Raises if somebody else wrote
        it."""
        newest = self._newest_from(self._hinted())
        if newest is None:
            listed = [_number(_ENTRY, info.key) for info in self._store.list(LOG_DIR)]
            numbers = [number for number in listed if number is not None]
            newest = self._newest_from(max(numbers)) if numbers else None
        if newest is None:
            return None
        number, data = newest
        state = state_of(data, entry_path(number))
        if state is None:
            raise InvalidRequestError(
                f"{LOG_DIR} in the folder of the topic is the log of a Delta table that pylogtable "
                f"has not published ({entry_path(number)}). Nothing was changed; move it away "
                "to publish the topic"
            )
        return Published(number, state)

    def commit(
        self, number: int, actions: Iterable[Action], publish_id: str, runtime: Runtime
    ) -> bool:
        """Put an entry; False if another publication was faster."""
        data = encode(actions)
        try:
            return put_numbered(
                lambda: self._entries.create(number, data),
                lambda: self._publish_id(number),
                CommitUnknownError(publish_id, number),
                runtime,
            )
        except CommitUnknownError as error:
            raise StorageError(
                f"the store did not say whether {entry_path(number)} landed; publish again: what "
                "has landed is not published twice"
            ) from error

    def _publish_id(self, number: int) -> str | None:
        data = self._entries.read(number)
        if data is None:
            return None
        for action in decode(data, entry_path(number)):
            if "commitInfo" in action:
                return str(action["commitInfo"].get("txnId"))
        return ""

    def table(self, number: int) -> TableState:
        """The whole table at an entry, from the newest checkpoint and the entries after it."""
        checkpoint = self._read_checkpoint(number)
        begin, state = (0, empty_state()) if checkpoint is None else checkpoint
        numbers = range(begin, number + 1)
        for at, data in zip(numbers, self._entries.read_many(numbers), strict=True):
            if data is None:
                detail = "it is missing; unpublish the topic and publish it again"
                raise CorruptTopicError(entry_path(at), "PUB-1", detail)
            state = state.after(decode(data, entry_path(at)))
        return state

    def write_checkpoint(self, number: int, removed_since_ms: int, *, even_so: bool) -> None:
        """Write a checkpoint at an entry, if one is due or `even_so`."""
        if number % CHECKPOINT_INTERVAL and not even_so:
            return
        try:
            rows = self.table(number).checkpoint(removed_since_ms)
            sink = pa.BufferOutputStream()
            pq.write_table(rows, sink, compression="snappy")
            data = sink.getvalue().to_pybytes()
            self._store.write(checkpoint_path(number), data)
            hint = {"version": number, "size": rows.num_rows, "sizeInBytes": len(data)}
            self._store.write(HINT_PATH, json.dumps(hint).encode())
        except Exception as error:  # any error: the entry has already landed
            _log.warning("no checkpoint at entry %s of %s: %s", number, self._store.url, error)

    def remove(self) -> int:
        """Remove the log, and so the table; the topic's files stay. The newest entry goes first:
        until the last is gone, readers see an older version of the topic. A log that is damaged can
        be removed, too."""
        keys = [info.key for info in self._store.list(LOG_DIR)]
        with suppress(CorruptTopicError):
            self.newest()  # raises if the table is somebody else's
        self._store.delete(HINT_PATH)
        checkpoints = [key for key in keys if _CHECKPOINT.fullmatch(key)]
        entries = [key for key in keys if _ENTRY.fullmatch(key)]
        mine = [*sorted(checkpoints, reverse=True), *sorted(entries, reverse=True)]
        for key in mine:
            self._store.delete(key)
        return len(mine)

    def _hinted(self) -> int:
        """The entry of the newest checkpoint that the hint knows; 0 if it cannot be read."""
        data = self._store.read(HINT_PATH)
        try:
            version = json.loads(data)["version"] if data else 0
        except (ValueError, KeyError, TypeError, RecursionError):
            return 0
        return version if isinstance(version, int) and version >= 0 else 0

    def _newest_from(self, number: int) -> tuple[int, bytes] | None:
        newest = None
        for newest in self._entries.read_forward(number):  # noqa: B007 (the last one counts)
            pass
        return newest

    def _read_checkpoint(self, at_most: int) -> tuple[int, TableState] | None:
        """The state of the newest checkpoint up to an entry, and the number after its own."""
        number = self._hinted()
        data = self._store.read(checkpoint_path(number)) if number <= at_most else None
        if data is None:
            return None
        try:
            return number + 1, state_in(pq.read_table(pa.BufferReader(data)))
        except (pa.ArrowException, KeyError, ValueError, OSError) as error:
            _log.warning("%s is ignored: %s", checkpoint_path(number), error)
            return None


def old_entries(listing: Iterable[ObjectInfo], before_ms: int) -> list[ObjectInfo]:
    """The objects of the log that no version from `before_ms` on needs: all below the newest
    checkpoint that was written before [PUB-7]."""
    objects = [info for info in listing if info.key.startswith(LOG_DIR)]
    numbers = [
        number
        for info in objects
        if info.modified_ms < before_ms and (number := _number(_CHECKPOINT, info.key)) is not None
    ]
    kept = max(numbers, default=0)
    return [
        info
        for info in objects
        for number in [_number(_ENTRY, info.key), _number(_CHECKPOINT, info.key)]
        if number is not None and number < kept and info.modified_ms < before_ms
    ]


def _number(pattern: re.Pattern[str], key: str) -> int | None:
    match = pattern.fullmatch(key)
    return int(match[1]) if match else None
