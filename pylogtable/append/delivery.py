"""Appends a producer's batch in one commit, and finds out where each record went."""

from __future__ import annotations

from collections import deque
from dataclasses import replace
from itertools import compress

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pylogtable.append.appender import Appender
from pylogtable.append.committer import CheckState
from pylogtable.append.distributed_append import AppendPlan
from pylogtable.append.producer_batch import Delivered, ProducerBatch, Sent, SentTable
from pylogtable.append.records import separate_bad
from pylogtable.append.shaping import RowShaper, check_values
from pylogtable.append.txn import parse_txn
from pylogtable.errors import InvalidRequestError
from pylogtable.format.guard_rules import check_app_may_append
from pylogtable.format.model import Txn
from pylogtable.format.schema import TIMESTAMP

#: A range of items, `[start, end)`, of something that was sent.
ItemRange = tuple[Sent, int, int]
Int64s = npt.NDArray[np.int64]


class Delivery:
    """Appends batches one after the other. With an app id, it must be the only writer of that id.

    The txn version of a batch is the number of records of the app id in the log, that batch
    included. So a writer that starts again knows how far it came. Each commit requires that the
    last txn is still the one that this writer knows: of two writers only one can continue [TXN-6].
    """

    def __init__(self, appender: Appender, app_id: str | None) -> None:
        if app_id is not None:
            parse_txn((app_id, 0))
        self._appender = appender
        self._log = log = appender.log
        self._app_id = app_id
        newest = log.latest()
        check_app_may_append(newest.info, app_id)
        mark = None if app_id is None else newest.txns.get(app_id)
        self._last = None if mark is None else mark.txn_version

    @property
    def sequence(self) -> int:
        """How many records of the app id are in the log, as known to this writer."""
        return self._last if self._last is not None else 0

    def deliver(self, batch: ProducerBatch) -> Delivered:
        """Append the good items of the batch in one commit; the bad ones get their error.

        With an app id, only the items before the first bad one are appended, because a later item
        would get its number.
        """
        everything = [(sent, 0, sent.item_count) for sent in batch.sent]
        try:
            return self._append(everything, None, {})
        except InvalidRequestError:
            good, positions, errors = self._separate_bad(batch)
            if not errors:
                raise
        if self._app_id is not None:
            first = min(errors)
            before = [len(mine) > 0 and mine[-1] < first for mine in positions]
            good = list(compress(good, before))
            positions = list(compress(positions, before))
            errors = dict.fromkeys(range(first, batch.record_count), errors[first])
        return self._append(good, np.concatenate([np.empty(0, np.int64), *positions]), errors)

    def _append(
        self, items: list[ItemRange], accepted: Int64s | None, errors: dict[int, Exception]
    ) -> Delivered:
        def attempt(plan: AppendPlan, check: CheckState) -> Delivered:
            return self._append_by(plan, check, items, accepted, errors)

        return self._appender.repeated_if_altered(attempt)

    def _append_by(
        self,
        plan: AppendPlan,
        check: CheckState,
        items: list[ItemRange],
        accepted: Int64s | None,
        errors: dict[int, Exception],
    ) -> Delivered:
        times: list[pa.Array | int] = []
        with replace(plan, app_id=self._app_id).begin() as stager:
            stager.remember_partitions()
            for sent, start, end in items:
                for rows in sent.to_arrow(start, end):
                    times.append(_given_times(sent, rows))
                    stager.add(rows)
            staged = stager.finish()
        partitions = stager.row_partitions()
        now_us = staged.staged_at_ms * 1000
        if not len(partitions):
            version = self._log.known.version
            return Delivered(version, partitions, {}, now_us, None, accepted, errors)
        txn = None
        if self._app_id is not None:
            txn = Txn(app_id=self._app_id, version=self.sequence + len(partitions))
        landed = self._appender.committer.deliver(staged, txn, self._last, check)
        if txn is not None:
            self._last = txn.version
        first_offsets = {number: start for number, (start, _) in landed.append.offsets.items()}
        uses_append_time = any(file.append_time for file in staged.files)
        times_us = None if uses_append_time else _times(times, now_us)
        return Delivered(
            landed.version, partitions, first_offsets, now_us, times_us, accepted, errors
        )

    def _separate_bad(
        self, batch: ProducerBatch
    ) -> tuple[list[ItemRange], list[Int64s], dict[int, Exception]]:
        """The good items of a batch, the positions of their records, and the errors of the others
        by position. Items are checked as an append checks them."""
        info = self._log.latest().info
        good: list[ItemRange] = []
        positions: list[Int64s] = []
        errors: dict[int, Exception] = {}
        first = 0
        for sent in batch.sent:

            def check(start: int, end: int, sent: Sent = sent) -> None:
                for rows in sent.to_arrow(start, end):
                    check_values(rows)
                    shaper = RowShaper(info, 0, 0)
                    shaper.check_columns(rows.schema)
                    deque(shaper.shares(rows), maxlen=0)

            ranges, bad = separate_bad(sent.item_count, check)
            errors.update({first + item: error for item, error in bad.items()})
            for start, end in ranges:
                good.append((sent, start, end))
                mine = (0, sent.record_count) if isinstance(sent, SentTable) else (start, end)
                positions.append(np.arange(first + mine[0], first + mine[1]))
            first += sent.record_count
        return good, positions, errors


def _given_times(sent: Sent, rows: pa.RecordBatch) -> pa.Array | int:
    """The timestamps that records were sent with. Only the number of records if they had none, or
    if they came in a table, whose future does not return timestamps."""
    index = rows.schema.get_field_index(TIMESTAMP)
    return rows.num_rows if index < 0 or isinstance(sent, SentTable) else rows.column(index)


def _times(times: list[pa.Array | int], now_us: int) -> Int64s | None:
    """The time of every record in microseconds; None if all have the time of the append."""
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
