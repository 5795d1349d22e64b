"""Appending: stage data files, then commit them.

A repeated txn appends nothing. A failed append removes its files. If the outcome of a commit is
unknown, the files stay, since the commit may have landed.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar

from pylogtable.append.expiry_warning import warn_of_expired
from pylogtable.append.find_txn import first_commit
from pylogtable.append.given_rows import batches_of, can_be_read_twice
from pylogtable.append.inline_rows import Spill, gathered
from pylogtable.append.plan import (
    ExpectedLast,
    Repeated,
    check_ends,
    find_live,
    find_txn,
    is_behind,
    plan_append,
    plan_fenced_append,
)
from pylogtable.append.report import AppendResult, offsets_of
from pylogtable.append.stager import Staged, Stager, discard
from pylogtable.append.txn import check_expected_last, parse_txn
from pylogtable.arguments import NOT_GIVEN, check_number
from pylogtable.errors import (
    CommitConflictError,
    CommitUnknownError,
    InvalidRequestError,
    LogTableError,
    StorageError,
)
from pylogtable.format.config import STALE_AFTER_MS
from pylogtable.format.log_state import LogState
from pylogtable.format.model import Change, Commit, MirroredTxn, StagedSegment, Txn
from pylogtable.format.snapshot import Snapshot
from pylogtable.log.topic_log import TopicLog

#: Called with the state that a commit is planned on. Raises if the data does not fit it.
CheckState = Callable[[Snapshot], None]
Result = TypeVar("Result")

_logger = logging.getLogger(__name__)
ENDED = (
    "the topic at %s was a copy of %s until this append, and is now a topic of its own: the next "
    "mirror is refused"
)


class _Altered(LogTableError):
    """The topic is not what it was when the rows were shaped."""


class Appender:
    """Appends to the topic of `log`."""

    def __init__(self, log: TopicLog) -> None:
        self._store = log.store
        self._log = log
        self._runtime = log.runtime
        self._warned_of_expired = False

    def append(
        self,
        data: Any,
        txn: tuple[str, int] | None,
        expected_last: ExpectedLast = NOT_GIVEN,
        *,
        keep_offsets: bool = False,
    ) -> AppendResult:
        began = self._runtime.monotonic()
        numbered = self._numbered(txn, None, expected_last)

        def attempt(snapshot: Snapshot, check: CheckState) -> AppendResult:
            known = find_txn(snapshot, numbered, expected_last)
            if known is not None:
                return self._repeat(known, numbered, expected_last, began)
            stager = self.begin(None, snapshot=snapshot, keep_offsets=keep_offsets)
            staged = _stage_all(stager, data)

            def commit() -> AppendResult:
                self._warn_of_expired(staged.files, stacklevel=9)
                return self._commit(staged, numbered, expected_last, began, check)

            return commit_or_discard(commit, lambda _: self.discard([staged]))

        return self.shaping(attempt, can_repeat=can_be_read_twice(data))

    def shaping(
        self, attempt: Callable[[Snapshot, CheckState], Result], *, can_repeat: bool = True
    ) -> Result:
        """Call `attempt` with the state by which it shapes its rows, and with a function that it
        calls with each state that it plans its commit on.

        If the rows can be shaped twice, the known state is used without asking for a newer one: the
        put of the commit shows whether there is one. If the topic turns out to be altered by then,
        `attempt` is called again, with the newest state [COMMIT-4].
        """
        known = self._log.recent if can_repeat else None
        if known is not None:
            shaped_by = known.info

            def check(snapshot: Snapshot) -> None:
                if snapshot.info != shaped_by:
                    raise _Altered("the topic was altered")

            try:
                return attempt(known, check)
            except _Altered:
                pass
            except InvalidRequestError:
                if self._log.latest().info == shaped_by:
                    raise
        return attempt(self._log.latest(), _accept)

    def begin(
        self,
        first_sticky: int | None,
        encoders: Executor | None = None,
        *,
        snapshot: Snapshot,
        remember_partitions: bool = False,
        temporary: bool = False,
        keep_offsets: bool = False,
    ) -> Stager:
        """A stager for rows that are shaped by `snapshot`."""
        if first_sticky is not None:
            check_number("first_sticky", first_sticky)
        return Stager(
            self._store,
            snapshot,
            self._runtime,
            first_sticky=snapshot.version if first_sticky is None else first_sticky,
            encoders=encoders,
            remember_partitions=remember_partitions,
            temporary=temporary,
            keep_offsets=keep_offsets,
        )

    def stage(
        self,
        data: Any,
        first_sticky: int | None = None,
        *,
        snapshot: Snapshot,
        temporary: bool = False,
        keep_offsets: bool = False,
    ) -> Staged:
        stager = self.begin(
            first_sticky, snapshot=snapshot, temporary=temporary, keep_offsets=keep_offsets
        )
        return _stage_all(stager, data)

    def find(
        self,
        txn: tuple[str, int],
        origin: str | None,
        expected_last: ExpectedLast,
        snapshot: Snapshot,
    ) -> AppendResult | None:
        began = self._runtime.monotonic()
        numbered = parse_txn(txn, origin)
        check_expected_last(numbered, expected_last)
        known = find_txn(snapshot, numbered, expected_last)
        return None if known is None else self._repeat(known, numbered, expected_last, began)

    def commit(
        self,
        staged: Sequence[Staged],
        txn: tuple[str, int] | None,
        origin: str | None,
        expected_last: ExpectedLast = NOT_GIVEN,
        expected_ends: Mapping[int, int] | None = None,
    ) -> AppendResult:
        began = self._runtime.monotonic()
        numbered = self._numbered(txn, origin, expected_last)
        whole = self.gathered(staged)
        given = {file.path for part in staged for file in part.files}
        written = [file for file in whole.files if file.path not in given]

        check = _accept if expected_ends is None else partial(check_ends, expected=expected_ends)

        def commit() -> AppendResult:
            self._warn_of_expired(whole.files, stacklevel=7)
            return self._commit_foreign(whole, numbered, expected_last, began, check)

        return commit_or_discard(commit, lambda _: discard(self._store, written))

    def _numbered(
        self, txn: tuple[str, int] | None, origin: str | None, expected_last: ExpectedLast
    ) -> Txn | None:
        """The txn. If the caller has seen a later one of its app id than this process has, the
        newest state is asked for, since the known one cannot tell who was here last."""
        numbered = parse_txn(txn, origin)
        check_expected_last(numbered, expected_last)
        if is_behind(self._log.known, numbered, expected_last):
            self._log.latest()
        return numbered

    def _commit_foreign(
        self,
        staged: Staged,
        txn: Txn | None,
        expected_last: ExpectedLast,
        began: float,
        check: CheckState,
    ) -> AppendResult:
        """Commit what another process may have staged."""
        if self._log.recent is None:
            self._log.latest()
        known = self._log.known
        try:
            return self._commit(staged, txn, expected_last, began, check)
        except InvalidRequestError:
            # The process that staged may have seen a newer version than this one has.
            if self._log.latest().version == known.version:
                raise
        return self._commit(staged, txn, expected_last, began, check)

    def gathered(self, staged: Sequence[Staged]) -> Staged:
        """The files of several stagings, in the order given. Their rows are put together; if they
        have become too many for a commit, files are written for them."""
        for part in _checked_staged(staged):
            if part.topic_id != self._log.known.topic_id:
                raise InvalidRequestError(
                    f"the files were staged for topic id {part.topic_id}, and this topic has the "
                    f"id {self._log.known.topic_id}: it is another topic, or was created again"
                )
        oldest = min((part.staged_at_ms for part in staged), default=self._runtime.clock())
        known = self._log.known
        spill = Spill(self._store, known, self._runtime.new_id)
        files, rows = gathered([(part.files, part.rows) for part in staged], spill)
        return Staged(files, oldest, self._log.known.topic_id, rows)

    def deliver(
        self, staged: Staged, txn: Txn | None, last: int | None, check: CheckState
    ) -> Commit:
        """Commit as the only writer of an app id. If the outcome of the commit is unknown, find it
        out first. A failure removes the files, unless the outcome stays unknown."""

        def plan(state: LogState) -> Change:
            self._check_age(staged)
            check(state.snapshot)
            return plan_fenced_append(state.snapshot, staged.files, txn, last, staged.rows)

        try:
            self._warn_of_expired(staged.files, stacklevel=2)
            while True:
                try:
                    return self._log.change(plan, refresh=False)[1]
                except CommitUnknownError as unknown:
                    landed = self._resolve(unknown)
                if landed is not None:
                    return landed
        except (LogTableError, Warning) as error:
            if not _may_have_landed(error):
                discard(self._store, staged.files)
            raise

    def _resolve(self, unknown: CommitUnknownError) -> Commit | None:
        """The commit if it landed, None if it never will [COMMIT-5]. Raises the error again if that
        stays unknown for too long."""
        for _ in self._runtime.patient_attempts():
            try:
                commits, latest = self._log.manifest.commits, self._log.latest
                if commits.find_at(unknown.commit_id, unknown.version, latest) is None:
                    return None
                return commits.read(unknown.version)
            except (StorageError, CommitUnknownError):  # noqa: PERF203 (a retry needs it)
                continue
        raise unknown

    def discard(self, staged: Iterable[Staged], *, repeats: int | None = None) -> None:
        """Remove staged files. Those that are live, or that commit `repeats` names, are kept: a
        caller may repeat a commit with the same files."""
        kept: set[str] = set()
        if repeats is not None:
            commit = self._log.manifest.commits.read(repeats)
            if commit is None:
                return
            kept = {segment.path for segment in commit.add}
        for part in _checked_staged(staged):
            unused = [file for file in part.files if file.path not in kept]
            known = self._log.known
            discard(self._store, [file for file in unused if find_live(known, file) is None])

    def _commit(
        self,
        staged: Staged,
        txn: Txn | None,
        expected_last: ExpectedLast,
        began: float,
        check: CheckState,
    ) -> AppendResult:
        if not staged.files and txn is None:
            newest = self._log.latest()
            check(newest)
            seconds = self._runtime.monotonic() - began
            return AppendResult(newest.version, {}, 0, 0, 0, seconds)

        plan = self._plan(staged, txn, expected_last, check)
        after, decided = self._log.change(plan, refresh=False)
        if isinstance(decided, Repeated):
            return self._repeat(decided, txn, expected_last, began)
        if after.mirror is not None and after.mirror.ended == decided.version:
            _logger.warning(ENDED, self._store.url, after.mirror.source)
        return self._result(decided, began)

    def _plan(
        self, staged: Staged, txn: Txn | None, expected_last: ExpectedLast, check: CheckState
    ) -> Callable[[LogState], Change | Repeated]:
        def plan(state: LogState) -> Change | Repeated:
            self._check_age(staged)
            check(state.snapshot)
            return plan_append(state.snapshot, staged.files, txn, staged.rows, expected_last)

        return plan

    def _warn_of_expired(self, files: Sequence[StagedSegment], stacklevel: int) -> None:
        """Warn, once, of records that retention would remove at once. This comes before the commit:
        a program that makes errors of warnings gets one, and nothing is appended."""
        if self._warned_of_expired:
            return
        self._warned_of_expired = warn_of_expired(
            self._store.url, self._log.known.config, files, self._runtime.clock(), stacklevel + 1
        )

    def _check_age(self, staged: Staged) -> None:
        age_ms = self._runtime.clock() - staged.staged_at_ms
        if age_ms > STALE_AFTER_MS:  # [COMMIT-8]
            raise CommitConflictError(
                f"the data files were written {age_ms // 1000} s ago, so vacuum may have removed "
                "them. Append again."
            )

    def _repeat(
        self, repeated: Repeated, txn: Txn | None, expected_last: ExpectedLast, began: float
    ) -> AppendResult:
        assert txn is not None
        commit, first = first_commit(self._log.manifest.commits, repeated, txn, expected_last)
        origin = first.origin
        if txn.origin is not None and origin is not None and origin != txn.origin:  # [TXN-4]
            raise InvalidRequestError(
                f"txn {txn.version} of app id {txn.app_id!r} was applied by {origin!r}, in commit "
                f"{commit.version} of the topic at {self._store.url}. {txn.origin!r} uses the same "
                "number for other data, so nothing was appended. Give it its own app id, or "
                "continue the run that already uses this one."
            )
        result = self._result(commit, began, repeated=True)
        if isinstance(first, MirroredTxn):  # the commit has records of other txns as well [MIR-3]
            offsets, records = dict(first.offsets), first.records
            return replace(
                result, offsets=offsets, records=records, size_bytes=0, segments=0, origin=origin
            )
        return result

    def _result(self, commit: Commit, began: float, *, repeated: bool = False) -> AppendResult:
        return AppendResult(
            version=commit.version,
            offsets=offsets_of(commit),
            records=sum(segment.records for segment in commit.add),
            size_bytes=sum(segment.size_bytes for segment in commit.add),
            segments=len(commit.add),
            seconds=self._runtime.monotonic() - began,
            repeated=repeated,
            origin=commit.txn.origin if commit.txn else None,
        )


def commit_or_discard(
    commit: Callable[[], AppendResult], discard_files: Callable[[int | None], None]
) -> AppendResult:
    """Commit, and remove the files if it is certain that no commit names them: it was never sent,
    it lost its race, or it was a repeat. `discard_files` gets the version of the commit that is
    repeated."""
    try:
        result = commit()
    except (LogTableError, Warning) as error:
        if not _may_have_landed(error):
            discard_files(None)
        raise
    if result.repeated:
        discard_files(result.version)
    return result


def _may_have_landed(error: Exception) -> bool:
    return isinstance(error, LogTableError) and error.may_have_landed


def _checked_staged(staged: Iterable[Staged]) -> list[Staged]:
    parts = list(staged) if isinstance(staged, Iterable) else None
    if parts is None or not all(isinstance(part, Staged) for part in parts):
        raise InvalidRequestError(
            f"`staged` must be a list of what stage() returned, not {type(staged).__name__}"
        )
    return parts


def _accept(snapshot: Snapshot) -> None:
    """Every state will do."""


def _stage_all(stager: Stager, data: Any) -> Staged:
    with stager:
        for batch in batches_of(data):
            stager.add(batch)
        return stager.finish()
