"""Committing what a producer has gathered as one append, and telling where each record went."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from itertools import compress
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pylogtable.errors import InvalidRequestError
from pylogtable.format.model import Txn, TxnMark
from pylogtable.format.schema import TIMESTAMP
from pylogtable.format.shaping import RowShaper
from pylogtable.log.head import Head
from pylogtable.results.operations import offsets_of
from pylogtable.write.append import Appender, parse_txn
from pylogtable.write.batch import Delivered, ProducerBatch, SentRecords, SentTable
from pylogtable.write.records import sift

Part = tuple[SentRecords | SentTable, int, int]
Int64s = npt.NDArray[np.int64]


class Delivery:
    """Appends batches, one after the other, as the only one under its app id, if it has one.

    The txn of a batch is the number of records of the app id with it: a writer that starts again
    knows how far it had come. What the log had last is part of every plan, so that of two writers
    only one goes on [TXN-1].
    """

    def __init__(self, appender: Appender, head: Head, app_id: str | None) -> None:
        if app_id is not None:
            parse_txn((app_id, 0))
        self._appender = appender
        self._head = head
        self._app_id = app_id
        self._last: TxnMark | None = None
        if app_id is not None:
            self._last = head.latest().txns.get(app_id)

    @property
    def sequence(self) -> int:
        """How many records of the app id are in the log, as far as is known here."""
        return self._last.txn_version if self._last is not None else 0

    def deliver(self, batch: ProducerBatch) -> Delivered:
        """One append of all that is good in the batch; what is not gets its error. With an app id
        of all before the first that is not: what came behind it would be counted in its place."""
        whole = [(piece, 0, piece.parts) for piece in batch.sent]
        try:
            return self._commit(whole, None, {})
        except InvalidRequestError:
            good, kept, errors = self._sift(batch)
            if not errors:
                raise
        if self._app_id is not None:
            first = min(errors)
            before = [len(rows) > 0 and rows[-1] < first for rows in kept]
            good = list(compress(good, before))
            kept = list(compress(kept, before))
            errors = dict.fromkeys(range(first, batch.count), errors[first])
        return self._commit(good, np.concatenate([np.empty(0, np.int64), *kept]), errors)

    def _commit(
        self,
        parts: list[Part],
        kept: Int64s | None,
        errors: dict[int, Exception],
    ) -> Delivered:
        times: list[pa.Array | int] = []
        with self._appender.begin(None, remember_partitions=True) as stager:
            for piece, start, end in parts:
                for rows in piece.take(start, end):
                    times.append(_given_times(piece, rows))
                    stager.add(rows)
            staged = stager.finish()
        partitions = stager.row_partitions()
        now_us = staged.staged_at_ms * 1000
        if not len(partitions):
            return Delivered(self._head.known.version, partitions, {}, now_us, None, kept, errors)
        txn = None
        if self._app_id is not None:
            txn = Txn(app_id=self._app_id, version=self.sequence + len(partitions))
        commit = self._appender.deliver(staged, txn, self._last)
        if txn is not None:
            self._last = TxnMark(txn.version, commit.version)
        bases = {number: start for number, (start, _) in offsets_of(commit).items()}
        by_append = any(segment.append_time for segment in commit.add)
        times_us = None if by_append else _times(times, now_us)
        return Delivered(commit.version, partitions, bases, now_us, times_us, kept, errors)

    def _sift(self, batch: ProducerBatch) -> tuple[list[Part], list[Int64s], dict[int, Exception]]:
        """What of a batch can be appended, as parts and their rows, and what is wrong with the
        rest. The rules are asked, as an append does, over ever smaller parts."""
        info = self._head.latest().info
        good: list[Part] = []
        kept: list[Int64s] = []
        errors: dict[int, Exception] = {}
        first = 0
        for piece in batch.sent:

            def check(start: int, end: int, piece: SentRecords | SentTable = piece) -> None:
                for rows in piece.take(start, end):
                    shaper = RowShaper(info, 0, 0)
                    shaper.check_columns(rows.schema)
                    deque(shaper.shares(rows), maxlen=0)

            for start, end in _sifted(piece, check, first, errors):
                good.append((piece, start, end))
                rows = (start, end) if isinstance(piece, SentRecords) else (0, piece.count)
                kept.append(np.arange(first + rows[0], first + rows[1]))
            first += piece.count
        return good, kept, errors


def _sifted(
    piece: SentRecords | SentTable, check: Any, first: int, errors: dict[int, Exception]
) -> Iterator[tuple[int, int]]:
    good, bad = sift(piece.parts, check)
    errors.update({first + part: error for part, error in bad.items()})
    yield from good


def _given_times(piece: SentRecords | SentTable, rows: pa.RecordBatch) -> pa.Array | int:
    """The times that records were sent with; how many there are if it was without, or if nobody
    can ask for them."""
    index = rows.schema.get_field_index(TIMESTAMP)
    return rows.column(index) if index >= 0 and isinstance(piece, SentRecords) else rows.num_rows


def _times(times: list[pa.Array | int], now_us: int) -> Int64s | None:
    """The time of every row in microseconds, None if all have the append's."""
    if all(isinstance(part, int) for part in times):
        return None
    return np.concatenate(
        [
            np.full(part, now_us, np.int64)
            if isinstance(part, int)
            else part.cast(pa.int64()).fill_null(now_us).to_numpy()
            for part in times
        ]
    )
