"""`readStream.format("pylogtable")`: what Spark calls, in one process for each run of a query.

Spark 4.2 and newer pass the start of a batch and its limits. On older versions the reader must
remember where it is, and it does not know the trigger: a run with `Trigger.AvailableNow` or `Once`
has a single batch, and the limits apply to that batch.
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
from pyspark_pylogtable.columns import arrow_schema, check_requested, ids_of
from pyspark_pylogtable.request.options import Options
from pyspark_pylogtable.request.pinned import Pinned
from pyspark_pylogtable.request.ranges import report_losses, resolve_start
from pyspark_pylogtable.stream.behind import METRICS, left_to_read, metrics_of
from pyspark_pylogtable.stream.limits import (
    BatchDelay,
    Limits,
    SupportsTriggerAvailableNow,
    byte_shares,
    default_read_limit,
    limits_in_force,
    limits_of,
    share,
)
from pyspark_pylogtable.stream.offsets import (
    INITIAL,
    Available,
    RawOffset,
    StreamOffsets,
    TopicOffsets,
    covers,
    decode,
    decode_start,
    encode,
    ends_of,
    is_initial,
    plan_ranges,
    resume,
    with_latest,
)
from pyspark_pylogtable.stream.topics import StreamTopics
from pyspark_pylogtable.tasks.driver import Driver
from pyspark_pylogtable.tasks.parts import check_nulls, plan_tasks, read_records

if TYPE_CHECKING:
    from pyspark.sql.streaming.datasource import ReadLimit

_ADVICE = "Start again with a new checkpoint"


@dataclass(frozen=True)
class StreamPart:
    """What a task reads of one topic, and the reader for it."""

    reader: PartReader
    part: ReadPart


def plan_stream(options: Options, pinned: Pinned, schema: StructType) -> StreamReader:
    """The reader for a stream."""
    check_requested(schema, pinned.views)
    ids = {view.topic_id: ids_of(schema, view) for view in pinned.views.values()}
    return StreamReader(options, schema, ids)


class RefusedStream(DataSourceStreamReader):
    """Raises the error at the first call. If it were raised earlier, Spark 4.3 would hide it behind
    an error of its own cleanup."""

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
    """The records of topics as they are appended. The copies on which tasks call `read` were made
    before any other call, so they have no state."""

    def __init__(
        self, options: Options, schema: StructType, ids: Mapping[str, Mapping[str, int | None]]
    ) -> None:
        self._options = options
        self._schema = schema
        self._ids = ids
        self._columns = arrow_schema(schema)
        self._driver = Driver()
        self._opened: StreamTopics | None = None
        self._began: StreamOffsets | None = None
        self._target: StreamOffsets | None = None
        self._delay = BatchDelay(options.max_trigger_delay_ms)
        self._warned: set[str] = set()
        # Spark before 4.2 does not pass the start of a batch.
        self._position: RawOffset = INITIAL
        # The end of the newest batch, for how far it is behind.
        self._planned: RawOffset | None = None
        # Up to here, the group was told what is done.
        self._done: RawOffset = INITIAL

    def initialOffset(self) -> dict[str, Any]:
        return dict(INITIAL)

    def prepareForTriggerAvailableNow(self) -> None:
        self._target = ends_of(self._topics.refresh())

    def getDefaultReadLimit(self) -> ReadLimit:
        return default_read_limit(self._limits)

    def latestOffset(
        self, start: dict[str, Any] | None = None, limit: ReadLimit | None = None
    ) -> dict[str, Any]:
        if start is not None:
            self._planned = self._next(start, limits_in_force(limit, self._limits))
            self._note_done(start)
            return self._planned
        end = self._next(self._position, self._limits)
        self._note_done(self._position)
        if self._limits.has_maximum and decode(end) != ends_of(self._topics.available):
            self._warn(
                "this Spark version does not tell a source its trigger: a run with AvailableNow or "
                "Once ends after one batch, limited by maxOffsetsPerTrigger and "
                "maxBytesPerTrigger. The next run continues from there. Without these options one "
                "run reads everything"
            )
        if end == self._position:
            return end
        return with_latest(end, ends_of(self._topics.available), self._behind(decode(end)))

    def reportLatestOffset(self) -> dict[str, Any] | None:
        """The end of all topics at the last refresh, without limits, and how far the planned batch
        is behind it: Spark asks a Python source for no metrics, but shows what this returns."""
        available = self._opened.available if self._opened is not None else {}
        if not available:
            return None
        behind = {METRICS: self._behind(decode(self._planned))} if self._planned else {}
        return {**encode(ends_of(available)), **behind}

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        self._position = end
        if start == end:
            # Spark before 4.2 calls this to pass the offset at which an earlier run ended.
            return []
        first, last = decode_start(start, end), decode(end)
        # The offsets may come from an earlier process, which saw more than this one has so far.
        available: Mapping[str, Available] = self._topics.available
        if not covers(available, last):
            available = self._topics.refresh()
        losses: list[str] = []
        ranges = plan_ranges(first, last, available, losses)
        self._report(losses)
        readers = {topic: Scan(self._topics.views[topic]).reader(self._columns) for topic in ranges}
        return [
            InputPartition([StreamPart(readers[topic], part) for topic, part in parts])
            for parts in plan_tasks(self._options, self._topics.views, ranges)
        ]

    def commit(self, end: dict[str, Any]) -> None:
        """Spark calls this when the next batch is planned, and so never for the last batch of a
        run. As a rule the group knows these positions by then."""
        self._topics.commit_to_group(decode(end))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        parts: list[StreamPart] = partition.value
        fail = self._options.fail_on_data_loss
        for one in parts:
            with self._driver.explaining(one.reader.store.url):
                for batch in read_records(one.reader, one.part, fail_on_data_loss=fail):
                    check_nulls(batch)
                    yield batch

    def _note_done(self, start: RawOffset) -> None:
        """Commit the start of the next batch to the group: Spark asks for a next batch only when
        the last one is done, also if there is none. So the end of a run with AvailableNow is
        committed, and that of a stream that waits. Each start is tried once."""
        if not is_initial(start) and start != self._done:
            self._done = dict(start)
            self._topics.commit_to_group(decode(start))

    def _behind(self, end: StreamOffsets) -> dict[str, Any]:
        """The metrics of a batch that ends here. No data file is read for them."""
        available = self._topics.available
        left = left_to_read(end, ends_of(available))
        return metrics_of(
            left, {topic: self._bytes(topic, ranges) for topic, ranges in left.items()}
        )

    def _bytes(self, topic: str, ranges: Mapping[int, tuple[int, int]]) -> int:
        starts = self._topics.available[topic].starts
        spans = {
            p: (max(start, starts[p]), end) for p, (start, end) in ranges.items() if start < end
        }
        if not spans:
            return 0
        sizes = self._topics.views[topic].range_sizes(spans, exact=False)
        return sum(size.bytes for size in sizes.values())

    @property
    def _topics(self) -> StreamTopics:
        if self._opened is None:
            self._opened = StreamTopics(self._options, self._schema, self._ids)
        return self._opened

    @property
    def _limits(self) -> Limits:
        return limits_of(self._options, with_min=self._target is None)

    def _next(self, start: RawOffset, limits: Limits) -> dict[str, Any]:
        """The end of the batch from `start`; `start` itself if there is no batch now."""
        available = self._bounded(self._topics.refresh())
        if is_initial(start):
            base = began = self._beginning(available)
            end = self._limited(base, available, limits)
            # Run a batch even without records: only a batch stores the start in the checkpoint.
            return encode(end or base, began)
        known = decode(start)
        losses: list[str] = []
        base = resume(known, available, losses)
        self._report(losses)
        end = self._limited(base, available, limits)
        return dict(start) if end is None or end == known else encode(end)

    def _bounded(self, available: Mapping[str, Available]) -> Mapping[str, Available]:
        """The available offsets. In a run with `Trigger.AvailableNow`, later appends are left
        out."""
        if self._target is None:
            return available
        for topic, target in self._target.items():
            now = available.get(topic)
            if now is None or now.topic_id != target.topic_id:
                raise InvalidRequestError(
                    "[LOST_TOPIC_PARTITIONS_IN_END_OFFSET_WITH_TRIGGER_AVAILABLENOW] topic "
                    f"{topic!r} had the id {target.topic_id} when this run began, and "
                    f"{'is gone' if now is None else f'now has {now.topic_id}'}, so the run cannot "
                    "reach its end. Restart the query"
                )
        return {topic: available[topic].up_to(target) for topic, target in self._target.items()}

    def _beginning(self, available: Mapping[str, Available]) -> StreamOffsets:
        """Where a new query starts. Decided once, because Spark may ask several times."""
        if self._began is None:
            if missing := self._topics.missing():
                raise TopicNotFoundError(f"there is no topic {', '.join(map(repr, missing))}")
            assigned = {topic: tuple(has.ends) for topic, has in available.items()}
            starts = resolve_start(self._options, self._topics.views, assigned)
            self._began = {
                topic: TopicOffsets(has.topic_id, starts[topic]) for topic, has in available.items()
            }
        return self._began

    def _limited(
        self, base: StreamOffsets, available: Mapping[str, Available], limits: Limits
    ) -> StreamOffsets | None:
        """The end of a batch from `base`; None if there are not yet enough records for one."""
        ends = {
            topic: {
                number: max(at, available[topic].ends[number]) if topic in available else at
                for number, at in of_topic.offsets.items()
            }
            for topic, of_topic in base.items()
        }
        if not limits.is_unlimited and not self._cut(base, ends, available, limits):
            return None
        return {topic: TopicOffsets(base[topic].topic_id, row) for topic, row in ends.items()}

    def _cut(
        self,
        base: StreamOffsets,
        ends: dict[str, dict[int, int]],
        available: Mapping[str, Available],
        limits: Limits,
    ) -> bool:
        """Lower `ends` to the limits of one batch. False if there are too few records for one."""
        records: dict[tuple[str, int], int] = {}
        sizes: dict[tuple[str, int], int] = {}
        for topic in available:
            spans = {
                number: (at, ends[topic][number]) for number, at in base[topic].offsets.items()
            }
            for number, size in self._topics.views[topic].range_sizes(spans).items():
                records[topic, number], sizes[topic, number] = size
        if limits.min_records is not None:
            now_ms = time.monotonic_ns() // 1_000_000
            if not self._delay.is_due(sum(records.values()), limits.min_records, now_ms):
                return False
        # If everything is taken, the end stays: there may be holes after the last record.
        counts = {} if limits.max_records is None else share(limits.max_records, records)
        for (topic, number), count in counts.items():
            if count < records[topic, number]:
                ends[topic][number] = self._topics.views[topic].offset_after_records(
                    number, base[topic].offsets[number], count, ends[topic][number]
                )
        shares = {} if limits.max_bytes is None else byte_shares(limits.max_bytes, sizes)
        for (topic, number), size_bytes in shares.items():
            ends[topic][number] = self._topics.views[topic].offset_after_bytes(
                number, base[topic].offsets[number], size_bytes, ends[topic][number]
            )
        return True

    def _report(self, losses: list[str]) -> None:
        """Raise, or warn once about each loss, because a query may run for months."""
        if self._options.fail_on_data_loss:
            report_losses(losses, fail=True, advice=_ADVICE)
        new = [loss for loss in losses if loss not in self._warned]
        self._warned.update(new)
        report_losses(new, fail=False, advice=_ADVICE)

    def _warn(self, message: str) -> None:
        if message not in self._warned:
            self._warned.add(message)
            warnings.warn(message, stacklevel=3)
