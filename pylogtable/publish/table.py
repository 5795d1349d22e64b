"""What every published table is, whatever its format.

A table is a chain of numbered entries that are put if absent. An entry shows one version of the
topic, complete, and says all that the next publication has to know [PUB-5].
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

import msgspec

from pylogtable.errors import (
    CommitUnknownError,
    CorruptTopicError,
    InvalidRequestError,
    StorageError,
    UnsupportedFormatError,
)
from pylogtable.format.config import LATEST
from pylogtable.format.model import TopicInfo
from pylogtable.format.published_state import HIDING_FORMAT, PublishedState
from pylogtable.log.commit_loop import put_numbered
from pylogtable.publish.hidden_rows import HiddenRows
from pylogtable.publish.plan import Shown, TableChange, TableFile
from pylogtable.publish.roaring import Numbers
from pylogtable.runtime import Runtime
from pylogtable.storage.base import Created, ObjectInfo


@dataclass(frozen=True)
class Published:
    """An entry of a table: its number, and what it says about itself."""

    number: int
    state: PublishedState


class Table(Protocol):
    """A published table of a topic."""

    format: ClassVar[str]
    #: Where its own objects are, in the topic's folder.
    folder: ClassVar[str]
    #: All folders with its own objects.
    folders: ClassVar[tuple[str, ...]]

    def newest(self) -> Published | None:
        """What the table shows now; None if there is no table. Raises if the table is not ours."""

    def topic_id(self) -> str | None:
        """The id of the topic that the table is of, even if the table is damaged; None if that
        cannot be told."""

    def files(self, published: Published) -> dict[str, TableFile]:
        """The files that the table shows, by path."""

    def hidden_rows(self, published: Published, paths: Sequence[str]) -> Mapping[str, Numbers]:
        """The rows that the table hides in these files of it; a file without any is left out."""

    def hiding_objects(self, published: Published) -> set[str]:
        """The objects of the table itself that say which rows are hidden [PUB-9]."""

    def show(
        self,
        name: str,
        before: Published | None,
        shown: TopicInfo | None,
        wanted: Shown,
        change: TableChange,
        hidden: HiddenRows | None = None,
    ) -> Published | None:
        """Show a version of the topic, after the entry `before`, whose columns are those of
        `shown`. `hidden` is what changes about hidden rows, if the table hides some, or has hidden
        some. None if another publication was faster."""

    def mend(self, published: Published) -> None:
        """Write again what readers need to find the newest entry, if it is lost [PUB-6]."""

    def remove(self) -> int:
        """Remove the table. The topic stays as it is. Returns how many objects were removed."""

    def needed_files(self, since_ms: int) -> set[str]:
        """The files that versions of the table from this time on show [PUB-7]."""

    def old_objects(self, listing: Iterable[ObjectInfo], before_ms: int) -> list[ObjectInfo]:
        """The objects of the table itself that only versions before this time need [PUB-7]."""


class ChangedByOthersError(InvalidRequestError):
    """Another writer has changed a table of ours: it no longer shows what the topic has."""


def damaged(path: str, detail: str, rule: str = "PUB-1") -> CorruptTopicError:
    """The error for a table that cannot be read. Nothing is lost with it but the table."""
    way_out = "unpublish the topic and publish it again"
    return CorruptTopicError(path, rule, f"{detail}; {way_out}")


def put_entry(
    create: Callable[[], Created],
    read_publish_id: Callable[[], str | None],
    entry: tuple[str, int],
    publish_id: str,
    runtime: Runtime,
) -> bool:
    """Put an entry, given by its path and its number, if it is absent; False if another publication
    was faster. `read_publish_id` reads the id of the publication that has put this entry [PUB-1].
    """
    path, number = entry
    try:
        unknown = CommitUnknownError(publish_id, number)
        return put_numbered(create, read_publish_id, unknown, runtime)
    except CommitUnknownError as error:
        raise StorageError(
            f"the store did not say whether {path} landed; publish again: what has landed is not "
            "published twice"
        ) from error


def view_of(wanted: Shown, hidden: HiddenRows | None) -> dict[str, Any]:
    """The fields of a state that say what is hidden; none if everything is shown [PUB-9]."""
    if wanted.snapshot.config.publish_view != LATEST or hidden is None:
        return {}
    return {"format": HIDING_FORMAT, "view": LATEST, "hidden_rows": hidden.total}


def state_in(value: object, path: str) -> PublishedState:
    """The state that an entry has [PUB-5]."""
    number = value.get("format") if isinstance(value, dict) else None
    if isinstance(number, int) and number > HIDING_FORMAT:
        raise UnsupportedFormatError(
            f"{path}: the table was published in format {number}; this pylogtable knows "
            f"{HIDING_FORMAT}. Upgrade pylogtable."
        )
    try:
        return msgspec.convert(value, PublishedState)
    except msgspec.ValidationError as error:
        raise damaged(path, str(error), "PUB-5") from error
