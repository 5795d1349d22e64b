"""Kafka's data model as an open table format on object storage, with no broker.

>>> import pylogtable
>>> store = pylogtable.open("s3://bucket/logs")
>>> topic = store.create_topic("orders", partitions=6)

Every public name is here. Each is imported at its first use, so that programs start fast.
`pylogtable.engine` connects other engines, as `pyspark_pylogtable` does for Spark.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pylogtable.check.doctor import DoctorCheck, DoctorReport, diagnose
    from pylogtable.errors import (
        CommitConflictError,
        CommitUnknownError,
        CorruptTopicError,
        InvalidRequestError,
        LogTableError,
        OffsetOutOfRangeError,
        SchemaMismatchError,
        SegmentGoneError,
        StorageError,
        TopicExistsError,
        TopicNotFoundError,
        UnsupportedFormatError,
    )
    from pylogtable.format.config import TOPIC_CONFIG_KEYS
    from pylogtable.format.given_columns import column_type
    from pylogtable.format.leaf import LEAF_SCHEMA as SEGMENTS_SCHEMA
    from pylogtable.format.schema import is_kafka_shaped
    from pylogtable.format.times import parse_duration
    from pylogtable.groups.consumer import Consumer
    from pylogtable.groups.group import Group
    from pylogtable.groups.store_group import StoreGroup
    from pylogtable.read.range_size import RangeSize
    from pylogtable.read.view import Bound, View
    from pylogtable.report.report_html import report_html
    from pylogtable.results.comparison import ComparisonReport, PartitionComparison
    from pylogtable.results.erase import EraseReport
    from pylogtable.results.groups import (
        GROUPS_SCHEMA,
        GroupDescription,
        GroupLag,
        GroupRow,
        Lag,
        ResetReport,
    )
    from pylogtable.results.jobs import (
        MaintainReport,
        RetentionReport,
        RewriteReport,
        VacuumReport,
    )
    from pylogtable.results.mirror import MirrorProgress, MirrorReport, MirrorStatus
    from pylogtable.results.operations import (
        HISTORY_SCHEMA,
        PARTITIONS_SCHEMA,
        AppendResult,
        PartitionDescription,
        Problem,
        TopicDescription,
        Unchecked,
        VerifyReport,
    )
    from pylogtable.results.publication import (
        DueTable,
        PublishedStatus,
        PublishedTable,
        PublishReport,
    )
    from pylogtable.store import Store, open, open_topic, split_topic_url
    from pylogtable.topic import Topic
    from pylogtable.write.batch import BatchFuture, RecordFuture
    from pylogtable.write.producer import Producer
    from pylogtable.write.records import BatchMetadata, RecordMetadata

__version__ = "0.1.0"

__all__ = [
    "GROUPS_SCHEMA",
    "HISTORY_SCHEMA",
    "PARTITIONS_SCHEMA",
    "SEGMENTS_SCHEMA",
    "TOPIC_CONFIG_KEYS",
    "AppendResult",
    "BatchFuture",
    "BatchMetadata",
    "Bound",
    "CommitConflictError",
    "CommitUnknownError",
    "ComparisonReport",
    "Consumer",
    "CorruptTopicError",
    "DoctorCheck",
    "DoctorReport",
    "DueTable",
    "EraseReport",
    "Group",
    "GroupDescription",
    "GroupLag",
    "GroupRow",
    "InvalidRequestError",
    "Lag",
    "LogTableError",
    "MaintainReport",
    "MirrorProgress",
    "MirrorReport",
    "MirrorStatus",
    "OffsetOutOfRangeError",
    "PartitionComparison",
    "PartitionDescription",
    "Problem",
    "Producer",
    "PublishReport",
    "PublishedStatus",
    "PublishedTable",
    "RangeSize",
    "RecordFuture",
    "RecordMetadata",
    "ResetReport",
    "RetentionReport",
    "RewriteReport",
    "SchemaMismatchError",
    "SegmentGoneError",
    "StorageError",
    "Store",
    "StoreGroup",
    "Topic",
    "TopicDescription",
    "TopicExistsError",
    "TopicNotFoundError",
    "Unchecked",
    "UnsupportedFormatError",
    "VacuumReport",
    "VerifyReport",
    "View",
    "column_type",
    "diagnose",
    "is_kafka_shaped",
    "open",
    "open_topic",
    "parse_duration",
    "report_html",
    "split_topic_url",
]

# The module of each name.
_MODULES = {
    "check.doctor": (
        "DoctorCheck",
        "DoctorReport",
        "diagnose",
    ),
    "errors": (
        "CommitConflictError",
        "CommitUnknownError",
        "CorruptTopicError",
        "InvalidRequestError",
        "LogTableError",
        "OffsetOutOfRangeError",
        "SchemaMismatchError",
        "SegmentGoneError",
        "StorageError",
        "TopicExistsError",
        "TopicNotFoundError",
        "UnsupportedFormatError",
    ),
    "format.config": ("TOPIC_CONFIG_KEYS",),
    "format.given_columns": ("column_type",),
    "format.leaf": ("SEGMENTS_SCHEMA",),
    "format.schema": ("is_kafka_shaped",),
    "format.times": ("parse_duration",),
    "groups.consumer": ("Consumer",),
    "groups.group": ("Group",),
    "groups.store_group": ("StoreGroup",),
    "read.range_size": ("RangeSize",),
    "read.view": (
        "Bound",
        "View",
    ),
    "report.report_html": ("report_html",),
    "results.comparison": ("ComparisonReport", "PartitionComparison"),
    "results.erase": ("EraseReport",),
    "results.groups": (
        "GROUPS_SCHEMA",
        "GroupDescription",
        "GroupLag",
        "GroupRow",
        "Lag",
        "ResetReport",
    ),
    "results.jobs": ("MaintainReport", "RetentionReport", "RewriteReport", "VacuumReport"),
    "results.mirror": ("MirrorProgress", "MirrorReport", "MirrorStatus"),
    "results.operations": (
        "AppendResult",
        "HISTORY_SCHEMA",
        "PARTITIONS_SCHEMA",
        "PartitionDescription",
        "Problem",
        "TopicDescription",
        "Unchecked",
        "VerifyReport",
    ),
    "results.publication": (
        "DueTable",
        "PublishReport",
        "PublishedStatus",
        "PublishedTable",
    ),
    "store": (
        "Store",
        "open",
        "open_topic",
        "split_topic_url",
    ),
    "topic": ("Topic",),
    "write.batch": (
        "RecordFuture",
        "BatchFuture",
    ),
    "write.producer": ("Producer",),
    "write.records": (
        "BatchMetadata",
        "RecordMetadata",
    ),
}
_HOMES = {name: module for module, names in _MODULES.items() for name in names}
_OTHER_NAMES = {"SEGMENTS_SCHEMA": "LEAF_SCHEMA"}


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = importlib.import_module(f"{__name__}.{_HOMES[name]}")
    thing: object = getattr(module, _OTHER_NAMES.get(name, name))
    globals()[name] = thing
    return thing


def __dir__() -> list[str]:
    return [*globals(), *__all__]
