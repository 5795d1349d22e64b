"""The state of a topic at one version: the result of replaying its commits. Pure.

Replay in one paragraph: commit 0 creates the topic. Each later commit changes the state before it.
New segments are added at the end of their partition. A log start moves forward and drops the
segments below it. A replaced range swaps its segments for others that cover the same offsets. A new
`topic` object replaces the old one. `delete_topic` leaves an empty state, on which a later `create`
starts again from nothing, with another topic id. A commit of another topic is *void*: it takes its
version, and has no other effect. What a commit does to one partition is in `partition_state`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

from pylogtable.arguments import is_whole
from pylogtable.errors import InvalidRequestError
from pylogtable.format.config import TopicConfig, stored_config
from pylogtable.format.guard_rules import guard_of
from pylogtable.format.inline import rows_fault
from pylogtable.format.json_codec import check_readable
from pylogtable.format.mirror_rules import mirror_after, mirror_fault
from pylogtable.format.model import (
    COMBINED_APPENDS,
    GIVEN_OFFSETS,
    INLINE_BATCHES,
    Commit,
    Mirror,
    Protocol,
    Segment,
    TopicInfo,
    Totals,
    Txn,
    TxnMark,
)
from pylogtable.format.offers import appends_fault
from pylogtable.format.partition_state import (
    PartitionState,
    append_segments,
    broken,
    move_clean_end,
    move_log_start,
    replace_range,
)
from pylogtable.format.recent_commits import RecentCommits
from pylogtable.format.schema_evolution import alteration_fault, feature_fault


@dataclass(frozen=True)
class Snapshot:
    """The state after commit `version`. `topic` is None if the topic is deleted.

    `commit_id` and `committed_at_ms` are those of the last commit that had effect. `voids` counts
    the void commits after it [COMMIT-11]. `mirror` is set if the topic is, or was, a copy of
    another one [MIR-1]. `confirmed_ms` is no part of the state: at this time of
    the store, the state was known to be the newest [COMMIT-9]. None means that it is not known.
    `tail_bytes` is no part of it either: the size of the rows in the commits after the root. Nor is
    `recent`; None if only this version is known.
    """

    version: int
    commit_id: str
    topic_id: str
    committed_at_ms: int
    protocol: Protocol
    topic: TopicInfo | None
    partitions: tuple[PartitionState, ...]
    txns: Mapping[str, TxnMark] = field(default_factory=dict)
    leaves: Mapping[str, int] = field(default_factory=dict)
    leaf_checksums: Mapping[str, str] = field(default_factory=dict)
    root_version: int | None = None
    voids: int = 0
    mirror: Mirror | None = None
    confirmed_ms: int | None = field(default=None, compare=False, repr=False)
    tail_bytes: int = field(default=0, compare=False, repr=False)
    recent: RecentCommits | None = field(default=None, compare=False, repr=False)

    @property
    def effective_version(self) -> int:
        """The version of the last commit that had effect."""
        return self.version - self.voids

    @property
    def info(self) -> TopicInfo:
        """The topic's description. The topic must not be deleted."""
        assert self.topic is not None
        return self.topic

    @cached_property
    def config(self) -> TopicConfig:
        return stored_config(self.info.config)

    @property
    def inline_limit(self) -> int:
        """How large the packed rows of a commit may be. 0 in a topic that was created without the
        feature, unless somebody has set it: who does not know it may use the topic [INL-5]."""
        is_wanted = "inline.max.bytes" in self.info.config
        is_known = self.protocol.announces(INLINE_BATCHES)
        return self.config.inline_max_bytes if is_wanted or is_known else 0

    @property
    def combines_appends(self) -> bool:
        """True if a commit may carry the appends of several writers [OFFER-1]. The
        records of a guarded copy come from one writer [GUARD-2]."""
        is_known = COMBINED_APPENDS in self.protocol.writer_features
        return is_known and self.config.combined_appends and guard_of(self.info) is None

    @property
    def recent_commits(self) -> RecentCommits:
        return self.recent or RecentCommits(since=self.version)

    def check_partition(self, number: object) -> None:
        """Raise if the partition does not exist."""
        count = len(self.partitions)
        if not is_whole(number) or not 0 <= int(number) < count:  # type: ignore[call-overload]
            raise InvalidRequestError(
                f"there is no partition {number!r}; the topic has {count}, 0 to {count - 1}"
            )

    @property
    def start_offsets(self) -> dict[int, int]:
        return {number: state.log_start for number, state in enumerate(self.partitions)}

    @property
    def end_offsets(self) -> dict[int, int]:
        return {number: state.end for number, state in enumerate(self.partitions)}

    @property
    def live(self) -> Totals:
        total = Totals()
        for state in self.partitions:
            total = total.plus(state.live)
        return total

    @property
    def inline(self) -> Totals | None:
        """The totals of the live inline segments; None if leaves have to be counted [INL-7]."""
        total = Totals()
        for state in self.partitions:
            if state.inline is None:
                return None
            total = total.plus(state.inline)
        return total


def replay(base: Snapshot | None, commits: Iterable[Commit]) -> Snapshot | None:
    """The state after these commits, applied in order to `base`."""
    snapshot = base
    for commit in commits:
        snapshot = apply(snapshot, commit)
    return snapshot


def apply(base: Snapshot | None, commit: Commit) -> Snapshot:
    """The state after `commit`. Raises `CorruptTopicError` if the commit cannot follow `base`."""
    if commit.protocol is not None:
        check_readable(commit.protocol)
    if base is not None and commit.version != base.version + 1:
        raise broken(commit, "COMMIT-3", f"it does not follow version {base.version}")
    if base is not None and is_void(base, commit):
        return replace(base, version=commit.version, voids=base.voids + 1)
    if base is None or base.topic is None:
        return _create(base, commit)
    _check_follows(base, commit)
    if commit.operation == "delete_topic":
        gone = replace(_advanced(base, commit), topic=None, partitions=(), txns={})
        return replace(gone, leaves={}, leaf_checksums={}, mirror=None)
    if commit.operation == "create":
        raise broken(commit, "META-2", "it creates a topic that already exists")
    info = commit.topic or base.info
    states = list(base.partitions)
    if info.partitions < len(states):
        raise broken(commit, "META-3", f"{len(states)} partitions become {info.partitions}")
    _check_partitions(commit, info.partitions)
    _check_altered(commit, base, info)
    protocol = commit.protocol or base.protocol
    fault = (
        rows_fault(commit, protocol)
        or mirror_fault(base.mirror, commit, protocol)
        or appends_fault(commit, protocol, base.end_offsets)
    )
    if fault is not None:
        raise broken(commit, fault.rule, fault.detail)
    states.extend(PartitionState() for _ in range(info.partitions - len(states)))
    added: dict[int, list[Segment]] = {}
    for segment in commit.add:
        added.setdefault(segment.partition, []).append(segment)
    for swap in commit.replaced:
        number = swap.partition
        outputs: list[Segment] = []
        others: list[Segment] = []
        for segment in added.get(number, ()):
            inside = swap.start <= segment.base_offset < swap.end
            (outputs if inside else others).append(segment)
        states[number] = replace_range(commit, states[number], swap, outputs)
        added[number] = others
    takes_offsets = protocol.announces(GIVEN_OFFSETS)
    for number, segments in added.items():
        states[number] = append_segments(
            commit,
            states[number],
            segments,
            commit.ends.get(number),
            may_have_holes=takes_offsets,
        )
    for number in commit.ends:
        if not added.get(number):
            detail = f"it has an end for partition {number}, and appends nothing to it"
            raise broken(commit, "LOG-2", detail)
    for move in commit.log_starts:
        states[move.partition] = move_log_start(commit, states[move.partition], move)
    for number, offset in commit.cleaned.items():
        states[number] = move_clean_end(commit, states[number], number, offset)
    return replace(
        _advanced(base, commit),
        topic=info,
        partitions=tuple(states),
        txns=_txns_after(base.txns, commit),
        mirror=mirror_after(base.mirror, commit),
    )


def is_void(base: Snapshot, commit: Commit) -> bool:
    """True if the commit belongs to another topic than `base`: it only takes its version
    [COMMIT-11]. After a `delete_topic`, a `create` that was planned on it makes a new topic."""
    if commit.topic_id == base.topic_id:
        return False
    is_planned_here = commit.parent is None or commit.parent == base.commit_id
    return base.topic is not None or commit.operation != "create" or not is_planned_here


def _create(base: Snapshot | None, commit: Commit) -> Snapshot:
    if base is None and commit.version != 0:
        raise broken(commit, "COMMIT-3", "commits before it are missing")
    if base is not None:
        _check_follows(base, commit)
    if commit.operation != "create" or commit.topic is None or commit.protocol is None:
        raise broken(commit, "META-2", "there is no topic yet, and it does not create one")
    if base is not None and commit.topic_id == base.topic_id:
        raise broken(commit, "META-5", f"it reuses the id of a deleted topic, {base.topic_id}")
    count, ends = commit.topic.partitions, commit.ends
    if max(ends, default=0) >= count:
        raise broken(commit, "META-3", f"there is no partition {max(ends)}")
    fault = feature_fault(commit.topic, commit.protocol)
    if fault is not None:
        raise broken(commit, fault.rule, fault.detail)
    if ends and not commit.protocol.announces(GIVEN_OFFSETS):
        detail = f"partitions begin above 0 without the feature {GIVEN_OFFSETS}"
        raise broken(commit, "META-9", detail)
    fault = None if commit.mirror is None else mirror_fault(None, commit, commit.protocol)
    if fault is not None:
        raise broken(commit, fault.rule, fault.detail)
    starts = [ends.get(number, 0) for number in range(count)]
    return Snapshot(
        version=commit.version,
        commit_id=commit.commit_id,
        topic_id=commit.topic_id,
        committed_at_ms=commit.committed_at_ms,
        protocol=commit.protocol,
        topic=commit.topic,
        partitions=tuple(PartitionState(log_start=start, end=start) for start in starts),
        root_version=base.root_version if base else None,
        mirror=commit.mirror,
    )


def _advanced(base: Snapshot, commit: Commit) -> Snapshot:
    return replace(
        base,
        version=commit.version,
        commit_id=commit.commit_id,
        committed_at_ms=commit.committed_at_ms,
        protocol=commit.protocol or base.protocol,
        voids=0,
        tail_bytes=base.tail_bytes + len(commit.rows or ""),
        recent=base.recent_commits.after(commit),
    )


def _check_follows(base: Snapshot, commit: Commit) -> None:
    if commit.committed_at_ms <= base.committed_at_ms:
        raise broken(commit, "COMMIT-6", "it is not later than the commit before it")
    if commit.parent is not None and commit.parent != base.commit_id:
        detail = f"its parent is {commit.parent!r}, but commit {base.commit_id!r} is before it"
        raise broken(commit, "COMMIT-10", detail)


def _check_altered(commit: Commit, base: Snapshot, info: TopicInfo) -> None:
    """Raise if the commit changes columns as no writer may, or without the feature they need."""
    if commit.topic is None and commit.protocol is None:
        return
    fault = None
    if commit.topic is not None:
        has_records = any(state.end for state in base.partitions)
        is_mirrored = commit.mirror is not None
        fault = alteration_fault(base.info, info, has_records=has_records, is_mirrored=is_mirrored)
    fault = fault or feature_fault(info, commit.protocol or base.protocol)
    if fault is not None:
        raise broken(commit, fault.rule, fault.detail)


def _check_partitions(commit: Commit, count: int) -> None:
    """Raise if the commit names a partition that does not exist [META-3]."""
    named = [
        *(segment.partition for segment in commit.add),
        *(swap.partition for swap in commit.replaced),
        *(move.partition for move in commit.log_starts),
    ]
    highest = max((*named, *commit.ends, *commit.cleaned), default=0)
    if highest >= count:
        raise broken(commit, "META-3", f"there is no partition {highest}")


def _txns_after(before: Mapping[str, TxnMark], commit: Commit) -> Mapping[str, TxnMark]:
    """The last txn of every app id after the commit [TXN-2]. A commit of a copy may carry several
    [MIR-3]."""
    if not commit.txns:
        return before
    after = dict(before)
    for txn in commit.txns:
        _check_txn(commit, txn, after.get(txn.app_id))
        after[txn.app_id] = TxnMark(txn.version, commit.version)
    return after


def _check_txn(commit: Commit, txn: Txn, last: TxnMark | None) -> None:
    """Raise if a txn is not newer than the last one of its app id [TXN-5], or names another commit
    as the one before it [TXN-1]: whoever follows `previous` must come to an end."""
    if last is not None and txn.version <= last.txn_version:
        detail = f"txn {txn.version} comes after {last.txn_version} of its app id"
        raise broken(commit, "TXN-5", detail)
    if txn.previous is not None and (last is None or txn.previous != last.commit_version):
        detail = f"the last txn of its app id is not in commit {txn.previous}"
        raise broken(commit, "TXN-1", detail)
