"""`TopicWrites`: the methods of a topic that append to it."""

from __future__ import annotations

from typing import Any

from pylogtable.append.appender import Appender
from pylogtable.append.plan import ExpectedLast
from pylogtable.append.producer import Producer
from pylogtable.append.report import AppendResult, LastTxn
from pylogtable.append.sink import Sink
from pylogtable.append.txn import last_txn
from pylogtable.arguments import NOT_GIVEN, check_flags, check_text
from pylogtable.groups.consumer import Consumer
from pylogtable.log.topic_log import TopicLog
from pylogtable.operation import operations


@operations
class TopicWrites:
    """The appends to one topic. Users call them on a `Topic`.

    >>> topic.append(table, txn=("nightly-load", 7))
    """

    name: str
    _log: TopicLog
    _appender: Appender

    def append(
        self,
        data: Any,
        *,
        txn: tuple[str, int] | None = None,
        expected_last: ExpectedLast = NOT_GIVEN,
        note: Any = None,
        keep_offsets: bool = False,
    ) -> AppendResult:
        """Append records: an Arrow table, batch or reader, an iterable of batches, or anything that
        exports an Arrow stream. All of them become visible in one commit, or none.

        With `txn=(app_id, version)` the append can be repeated safely: a repeat appends nothing and
        returns the offsets of the first time.

        >>> topic.append(table, txn=("nightly-load", 7)).offsets
        {0: (100, 150)}

        With `expected_last` as well, the append is refused if the log has moved on: it is what
        `last_txn(app_id)` returned when you decided what to append, also if that was None. If
        another txn of the app id is the last one by now, nothing is appended, and
        `CommitConflictError` names both. A repeat is still recognised first. See `last_txn`.

        With a `note` as well, the txn carries a JSON value of at most 4 KiB, such as the positions
        of the input up to which these records go. It is there in the same moment as the records,
        and `txn(app_id)` tells it. The note of a repeat is ignored: the first one stays.

        >>> topic.append(table, txn=("etl", 8), expected_last=7, note={"read_to": 1200})

        With `keep_offsets`, each row brings its `partition` and its `offset`, for a copy of another
        log. Offsets rise inside each partition, from its end on, and may leave holes. If the end
        has passed the first of them, nothing is appended, and `CommitConflictError` names both. So
        the end offsets are where a copy continues, and a copy has one writer.

        >>> topic.append(table_with_partition_and_offset, keep_offsets=True)
        """
        check_flags(keep_offsets=keep_offsets)
        return self._appender.append(data, txn, expected_last, note=note, keep_offsets=keep_offsets)

    def last_txn(self, app_id: str) -> int | None:
        """The version of the last txn of this app id, or None. Use it after a restart to find out
        what was already appended.

        The answer may be out of date as soon as you have it: an append of a run that was killed may
        still be on its way, and land later. So give it to the append that you decide by it:

        >>> done = topic.last_txn("loader")  # the number of a txn: how many rows are in the log
        >>> topic.append(table.slice(done or 0), txn=("loader", len(table)), expected_last=done)

        If another append was faster, this one raises `CommitConflictError` and appends nothing: ask
        again, and decide again. If this one was faster, the other can no longer land. Ask once for
        each decision: a second call may know of an append that the first one did not.
        """
        check_text("app_id", app_id)
        mark = self._log.latest().txns.get(app_id)
        return None if mark is None else mark.txn_version

    def txn(self, app_id: str) -> LastTxn | None:
        """The last txn of this app id: its number, its note, its offsets, the version of its
        commit, and how many records it appended. None if there is none. What `last_txn` says about
        the answer holds here too. It is one request more, for the commit.

        >>> topic.txn("etl")
        LastTxn(number=8, note={'read_to': 1200}, version=12, offsets={0: (100, 150)}, records=50)
        """
        check_text("app_id", app_id)
        return last_txn(self._log.latest(), self._log.manifest.commits, app_id)

    def producer(
        self, *, linger_ms: float = 50, batch_bytes: int = 16 << 20, app_id: str | None = None
    ) -> Producer:
        """A producer, for records that come one by one, from any number of threads. Records that
        are sent within `linger_ms`, up to `batch_bytes`, become one append. With an `app_id` the
        producer knows after a restart how many of its records are in the log."""
        return Producer(self._appender, linger_ms, batch_bytes, app_id)

    def sink(self, consumer: Consumer, app_id: str | None = None) -> Sink:
        """A sink for records that are made of those of a consumer of another topic: read, process,
        write, exactly once. Each `append` of it is one commit with the records and the positions of
        the consumer. The consumer is brought to where this topic is, whatever its group says.

        >>> with clicks.consumer("sessions") as consumer:
        ...     sink = sessions.sink(consumer)
        ...     for batch in consumer:
        ...         sink.append(sessions_of(batch))

        `app_id` names the job in this topic; it is the name of the consumer's group by default. Of
        two runs of a job only one goes on, and the other gets a `CommitConflictError`.
        """
        return Sink(self._appender, consumer, app_id)
