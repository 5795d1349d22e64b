"""What can go wrong, split by what the caller should do about it.

LogTableError
├─ InvalidRequestError       fix the call             (also a ValueError)
│  ├─ OffsetOutOfRangeError  reset the position, or fail
│  ├─ TopicNotFoundError     create it                (also a FileNotFoundError)
│  ├─ TopicExistsError       open it                  (also a FileExistsError)
│  └─ SchemaMismatchError    change the data or alter the topic
├─ CommitConflictError       load, decide, try anew
├─ CommitUnknownError        look for `commit_id` before trying again
├─ CorruptTopicError         stop and repair          `path`, `rule`
├─ UnsupportedFormatError    upgrade this library
└─ StorageError              try later                cause chained with `from`
   └─ SegmentGoneError       read a newer version     `path`

Errors cross process boundaries (Spark workers), so every field is positional and stays in `args`.
"""

from __future__ import annotations


class LogTableError(Exception):
    """Base of everything this library raises on purpose."""


class InvalidRequestError(LogTableError, ValueError):
    """The call cannot be served as it was made; nothing was written."""


class OffsetOutOfRangeError(InvalidRequestError):
    """An offset outside `[log start, end]` of its partition."""

    def __init__(self, partition: int, requested: int, log_start: int, end: int) -> None:
        super().__init__(partition, requested, log_start, end)
        self.partition = partition
        self.requested = requested
        self.log_start = log_start
        self.end = end

    def __str__(self) -> str:
        return (
            f"offset {self.requested} of partition {self.partition} is out of range: "
            f"available is [{self.log_start}, {self.end}). Read from start_offsets(), or leave "
            "the bound out to mean earliest or latest."
        )


class TopicNotFoundError(InvalidRequestError, FileNotFoundError):
    """There is no topic at this place."""

    __str__ = Exception.__str__


class TopicExistsError(InvalidRequestError, FileExistsError):
    """There is a topic at this place already."""

    __str__ = Exception.__str__


class SchemaMismatchError(InvalidRequestError):
    """The columns given do not fit the topic's schema."""


class CommitConflictError(LogTableError):
    """What the change was planned on is no longer there; nothing was changed."""


class CommitUnknownError(LogTableError):
    """The store did not tell whether the commit landed; nothing was deleted.

    It can only ever land as `version`: `topic.find_commit(commit_id, version)` gives the version
    if it did, None if another commit has taken the place, and this error while both may happen.
    For a commit of a consumer `group` it is the number of a state of the group, whose positions
    tell what holds.
    """

    def __init__(self, commit_id: str, version: int, group: str | None = None) -> None:
        super().__init__(commit_id, version, group)
        self.commit_id = commit_id
        self.version = version
        self.group = group

    def __str__(self) -> str:
        if self.group is not None:
            return (
                f"the outcome of commit {self.commit_id} as number {self.version} of group "
                f"{self.group!r} is unknown. positions() tells what holds now; if the commit is "
                "not in it, it may yet land as long as that number is free: commit again."
            )
        return (
            f"the outcome of commit {self.commit_id} as version {self.version} is unknown. "
            f"topic.find_commit({self.commit_id!r}, {self.version}) gives the version if it "
            "landed and None if it never will; append again only on None. An append with "
            "txn=(app_id, version) may simply be repeated."
        )


class CorruptTopicError(LogTableError):
    """An object of the topic breaks a rule of the specification."""

    def __init__(self, path: str, rule: str, detail: str) -> None:
        super().__init__(path, rule, detail)
        self.path = path
        self.rule = rule
        self.detail = detail

    def __str__(self) -> str:
        return f"{self.path} breaks [{self.rule}]: {self.detail}"


class UnsupportedFormatError(LogTableError):
    """The topic, or the store, needs something this version does not have."""


class StorageError(LogTableError):
    """The object store failed; the cause is chained."""


class SegmentGoneError(StorageError):
    """The data file of a segment does not exist any more. Usually a vacuum removed it after a newer
    version had replaced it: open the topic again and read the newest version."""

    def __init__(self, path: str, detail: str) -> None:
        super().__init__(path, detail)
        self.path = path
        self.detail = detail

    def __str__(self) -> str:
        return (
            f"segment {self.path} is gone: {self.detail}. If a vacuum removed it, read the newest "
            "version; otherwise topic.verify() lists what is missing"
        )
