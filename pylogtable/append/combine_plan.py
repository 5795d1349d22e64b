"""Plans a commit that carries the appends of several writers. Pure.

An offer is taken along only if it is certain that it has not landed yet, and that the topic is what
its writer took it for. Whatever is wrong with one offer, the others land without it [OFFER-6].
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import msgspec

from pylogtable.append.plan import ExpectedLast, find_txn, following, plan_append
from pylogtable.arguments import NOT_GIVEN
from pylogtable.errors import CommitConflictError, CorruptTopicError, LogTableError
from pylogtable.format.config import STALE_AFTER_MS
from pylogtable.format.guard_rules import guard_of
from pylogtable.format.inline import from_text, to_text
from pylogtable.format.inline_parts import Part, check_parts, repacked, unpack_parts
from pylogtable.format.json_codec import decode_commit, encode
from pylogtable.format.model import (
    MAX_ROWS_BYTES,
    Change,
    CombinedAppend,
    Commit,
    StagedSegment,
    Txn,
)
from pylogtable.format.offers import Fate, Offer, fate_of
from pylogtable.format.paths import offer_path
from pylogtable.format.snapshot import Snapshot, apply
from pylogtable.limits import Limits


@dataclass(frozen=True)
class OneAppend:
    """What one writer wants to append: staged files, and packed rows for those that have none.
    `offer` is the name of its offer, if it has made one."""

    files: tuple[StagedSegment, ...]
    rows: bytes | None
    txn: Txn | None
    expected_last: ExpectedLast
    staged_at_ms: int
    offer: str | None = None

    @property
    def records(self) -> int:
        return sum(file.records for file in self.files)

    @cached_property
    def parts(self) -> list[Part]:
        """Its rows, as far as they are in no file."""
        return [] if self.rows is None else unpack_parts(self.files, self.rows)


def may_be_offered(append: OneAppend) -> bool:
    """Given offsets cannot move, so that nobody else can place them [OFFER-2]."""
    return all(file.given_end is None for file in append.files)


def offer_of(append: OneAppend, snapshot: Snapshot, offer_id: str) -> Offer:
    """The offer of an append that may be committed on this state [OFFER-2]. What only guards
    against an altered topic is left out: then the offer is void."""
    files = (msgspec.structs.replace(one, null_keys=0, keys_only=False) for one in append.files)
    last = append.expected_last
    return Offer(
        topic_id=snapshot.topic_id,
        seen=snapshot.version,
        id=offer_id,
        staged_at_ms=append.staged_at_ms,
        add=tuple(files),
        rows=None if append.rows is None else to_text(append.rows),
        txn=append.txn,
        expected_last=msgspec.UNSET if last is NOT_GIVEN else last,
    )


def append_in(offer: Offer, snapshot: Snapshot) -> OneAppend:
    """The append of somebody else's offer. Raises `CorruptTopicError` if it is for another topic,
    or if its rows are damaged or not what it says [OFFER-6]."""
    path = offer_path(offer.name)
    if offer.topic_id != snapshot.topic_id:
        raise CorruptTopicError(path, "OFFER-6", f"it is for topic id {offer.topic_id}")
    last = offer.expected_last
    append = OneAppend(
        files=offer.add,
        rows=None if offer.rows is None else from_text(offer.rows, path),
        txn=offer.txn,
        expected_last=NOT_GIVEN if isinstance(last, msgspec.UnsetType) else last,
        staged_at_ms=offer.staged_at_ms,
        offer=offer.name,
    )
    if append.rows is not None:
        check_parts(append.parts, snapshot.info, path)
    return append


def may_be_taken(snapshot: Snapshot, append: OneAppend, now_ms: int) -> bool:
    """True if a commit on this state may take along the append of an offer: it has not landed and
    is not void [OFFER-3], its txn is new [OFFER-5], its data is not too old [COMMIT-8], and the
    topic is no guarded copy."""
    assert append.offer is not None
    is_open = fate_of(append.offer, snapshot.version, snapshot.recent_commits) is Fate.OPEN
    is_young = now_ms - append.staged_at_ms <= STALE_AFTER_MS
    is_guarded = guard_of(snapshot.info) is not None  # [GUARD-2]
    return is_open and is_young and not is_guarded and is_new(snapshot, append)


def is_new(snapshot: Snapshot, append: OneAppend) -> bool:
    """True if the txn has not been applied, and is expected next [OFFER-5]. Once this is false it
    stays so: txns of an app id only grow."""
    try:
        return find_txn(snapshot, append.txn, append.expected_last) is None
    except CommitConflictError:
        return False


def plan_combined(
    snapshot: Snapshot, own: OneAppend, others: Sequence[OneAppend], limits: Limits
) -> Change:
    """The commit of an append that may be committed, and of as many others that may be taken along
    as go with it: the oldest first. They come in the order of their offers; an append without one
    comes last [OFFER-4]."""
    taken = _chosen(own, others, limits)
    while True:
        change = _planned(snapshot, [*taken, own])
        if change is not None:
            return change
        assert taken  # the rows of one append always fit
        taken = taken[: len(taken) // 2]


def fits(snapshot: Snapshot, one: OneAppend) -> bool:
    """True if this append could be committed alone. Somebody else has planned it, and a commit that
    breaks a rule breaks the topic [OFFER-6]."""
    try:
        change = _planned(snapshot, [one])
        assert change is not None
        commit = Commit(
            **msgspec.structs.asdict(change),
            version=snapshot.version + 1,
            commit_id="trial",
            topic_id=snapshot.topic_id,
            committed_at_ms=snapshot.committed_at_ms + 1,
        )
        apply(snapshot, decode_commit(encode(commit), commit.version))
    except LogTableError:
        return False
    return True


def _chosen(own: OneAppend, others: Sequence[OneAppend], limits: Limits) -> list[OneAppend]:
    """The oldest of the others, as many as a commit may hold: one for each app id, and one for each
    file. One that is too large is left to its own writer, and keeps nobody behind it."""
    apps = {own.txn.app_id} if own.txn is not None else set()
    paths = _paths(own)
    entries, rows = len(own.files), len(own.rows or b"")
    chosen: list[OneAppend] = []
    for one in sorted(others, key=lambda other: other.offer or ""):
        is_large = (
            entries + len(one.files) > limits.combined_entries
            or rows + len(one.rows or b"") > limits.combined_bytes
        )
        has_twin = not paths.isdisjoint(_paths(one))
        if is_large or has_twin or (one.txn is not None and one.txn.app_id in apps):
            continue
        entries, rows = entries + len(one.files), rows + len(one.rows or b"")
        paths |= _paths(one)
        chosen.append(one)
        if one.txn is not None:
            apps.add(one.txn.app_id)
    return chosen


def _paths(one: OneAppend) -> set[str]:
    return {file.path for file in one.files if not file.is_inline}


def _planned(snapshot: Snapshot, appends: list[OneAppend]) -> Change | None:
    """The commit of all of these, None if their rows are too large together."""
    appends = sorted(appends, key=lambda one: (one.offer is None, one.offer or ""))
    first = appends[0]
    if len(appends) == 1 and first.offer is None:
        change = plan_append(snapshot, first.files, first.txn, first.rows, first.expected_last)
        assert isinstance(change, Change)  # its txn is new
        return change
    files = tuple(file for one in appends for file in one.files)
    with_rows = [one for one in appends if one.rows is not None]
    rows = with_rows[0].rows if len(with_rows) == 1 else None
    if len(with_rows) > 1:
        parts = [part for one in with_rows for part in one.parts]
        packed = repacked(files, parts, MAX_ROWS_BYTES)
        if packed is None:
            return None
        files, rows = packed
    change = plan_append(snapshot, files, None, rows)
    assert isinstance(change, Change)
    return msgspec.structs.replace(change, appends=_entries(snapshot, appends))


def _entries(snapshot: Snapshot, appends: Sequence[OneAppend]) -> tuple[CombinedAppend, ...]:
    """What the commit says of each append: its records follow those of the one before it."""
    ends = snapshot.end_offsets
    found = []
    for one in appends:
        counts = Counter[int]()
        for file in one.files:
            counts[file.partition] += file.records
        offsets = {}
        for number, count in sorted(counts.items()):
            offsets[number] = (ends[number], ends[number] + count)
            ends[number] += count
        found.append(
            CombinedAppend(
                offer=one.offer,
                txn=following(snapshot, one.txn),
                offsets=offsets,
                records=one.records,
            )
        )
    return tuple(found)
