"""How far an import is, and what it did."""

from __future__ import annotations

from dataclasses import dataclass, field, replace


@dataclass(frozen=True)
class ImportProgress:
    """How far an import is. `size_bytes` is that of the records in memory. `lag` has, by partition,
    how many offsets Kafka is ahead."""

    records: int
    commits: int
    seconds: float
    lag: dict[int, int]
    size_bytes: int = 0

    def followed_by(self, later: ImportProgress) -> ImportProgress:
        """How far the import of a topic is that has begun anew after this."""
        return replace(
            later,
            records=self.records + later.records,
            commits=self.commits + later.commits,
            seconds=self.seconds + later.seconds,
            size_bytes=self.size_bytes + later.size_bytes,
        )


@dataclass(frozen=True)
class ImportReport:
    """What `import_topic` did. `offsets` has `(start, end)` by partition, from the first record
    imported to one past the last. `groups` has the positions that were set. `left_out` says why a
    setting or a group of Kafka was not copied. `waiting` has, by partition, how many offsets a
    bounded import has left in Kafka because a transaction there was open. `copy_of` names the topic
    of Kafka whose copy this is; it is empty for a copy that is not guarded."""

    topic: str
    records: int
    commits: int
    seconds: float
    offsets: dict[int, tuple[int, int]]
    groups: dict[str, dict[int, int]] = field(default_factory=dict)
    left_out: dict[str, str] = field(default_factory=dict)
    waiting: dict[int, int] = field(default_factory=dict)
    copy_of: str = ""

    def followed_by(self, later: ImportReport) -> ImportReport:
        """The report of this import and of a later one of the same topic."""
        starts = {number: start for number, (start, _) in self.offsets.items()}
        offsets = {n: (starts.get(n, start), end) for n, (start, end) in later.offsets.items()}
        return replace(
            later,
            records=self.records + later.records,
            commits=self.commits + later.commits,
            seconds=self.seconds + later.seconds,
            offsets={**self.offsets, **offsets},
            groups={**self.groups, **later.groups},
            left_out={**self.left_out, **later.left_out},
        )
