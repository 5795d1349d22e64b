"""Reads the txns of a source that its copy does not have [MIR-3]."""

from __future__ import annotations

from collections.abc import Iterator

from pylogtable.append.report import offsets_of
from pylogtable.format.model import Commit, MirroredTxn, TxnMark
from pylogtable.format.snapshot import Snapshot
from pylogtable.log.commits import Commits


def new_txns(source: Snapshot, commits: Commits, copy: Snapshot) -> Iterator[MirroredTxn]:
    """The last txn of every application that the copy does not have, with its offsets."""
    for app_id, mark in sorted(source.txns.items()):
        known = copy.txns.get(app_id)
        if known is None or known.txn_version < mark.txn_version:
            yield _carried(app_id, mark, commits.read(mark.commit_version))


def _carried(app_id: str, mark: TxnMark, commit: Commit | None) -> MirroredTxn:
    carried = () if commit is None else commit.txns
    found = next((txn for txn in carried if txn.app_id == app_id), None)
    if commit is None or found is None:
        # Its offsets are lost, but a repeat must not append its records once more.
        return MirroredTxn(app_id=app_id, version=mark.txn_version)
    if isinstance(found, MirroredTxn):
        return found
    return MirroredTxn(
        app_id=app_id,
        version=found.version,
        origin=found.origin,
        offsets=offsets_of(commit),
        records=sum(segment.records for segment in commit.add),
    )
