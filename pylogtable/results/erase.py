"""What an erase returns."""

from __future__ import annotations

from dataclasses import dataclass, field

from pylogtable.format.paths import MANIFEST_DIR
from pylogtable.results.text import bytes_text, count_text, time_text


@dataclass(frozen=True)
class EraseReport:
    """What `Topic.erase` removed, or would remove in a dry run, and where the records still are.

    `version` is the first version without the records; in a dry run, the one that was searched.
    `partitions` has the number of records erased by partition. `segments_searched` counts the files
    that were opened. `segments_in` and `bytes_in` describe the segments that were replaced,
    `segments_out` and `bytes_out` the new ones.

    The records are still in the versions from `held_from` to `held_to`, as long as these can be
    read: both are None if nothing matched. `old_files` are the files that had them until now, and
    the commits of small appends. Older versions are not searched: files that an earlier merge or
    compaction has replaced may have them too, and go no later. A vacuum with default settings
    removes all of them from `vacuumed_from_ms` on. But it keeps a commit that has the last txn of
    an application, until that application writes again: `kept_for_txns` has the ids of these
    applications. `published` names the formats of published tables that still show the records.
    Then `vacuumed_from_ms` is None: a vacuum keeps the files for 7 days after the next publication.
    """

    version: int
    dry_run: bool
    records_erased: int
    segments_searched: int
    segments_in: int
    segments_out: int
    bytes_in: int
    bytes_out: int
    seconds: float
    partitions: dict[int, int] = field(default_factory=dict)
    held_from: int | None = None
    held_to: int | None = None
    old_files: tuple[str, ...] = ()
    vacuumed_from_ms: int | None = None
    published: tuple[str, ...] = ()
    kept_for_txns: tuple[str, ...] = ()

    def __str__(self) -> str:
        if self.held_to is None:
            return (
                f"no record matches in version {self.version:,}, of which "
                f"{count_text(self.segments_searched, 'segment')} had to be searched; older "
                f"versions were not searched; {self.seconds:.1f} s"
            )
        verb = "would erase" if self.dry_run else "erased"
        parts = [
            f"{verb} {count_text(self.records_erased, 'record')} from "
            f"{count_text(self.segments_in, 'segment')} ({bytes_text(self.bytes_in)}) in "
            f"{count_text(len(self.partitions), 'partition')}",
            f"versions {self.held_from:,} to {self.held_to:,} may still have them",
            self._when_gone(),
        ]
        if self.kept_for_txns:
            apps = ", ".join(map(repr, self.kept_for_txns))
            parts.append(f"but it keeps commits with the last txn of {apps} until the next one")
        return f"{'; '.join(parts)}; {self.seconds:.1f} s"

    def _when_gone(self) -> str:
        commits = sum(name.startswith(MANIFEST_DIR) for name in self.old_files)
        counts = {"old file": len(self.old_files) - commits, "old commit": commits}
        files = ", ".join(count_text(count, noun) for noun, count in counts.items() if count)
        files += " and what earlier jobs have replaced"
        if self.published:
            tables = " and ".join(self.published)
            return f"the published {tables} table shows them until the next publication, and a " + (
                f"vacuum removes {files} 7 days after that"
            )
        if self.vacuumed_from_ms is None:
            return f"a vacuum removes {files} 7 days after they are replaced"
        return f"a vacuum removes {files} from {time_text(self.vacuumed_from_ms)} on"
