"""Kafka's data model as an open table format on object storage, with no broker."""

from pylogtable.appending import Staged, Staging
from pylogtable.compaction import Done, Work
from pylogtable.config import TOPIC_CONFIG_KEYS
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
from pylogtable.plan.read import ReadTask
from pylogtable.plan.split import ReadPart
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
    "Bound",
    "CommitConflictError",
    "CommitUnknownError",
    "CorruptTopicError",
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
    "Placement",
    "Problem",
    "ReadPart",
    "ReadTask",
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
    "open",
    "open_topic",
    "report_html",
    "split_topic_url",
]
