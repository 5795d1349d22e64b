"""All errors of this library, with what the caller should do about each.

LogTableError
├─ InvalidRequestError       fix the call             (also a ValueError)
│  ├─ OffsetOutOfRangeError  reset the position, or fail
│  ├─ TopicNotFoundError     create it                (also a FileNotFoundError)
│  ├─ TopicExistsError       open it                  (also a FileExistsError)
│  └─ SchemaMismatchError    change the data or alter the topic
├─ CommitConflictError       read again, decide, try again
├─ CommitUnknownError        look for `commit_id` before trying again
├─ CorruptTopicError         stop and repair          `path`, `rule`
├─ UnsupportedFormatError    upgrade this library
└─ StorageError              try later                cause chained with `from`
   └─ SegmentGoneError       read a newer version     `path`

Errors travel between processes (Spark workers), so every field is positional and kept in `args`.
"""

from __future__ import annotations


class LogTableError(Exception):
    """Base class of all errors this library raises on purpose."""

    #: True if a commit was sent, and nothing proves that it never lands: the store refused it, or
    #: its outcome is unknown. Files that it names must stay [COMMIT-5].
    may_have_landed = False


class InvalidRequestError(LogTableError, ValueError):
    """The call is wrong: an argument, a name or a value. Nothing was written."""

    #: If a row of the given data is wrong: its number, the first is 0, and what is wrong with it.
    row: int | None = None
    problem = ""

    @classmethod
    def of_row(cls, row: int, problem: str) -> InvalidRequestError:
        """An error about a row of the given data."""
        error = cls(f"row {row}: {problem}")
        error.row, error.problem = row, problem
        return error


class OffsetOutOfRangeError(InvalidRequestError):
    """The offset is outside `[log start, end]` of its partition."""

    def __init__(self, partition: int, requested: int, log_start: int, end: int) -> None:
        super().__init__(partition, requested, log_start, end)
        self.partition = partition
        self.requested = requested
        self.log_start = log_start
        self.end = end

    def __str__(self) -> str:
        return (
            f"offset {self.requested} of partition {self.partition} is out of range: "
            f"available offsets are [{self.log_start}, {self.end}). start_offsets() and "
            "end_offsets() give these bounds; a read without a bound means earliest or latest."
        )


class TopicNotFoundError(InvalidRequestError, FileNotFoundError):
    """There is no topic at this address."""

    __str__ = Exception.__str__


class TopicExistsError(InvalidRequestError, FileExistsError):
    """A topic already exists at this address."""

    __str__ = Exception.__str__


class SchemaMismatchError(InvalidRequestError):
    """The columns of the data do not fit the topic's schema."""


class CommitConflictError(LogTableError):
    """Someone else changed the state that this change was based on. This change had no effect."""


class CommitUnknownError(LogTableError):
    """The store did not say whether the commit landed. No file was deleted.

    The commit can only land as `version`. `topic.find_commit(commit_id, version)` returns the
    version if it did, None if another commit took that version, and raises this error while both
    are still possible. If the append was offered to other writers, `commit_id` is the name of the
    offer, which may land in one of the 256 versions from `version` on. For a commit of a consumer
    `group`, `version` is the number of the group's state, and `group.positions()` shows the current
    positions.
    """

    may_have_landed = True

    def __init__(self, commit_id: str, version: int, group: str | None = None) -> None:
        super().__init__(commit_id, version, group)
        self.commit_id = commit_id
        self.version = version
        self.group = group
        #: What the store said last, if it said anything.
        self.reason: str | None = None

    def __str__(self) -> str:
        why = "" if self.reason is None else f" ({self.reason})"
        if self.group is not None:
            return (
                f"the outcome of commit {self.commit_id} as number {self.version} of group "
                f"{self.group!r} is unknown{why}. positions() shows the current positions. If the "
                "commit is missing there, commit again; until you do, it may still land."
            )
        return (
            f"the outcome of commit {self.commit_id} as version {self.version} is unknown{why}. "
            f"topic.find_commit({self.commit_id!r}, {self.version}) gives the version if it "
            "landed and None if it never will; append again only on None. An append with "
            "txn=(app_id, version) may simply be repeated."
        )


class CorruptTopicError(LogTableError):
    """An object of the topic breaks the rule `[rule]` of the specification."""

    def __init__(self, path: str, rule: str, detail: str) -> None:
        super().__init__(path, rule, detail)
        self.path = path
        self.rule = rule
        self.detail = detail

    def __str__(self) -> str:
        return f"{self.path} breaks [{self.rule}]: {self.detail}"


class UnsupportedFormatError(LogTableError):
    """The topic or the store needs something that this version does not support."""


class StorageError(LogTableError):
    """The object store failed; `__cause__` is the original error."""


class SegmentGoneError(StorageError):
    """The data file of a segment does not exist any more. Usually a vacuum removed it after a newer
    version had replaced it: open the topic again and read the newest version. `oldest_version` is
    the oldest version that can still be read, if it is known. `is_deleted` is true if the topic was
    deleted."""

    def __init__(
        self,
        path: str,
        detail: str,
        oldest_version: int | None = None,
        is_deleted: bool = False,
    ) -> None:
        super().__init__(path, detail, oldest_version, is_deleted)
        self.path = path
        self.detail = detail
        self.oldest_version = oldest_version
        self.is_deleted = is_deleted

    def __str__(self) -> str:
        if self.is_deleted:
            return f"the topic was deleted, and segment {self.path} with it: {self.detail}"
        if self.oldest_version is not None:
            return (
                f"segment {self.path} is gone: {self.detail}. A vacuum has removed it: it keeps "
                f"what version {self.oldest_version} and later ones need, and this read is of an "
                f"older version. Read the newest version, or version {self.oldest_version} or later"
            )
        return (
            f"segment {self.path} is gone: {self.detail}. If a vacuum removed it, read the newest "
            "version; otherwise topic.verify() lists what is missing"
        )
