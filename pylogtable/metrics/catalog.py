"""Every metric: its name, what it means, and its labels. Plain data.

Names follow Prometheus: base units, `_total` for what only grows. No label is called `job` or
`instance`, because Prometheus gives these to whatever it scrapes.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal, NamedTuple


class Metric(NamedTuple):
    """One metric. The unit is the end of its name, before `_total`."""

    name: str
    kind: Literal["gauge", "counter", "histogram"]
    help: str
    labels: tuple[str, ...]

    @property
    def unit(self) -> str:
        """The base unit, empty for a number of things."""
        last = self.name.removesuffix("_total").rpartition("_")[2]
        return last if last in ("seconds", "bytes") else ""


_STORE = ("store",)
_TOPIC = ("store", "topic")
_PARTITION = (*_TOPIC, "partition")
_TABLE = (*_TOPIC, "format")
_GROUP = (*_TOPIC, "group")
_JOB = (*_TOPIC, "job_name")


def _gauge(name: str, help: str, labels: tuple[str, ...]) -> Metric:
    return Metric(f"pylogtable_{name}", "gauge", help, labels)


def _counter(name: str, help: str, labels: tuple[str, ...]) -> Metric:
    return Metric(f"pylogtable_{name}_total", "counter", help, labels)


BUILD_INFO = _gauge(
    "build_info",
    "Always 1. The labels say which version of pylogtable this is, what it does (run, import, "
    "mirror or metrics), and for which store.",
    ("store", "version", "command"),
)

STORE_UP = _gauge(
    "store_up",
    "1 if the folders of the store could be listed. A local folder that does not exist has 0, and "
    "so has a store whose topics are all gone: its disk may not be mounted.",
    _STORE,
)

TOPIC_UP = _gauge(
    "topic_up", "1 if the topic could be read. With 0, it has no other metrics.", _TOPIC
)
TOPIC_PARTITIONS = _gauge("topic_partitions", "Partitions.", _TOPIC)
TOPIC_VERSION = _gauge("topic_version", "The newest version. Every commit adds one.", _TOPIC)
TOPIC_OFFSETS = _counter(
    "topic_offsets",
    "Offsets that were given so far: the sum of the end offsets of all partitions. Its rate is "
    "that of appended records.",
    _TOPIC,
)
TOPIC_REMOVED_OFFSETS = _counter(
    "topic_removed_offsets",
    "Offsets before the log start: the sum of the log starts of all partitions. Retention and "
    "delete-records move them.",
    _TOPIC,
)
TOPIC_RECORDS = _gauge("topic_records", "Live records.", _TOPIC)
TOPIC_SIZE = _gauge("topic_size_bytes", "The size of all live segments.", _TOPIC)
TOPIC_SEGMENTS = _gauge("topic_segments", "Live segments.", _TOPIC)
TOPIC_INLINE_RECORDS = _gauge(
    "topic_inline_records", "Live records that are in commits, and in no file.", _TOPIC
)
TOPIC_INLINE_SEGMENTS = _gauge(
    "topic_inline_segments", "Live segments that are in commits, and in no file.", _TOPIC
)
TOPIC_NEWEST_RECORD = _gauge(
    "topic_newest_record_timestamp_seconds",
    "The latest timestamp of a live record. Absent if there is none.",
    _TOPIC,
)
TOPIC_NEWEST_COMMIT = _gauge(
    "topic_newest_commit_timestamp_seconds", "When the newest version was committed.", _TOPIC
)

TOPIC_SMALL_SEGMENTS = _gauge(
    "topic_small_segments", "Files that have at most half of segment.bytes.", _TOPIC
)
TOPIC_SHIFTED_SEGMENTS = _gauge(
    "topic_shifted_segments", "Files with offsets that plain Parquet readers see wrongly.", _TOPIC
)
TOPIC_MERGEABLE_SEGMENTS = _gauge(
    "topic_mergeable_segments", "Segments that a merge would rewrite now.", _TOPIC
)
TOPIC_DIRTY_RATIO = _gauge(
    "topic_dirty_ratio",
    "The share of bytes that no compaction has looked at, in the dirtiest partition. Absent if the "
    "topic is never compacted.",
    _TOPIC,
)
TOPIC_MEASURED = _gauge(
    "topic_segments_measured_timestamp_seconds",
    "When small, shifted and mergeable segments and the dirty ratio were measured.",
    _TOPIC,
)

PARTITION_END = _gauge(
    "partition_end_offset", "The next offset to be written. Only if asked for.", _PARTITION
)
PARTITION_LOG_START = _gauge(
    "partition_log_start_offset",
    "The first offset that can be read. Only if asked for.",
    _PARTITION,
)
PARTITION_RECORDS = _gauge("partition_records", "Live records. Only if asked for.", _PARTITION)
PARTITION_SIZE = _gauge(
    "partition_size_bytes", "The size of the live segments. Only if asked for.", _PARTITION
)

PUBLICATION_UP = _gauge(
    "publication_up",
    "1 if there is a table of this format of publish.formats, and it can be read.",
    _TABLE,
)
PUBLICATION_LAG_RECORDS = _gauge(
    "publication_lag_records", "Offsets after those that the published table shows.", _TABLE
)
PUBLICATION_LAG_SECONDS = _gauge(
    "publication_lag_seconds",
    "How long the oldest append that the published table does not show has been waiting.",
    _TABLE,
)

GROUP_UP = _gauge("group_up", "1 if the state of the consumer group could be read.", _GROUP)
GROUP_MEMBERS = _gauge("group_members", "Dynamic members whose lease has not run out.", _GROUP)
GROUP_LAG_RECORDS = _gauge(
    "group_lag_records", "Unread records. Without a position, all records count.", _GROUP
)
GROUP_LAG_SECONDS = _gauge(
    "group_lag_seconds", "The age of the oldest unread record; 0 if there is none.", _GROUP
)
GROUP_PARTITION_LAG = _gauge(
    "group_partition_lag_records",
    "Unread records of a partition. Only if asked for.",
    (*_GROUP, "partition"),
)

JOB_RUNS = _counter(
    "job_runs", "Jobs that this process ran, by outcome: ok or failed.", (*_JOB, "outcome")
)
JOB_SUCCESS = _gauge(
    "job_last_success_timestamp_seconds", "When the job last ended without an error.", _JOB
)
JOB_FAILURE = _gauge(
    "job_last_failure_timestamp_seconds", "When the job last ended with an error.", _JOB
)
JOB_DURATION = _gauge("job_last_duration_seconds", "How long the last run of the job took.", _JOB)

COPIED_RECORDS = _counter(
    "copied_records", "Records that an import or a mirror of this process has brought.", _JOB
)
COPIED_BYTES = _counter(
    "copied_bytes",
    "Bytes that an import or a mirror of this process has brought: of records for an import, of "
    "segments for a mirror.",
    _JOB,
)
COPY_LAG = _gauge("copy_lag_records", "Offsets that the source is ahead of the copy.", _JOB)
COPY_PROGRESS = _gauge(
    "copy_last_progress_timestamp_seconds",
    "When an import or a mirror that follows last got through to its source, with news or without.",
    _JOB,
)

ERRORS = _counter("errors", "Errors that this process has met, by their code.", ("code",))
REQUESTS = Metric(
    "pylogtable_request_duration_seconds",
    "histogram",
    "How long requests of this process to stores took, by kind (get, put, list, head, delete, "
    "copy) and outcome (ok, missing, exists, refused, unanswered, failed).",
    ("kind", "outcome"),
)


def _all() -> Iterator[Metric]:
    for thing in globals().values():
        if isinstance(thing, Metric):
            yield thing


#: All metrics, in the order in which they are shown.
METRICS: tuple[Metric, ...] = tuple(_all())
