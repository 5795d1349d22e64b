"""The objects of the format as they are stored. Attribute names are the names in the JSON.

All are frozen. Ranges are half-open, `[start, end)`. The `end` of a partition is the next offset to
be written.
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import attrgetter
from typing import Annotated, Any, NamedTuple

import msgspec

FORMAT_VERSION = 1
MAX_PARTITIONS = 10_000
MAX_OFFSET = (1 << 63) - 2
#: So that the sizes of a topic's files can be added up in 64 bits [SEG-10].
MAX_FILE_BYTES = 1 << 46
#: The records of a commit, compressed and not compressed [INL-5].
MAX_ROWS_BYTES = 1 << 20
MAX_UNPACKED_BYTES = 64 << 20
MAX_APP_ID_BYTES = 1024
#: The note of a txn, encoded, and how deep it may be: it is inside of an object [TXN-7].
MAX_NOTE_BYTES = 4096
MAX_NOTE_NESTING = 64
#: Columns may have other names in files than in the topic, and files may have columns that the
#: topic dropped [META-7], [META-8].
COLUMN_MAPPING = "column-mapping"
#: A commit may have the records that it appends [INL-1].
INLINE_BATCHES = "inline-batches"
#: Records came with their offsets, so appended segments may have holes, and partitions may begin
#: above 0 [LOG-11], [META-9].
GIVEN_OFFSETS = "given-offsets"
#: The topic is a copy of another one [MIR-1].
MIRROR = "mirror"
#: A commit may carry the appends of several writers [OFFER-1]. Only writers have to know it.
COMBINED_APPENDS = "combined-appends"
#: Another log decides what the topic has: only its copier appends [GUARD-1]. Readers need not know
#: it.
GUARDED_COPY = "guarded-copy"
#: The features that this version knows. `format_spec/features.md` lists them all [PROTO-4].
READER_FEATURES: frozenset[str] = frozenset({COLUMN_MAPPING, INLINE_BATCHES, GIVEN_OFFSETS, MIRROR})
WRITER_FEATURES = READER_FEATURES | {COMBINED_APPENDS, GUARDED_COPY}

#: A whole number of 0 or more that fits into 64 bits. Decoding refuses anything else.
Natural = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]
Count = Annotated[int, msgspec.Meta(ge=1, le=2**31 - 1)]
#: A CRC-32, as text.
Checksum = Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{8}$")]
Int64 = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]


class StoredObject(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Base class. Defaults are not written; fields that this version does not know are ignored. A
    field whose type includes None may be null, no other [JSON-2]."""


class Field(StoredObject, frozen=True, kw_only=True, omit_defaults=True):
    """A column of a topic. `type` is a Spark type name, or an object if it is nested [TYPE-1].
    `id` never changes [META-6]. `stored_as` is the column's name in files, if that is another than
    `name` [META-7]."""

    name: str
    type: str | dict[str, Any]
    nullable: bool = True
    id: Count | None = None
    stored_as: str | None = None

    @property
    def stored_name(self) -> str:
        """The name of the column in files."""
        return self.name if self.stored_as is None else self.stored_as


class Protocol(StoredObject, frozen=True, kw_only=True, omit_defaults=True):
    """What an implementation must support to read and to write the topic [PROTO-1]."""

    format: Natural
    reader_features: tuple[str, ...] = ()
    writer_features: tuple[str, ...] = ()

    def announces(self, name: str) -> bool:
        """True if a feature that readers have to know is in force: both lists name it
        [PROTO-4]."""
        return name in self.reader_features and name in self.writer_features

    def with_feature(self, name: str, *, readers_too: bool = True) -> Protocol | None:
        """This protocol and a feature, for the commit that first needs it; None if it is in force
        already. Some features only writers have to know [PROTO-4]."""
        if name in self.writer_features and (name in self.reader_features or not readers_too):
            return None
        return Protocol(
            format=self.format,
            reader_features=tuple(dict.fromkeys((*self.reader_features, *[name][:readers_too]))),
            writer_features=tuple(dict.fromkeys((*self.writer_features, name))),
        )


class CopyOf(StoredObject, frozen=True, kw_only=True, omit_defaults=True):
    """The log of another system that a topic is a guarded copy of [GUARD-1]: `kind` is the system,
    `name` the log, `cluster` its id of itself, and `address` is for people. Only appends with a txn
    of `app_id` are its records. In version `ended` it became a topic like any other [GUARD-3]."""

    kind: str
    name: str
    cluster: str
    address: str = ""
    app_id: str
    ended: Natural | None = None


class TopicInfo(StoredObject, frozen=True, kw_only=True, omit_defaults=True):
    """Columns, key, partitions and settings of a topic [META-1]. `last_field_id` is the last id
    that was given to a field [META-6]. `retired` has the stored names of dropped columns [META-8].
    `copy_of` says of which log of another system it is, or was, a copy [GUARD-1]."""

    fields: tuple[Field, ...]
    key: tuple[str, ...] = ()
    partitions: Annotated[int, msgspec.Meta(ge=1, le=MAX_PARTITIONS)]
    config: dict[str, str] = {}
    created_at_ms: Natural
    last_field_id: Count | None = None
    retired: tuple[str, ...] = ()
    copy_of: CopyOf | None = None


class SegmentFacts(StoredObject, frozen=True, kw_only=True, omit_defaults=True):
    """What is known of records in a file or in a commit, wherever their offsets are. A new fact has
    its place here, and in the columns of a leaf.

    `row_groups` has the first offset that each row group covers, relative to where the segment
    begins."""

    partition: Natural
    records: Natural
    size_bytes: Natural
    min_timestamp_us: Int64
    max_timestamp_us: Int64
    path: str
    row_groups: tuple[Natural, ...] = (0,)
    tombstones: Natural = 0
    hashed_over: Count | None = None
    append_time: bool = False
    footer_checksum: Checksum | None = None

    @property
    def facts(self) -> dict[str, Any]:
        """These facts alone, by name, for another object that has them."""
        return dict(zip(SegmentFacts.__struct_fields__, _facts_of(self), strict=True))


_facts_of = attrgetter(*SegmentFacts.__struct_fields__)


class Segment(SegmentFacts, frozen=True, kw_only=True, omit_defaults=True):
    """A live data file and the offsets it covers [SEG-1], [SEG-10], or such records of a commit
    [INL-1].

    It covers all of `[base_offset, end_offset)`, even where there are holes. The offset of a
    record is the stored value plus `shift`; a segment with shift 0 is *sealed*.
    """

    base_offset: Natural
    end_offset: Natural
    shift: Int64 = 0
    delete_horizon_ms: Natural | None = None

    @property
    def is_dense(self) -> bool:
        """True if every offset it covers has a record."""
        return self.records == self.end_offset - self.base_offset

    @property
    def is_inline(self) -> bool:
        """True if its records are in a commit, and not in a file [INL-1]."""
        return "@" in self.path

    def has_below(self, offset: int) -> bool:
        """True if it has a record with an offset below this one [SEG-6]."""
        return self.records > 0 and self.base_offset + self.row_groups[0] < offset


class StagedSegment(SegmentFacts, frozen=True, kw_only=True, omit_defaults=True):
    """A data file that no commit names yet. The offsets stored in it are a guess [LOG-3]. Or rows
    for the commit itself: then `path` is `@` and the number of the first row [INL-1].

    The commit that adds the file decides its offsets. So a writer that lost a race plans again
    without writing the data again. `keys_only` is true if the topic had no value columns when the
    file was written: then no record in it was meant as a tombstone.

    If records came with their offsets, the stored ones are true, and the file covers all offsets up
    to `given_end` [LOG-11].
    """

    predicted_base: Natural
    null_keys: Natural = 0
    keys_only: bool = False
    given_end: Natural | None = None

    @classmethod
    def joined(cls, parts: Sequence[StagedSegment]) -> StagedSegment:
        """What is known of these records together: as for the first part, with sums and bounds over
        all of them."""
        if len(parts) == 1:
            return parts[0]
        return msgspec.structs.replace(
            parts[0],
            records=sum(part.records for part in parts),
            min_timestamp_us=min(part.min_timestamp_us for part in parts),
            max_timestamp_us=max(part.max_timestamp_us for part in parts),
            tombstones=sum(part.tombstones for part in parts),
            null_keys=sum(part.null_keys for part in parts),
        )

    @property
    def first_offset(self) -> int:
        """The stored offset of its first record."""
        return self.predicted_base + (self.row_groups[0] if self.row_groups else 0)

    @property
    def is_inline(self) -> bool:
        """True if the commit has these records, and no file."""
        return self.path.startswith("@")

    def placed_at(self, base_offset: int, path: str | None = None) -> Segment:
        """The segment that this becomes when a commit puts it at `base_offset`. `path` is that of
        the commit, for rows that go into it. Given offsets stay as they are, so there may be a hole
        before the first of them."""
        moved, facts = base_offset - self.predicted_base, self.facts
        if is_inline := self.is_inline:
            facts["path"] = f"{path}{self.path}"
        if self.given_end is not None:
            facts["row_groups"] = tuple(at - moved for at in self.row_groups)
            return Segment(**facts, base_offset=base_offset, end_offset=self.given_end)
        end_offset = base_offset + self.records
        shift = 0 if is_inline else moved
        return Segment(**facts, base_offset=base_offset, end_offset=end_offset, shift=shift)


class Totals(StoredObject, frozen=True, kw_only=True, omit_defaults=True):
    """Totals over a set of segments. A segment that the log start cuts counts in full."""

    segments: Natural = 0
    records: Natural = 0
    size_bytes: Natural = 0

    def plus(self, other: Totals) -> Totals:
        return Totals(
            segments=self.segments + other.segments,
            records=self.records + other.records,
            size_bytes=self.size_bytes + other.size_bytes,
        )

    def covers(self, other: Totals) -> bool:
        """True if `other` may be a part of this."""
        return (
            other.segments <= self.segments
            and other.records <= self.records
            and other.size_bytes <= self.size_bytes
        )

    def minus(self, other: Totals) -> Totals:
        return Totals(
            segments=self.segments - other.segments,
            records=self.records - other.records,
            size_bytes=self.size_bytes - other.size_bytes,
        )


class LogStart(StoredObject, frozen=True, kw_only=True, omit_defaults=True):
    """A partition's log start moves to `offset`. `dropped` counts the segments below it [LOG-6],
    `dropped_inline` those of them that are inline [INL-7]."""

    partition: Natural
    offset: Natural
    dropped: Totals = Totals()
    dropped_inline: Totals | None = None


class Replaced(StoredObject, frozen=True, kw_only=True, omit_defaults=True):
    """The live segments of `[start, end)` are replaced by those that the commit adds [LOG-7]."""

    partition: Natural
    start: Natural
    end: Natural
    dropped: Totals
    dropped_inline: Totals | None = None


class Txn(StoredObject, frozen=True, kw_only=True, omit_defaults=True):
    """The number that an application gave to an append. `previous` is the version of the commit
    with the application's previous txn [TXN-1]. `origin` names the run that gave the number
    [TXN-4]. `note` is any JSON value of the application [TXN-7].
    """

    app_id: str
    version: Natural
    previous: Natural | None = None
    origin: str | None = None
    note: Any = None


class MirroredTxn(Txn, frozen=True, kw_only=True, omit_defaults=True):
    """The last txn of an application in the source of a copy, and where its records are [MIR-3]."""

    offsets: dict[Natural, tuple[Natural, Natural]] = {}
    records: Natural = 0


class CombinedAppend(StoredObject, frozen=True, kw_only=True, omit_defaults=True):
    """One of the appends of a combined commit [OFFER-4]. `offer` names its offer; None for that of
    the writer that put the commit, if it made none. `offsets` has `[start, end)` by partition."""

    offer: str | None = None
    txn: Txn | None = None
    offsets: dict[Natural, tuple[Natural, Natural]] = {}
    records: Natural = 0


class Mirror(StoredObject, frozen=True, kw_only=True, omit_defaults=True):
    """What a copy knows about its source [MIR-1]. It has all records of `version`, and with
    `partial` some of a later one. `seen` is the newest version that anything was taken from, if
    that is another one; `commit_id` is its last commit [MIR-6]. With `new_names`, no file is copied
    under its own name [MIR-7]. In version `ended` it became a topic like any other."""

    source_id: str
    source: str = ""
    version: Natural | None = None
    seen: Natural | None = None
    commit_id: str | None = None
    own_retention: bool = False
    partial: bool = False
    new_names: bool = False
    ended: Natural | None = None

    @property
    def seen_version(self) -> int | None:  # [MIR-6]
        return self.version if self.seen is None else self.seen

    @property
    def is_following(self) -> bool:  # [MIR-4]
        return self.ended is None and not self.own_retention

    @property
    def is_unfinished(self) -> bool:  # [MIR-3]
        return self.ended is None and (self.partial or self.version is None)


class Change(StoredObject, frozen=True, kw_only=True, omit_defaults=True):
    """The result of a plan. It becomes a `Commit` when it gets a version. `rows` are the records of
    its inline segments [INL-2]; `mirror` is for copies [MIR-1]. `appends` says which records are
    whose in a combined commit [OFFER-4]."""

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
    rows: str | None = None
    mirror: Mirror | None = None
    mirrored_txns: tuple[MirroredTxn, ...] = ()
    appends: tuple[CombinedAppend, ...] = ()

    @property
    def txns(self) -> tuple[Txn, ...]:
        own = () if self.txn is None else (self.txn,)
        combined = (append.txn for append in self.appends if append.txn is not None)
        return (*own, *combined, *self.mirrored_txns)


class Commit(Change, frozen=True, kw_only=True, omit_defaults=True):
    """One numbered object of the manifest [COMMIT-1]. `parent` is the `commit_id` of the last
    commit before it that had effect [COMMIT-10]."""

    parent: str | None = None
    version: Natural
    commit_id: str
    topic_id: str
    committed_at_ms: Natural


class TxnMark(NamedTuple):
    """The last txn version of an app id, and the commit that carried it [TXN-2]."""

    txn_version: Natural
    commit_version: Natural


class RootRun(NamedTuple):
    """`[start, end)` of a partition is covered by the entries of leaf number `leaf` [ROOT-3]."""

    leaf: Natural
    start: Natural
    end: Natural
    max_timestamp_us: Int64


class LeafRef(NamedTuple):
    """A leaf, and how many entries its file has."""

    id: str
    entries: Natural


class RootPartition(StoredObject, frozen=True, kw_only=True, omit_defaults=True):
    """The state of a partition in a root: totals, runs in leaves, and the newest segments. `inline`
    are the totals of the live inline segments, None if the root does not say [INL-7]."""

    log_start: Natural = 0
    end: Natural = 0
    clean_end: Natural = 0
    live: Totals = Totals()
    inline: Totals | None = None
    runs: tuple[RootRun, ...] = ()
    tail: tuple[Segment, ...] = ()


class Root(StoredObject, frozen=True, kw_only=True, omit_defaults=True):
    """The whole state of a topic at one version; older segment entries are in leaves [ROOT-1]."""

    version: Natural
    commit_id: str
    topic_id: str
    committed_at_ms: Natural
    protocol: Protocol
    topic: TopicInfo | None
    partitions: tuple[RootPartition, ...] = ()
    leaves: tuple[LeafRef, ...] = ()
    leaf_checksums: tuple[Checksum | None, ...] = ()
    txns: dict[str, TxnMark] = {}
    mirror: Mirror | None = None


class Hint(StoredObject, frozen=True, kw_only=True, omit_defaults=True):
    """The root to look at first, None if there is none yet [HINT-1]. It may be out of date."""

    root_version: Natural | None
