"""`Sink`: what a consumer has read, and the records made of it, become visible in one commit.

The output remembers the input: each append carries a txn of the job's app id, whose note has the
positions up to which the input is in the output [TXN-7]. A job that starts again begins there. Each
append requires that the last txn is still the one that this job knows [TXN-6]. So of two runs, or
of a run and the late put of a dead one, only one goes on: nothing comes twice, nothing is missing.

The group of the input is committed after that, so that its lag can be seen. Nothing depends on it.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from pylogtable.append.appender import Appender
from pylogtable.append.combiner import Landed
from pylogtable.append.committer import CheckState
from pylogtable.append.distributed_append import AppendPlan
from pylogtable.append.given_rows import batches_of, can_be_read_twice
from pylogtable.append.report import LastTxn
from pylogtable.append.txn import last_txn, parse_txn
from pylogtable.errors import InvalidRequestError, LogTableError
from pylogtable.format.guard_rules import check_app_may_append
from pylogtable.format.model import Txn
from pylogtable.groups.consumer import Consumer
from pylogtable.operation import operations

#: So many positions fit into a note, however large they become.
MAX_INPUT_PARTITIONS = 190


@operations
class Sink:
    """Appends to a topic what was made of the records of a consumer. `topic.sink()` makes one.

    >>> with clicks.consumer("sessions") as consumer:
    ...     sink = sessions.sink(consumer)
    ...     for batch in consumer:
    ...         sink.append(sessions_of(batch))

    Leave commits and seeks of the consumer to the sink. After an error, try the same batch again,
    or make a new sink: it brings the consumer back to where the output is.
    """

    def __init__(self, appender: Appender, consumer: Consumer, app_id: str | None) -> None:
        if not isinstance(consumer, Consumer) or not consumer.is_alone:
            raise InvalidRequestError(
                f"a sink needs a consumer that reads all partitions, and not {consumer!r}: open "
                "it without `member`. Positions of several members would not be in one note"
            )
        self.app_id = consumer.group if app_id is None else app_id
        parse_txn((self.app_id, 0))
        self._appender = appender
        self._consumer = consumer
        log = appender.log
        newest = log.latest()
        check_app_may_append(newest.info, self.app_id)
        self._last = last_txn(newest, log.manifest.commits, self.app_id)
        consumer.begin_at(None if self._last is None else self._noted(self._last))
        self._done = consumer.positions()
        #: Where the consumer was when an append failed. Only the same batch may be tried again.
        self._failed_at: dict[int, int] | None = None
        if len(self._done) > MAX_INPUT_PARTITIONS:
            raise InvalidRequestError(
                f"topic {consumer.topic_name!r} has {len(self._done)} partitions, and a note has "
                f"room for the positions of {MAX_INPUT_PARTITIONS}. Use Spark for this topic"
            )

    def __repr__(self) -> str:
        return f"<Sink of topic {self._appender.name!r}, app id {self.app_id!r}>"

    @property
    def last(self) -> LastTxn | None:
        """The last txn of the job, as this sink knows it; None before the first one."""
        return self._last

    def append(self, data: Any) -> LastTxn | None:
        """Append the records that were made of everything that the consumer has returned since the
        last append. They become visible in one commit, together with the consumer's positions.

        Call it at most once for each batch. A batch without it is not lost: the next append covers
        it, and a restart reads it again. So a job may gather several batches for one append. An
        append without rows moves the positions only.

        Raises `CommitConflictError`, and appends nothing, if another run has appended since.
        """
        positions = self._consumer.positions()
        if self._failed_at not in (None, positions):
            raise InvalidRequestError(
                "an append of this sink has failed, and the consumer has gone on since: its "
                "records would be missing in the output. Make a new sink with the same consumer, "
                "which brings it back to where the output is"
            )
        back = {p: at for p, at in positions.items() if at < self._done.get(p, 0)}
        if back:
            raise InvalidRequestError(
                f"the consumer went back to {back}, and the output has its records up to "
                f"{self._done}: they would come twice. Leave seeks to the sink"
            )
        if positions == self._done:
            if any(batch.num_rows for batch in batches_of(data)):
                raise InvalidRequestError(
                    "the consumer has returned nothing since the last append of this sink, so "
                    "these rows would come twice after a restart. Append once for each batch"
                )
            return self._last
        number = 0 if self._last is None else self._last.number + 1
        note = {
            "topic_id": self._consumer.snapshot.topic_id,
            "positions": [positions[partition] for partition in sorted(positions)],
        }
        self._failed_at = positions
        landed = self._commit(data, parse_txn((self.app_id, number), note=note))
        self._failed_at = None
        append = landed.append
        self._last = LastTxn(number, note, landed.version, dict(append.offsets), append.records)
        self._done = positions
        try:
            self._consumer.commit()
        except LogTableError:
            # A consumer whose commit was refused would go on at the positions of its group.
            self._consumer.begin_at(positions)
        return self._last

    def _commit(self, data: Any, txn: Txn | None) -> Landed:
        last = None if self._last is None else self._last.number

        def attempt(plan: AppendPlan, check: CheckState) -> Landed:
            staged = replace(plan, app_id=self.app_id).stage(data)
            return self._appender.committer.deliver(staged, txn, last, check)

        return self._appender.repeated_if_altered(attempt, can_repeat=can_be_read_twice(data))

    def _noted(self, last: LastTxn) -> dict[int, int]:
        """The positions in the note of the last txn. Partitions that were added since begin at
        their start: every record there is new."""
        snapshot = self._consumer.snapshot
        ids = {snapshot.topic_id, snapshot.mirror and snapshot.mirror.source_id}
        match last.note:
            case {"topic_id": str(topic_id), "positions": [*offsets]} if topic_id in ids:
                return {**snapshot.start_offsets, **dict(enumerate(offsets))}
        raise InvalidRequestError(
            f"txn {last.number} of app id {self.app_id!r} in topic {self._appender.name!r} has no "
            f"positions of topic {self._consumer.topic_name!r} (topic id {snapshot.topic_id}): its "
            f"note is {last.note!r:.200}. Give this job an app_id of its own"
        )
