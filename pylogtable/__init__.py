"""Kafka's data model as an open table format on object storage, with no broker.

>>> import pylogtable
>>> store = pylogtable.open("s3://bucket/logs")
>>> topic = store.create_topic("orders", partitions=6)

Every public name is here. Each is imported at its first use, so that programs start fast.
`pylogtable.engine` connects other engines, as `pyspark_pylogtable` does for Spark.
"""

from __future__ import annotations

import importlib

__version__ = "0.1.0"

# The module of each public name. `__init__.pyi` shows the same names to type checkers.
_MODULES = {
    "append.producer": ("Producer",),
    "append.producer_batch": (
        "BatchFuture",
        "RecordFuture",
    ),
    "append.records": ("RecordMetadata",),
    "append.report": ("AppendResult",),
    "check.comparison": ("ComparisonReport",),
    "check.doctor": ("diagnose",),
    "check.doctor_report": ("DoctorReport",),
    "check.report": ("VerifyReport",),
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
    "format.schema": ("is_kafka_shaped",),
    "groups.consumer": ("Consumer",),
    "groups.group": ("Group",),
    "groups.records": ("ConsumerRecord",),
    "groups.report": (
        "GROUPS_SCHEMA",
        "GroupDescription",
        "GroupLag",
        "GroupRow",
        "ResetReport",
    ),
    "groups.store_consumer": ("StoreConsumer",),
    "groups.store_group": ("StoreGroup",),
    "jobs.erase": ("EraseReport",),
    "jobs.retention": ("RetentionReport",),
    "jobs.rewrite_job": ("RewriteReport",),
    "jobs.vacuum": ("VacuumReport",),
    "maintain": ("MaintainReport",),
    "mirror.report": (
        "MirrorProgress",
        "MirrorReport",
    ),
    "publish.report": ("PublishReport",),
    "read.description": (
        "PARTITIONS_SCHEMA",
        "TopicDescription",
    ),
    "read.history": ("HISTORY_SCHEMA",),
    "read.files": ("SEGMENTS_SCHEMA",),
    "read.position": ("Bound",),
    "read.view": ("View",),
    "report.report_html": ("report_html",),
    "store": (
        "Store",
        "open",
        "open_topic",
        "split_topic_url",
    ),
    "times": ("parse_duration",),
    "topic": ("Topic",),
    "topics.column_types": ("column_type",),
}
_HOMES = {name: module for module, names in _MODULES.items() for name in names}

__all__ = sorted(_HOMES)


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = importlib.import_module(f"{__name__}.{_HOMES[name]}")
    thing: object = getattr(module, name)
    globals()[name] = thing
    return thing


def __dir__() -> list[str]:
    return [*globals(), *__all__]
