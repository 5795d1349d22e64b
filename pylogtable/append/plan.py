"""Plans to append: staged files are placed at the end of their partitions. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import msgspec

from pylogtable.append.explicit_offsets import check_not_below_end
from pylogtable.arguments import NOT_GIVEN, NotGiven
from pylogtable.errors import CommitConflictError, InvalidRequestError, SchemaMismatchError
from pylogtable.format.guard_rules import check_app_may_append
from pylogtable.format.inline import to_text
from pylogtable.format.mirror_rules import check_may_append
from pylogtable.format.model import (
    GIVEN_OFFSETS,
    INLINE_BATCHES,
    Change,
    Field,
    Protocol,
    Segment,
    StagedSegment,
    Txn,
    TxnMark,
)
from pylogtable.format.paths import commit_path
from pylogtable.format.schema import is_keys_only
from pylogtable.format.segment_checks import floor_fault
from pylogtable.format.snapshot import Snapshot

#: The txn version that a writer knows as the last one of its app id; None: there was none.
ExpectedLast = int | None | NotGiven


@dataclass(frozen=True, slots=True)
class Repeated:
    """The log already has this txn, or a later one of the same app id. The newest of them is in
    commit `commit_version`."""

    commit_version: int


def find_txn(
    snapshot: Snapshot, txn: Txn | None, expected_last: ExpectedLast = NOT_GIVEN
) -> Repeated | None:
    """The repeat, if the log already has this txn. None for a new txn, or without a txn [TXN-2].

    A new txn is refused if another one than `expected_last` is the last of its app id [TXN-6]. A
    repeat never is: whoever did not learn the outcome of an append makes the same call again, and
    by then its own txn is the last.
    """
    if txn is None:
        return None
    mark = snapshot.txns.get(txn.app_id)
    if mark and txn.version <= mark.txn_version:
        return Repeated(mark.commit_version)
    check_last(txn, mark, expected_last)
    return None


def check_last(txn: Txn, mark: TxnMark | None, expected_last: ExpectedLast) -> None:
    """Raise if `mark`, the last txn of the app id, is not the one that the caller expects [TXN-6].
    Then another writer has appended, or the put of an earlier run has arrived late."""
    if _is_expected(mark, expected_last):
        return
    why = "another append has landed since, perhaps a late one of an earlier run"
    if mark is None or (isinstance(expected_last, int) and mark.txn_version < expected_last):
        why = "this log has no such txn"
    raise CommitConflictError(
        f"the last txn of app id {txn.app_id!r} is {_shown(mark)}, and expected_last is "
        f"{expected_last}: {why}. Nothing was appended. Call last_txn({txn.app_id!r}) again, "
        "decide by it what is still missing, and append that"
    )


def _is_expected(mark: TxnMark | None, expected_last: ExpectedLast) -> bool:
    """Txn versions grow, so one that is the last twice was the last all the time [TXN-5]."""
    return expected_last in (NOT_GIVEN, None if mark is None else mark.txn_version)


def is_behind(snapshot: Snapshot, txn: Txn | None, expected_last: ExpectedLast) -> bool:
    """True if the caller has seen a later txn than this state has. Then there is a newer state, and
    only that one can tell whether another writer was here."""
    if txn is None or not isinstance(expected_last, int):
        return False
    mark = snapshot.txns.get(txn.app_id)
    return mark is None or mark.txn_version < expected_last


def plan_append(
    snapshot: Snapshot,
    staged: Sequence[StagedSegment],
    txn: Txn | None,
    rows: bytes | None = None,
    expected_last: ExpectedLast = NOT_GIVEN,
) -> Change | Repeated:
    """Place `staged` at the end of its partitions, in the order given, or in the order of their
    offsets if records came with them. `rows` are the packed records of those that have no file:
    they go into the commit [INL-1].

    An append depends only on the end offsets and the txns of the snapshot, so it can always be
    planned again on a newer one [LOG-3]. Given offsets cannot move: if the end has passed them,
    the append fails [APPEND-5].
    """
    repeated = find_txn(snapshot, txn, expected_last)
    if repeated is not None:
        return repeated
    check_may_append(snapshot.mirror)
    check_app_may_append(snapshot.info, None if txn is None else txn.app_id)  # [GUARD-2]
    paths = [file.path for file in staged if not file.is_inline]
    if len(set(paths)) != len(paths):
        raise InvalidRequestError("the same staged file is given twice; give each file once")
    for file in staged:
        found = find_live(snapshot, file)
        if found is not None:
            raise InvalidRequestError(
                f"{file.path} has been committed already, as offsets [{found.base_offset}, "
                f"{found.end_offset}) of partition {file.partition}; nothing was appended. Commit "
                "staged files once, or give a txn, so that a repeat is recognised"
            )
    ends: dict[int, int] = {}
    placed: list[Segment] = []
    here = commit_path(snapshot.version + 1)
    for file in in_given_order(staged):
        snapshot.check_partition(file.partition)
        if file.null_keys and snapshot.config.is_compacted:  # [REC-4]
            raise InvalidRequestError(
                f"{file.null_keys} record(s) have no key, and the topic became compacted while "
                "they were being written; nothing was appended"
            )
        if file.keys_only and not is_keys_only(snapshot.info):
            raise InvalidRequestError(
                f"{file.records} record(s) were written before the topic had value columns, and "
                "would be tombstones now [META-4]; nothing was appended. Append them again."
            )
        base = ends.get(file.partition, snapshot.partitions[file.partition].end)
        if file.given_end is not None:
            check_place(file, base, is_first=file.partition not in ends)
        segment = file.placed_at(base, here)
        ends[file.partition] = segment.end_offset
        placed.append(segment)
    # One commit for all partitions: they become visible together [APPEND-3].
    return Change(
        operation="append",
        protocol=_needed_protocol(snapshot.protocol, placed, has_rows=rows is not None),
        ends=ends,
        add=tuple(placed),
        txn=following(snapshot, txn),
        rows=None if rows is None else to_text(rows),
    )


def following(snapshot: Snapshot, txn: Txn | None) -> Txn | None:
    """The txn with the commit of the one before it [TXN-1]."""
    mark = snapshot.txns.get(txn.app_id) if txn else None
    return msgspec.structs.replace(txn, previous=mark.commit_version) if txn and mark else txn


def check_columns_stay(snapshot: Snapshot, planned: Sequence[Field]) -> None:
    """Raise if the topic no longer has a column that rows were shaped for: their values would be
    lost without a word. A renamed column is the same one [META-6]."""
    ids = {column.id for column in snapshot.info.fields}
    gone = [column.name for column in planned if column.id not in ids]
    if gone:
        raise SchemaMismatchError(
            f"column(s) {', '.join(map(repr, gone))} of the topic were dropped while this append "
            "was under way. Nothing was appended; append again, with the columns that it has now"
        )


def check_ends(snapshot: Snapshot, expected: Mapping[int, int]) -> None:
    """Raise if a partition does not end where a writer that wants to be the only one knows it to
    end. Partitions that it does not know have no records yet."""
    for number, end in snapshot.end_offsets.items():
        known = expected.get(number, 0)
        if end != known:
            raise CommitConflictError(
                f"another writer was here: partition {number} ends at offset {end}, and not at "
                f"{known}. Nothing was appended"
            )


def in_given_order(staged: Sequence[StagedSegment]) -> Sequence[StagedSegment]:
    """The files by partition and offset, if all their records came with offsets. Tasks of an engine
    may have written them in another order."""
    if any(file.given_end is None for file in staged):
        return staged
    return sorted(staged, key=lambda file: (file.partition, file.first_offset))


def check_place(file: StagedSegment, base: int, *, is_first: bool) -> None:
    """Raise if a file with given offsets cannot begin at `base` [APPEND-5]."""
    if is_first:
        check_not_below_end(file.partition, file.first_offset, base)
    elif file.first_offset < base:
        raise InvalidRequestError(
            f"partition {file.partition}: rows up to offset {base - 1} and rows from offset "
            f"{file.first_offset} on come from two tasks, and overlap. With keep_offsets each task "
            "needs a range of offsets of its own: repartition the rows by partition, sort them by "
            "partition and offset, and leave out rows that come twice. Nothing was appended"
        )


def _needed_protocol(
    protocol: Protocol, placed: Sequence[Segment], *, has_rows: bool
) -> Protocol | None:
    """The protocol with the features that these segments need; None if it stays as it is. Segments
    without holes, named after their first offset, are like any others [LOG-11]."""
    needed = protocol
    if has_rows:
        needed = needed.with_feature(INLINE_BATCHES) or needed
    if not all(s.is_dense and floor_fault(s, is_appended=True) is None for s in placed):
        needed = needed.with_feature(GIVEN_OFFSETS) or needed
    return None if needed is protocol else needed


def find_live(snapshot: Snapshot, file: StagedSegment) -> Segment | None:
    """The live segment of this file, if it has been committed already [SEG-1]. Entries in leaves
    are not looked at, and a file that was replaced is not known any more."""
    if file.partition >= len(snapshot.partitions):
        return None
    for tile in reversed(snapshot.partitions[file.partition].tiles):
        if not isinstance(tile, Segment):
            return None
        if tile.path == file.path:
            return tile
    return None


def plan_fenced_append(
    snapshot: Snapshot,
    staged: Sequence[StagedSegment],
    txn: Txn | None,
    last: int | None,
    rows: bytes | None = None,
) -> Change:
    """Like `plan_append`, for the only producer of an app id. `last` is the last txn it knows. If
    the log has a different last txn, another producer used the app id, and this one is fenced.

    This comes before the look for a repeat: the txn of a producer is a number of records, and
    another one that is as far has sent other records. A producer learns the outcome of one commit
    before it tries the next, so it repeats none.
    """
    mark = snapshot.txns.get(txn.app_id) if txn else None
    if txn and not _is_expected(mark, last):
        known = "none" if last is None else last
        raise CommitConflictError(
            f"another producer or sink has written with app id {txn.app_id!r}: the last txn known "
            f"here is {known}, the log has {_shown(mark)}. This one is fenced, and nothing was "
            "appended. Run one of them per app id; open a new one to continue after the log's txn"
        )
    change = plan_append(snapshot, staged, txn, rows)
    assert isinstance(change, Change)  # it is after the last txn, so it cannot be a repeat
    return change


def _shown(mark: TxnMark | None) -> str:
    return "none" if mark is None else f"{mark.txn_version} in version {mark.commit_version}"
