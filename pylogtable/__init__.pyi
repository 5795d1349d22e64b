"""The public names, for type checkers. `__init__.py` imports each of them at its first use."""

from pylogtable.append.producer import Producer as Producer
from pylogtable.append.producer_batch import BatchFuture as BatchFuture
from pylogtable.append.producer_batch import RecordFuture as RecordFuture
from pylogtable.append.records import RecordMetadata as RecordMetadata
from pylogtable.append.report import AppendResult as AppendResult
from pylogtable.check.comparison import ComparisonReport as ComparisonReport
from pylogtable.check.doctor import diagnose as diagnose
from pylogtable.check.doctor_report import DoctorReport as DoctorReport
from pylogtable.check.report import VerifyReport as VerifyReport
from pylogtable.errors import CommitConflictError as CommitConflictError
from pylogtable.errors import CommitUnknownError as CommitUnknownError
from pylogtable.errors import CorruptTopicError as CorruptTopicError
from pylogtable.errors import InvalidRequestError as InvalidRequestError
from pylogtable.errors import LogTableError as LogTableError
from pylogtable.errors import OffsetOutOfRangeError as OffsetOutOfRangeError
from pylogtable.errors import SchemaMismatchError as SchemaMismatchError
from pylogtable.errors import SegmentGoneError as SegmentGoneError
from pylogtable.errors import StorageError as StorageError
from pylogtable.errors import TopicExistsError as TopicExistsError
from pylogtable.errors import TopicNotFoundError as TopicNotFoundError
from pylogtable.errors import UnsupportedFormatError as UnsupportedFormatError
from pylogtable.format.config import TOPIC_CONFIG_KEYS as TOPIC_CONFIG_KEYS
from pylogtable.format.schema import is_kafka_shaped as is_kafka_shaped
from pylogtable.groups.consumer import Consumer as Consumer
from pylogtable.groups.group import Group as Group
from pylogtable.groups.report import GROUPS_SCHEMA as GROUPS_SCHEMA
from pylogtable.groups.report import GroupDescription as GroupDescription
from pylogtable.groups.report import GroupLag as GroupLag
from pylogtable.groups.report import GroupRow as GroupRow
from pylogtable.groups.report import ResetReport as ResetReport
from pylogtable.groups.store_group import StoreGroup as StoreGroup
from pylogtable.jobs.erase import EraseReport as EraseReport
from pylogtable.jobs.retention import RetentionReport as RetentionReport
from pylogtable.jobs.rewrite_job import RewriteReport as RewriteReport
from pylogtable.jobs.vacuum import VacuumReport as VacuumReport
from pylogtable.maintain import MaintainReport as MaintainReport
from pylogtable.mirror.report import MirrorProgress as MirrorProgress
from pylogtable.mirror.report import MirrorReport as MirrorReport
from pylogtable.publish.report import PublishReport as PublishReport
from pylogtable.read.description import PARTITIONS_SCHEMA as PARTITIONS_SCHEMA
from pylogtable.read.description import TopicDescription as TopicDescription
from pylogtable.read.files import SEGMENTS_SCHEMA as SEGMENTS_SCHEMA
from pylogtable.read.history import HISTORY_SCHEMA as HISTORY_SCHEMA
from pylogtable.read.position import Bound as Bound
from pylogtable.read.view import View as View
from pylogtable.report.report_html import report_html as report_html
from pylogtable.store import Store as Store
from pylogtable.store import open as open
from pylogtable.store import open_topic as open_topic
from pylogtable.store import split_topic_url as split_topic_url
from pylogtable.times import parse_duration as parse_duration
from pylogtable.topic import Topic as Topic
from pylogtable.topics.column_types import column_type as column_type

__version__: str
__all__: list[str]
