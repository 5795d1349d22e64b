"""The txn of an append: checked, in its stored form; and the append that a repeat repeats."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

from pylogtable.append.plan import ExpectedLast, Repeated, check_last
from pylogtable.append.report import LastTxn, placed_by
from pylogtable.arguments import NOT_GIVEN, check_number
from pylogtable.errors import CorruptTopicError, InvalidRequestError
from pylogtable.format.json_codec import check_app_id, check_origin, stored_note
from pylogtable.format.model import Commit, MirroredTxn, Txn, TxnMark
from pylogtable.format.paths import commit_path
from pylogtable.format.snapshot import Snapshot
from pylogtable.log.commits import Commits


def parse_txn(
    txn: tuple[str, int] | None, origin: str | None = None, note: Any = None
) -> Txn | None:
    if txn is None:
        if origin is not None:
            raise InvalidRequestError(
                f"origin {origin!r} is given without a txn; give both or neither"
            )
        if note is not None:
            raise InvalidRequestError(
                f"the note {note!r:.80} is given without a txn: it is kept with the last txn of an "
                "app id; give txn=(app_id, version) too"
            )
        return None
    if origin is not None:
        check_origin(origin)
    match txn:
        case (str(app_id), int(version)) if (
            app_id and not isinstance(version, bool) and 0 <= version < 2**63
        ):
            check_app_id(app_id)
            return Txn(app_id=app_id, version=version, origin=origin, note=stored_note(note))
    raise InvalidRequestError(f"txn must be (app_id, version from 0 to 2**63 - 1), not {txn!r}")


def check_expected_last(txn: Txn | None, expected_last: ExpectedLast) -> None:
    """Raise if `expected_last` is not the version of a txn, or None, or comes without a txn."""
    if expected_last is NOT_GIVEN:
        return
    if txn is None:
        raise InvalidRequestError(
            f"expected_last={expected_last!r} is given without a txn: it is the last txn of an app "
            "id; give txn=(app_id, version) too"
        )
    if expected_last is not None:
        check_number("expected_last", expected_last)


def last_txn(snapshot: Snapshot, commits: Commits, app_id: str) -> LastTxn | None:
    """The last txn of an app id, from the commit that carried it: a vacuum keeps it [VAC-1]."""
    mark = snapshot.txns.get(app_id)
    if mark is None:
        return None
    commit = commits.read(mark.commit_version)
    found = None if commit is None else carried_by(commit, app_id)
    if found is None:
        detail = f"it carried the last txn of app id {app_id!r}, and is missing or another one"
        raise CorruptTopicError(commit_path(mark.commit_version), "TXN-2", detail)
    return found


def carried_by(commit: Commit, app_id: str) -> LastTxn | None:
    """The txn of an app id that a commit carries."""
    txn = _txn_of(commit, app_id)
    if txn is None:
        return None
    # The commit may be cached, and the note belongs to the caller.
    return LastTxn(txn.version, deepcopy(txn.note), commit.version, *placed_by(commit, txn))


def _txn_of(commit: Commit, app_id: str) -> Txn | None:
    return next((txn for txn in commit.txns if txn.app_id == app_id), None)


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
        found = _txn_of(commit, txn.app_id)
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
