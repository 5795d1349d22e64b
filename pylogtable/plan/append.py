"""Placing staged segments after the end of their partitions. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from pylogtable.errors import CommitConflictError, InvalidRequestError
from pylogtable.format.model import Change, Segment, StagedSegment, Txn, TxnMark
from pylogtable.format.schema import is_keys_only
from pylogtable.format.snapshot import Snapshot


@dataclass(frozen=True, slots=True)
class Repeated:
    """This txn, or a later one of the same app id, is in the log already, at or before a commit."""

    commit_version: int


def plan_append(
    snapshot: Snapshot, staged: Sequence[StagedSegment], txn: Txn | None
) -> Change | Repeated:
    """Place `staged` at the end of its partitions, in the order given.

    An append depends on nothing in the snapshot but the end offsets and the txns, so planning it
    again on a newer one is always right [LOG-3].
    """
    mark = snapshot.txns.get(txn.app_id) if txn else None
    if txn and mark and txn.version <= mark.txn_version:
        return Repeated(mark.commit_version)
    if len({file.path for file in staged}) != len(staged):
        raise InvalidRequestError("the same staged file is given twice; each is appended once")
    ends: dict[int, int] = {}
    placed: list[Segment] = []
    for file in staged:
        snapshot.check_partition(file.partition)
        if file.null_keys and snapshot.config.is_compacted:  # [REC-4]
            raise InvalidRequestError(
                f"{file.null_keys} record(s) without a key, and the topic became compacted while "
                "they were being written; nothing was appended"
            )
        if file.keys_only and not is_keys_only(snapshot.info):
            raise InvalidRequestError(
                f"{file.records} record(s) were written before the topic had value columns, and "
                "would be tombstones now [META-4]; nothing was appended. Append them again."
            )
        base = ends.get(file.partition, snapshot.partitions[file.partition].end)
        segment = file.placed_at(base)
        ends[file.partition] = segment.end_offset
        placed.append(segment)
    if txn and mark:
        txn = msgspec.structs.replace(txn, previous=mark.commit_version)
    # One commit for all partitions: they become visible together [APPEND-3].
    return Change(operation="append", ends=ends, add=tuple(placed), txn=txn)


def plan_next(
    snapshot: Snapshot, staged: Sequence[StagedSegment], txn: Txn | None, last: TxnMark | None
) -> Change:
    """As `plan_append`, for a writer that knows its last txn to be `last`, and is alone under its
    app id: somebody else's since then fences it."""
    mark = snapshot.txns.get(txn.app_id) if txn else None
    if txn and mark != last:
        raise CommitConflictError(
            f"another producer has written with app id {txn.app_id!r}: the last txn known here is "
            f"{_shown(last)}, the log has {_shown(mark)}. This one is fenced, and nothing was "
            "appended. Run one producer per app id; open it anew to go on where the log is"
        )
    change = plan_append(snapshot, staged, txn)
    assert isinstance(change, Change)  # a txn after the last one repeats nothing
    return change


def _shown(mark: TxnMark | None) -> str:
    return "none" if mark is None else f"{mark.txn_version} in version {mark.commit_version}"
