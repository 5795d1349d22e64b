"""Kafka's data model as an open table format on object storage, with no broker.

Every public name is here, and is imported when it is first asked for: a look at a topic should not
wait for what writes one.
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
        StorageError,
        TopicExistsError,
        TopicNotFoundError,
        UnsupportedFormatError,
    )
    from pylogtable.format.config import TOPIC_CONFIG_KEYS
    from pylogtable.format.leaf import LEAF_SCHEMA as SEGMENTS_SCHEMA
    from pylogtable.format.schema import to_arrow as column_type
    from pylogtable.format.shaping import Placement, check_log_columns
    from pylogtable.format.times import parse_duration
    from pylogtable.groups.consumer import Consumer
    from pylogtable.groups.group import Group
    from pylogtable.groups.store_group import StoreGroup
    from pylogtable.maintenance.jobs import Worker
    from pylogtable.maintenance.work import Done, Work
    from pylogtable.plan.read import ReadTask
    from pylogtable.plan.split import ReadPart
    from pylogtable.read.amount import Extent
    from pylogtable.read.view import Bound, PartReader, View
    from pylogtable.report.report_html import report_html
    from pylogtable.results.groups import (
        GROUPS_SCHEMA,
        GroupDescription,
        GroupLag,
        GroupRow,
        Lag,
        ResetReport,
    )
    from pylogtable.results.operations import (
        HISTORY_SCHEMA,
        PARTITIONS_SCHEMA,
        AppendResult,
        MaintainReport,
        PartitionDescription,
        Problem,
        RetentionReport,
        RewriteReport,
        TopicDescription,
        VacuumReport,
        VerifyReport,
    )
    from pylogtable.store import Store, open, open_topic, split_topic_url
    from pylogtable.topic import Topic
    from pylogtable.write.append import Staged, Staging
    from pylogtable.write.batch import PendingRecord, PendingRows
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
    "BatchMetadata",
    "Bound",
    "CommitConflictError",
    "CommitUnknownError",
    "Consumer",
    "CorruptTopicError",
    "DoctorCheck",
    "DoctorReport",
    "Done",
    "Extent",
    "Group",
    "GroupDescription",
    "GroupLag",
    "GroupRow",
    "InvalidRequestError",
    "Lag",
    "LogTableError",
    "MaintainReport",
    "OffsetOutOfRangeError",
    "PartReader",
    "PartitionDescription",
    "PendingRecord",
    "PendingRows",
    "Placement",
    "Problem",
    "Producer",
    "ReadPart",
    "ReadTask",
    "RecordMetadata",
    "ResetReport",
    "RetentionReport",
    "RewriteReport",
    "SchemaMismatchError",
    "Staged",
    "Staging",
    "StorageError",
    "Store",
    "StoreGroup",
    "Topic",
    "TopicDescription",
    "TopicExistsError",
    "TopicNotFoundError",
    "UnsupportedFormatError",
    "VacuumReport",
    "VerifyReport",
    "View",
    "Work",
    "Worker",
    "check_log_columns",
    "column_type",
    "diagnose",
    "open",
    "open_topic",
    "parse_duration",
    "report_html",
    "split_topic_url",
]

# Where each name lives.
_MODULES = {
    "write.append": (
        "Staged",
        "Staging",
    ),
    "maintenance.work": (
        "Done",
        "Work",
    ),
    "format.config": ("TOPIC_CONFIG_KEYS",),
    "format.times": ("parse_duration",),
    "groups.consumer": ("Consumer",),
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
        "StorageError",
        "TopicExistsError",
        "TopicNotFoundError",
        "UnsupportedFormatError",
    ),
    "read.amount": ("Extent",),
    "groups.group": ("Group",),
    "results.groups": (
        "GROUPS_SCHEMA",
        "GroupDescription",
        "GroupLag",
        "GroupRow",
        "Lag",
        "ResetReport",
    ),
    "format.leaf": ("SEGMENTS_SCHEMA",),
    "maintenance.jobs": ("Worker",),
    "write.batch": (
        "PendingRecord",
        "PendingRows",
    ),
    "plan.read": ("ReadTask",),
    "plan.split": ("ReadPart",),
    "write.producer": ("Producer",),
    "write.records": (
        "BatchMetadata",
        "RecordMetadata",
    ),
    "results.operations": (
        "AppendResult",
        "HISTORY_SCHEMA",
        "MaintainReport",
        "PARTITIONS_SCHEMA",
        "PartitionDescription",
        "Problem",
        "RetentionReport",
        "RewriteReport",
        "TopicDescription",
        "VacuumReport",
        "VerifyReport",
    ),
    "report.report_html": ("report_html",),
    "format.shaping": (
        "Placement",
        "check_log_columns",
    ),
    "format.schema": ("column_type",),
    "store": (
        "Store",
        "open",
        "open_topic",
        "split_topic_url",
    ),
    "groups.store_group": ("StoreGroup",),
    "topic": ("Topic",),
    "read.view": (
        "Bound",
        "PartReader",
        "View",
    ),
}
_HOMES = {name: module for module, names in _MODULES.items() for name in names}
_OTHER_NAMES = {"SEGMENTS_SCHEMA": "LEAF_SCHEMA", "column_type": "to_arrow"}


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = importlib.import_module(f"{__name__}.{_HOMES[name]}")
    thing: object = getattr(module, _OTHER_NAMES.get(name, name))
    globals()[name] = thing
    return thing


def __dir__() -> list[str]:
    return [*globals(), *__all__]
