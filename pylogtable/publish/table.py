"""What every published table is, whatever its format.

A table is a chain of numbered entries that are put if absent. An entry shows one version of the
topic, complete, and says all that the next publication has to know [PUB-5].
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar, Protocol

from pylogtable.format.model import PublishedState, TopicInfo
from pylogtable.plan.publishing import Shown, TableChange, TableFile
from pylogtable.storage.base import ObjectInfo


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

    def newest(self) -> Published | None:
        """What the table shows now; None if there is no table. Raises if the table is not ours."""

    def files(self, published: Published) -> dict[str, TableFile]:
        """The files that the table shows, by path."""

    def show(
        self,
        name: str,
        before: Published | None,
        shown: TopicInfo | None,
        wanted: Shown,
        change: TableChange,
    ) -> Published | None:
        """Show a version of the topic, after the entry `before`, whose columns are those of
        `shown`. None if another publication was faster."""

    def remove(self) -> int:
        """Remove the table. The topic stays as it is. Returns how many objects were removed."""

    def needed_files(self, since_ms: int) -> set[str]:
        """The files that versions of the table from this time on show [PUB-7]."""

    def old_objects(self, listing: Iterable[ObjectInfo], before_ms: int) -> list[ObjectInfo]:
        """The objects of the table itself that only versions before this time need [PUB-7]."""
