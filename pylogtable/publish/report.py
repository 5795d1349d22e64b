"""What a publication returns."""

from __future__ import annotations

from dataclasses import dataclass

from pylogtable.presentation import count_text
from pylogtable.read.description import PublishedStatus


@dataclass(frozen=True)
class PublishedTable:
    """A published table after a publication. `version` is the version of the topic that it shows,
    `table_version` the table's own. `steps` counts the versions of the table that were written,
    `segments_sealed` the segments that were rewritten so that any engine reads them rightly.

    `records_not_compacted` counts the records that no compaction has looked at yet; None if the
    topic is not compacted. The table shows them all, so at most this many of its rows are not the
    newest of their key in their partition.

    `rows_hidden` counts the rows of its files that the table hides; None unless it is published
    with `publish.view=latest`."""

    format: str
    version: int
    table_version: int
    steps: int = 0
    files_added: int = 0
    files_removed: int = 0
    segments_sealed: int = 0
    records_not_compacted: int | None = None
    rows_hidden: int | None = None

    def __str__(self) -> str:
        text = (
            f"{self.format} version {self.table_version:,} shows version {self.version:,} of the "
            f"topic: {self.files_added:,} files added, {self.files_removed:,} removed, "
            f"{self.segments_sealed:,} sealed"
        )
        if self.records_not_compacted:
            records = count_text(self.records_not_compacted, "record")
            text += f", {records} not compacted (a key may have several rows)"
        if self.rows_hidden is not None:
            text += f", {count_text(self.rows_hidden, 'row')} hidden"
        return text


@dataclass(frozen=True)
class DueTable:
    """A table that a dry run of `Topic.maintain` would publish. `status` says what it shows now; it
    is None if there is no such table yet, or none that can be read."""

    format: str
    status: PublishedStatus | None

    def __str__(self) -> str:
        return str(self.status) if self.status is not None else f"{self.format}: a new table"


@dataclass(frozen=True)
class PublishReport:
    """What `Topic.publish` did, table by table. After a dry run of `Topic.maintain`, `tables` is
    empty and `due` has the tables that would be published."""

    topic: str
    tables: tuple[PublishedTable, ...]
    seconds: float
    due: tuple[DueTable, ...] = ()

    def __str__(self) -> str:
        shown = "; ".join(map(str, self.tables or self.due))
        return f"{self.topic}: {shown}; {self.seconds:.1f} s"
