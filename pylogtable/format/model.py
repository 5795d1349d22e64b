"""The nouns of the format, as they are written: attribute names are the names on the wire.

All are frozen. Ranges are half-open `[start, end)`; `end` is the next offset to be written.
"""

from __future__ import annotations

from typing import Annotated, Any, NamedTuple

import msgspec

FORMAT_VERSION = 1
MAX_PARTITIONS = 10_000
MAX_METADATA = 4096
READER_FEATURES: frozenset[str] = frozenset()
WRITER_FEATURES: frozenset[str] = frozenset()

#: A number that is counted up from nothing and fits 64 bits; decoding refuses any other.
Natural = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]
Count = Annotated[int, msgspec.Meta(ge=1, le=2**31 - 1)]
Int64 = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]


class Noun(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Base: what is at its default is left out; fields this version does not know are ignored."""


class Field(Noun, frozen=True, kw_only=True, omit_defaults=True):
    """A column of a topic; `type` is a Spark type name, or an object if it is nested [TYPE-1]."""

    name: str
    type: str | dict[str, Any]
    nullable: bool = True


class Protocol(Noun, frozen=True, kw_only=True, omit_defaults=True):
    """What an implementation has to know to read, and to write, the topic [PROTO-1]."""

    format: Natural
    reader_features: tuple[str, ...] = ()
    writer_features: tuple[str, ...] = ()


class TopicInfo(Noun, frozen=True, kw_only=True, omit_defaults=True):
    """What a topic is, apart from its records [META-1]."""

    fields: tuple[Field, ...]
    key: tuple[str, ...] = ()
    partitions: Annotated[int, msgspec.Meta(ge=1, le=MAX_PARTITIONS)]
    config: dict[str, str] = {}
    created_at_ms: Natural


class Segment(Noun, frozen=True, kw_only=True, omit_defaults=True):
    """A live data file and the offsets it stands for [SEG-1].

    It claims `[base_offset, end_offset)` whole, also where compaction left holes. A record's
    offset is the stored value plus `shift`; with shift 0 the segment is *sealed*. `row_groups`
    has the first claimed offset of each row group, counted from `base_offset`.
    """

    partition: Natural
    base_offset: Natural
    end_offset: Natural
    shift: Int64 = 0
    records: Natural
    size_bytes: Natural
    min_timestamp_us: Int64
    max_timestamp_us: Int64
    path: str
    row_groups: tuple[Natural, ...] = (0,)
    tombstones: Natural = 0
    delete_horizon_ms: Natural | None = None
    hashed_over: Count | None = None
    append_time: bool = False

    @property
    def is_dense(self) -> bool:
        return self.records == self.end_offset - self.base_offset

    def has_below(self, offset: int) -> bool:
        """Whether it has a record with a smaller offset [SEG-6]."""
        return self.records > 0 and self.base_offset + self.row_groups[0] < offset


class StagedSegment(Noun, frozen=True, kw_only=True, omit_defaults=True):
    """A data file that no commit names yet; its offsets are a prediction [LOG-3].

    The commit that adds it decides its offsets, which is what lets a writer that lost a race plan
    again without writing its data again. `keys_only` says that the topic had no value columns when
    it was written, so that no record in it was meant as a tombstone.
    """

    partition: Natural
    predicted_base: Natural
    records: Natural
    size_bytes: Natural
    min_timestamp_us: Int64
    max_timestamp_us: Int64
    path: str
    row_groups: tuple[Natural, ...] = (0,)
    tombstones: Natural = 0
    null_keys: Natural = 0
    keys_only: bool = False
    hashed_over: Count | None = None
    append_time: bool = False

    def placed_at(self, base_offset: int) -> Segment:
        return Segment(
            partition=self.partition,
            base_offset=base_offset,
            end_offset=base_offset + self.records,
            shift=base_offset - self.predicted_base,
            records=self.records,
            size_bytes=self.size_bytes,
            min_timestamp_us=self.min_timestamp_us,
            max_timestamp_us=self.max_timestamp_us,
            path=self.path,
            row_groups=self.row_groups,
            tombstones=self.tombstones,
            hashed_over=self.hashed_over,
            append_time=self.append_time,
        )


class Totals(Noun, frozen=True, kw_only=True, omit_defaults=True):
    """How much a set of segments holds; segments cut by a log start count whole."""

    segments: Natural = 0
    records: Natural = 0
    size_bytes: Natural = 0

    def plus(self, other: Totals) -> Totals:
        return Totals(
            segments=self.segments + other.segments,
            records=self.records + other.records,
            size_bytes=self.size_bytes + other.size_bytes,
        )

    def minus(self, other: Totals) -> Totals:
        return Totals(
            segments=self.segments - other.segments,
            records=self.records - other.records,
            size_bytes=self.size_bytes - other.size_bytes,
        )


class LogStart(Noun, frozen=True, kw_only=True, omit_defaults=True):
    """A partition's log start moves to `offset`; `dropped` is what lies wholly below [LOG-6]."""

    partition: Natural
    offset: Natural
    dropped: Totals = Totals()


class Replaced(Noun, frozen=True, kw_only=True, omit_defaults=True):
    """The live segments tiling `[start, end)` give way to the commit's own for it [LOG-7]."""

    partition: Natural
    start: Natural
    end: Natural
    dropped: Totals


class Txn(Noun, frozen=True, kw_only=True, omit_defaults=True):
    """An application's own number for an append; `previous` is the version of its last [TXN-1],
    `origin` the run of the application that counted it [TXN-4]."""

    app_id: str
    version: Natural
    previous: Natural | None = None
    origin: str | None = None


class Change(Noun, frozen=True, kw_only=True, omit_defaults=True):
    """What a plan decided; becomes a `Commit` when it is given a version."""

    operation: str
    protocol: Protocol | None = None
    topic: TopicInfo | None = None
    ends: dict[Natural, Natural] = {}
    add: tuple[Segment, ...] = ()
    log_starts: tuple[LogStart, ...] = ()
    replaced: tuple[Replaced, ...] = ()
    cleaned: dict[Natural, Natural] = {}
    txn: Txn | None = None
    summary: dict[str, Int64] = {}


class Commit(Change, frozen=True, kw_only=True, omit_defaults=True):
    """One numbered object of the manifest [COMMIT-1]."""

    version: Natural
    commit_id: str
    topic_id: str
    committed_at_ms: Natural


class TxnMark(NamedTuple):
    """The last txn version of an app id, and the commit that carried it [TXN-2]."""

    txn_version: Natural
    commit_version: Natural


class RootRun(NamedTuple):
    """`[start, end)` of a partition is tiled by the entries of leaf number `leaf` [ROOT-3]."""

    leaf: Natural
    start: Natural
    end: Natural
    max_timestamp_us: Int64


class LeafRef(NamedTuple):
    """A leaf and how many entries its file has."""

    id: str
    entries: Natural


class RootPartition(Noun, frozen=True, kw_only=True, omit_defaults=True):
    """A partition's state in a root: its totals, its runs in leaves, its newest segments."""

    log_start: Natural = 0
    end: Natural = 0
    clean_end: Natural = 0
    live: Totals = Totals()
    runs: tuple[RootRun, ...] = ()
    tail: tuple[Segment, ...] = ()


class Root(Noun, frozen=True, kw_only=True, omit_defaults=True):
    """The index at one version [ROOT-1]: all of the topic's state, without its older entries."""

    version: Natural
    commit_id: str
    topic_id: str
    committed_at_ms: Natural
    protocol: Protocol
    topic: TopicInfo | None
    partitions: tuple[RootPartition, ...] = ()
    leaves: tuple[LeafRef, ...] = ()
    txns: dict[str, TxnMark] = {}


class Hint(Noun, frozen=True, kw_only=True, omit_defaults=True):
    """Where to look first [HINT-1]: a root, or None while there is none. Never to be believed
    without looking."""

    root_version: Natural | None


class GroupPosition(Noun, frozen=True, kw_only=True, omit_defaults=True):
    """The next offset of a partition that a consumer group is to read [GRP-4]."""

    offset: Natural
    committed_at_ms: Natural
    metadata: Annotated[str, msgspec.Meta(max_length=MAX_METADATA)] = ""


class GroupMember(Noun, frozen=True, kw_only=True, omit_defaults=True):
    """A dynamic member: the partitions it owns, and until when it may be believed [GRP-11]."""

    lease_until_ms: Natural
    owned: tuple[Natural, ...] = ()


class GroupChange(Noun, frozen=True, kw_only=True, omit_defaults=True):
    """What a plan decided on a group: all of what is to hold. It becomes a `GroupState` when it is
    given a number. `generation` counts how often the set of members changed."""

    operation: str
    positions: dict[Natural, GroupPosition] = {}
    generation: Natural = 0
    members: dict[str, GroupMember] = {}
    deleted: bool = False


class GroupState(GroupChange, frozen=True, kw_only=True, omit_defaults=True):
    """One numbered object of a consumer group; it has the whole state [GRP-2]."""

    number: Natural
    commit_id: str
    topic_id: str
    committed_at_ms: Natural

    def live_members(self, now_ms: int) -> list[str]:
        """Those whose lease has not run out, sorted [GRP-11]."""
        return sorted(m for m, held in self.members.items() if held.lease_until_ms > now_ms)
