"""What a mirror returns, and how far it is."""

from __future__ import annotations

from dataclasses import dataclass, field

from pylogtable.presentation import bytes_text, count_text


@dataclass(frozen=True)
class MirrorProgress:
    """How far a mirror is. `lag` has, by partition, how many offsets the source is ahead."""

    records: int
    size_bytes: int
    commits: int
    seconds: float
    lag: dict[int, int]


@dataclass(frozen=True)
class MirrorReport:
    """What `Topic.mirror` did. The copy shows `source_version` of its source, None if the mirror
    was stopped before it had all. `files_copied` were copied as they are; `files_written` have
    records that could not be. `records_removed` were removed from the copy because the source no
    longer has them. `lag` has, by partition, how many offsets the copy was behind at the end.
    `gaps` has the offsets that the source had removed before they were copied (`allow_gaps`).
    `groups` has the positions that were set, and `left_out` says why a group was not copied."""

    topic: str
    source: str
    copy: str
    source_version: int | None
    version: int
    records: int
    records_removed: int
    size_bytes: int
    files_copied: int
    files_written: int
    commits: int
    seconds: float
    lag: dict[int, int] = field(default_factory=dict)
    gaps: dict[int, tuple[int, int]] = field(default_factory=dict)
    groups: dict[str, dict[int, int]] = field(default_factory=dict)
    left_out: dict[str, str] = field(default_factory=dict)

    @property
    def megabytes_per_second(self) -> float:
        """Copied megabytes per second, to compare runs."""
        return self.size_bytes / 1e6 / max(self.seconds, 1e-9)

    def __str__(self) -> str:
        copied = f"{count_text(self.records, 'record')} copied, {bytes_text(self.size_bytes)}"
        files = f"{count_text(self.files_copied, 'file')} as they are"
        if self.files_written:
            files += f", {self.files_written:,} written anew"
        is_new = self.size_bytes or self.records
        parts = [f"{copied} in {files}" if is_new else "no new records"]
        parts += [f"gap {at}:[{start},{end})" for at, (start, end) in self.gaps.items()]
        if self.records_removed:
            parts.append(f"{count_text(self.records_removed, 'record')} removed")
        behind = sum(self.lag.values())
        parts.append(f"{count_text(behind, 'offset')} behind" if behind else "up to date")
        return f"{self.topic}: {', '.join(parts)}; {self.seconds:.1f} s"
