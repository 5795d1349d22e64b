"""Reads a few records at a time from many partitions, in turn, in bounded memory."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

import pyarrow as pa

from pylogtable.format.schema import OFFSET, column_schema
from pylogtable.read.view import View
from pylogtable.storage.threads import map_parallel


class _Stream:
    """The rest of `[position, end)` of one partition."""

    def __init__(self, batches: Iterator[pa.RecordBatch], position: int, end: int) -> None:
        self._batches = batches
        self._batch: pa.RecordBatch | None = None
        self._end = end
        self.position = position

    def fill(self) -> pa.RecordBatch | None:
        """The records that are read and not yet taken. Reads some if there are none; None at the
        end."""
        while self._batch is None or not self._batch.num_rows:
            self._batch = next(self._batches, None)
            if self._batch is None:
                return None
        return self._batch

    def take(self, count: int) -> pa.RecordBatch | None:
        """The next records, at most `count`, or None if there are no more. At the end the position
        moves past offsets without a record."""
        self._batch = self.fill()
        if self._batch is None:
            self.position = self._end
            return None
        taken = self._batch.slice(0, count)
        self._batch = self._batch.slice(count)
        self.position = int(taken.column(OFFSET)[-1].as_py()) + 1
        return taken


class Fetcher:
    """Keeps the position of each partition and reads records from there."""

    def __init__(self, columns: Sequence[str] | None) -> None:
        self._needed = None if columns is None else list(dict.fromkeys([*columns, OFFSET]))
        self._streams: dict[int, _Stream] = {}
        # Records read in the current turn, by partition, in the order in which they are served.
        self._turns: dict[int, int] = {}
        self._schema: pa.Schema | None = None
        self._positions: dict[int, int] = {}

    @property
    def positions(self) -> dict[int, int]:
        """The next offset to read, by partition."""
        return dict(self._positions)

    def read_also(self, columns: Sequence[str]) -> None:
        """Read these columns, too."""
        if self._needed is not None:
            self._needed = list(dict.fromkeys([*self._needed, *columns]))

    def rewind(self, positions: Mapping[int, int]) -> None:
        """Go back to earlier positions."""
        self._streams.clear()
        self._positions = dict(positions)

    def seek(self, partition: int, offset: int) -> None:
        """Read this partition from `offset` on."""
        self._streams.pop(partition, None)
        self._positions[partition] = offset
        self._turns.setdefault(partition, 0)

    def keep(self, partitions: Iterable[int]) -> None:
        """Forget all other partitions."""
        for number in set(self._positions).difference(partitions):
            self._streams.pop(number, None)
            del self._positions[number]
            del self._turns[number]

    def is_open(self, partition: int) -> bool:
        """True while records of an earlier view are still being read from this partition."""
        return partition in self._streams

    def is_at_end(self, partition: int, view: View) -> bool:
        """True if the view has no more records of this partition."""
        end = view.snapshot.partitions[partition].end
        return partition not in self._streams and self._positions[partition] >= end

    def take(self, view: View, partitions: Iterable[int], max_records: int) -> pa.Table:
        """At most `max_records` records of these partitions, with their offsets. If it fails, no
        position has moved."""
        self._use_columns_of(view)
        before = self.positions
        wanted = set(partitions)
        for number in set(self._streams) - wanted:
            del self._streams[number]
        try:
            batches = self._take(view, [n for n in self._turns if n in wanted], max_records)
        except BaseException:
            self.rewind(before)
            raise
        return pa.Table.from_batches(batches, self._schema)

    def _use_columns_of(self, view: View) -> None:
        """Switch all partitions to the view's columns if these changed since the last read."""
        schema = column_schema(view.snapshot.info.fields, self._needed)
        if self._schema is None or not schema.equals(self._schema):
            self._schema = schema
            self._streams.clear()

    def _take(self, view: View, order: list[int], left: int) -> list[pa.RecordBatch]:
        waiting = [n for n in order if not self.is_at_end(n, view)]
        most_open = view._store.limits.open_partitions
        if len(waiting) > most_open:
            waiting.sort(key=lambda number: number not in self._streams)
        self._open(waiting[: min(most_open, left)], view)
        taken: list[pa.RecordBatch] = []
        served: set[int] = set()
        while left and waiting:
            turn = waiting[:most_open]
            share = max(1, left // len(turn))
            for number in turn:
                batch = self._from(number, view, min(share, left))
                served.add(number)
                if batch is None:
                    # A stream of an earlier view may end before this one.
                    if self.is_at_end(number, view):
                        waiting.remove(number)
                    continue
                taken.append(batch)
                left -= batch.num_rows
                if not left:
                    break
        turn_records = view._store.limits.turn_records
        self._rotate(served, turn_records, has_more=len(waiting) > most_open)
        return taken

    def _open(self, numbers: Sequence[int], view: View) -> None:
        """Open those of these partitions that are not open. Their first records are fetched side by
        side."""
        opened: dict[int, _Stream] = {}
        for number in numbers:
            if number not in self._streams:
                at, end = self._positions[number], view.snapshot.partitions[number].end
                reader = view.read(number, start=at, columns=self._needed)
                opened[number] = _Stream(iter(reader), at, end)
        map_parallel(view._store, _Stream.fill, list(opened.values()))
        self._streams.update(opened)

    def _from(self, number: int, view: View, count: int) -> pa.RecordBatch | None:
        self._open([number], view)
        stream = self._streams[number]
        batch = stream.take(count)
        self._positions[number] = stream.position
        if batch is None:
            del self._streams[number]
        else:
            self._turns[number] += batch.num_rows
        return batch

    def _rotate(self, served: set[int], turn_records: int, *, has_more: bool) -> None:
        """Move partitions that were served to the back of the queue. Close those that have had a
        whole turn, if more partitions wait than may be open."""
        for number in [number for number in self._turns if number in served]:
            records = self._turns.pop(number)
            is_over = records >= turn_records
            self._turns[number] = 0 if is_over else records
            if is_over and has_more:
                self._streams.pop(number, None)
