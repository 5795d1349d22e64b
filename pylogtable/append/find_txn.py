"""Finds the append that a repeated txn repeats."""

from __future__ import annotations

from pylogtable.append.plan import ExpectedLast, Repeated, check_last
from pylogtable.errors import CorruptTopicError, InvalidRequestError
from pylogtable.format.model import Commit, MirroredTxn, Txn, TxnMark
from pylogtable.format.paths import commit_path
from pylogtable.log.commits import Commits


def first_commit(
    commits: Commits, repeated: Repeated, txn: Txn, expected_last: ExpectedLast
) -> tuple[Commit, Txn]:
    """The commit of this txn, and the txn as it has it, found by walking back over later ones
    of its app id [TXN-3]. If there is none, it was no repeat: the log may have moved on [TXN-6]."""
    last: TxnMark | None = None
    at: int | None = repeated.commit_version
    is_mirrored = False
    while at is not None:
        commit = commits.read(at)
        if commit is None:
            raise InvalidRequestError(
                f"txn {txn.version} of app id {txn.app_id!r} is not newer than its last one, "
                f"so nothing was appended. Its result is no longer known: commit {at} and "
                "those before it were removed by vacuum"
            )
        found = next((one for one in commit.txns if one.app_id == txn.app_id), None)
        if found is not None and last is None:
            last = TxnMark(found.version, at)
        if found is None or found.version < txn.version:
            break
        if found.version == txn.version:
            return commit, found
        if found.previous is not None and found.previous >= at:
            detail = f"the txn before it cannot be in commit {found.previous}"
            raise CorruptTopicError(commit_path(at), "TXN-1", detail)
        is_mirrored = is_mirrored or isinstance(found, MirroredTxn)
        at = found.previous
    if is_mirrored:
        raise InvalidRequestError(
            f"txn {txn.version} of app id {txn.app_id!r} is not newer than its last one, so "
            "nothing was appended. Its result is not known here: this topic was a copy of another "
            "one then, and a mirror brings the last txn of an app id only"
        )
    check_last(txn, last, expected_last)
    raise InvalidRequestError(
        f"txn {txn.version} of app id {txn.app_id!r} was never applied, but a later one was. "
        "Nothing was appended: another run may have appended these records under other numbers. "
        "last_txn() tells how far the app id is. Numbers of an app id must grow; "
        "expected_last lets only one of several runs go on."
    )
