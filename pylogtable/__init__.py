"""Kafka's data model as an open table format on object storage, with no broker."""

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
from pylogtable.report import (
    AppendResult,
    PartitionDescription,
    Problem,
    TopicDescription,
    VerifyReport,
)
from pylogtable.store import Store, open, open_topic
from pylogtable.topic import Topic

__version__ = "0.1.0"

__all__ = [
    "AppendResult",
    "CommitConflictError",
    "CommitUnknownError",
    "CorruptTopicError",
    "InvalidRequestError",
    "LogTableError",
    "OffsetOutOfRangeError",
    "PartitionDescription",
    "Problem",
    "SchemaMismatchError",
    "StorageError",
    "Store",
    "Topic",
    "TopicDescription",
    "TopicExistsError",
    "TopicNotFoundError",
    "UnsupportedFormatError",
    "VerifyReport",
    "open",
    "open_topic",
]
