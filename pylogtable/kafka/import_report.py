"""What an import is asked for, how far it is, and what it did."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from pylogtable.kafka.typed.options import ValueOptions


@dataclass(frozen=True)
class ImportProgress:
    """How far an import is. `size_bytes` is that of the records in memory. `lag` has, by partition,
    how many offsets Kafka is ahead. `dead_letters` are those of this import."""

    records: int
    commits: int
    seconds: float
    lag: dict[int, int]
    size_bytes: int = 0
    dead_letters: int = 0

    def followed_by(self, later: ImportProgress) -> ImportProgress:
        """How far the import of a topic is that has begun anew after this."""
        return replace(
            later,
            records=self.records + later.records,
            commits=self.commits + later.commits,
            seconds=self.seconds + later.seconds,
            size_bytes=self.size_bytes + later.size_bytes,
            dead_letters=self.dead_letters + later.dead_letters,
        )


@dataclass(frozen=True)
class ImportReport:
    """What `import_topic` did. `offsets` has `(start, end)` by partition, from the first record
    imported to one past the last. `groups` has the positions that were set. `left_out` says why a
    setting or a group of Kafka was not copied. `waiting` has, by partition, how many offsets a
    bounded import has left in Kafka because a transaction there was open. Of a typed import,
    `dead_letters` is how many records could not be decoded, and `schema_ids` how many were written
    with each schema. `copy_of` names the topic of Kafka whose copy this is; it is empty for a copy
    that is not guarded."""

    topic: str
    records: int
    commits: int
    seconds: float
    offsets: dict[int, tuple[int, int]]
    groups: dict[str, dict[int, int]] = field(default_factory=dict)
    left_out: dict[str, str] = field(default_factory=dict)
    waiting: dict[int, int] = field(default_factory=dict)
    dead_letters: int = 0
    schema_ids: dict[int, int] = field(default_factory=dict)
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
            dead_letters=self.dead_letters + later.dead_letters,
            schema_ids=dict(Counter(self.schema_ids) + Counter(later.schema_ids)),
        )


@dataclass(frozen=True)
class ImportOptions:
    """What `import_topic` was asked for, checked."""

    follow: bool = False
    from_timestamp_ms: int | None = None
    groups: bool | tuple[str, ...] = False
    allow_gaps: bool = False
    config: Mapping[str, object] = field(default_factory=dict)
    copy_settings: bool = True
    guard: bool = False
    linger_seconds: float = 5.0
    batch_bytes: int = 256 << 20
    refresh_seconds: float = 30.0
    values: ValueOptions | None = None
    on_progress: Callable[[ImportProgress], object] | None = None
    stop: Callable[[], bool] = lambda: False
