"""Kafka's data model as an open table format on object storage, with no broker.

Every public name is here, and is imported when it is first asked for: a look at a topic should not
wait for what writes one.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pylogtable.appending import Staged, Staging
    from pylogtable.compaction import Done, Work
    from pylogtable.config import TOPIC_CONFIG_KEYS
    from pylogtable.consumer import Consumer
    from pylogtable.doctor import DoctorCheck, DoctorReport, diagnose
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
    from pylogtable.extent import Extent
    from pylogtable.group import Group
    from pylogtable.group_report import (
        GROUPS_SCHEMA,
        GroupDescription,
        GroupLag,
        GroupRow,
        Lag,
        ResetReport,
    )
    from pylogtable.leaf import LEAF_SCHEMA as SEGMENTS_SCHEMA
    from pylogtable.maintenance import Worker
    from pylogtable.pending import PendingRecord, PendingRows
    from pylogtable.plan.read import ReadTask
    from pylogtable.plan.split import ReadPart
    from pylogtable.producer import Producer
    from pylogtable.records import BatchMetadata, RecordMetadata
    from pylogtable.report import (
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
    from pylogtable.report_page import report_html
    from pylogtable.rows import Placement, check_log_columns
    from pylogtable.schema import to_arrow as column_type
    from pylogtable.store import Store, open, open_topic, split_topic_url
    from pylogtable.store_group import StoreGroup
    from pylogtable.topic import Topic
    from pylogtable.view import Bound, PartReader, View

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
    "report_html",
    "split_topic_url",
]

# Where each name lives.
_MODULES = {
    "appending": (
        "Staged",
        "Staging",
    ),
    "compaction": (
        "Done",
        "Work",
    ),
    "config": ("TOPIC_CONFIG_KEYS",),
    "consumer": ("Consumer",),
    "doctor": (
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
    "extent": ("Extent",),
    "group": ("Group",),
    "group_report": (
        "GROUPS_SCHEMA",
        "GroupDescription",
        "GroupLag",
        "GroupRow",
        "Lag",
        "ResetReport",
    ),
    "leaf": ("SEGMENTS_SCHEMA",),
    "maintenance": ("Worker",),
    "pending": (
        "PendingRecord",
        "PendingRows",
    ),
    "plan.read": ("ReadTask",),
    "plan.split": ("ReadPart",),
    "producer": ("Producer",),
    "records": (
        "BatchMetadata",
        "RecordMetadata",
    ),
    "report": (
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
    "report_page": ("report_html",),
    "rows": (
        "Placement",
        "check_log_columns",
    ),
    "schema": ("column_type",),
    "store": (
        "Store",
        "open",
        "open_topic",
        "split_topic_url",
    ),
    "store_group": ("StoreGroup",),
    "topic": ("Topic",),
    "view": (
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
