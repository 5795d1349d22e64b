"""`readStream.format("pylogtable")`: what Spark calls, in one process for each run of a query.

Spark 4.2 and newer say where a batch begins and how large it may be. Before, the reader has to
remember where it stands, and cannot tell a run by `Trigger.AvailableNow` or `Once`, which then has
one batch: limits hold for that too.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

from pylogtable import InvalidRequestError, LogTableError, TopicNotFoundError
from pylogtable.engine import PartReader, ReadPart, Scan
from pyspark_pylogtable.columns import arrow_schema, check_asked
from pyspark_pylogtable.options import Options
from pyspark_pylogtable.positions import report_losses, resolve_start
from pyspark_pylogtable.stream.limits import (
    SupportsTriggerAvailableNow,
    as_asked,
    default_read_limit,
    limits_of,
)
from pyspark_pylogtable.stream.offsets import (
    INITIAL,
    Log,
    Offset,
    Place,
    Places,
    covers,
    decode,
    decode_start,
    encode,
    ends_of,
    go_on,
    is_initial,
    plan_ranges,
)
from pyspark_pylogtable.stream.rate import Holdback, Limits, take
from pyspark_pylogtable.stream.topics import StreamTopics
from pyspark_pylogtable.tasks.reading import check_nulls, plan_parts, read_records
from pyspark_pylogtable.topics import Pinned

if TYPE_CHECKING:
    from pyspark.sql.streaming.datasource import ReadLimit

_ADVICE = "Begin anew with another checkpoint"


@dataclass(frozen=True)
class StreamPart:
    """One task's share of a batch, with all that reads it."""

    reader: PartReader
    part: ReadPart


def plan_stream(
    options: Options, pinned: Pinned | LogTableError, schema: StructType
) -> StreamReader:
    options.refuse_for("stream read")
    if isinstance(pinned, LogTableError):
        raise pinned
    check_asked(schema, pinned.views)
    return StreamReader(options, schema)


class RefusedStream(DataSourceStreamReader):
    """Says at the first question why there is no stream: of an error before it, Spark 4.3 shows
    only that its own cleaning up failed."""

    def __init__(self, error: LogTableError) -> None:
        self._error = error

    def initialOffset(self) -> dict[str, Any]:
        raise self._error

    def latestOffset(
        self, start: dict[str, Any] | None = None, limit: ReadLimit | None = None
    ) -> dict[str, Any]:
        raise self._error

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        raise self._error

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        raise self._error


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """The records of topics as they come. For `read` Spark sends tasks a copy that was never used
    for anything else."""

    def __init__(self, options: Options, schema: StructType) -> None:
        self._options = options
        self._schema = schema
        self._columns = arrow_schema(schema)
        self._opened: StreamTopics | None = None
        self._began: Places | None = None
        self._target: Places | None = None
        self._holdback = Holdback(options.max_trigger_delay_ms)
        self._said: set[str] = set()
        # For Spark before 4.2, which does not say where a batch begins.
        self._position: Offset = INITIAL

    def initialOffset(self) -> dict[str, Any]:
        return dict(INITIAL)

    def prepareForTriggerAvailableNow(self) -> None:
        self._target = ends_of(self._topics.look())

    def getDefaultReadLimit(self) -> ReadLimit:
        return default_read_limit(self._limits)

    def latestOffset(
        self, start: dict[str, Any] | None = None, limit: ReadLimit | None = None
    ) -> dict[str, Any]:
        if start is not None:
            return self._next(start, as_asked(limit, self._limits))
        end = self._next(self._position, self._limits)
        if self._limits.has_most and decode(end) != ends_of(self._topics.logs):
            self._warn(
                "this Spark does not tell a source about its trigger: a run by AvailableNow or "
                "Once ends after one batch, here of what maxOffsetsPerTrigger and "
                "maxBytesPerTrigger allow. The next run goes on from there; without the options "
                "one run reads everything"
            )
        return end

    def reportLatestOffset(self) -> dict[str, Any] | None:
        """All that there was at the last look, whatever the limits."""
        logs = self._opened.logs if self._opened is not None else {}
        return encode(ends_of(logs)) if logs else None

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        self._position = end
        if start == end:
            # Spark before 4.2 asks for this to say where an earlier run ended.
            return []
        first, last = decode_start(start, end), decode(end)
        # Planned on what the offsets were made of, unless that was in another process.
        logs = self._topics.logs if covers(self._topics.logs, last) else self._topics.look()
        losses: list[str] = []
        ranges = plan_ranges(first, last, logs, losses)
        self._report(losses)
        readers = {topic: Scan(self._topics.views[topic]).reader(self._columns) for topic in ranges}
        return [
            InputPartition(StreamPart(readers[topic], part))
            for topic, part in plan_parts(self._options, self._topics.views, ranges)
        ]

    def commit(self, end: dict[str, Any]) -> None:
        """Spark says so when it plans the next batch, and never of the last one of a run."""
        self._topics.tell(decode(end))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        share_: StreamPart = partition.value
        fail = self._options.fail_on_data_loss
        for batch in read_records(share_.reader, share_.part, fail_on_data_loss=fail):
            check_nulls(batch)
            yield batch

    @property
    def _topics(self) -> StreamTopics:
        if self._opened is None:
            self._opened = StreamTopics(self._options, self._schema)
        return self._opened

    @property
    def _limits(self) -> Limits:
        return limits_of(self._options, with_min=self._target is None)

    def _next(self, start: Offset, limits: Limits) -> dict[str, Any]:
        """The end of the batch from `start`; `start` itself if there is to be none."""
        logs = self._bounded(self._topics.look())
        if is_initial(start):
            base = began = self._beginning(logs)
            end = self._limited(base, logs, limits)
            # Without a batch the beginning would not be written down.
            return encode(end or base, began)
        known = decode(start)
        losses: list[str] = []
        base = go_on(known, logs, losses)
        self._report(losses)
        end = self._limited(base, logs, limits)
        return dict(start) if end is None or end == known else encode(end)

    def _bounded(self, logs: Mapping[str, Log]) -> Mapping[str, Log]:
        """What there is, or, with `Trigger.AvailableNow`, what there was when the run began."""
        if self._target is None:
            return logs
        for topic, target in self._target.items():
            now = logs.get(topic)
            if now is None or now.topic_id != target.topic_id:
                raise InvalidRequestError(
                    "[LOST_TOPIC_PARTITIONS_IN_END_OFFSET_WITH_TRIGGER_AVAILABLENOW] topic "
                    f"{topic!r} had the id {target.topic_id} when this run began, and "
                    f"{'is gone' if now is None else f'now has {now.topic_id}'}: what the run was "
                    "to read up to is no more. Restart the query"
                )
        return {topic: logs[topic].up_to(target) for topic, target in self._target.items()}

    def _beginning(self, logs: Mapping[str, Log]) -> Places:
        """Where a new query begins: decided once, for Spark may ask several times."""
        if self._began is None:
            if missing := self._topics.missing():
                raise TopicNotFoundError(f"there is no topic {', '.join(map(repr, missing))}")
            assigned = {topic: tuple(log.ends) for topic, log in logs.items()}
            starts = resolve_start(self._options, self._topics.views, assigned)
            self._began = {topic: Place(log.topic_id, starts[topic]) for topic, log in logs.items()}
        return self._began

    def _limited(self, base: Places, logs: Mapping[str, Log], limits: Limits) -> Places | None:
        """The end of a batch from `base`; None if there are not enough records for one yet."""
        ends = {
            topic: {
                number: max(at, logs[topic].ends[number]) if topic in logs else at
                for number, at in place.offsets.items()
            }
            for topic, place in base.items()
        }
        if not limits.is_none and not self._cut(base, ends, logs, limits):
            return None
        return {topic: Place(base[topic].topic_id, row) for topic, row in ends.items()}

    def _cut(
        self,
        base: Places,
        ends: dict[str, dict[int, int]],
        logs: Mapping[str, Log],
        limits: Limits,
    ) -> bool:
        """Lower `ends` to what one batch may hold. Whether there are enough records for one."""
        records: dict[tuple[str, int], int] = {}
        sizes: dict[tuple[str, int], int] = {}
        for topic in logs:
            spans = {
                number: (at, ends[topic][number]) for number, at in base[topic].offsets.items()
            }
            for number, extent in self._topics.views[topic].range_sizes(spans).items():
                records[topic, number], sizes[topic, number] = extent
        if limits.min_records is not None:
            now_ms = time.monotonic_ns() // 1_000_000
            if not self._holdback.lets_go(sum(records.values()), limits.min_records, now_ms):
                return False
        for (topic, number), count in take(limits, records, sizes).items():
            # To the very end where all is taken: there may be holes behind the last record.
            if count < records[topic, number]:
                ends[topic][number] = self._topics.views[topic].offset_after_records(
                    number, base[topic].offsets[number], count, ends[topic][number]
                )
        return True

    def _report(self, losses: list[str]) -> None:
        """Fail, or say each once: a query goes on for months."""
        if self._options.fail_on_data_loss:
            report_losses(losses, fail=True, advice=_ADVICE)
        new = [loss for loss in losses if loss not in self._said]
        self._said.update(new)
        report_losses(new, fail=False, advice=_ADVICE)

    def _warn(self, message: str) -> None:
        if message not in self._said:
            self._said.add(message)
            warnings.warn(message, stacklevel=3)
