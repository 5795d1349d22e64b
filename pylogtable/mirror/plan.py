"""Plans a copy of a topic: what is to be copied, and the commits that bring it. Pure.

A copy is brought to the state of its source by comparing the two states, and not by repeating
commits. So it does not matter how far it is behind, and the end offsets say where it continues.
Records keep their partitions and offsets, which may leave holes [LOG-11].
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import msgspec

from pylogtable.errors import CommitConflictError, InvalidRequestError, TopicExistsError
from pylogtable.format.config import normalize, parse_config
from pylogtable.format.field_ids import field_fault, uses_mapping
from pylogtable.format.guard_rules import ended_guard, guard_of, with_guard
from pylogtable.format.log_state import LogState
from pylogtable.format.mirror_rules import source_text
from pylogtable.format.model import (
    COLUMN_MAPPING,
    FORMAT_VERSION,
    GIVEN_OFFSETS,
    INLINE_BATCHES,
    MIRROR,
    Change,
    Mirror,
    MirroredTxn,
    Protocol,
    Segment,
    TopicInfo,
)
from pylogtable.format.snapshot import Snapshot
from pylogtable.jobs.rebase_compaction_plan import Piece


class OvertakenError(CommitConflictError):
    """Another mirror, or another job on the copy, was faster. Planning again helps."""


class UnfinishedSourceError(InvalidRequestError):
    """The source is itself a copy, in the middle of a mirror. It is worth waiting for it."""


@dataclass(frozen=True)
class CopyUnit:
    """Records of the source that become neighbouring segments of the copy, which cover
    `[start, end)` of a partition. Without pieces they become a segment without records."""

    partition: int
    start: int
    end: int
    pieces: tuple[Piece, ...]

    @property
    def whole(self) -> Segment | None:
        """The segment of the source whose file can be copied as it is, if there is one."""
        if len(self.pieces) != 1:
            return None
        piece = self.pieces[0]
        segment = piece.segment
        is_whole = (piece.start, piece.end) == (segment.base_offset, segment.end_offset)
        return None if segment.is_inline or not is_whole else segment

    @property
    def inputs(self) -> list[Segment]:
        """The segments of the source that it reads."""
        return [piece.segment for piece in self.pieces]

    @property
    def size_bytes(self) -> int:
        """About how many bytes it copies."""
        return sum(segment.size_bytes for segment in self.inputs)


def placed(segment: Segment, start: int) -> Segment:
    """The entry of a file that is copied as it is, and covers the offsets from `start` on."""
    moved = segment.base_offset - start
    if not moved:
        return segment
    groups = segment.row_groups
    if segment.records:
        groups = tuple(at + moved for at in groups)
    return msgspec.structs.replace(segment, base_offset=start, row_groups=groups)


class Arrivals(NamedTuple):
    """What is to be appended to a copy. It `is_all` if nothing of the source is missing then."""

    units: list[CopyUnit]
    is_all: bool


def new_copy(
    existing: Snapshot | None,
    source: Snapshot,
    mirror: Mirror,
    config: Mapping[str, object],
    url: str,
) -> Change:
    """Create a copy of `source` without records. Its partitions begin at the log starts of the
    source [MIR-1]. `config` wins over the settings of the source."""
    if existing is not None and existing.topic is not None:
        raise TopicExistsError(f"a topic already exists at {url}; open it with store.topic()")
    if existing is not None:  # its deletion may still be under way [MIR-7]
        mirror = msgspec.structs.replace(mirror, new_names=True)
    check_finished(source, mirror.source)
    settings = {**source.info.config, **normalize(config)}
    topic = msgspec.structs.replace(source.info, config=settings)
    if parse_config(settings).is_compacted and not topic.key:
        raise InvalidRequestError("a compacted topic needs a key, and the source has none")
    features = [GIVEN_OFFSETS, MIRROR]
    if parse_config(settings).inline_max_bytes:
        features.append(INLINE_BATCHES)
    ends = {number: start for number, start in source.start_offsets.items() if start}
    return Change(
        operation="create",
        protocol=_with_features(Protocol(format=FORMAT_VERSION), topic, features),
        topic=topic,
        ends=ends,
        mirror=having_seen(mirror, source),
    )


def check_finished(source: Snapshot, url: str) -> None:
    """Raise if the source is a copy in the middle of a mirror. It has records without their txns,
    and a copy of it would not know that [MIR-3]."""
    if source.mirror is not None and source.mirror.is_unfinished:
        raise UnfinishedSourceError(
            f"the topic at {url} is itself a copy of {source_text(source.mirror)}, in the middle "
            "of a mirror. Nothing was written. Mirror it when that mirror is through"
        )


def having_seen(mirror: Mirror, source: Snapshot) -> Mirror:
    """The same, with the version of the source that something was taken from [MIR-6]."""
    if source.version == mirror.version:
        return mirror
    return msgspec.structs.replace(mirror, seen=source.version, commit_id=source.commit_id)


def check_copy(copy: Snapshot, source: Snapshot, url: str) -> Mirror:
    """What the copy at `url` knows about its source. Raises if it is no copy of `source`, or if it
    cannot go on [MIR-2]."""
    mirror = copy.mirror
    if mirror is None or mirror.source_id != source.topic_id:
        what = "is no copy" if mirror is None else f"is a copy of {source_text(mirror)}"
        raise InvalidRequestError(
            f"the topic at {url} {what}, and not one of the topic with the id {source.topic_id}; "
            "nothing was written. Mirror to another store, or under another name"
        )
    if mirror.ended is not None:
        raise CommitConflictError(
            f"the copy at {url} has records of its own since its version {mirror.ended}: somebody "
            "has appended to it, or promoted it. Its offsets are no longer those of the source, so "
            "nothing was written. Mirror to another store, or under another name"
        )
    if mirror.seen_version is not None and mirror.seen_version > source.version:
        raise InvalidRequestError(
            f"the copy at {url} has seen version {mirror.seen_version} of its source, which is at "
            f"version {source.version}: the source has lost commits, or was restored from an older "
            "state. Nothing was written. Mirror to another store, or under another name"
        )
    if len(copy.partitions) > len(source.partitions):
        raise InvalidRequestError(
            f"the copy at {url} has {len(copy.partitions)} partitions, and its source has "
            f"{len(source.partitions)}; nothing was written"
        )
    for number, (mine, theirs) in enumerate(zip(copy.partitions, source.partitions, strict=False)):
        if mine.end > theirs.end:
            raise InvalidRequestError(
                f"partition {number} of the copy at {url} ends at {mine.end}, and its source ends "
                f"at {theirs.end}: the source has lost records. Nothing was written"
            )
    return mirror


def check_same_source(mirror: Mirror, there: str | None, url: str) -> None:
    """Raise if the source is not the one that the copy was made from. `there` is the id of its last
    commit up to the version that the copy shows, None if it is not known [MIR-6]."""
    if there is not None and there != mirror.commit_id:
        raise InvalidRequestError(
            f"the copy at {url} has seen version {mirror.seen_version} of its source with the "
            f"commit {mirror.commit_id}, and the source has the commit {there} there: it was "
            "restored "
            "from an older state, or is another copy of that topic. Nothing was written. Mirror to "
            "another store, or under another name"
        )


def check_same_retention(mirror: Mirror, *, is_following: bool) -> Mirror:
    """What the copy knows, if it follows as it did when a commit was prepared. What was prepared
    for a copy that follows is not for one with its own retention [MIR-4]."""
    if mirror.is_following != is_following:
        raise OvertakenError("another mirror has given the copy its own retention meanwhile")
    return mirror


def plan_topic(copy: Snapshot, source: Snapshot, mirror: Mirror) -> Change | None:
    """Give the copy the partitions and columns of the source, and its settings too unless the copy
    has its own retention [MIR-5]. None if it has them."""
    settings = copy.info.config if mirror.own_retention else source.info.config
    topic = msgspec.structs.replace(source.info, config=settings)
    if topic == copy.info:
        return None
    fault = field_fault(topic)
    if fault is not None:
        raise InvalidRequestError(
            f"the copy has its own settings, with cleanup.policy "
            f"{','.join(sorted(copy.config.cleanup_policy))}, and the columns of its source do not "
            f"go with them: {fault.detail} [{fault.rule}]. Nothing was written. Alter the copy to "
            "cleanup.policy=delete"
        )
    protocol = _with_features(copy.protocol, topic, ())
    return Change(
        operation="mirror",
        protocol=None if protocol == copy.protocol else protocol,
        topic=topic,
        mirror=having_seen(mirror, source),
    )


def plan_arrivals(
    copy: Snapshot,
    source: LogState,
    *,
    allow_gaps: bool,
) -> Arrivals:
    """The records of the source above the ends of the copy, as much as one commit brings. Unless
    `allow_gaps`, records that the source has removed before they were copied are an error."""
    missing = gaps(copy, source.snapshot)
    if missing and not allow_gaps:
        texts = [f"[{at}, {end}) of partition {number}" for number, (at, end) in missing.items()]
        more = f" and {len(texts) - 10} more" if len(texts) > 10 else ""
        raise InvalidRequestError(
            f"the source has removed offsets {', '.join(texts[:10])}{more} before they were copied."
            " To go on without them, allow gaps (allow_gaps=True, --allow-gaps); run the mirror "
            "more often than retention"
        )
    is_first = copy.mirror is None or copy.mirror.version is None
    limits = source.limits
    max_bytes = limits.mirror_first_bytes if is_first else limits.mirror_bytes
    max_units = limits.mirror_first_units if is_first else limits.mirror_units
    units: list[CopyUnit] = []
    size = 0
    for number, theirs in enumerate(source.snapshot.partitions):
        at = copy.partitions[number].end
        for segment in source.segments(number, at):
            if len(units) >= max_units or size >= max_bytes:
                return Arrivals(units, is_all=False)
            start = max(segment.base_offset, at, theirs.log_start)
            piece = Piece(segment, start, segment.end_offset, segment.delete_horizon_ms)
            unit = CopyUnit(number, at, segment.end_offset, (piece,))
            size += segment.size_bytes
            at = segment.end_offset
            if units and _may_share_a_file(units[-1], unit, limits.mirror_file_bytes):
                units[-1] = _joined(units[-1], unit)
            else:
                units.append(unit)
        if at < theirs.end:
            units.append(CopyUnit(number, at, theirs.end, ()))
    return Arrivals(units, is_all=True)


def gaps(copy: Snapshot, source: Snapshot) -> dict[int, tuple[int, int]]:
    """By partition, the offsets whose records the source has removed before they were copied."""
    pairs = zip(copy.partitions, source.partitions, strict=True)
    return {
        number: (mine.end, theirs.log_start)
        for number, (mine, theirs) in enumerate(pairs)
        if mine.end < theirs.log_start
    }


def _may_share_a_file(one: CopyUnit, other: CopyUnit, max_bytes: int) -> bool:
    """True for records in commits of the source that one file can have [MERGE-1]."""
    if not one.pieces or one.partition != other.partition:
        return False
    left, right = one.inputs[-1], other.inputs[0]
    return (
        left.is_inline
        and right.is_inline
        and one.size_bytes + right.size_bytes <= max_bytes
        and left.append_time == right.append_time
        and left.delete_horizon_ms == right.delete_horizon_ms
    )


def _joined(one: CopyUnit, other: CopyUnit) -> CopyUnit:
    return CopyUnit(one.partition, one.start, other.end, (*one.pieces, *other.pieces))


def plan_arrival_commit(
    state: LogState,
    source: Snapshot,
    mirror: Mirror,
    segments: Sequence[Segment],
    txns: Iterable[MirroredTxn],
    *,
    is_all: bool,
    is_news: bool = False,
) -> Change | None:
    """Append what was copied; `segments` are in the order of their partitions and offsets. If that
    `is_all`, the copy shows the version of the source. None if there is nothing to do; if the
    version `is_news`, it is noted all the same. Raises `OvertakenError` if another mirror was
    faster."""
    copy = state.snapshot
    if is_all and plan_topic(copy, source, mirror) is not None:
        raise OvertakenError(
            "another mirror, which has seen another version of the source, has "
            "altered the copy meanwhile"
        )
    by_partition: dict[int, list[Segment]] = {}
    for segment in segments:
        by_partition.setdefault(segment.partition, []).append(segment)
    for number, mine in by_partition.items():
        if mine[0].base_offset != copy.partitions[number].end:
            raise OvertakenError(
                f"partition {number}: records from offset {mine[0].base_offset} on were copied, "
                f"and the copy ends at {copy.partitions[number].end}: another mirror was faster"
            )
    moves, cleaned = [], {}
    for number, theirs in enumerate(source.partitions if mirror.is_following else ()):
        ours, mine = copy.partitions[number], by_partition.get(number, [])
        end = mine[-1].end_offset if mine else ours.end
        if ours.log_start < theirs.log_start <= end:
            moves.append(state.log_start_at(number, theirs.log_start, mine))
        if is_all and ours.clean_end < theirs.clean_end <= end:
            cleaned[number] = theirs.clean_end
    carried = _new_txns(copy, txns) if is_all else ()
    is_whole = mirror.version is not None and not mirror.partial
    is_noted = mirror == copy.mirror and is_whole and not is_news
    if is_noted and not (segments or moves or cleaned or carried):
        return None
    if is_all:
        shown = msgspec.structs.replace(
            mirror, version=source.version, seen=None, commit_id=source.commit_id, partial=False
        )
    else:
        shown = msgspec.structs.replace(having_seen(mirror, source), partial=True)
    return Change(
        operation="mirror",
        ends={number: mine[-1].end_offset for number, mine in sorted(by_partition.items())},
        add=tuple(segments),
        log_starts=tuple(moves),
        cleaned=cleaned,
        mirror=shown,
        mirrored_txns=carried,
    )


def is_mirrored(copy: Snapshot) -> bool:
    """True if a mirror may bring records of the topic's source."""
    return copy.mirror is not None and copy.mirror.ended is None


def plan_promotion(
    copy: Snapshot, *, force: bool = False, ends_mirror: bool | None = None
) -> Change | None:
    """End the mirroring [MIR-2], or else the guard of a copy of another system [GUARD-3]: the topic
    becomes one like any other. None if that has ended before. Without `force`, a copy that has only
    a part of a version of its source is refused [MIR-3]. `ends_mirror` says which of both is to be
    ended, if that is decided already [GUARD-4]."""
    mirror = copy.mirror
    if mirror is None and copy.info.copy_of is None:
        raise InvalidRequestError(
            "promote is for copies, and this topic is no copy of another one, and none of Kafka's"
        )
    if ends_mirror is None:
        ends_mirror = is_mirrored(copy)
    if not ends_mirror and guard_of(copy.info) is not None:
        topic = ended_guard(copy.info, copy.version + 1)
        return Change(operation="promote", topic=topic)
    if mirror is None or mirror.ended is not None:
        return None
    if mirror.is_unfinished and not force:
        raise InvalidRequestError(
            f"this copy of {source_text(mirror)} is in the middle of a mirror: it has the "
            "beginning of each partition, and not yet the txns of these records, so a writer that "
            "repeats an append here would append it twice. Let the mirror finish first. If the "
            "source is lost, promote with force=True (--force), and find out what writers have to "
            "repeat"
        )
    ended = msgspec.structs.replace(mirror, ended=copy.version + 1)
    return Change(operation="promote", mirror=ended)


def _new_txns(copy: Snapshot, txns: Iterable[MirroredTxn]) -> tuple[MirroredTxn, ...]:
    """Those that the copy does not have, each after the last one of its app id [TXN-1]."""
    new = []
    for txn in txns:
        mark = copy.txns.get(txn.app_id)
        if mark is None or mark.txn_version < txn.version:
            previous = None if mark is None else mark.commit_version
            new.append(msgspec.structs.replace(txn, previous=previous))
    return tuple(new)


def _with_features(protocol: Protocol, topic: TopicInfo, features: Iterable[str]) -> Protocol:
    wanted = [*features, *([COLUMN_MAPPING] if uses_mapping(topic) else [])]
    for feature in wanted:
        protocol = protocol.with_feature(feature) or protocol
    return with_guard(protocol, topic)
