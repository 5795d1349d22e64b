"""The commit of an append: staged files become visible, or are removed.

A repeated txn appends nothing. A failed append removes its files. If the outcome of a commit is
unknown, the files stay, since the commit may have landed.
"""

from __future__ import annotations

import logging
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import msgspec

from pylogtable.append.combine_plan import OneAppend
from pylogtable.append.combiner import Combiner, Landed, landed_in
from pylogtable.append.inline_rows import Spill, gathered
from pylogtable.append.plan import (
    ExpectedLast,
    Repeated,
    find_live,
    find_txn,
    is_behind,
    plan_append,
    plan_fenced_append,
)
from pylogtable.append.report import AppendResult, offsets_of, placed_by
from pylogtable.append.stager import Staged, discard
from pylogtable.append.txn import check_expected_last, first_commit, parse_txn
from pylogtable.arguments import NOT_GIVEN
from pylogtable.errors import (
    CommitConflictError,
    CommitUnknownError,
    InvalidRequestError,
    LogTableError,
    StorageError,
)
from pylogtable.format.config import STALE_AFTER_MS, TopicConfig
from pylogtable.format.log_state import LogState
from pylogtable.format.model import Change, Commit, MirroredTxn, StagedSegment, Txn
from pylogtable.format.paths import seen_in
from pylogtable.format.snapshot import Snapshot
from pylogtable.jobs.retention_plan import expired_on_arrival
from pylogtable.log.commit_events import place_of
from pylogtable.log.topic_log import TopicLog
from pylogtable.tracing import span

#: Called with the state that a commit is planned on. Raises if the data does not fit it.
CheckState = Callable[[Snapshot], None]

_logger = logging.getLogger(__name__)
ENDED = (
    "the topic at %s was a copy of %s until this append, and is now a topic of its own: the next "
    "mirror is refused"
)


def accept(snapshot: Snapshot) -> None:
    """Every state will do."""


@dataclass(frozen=True)
class Terms:
    """Under which terms an append may be committed. `began` is when it began. An append that is
    `alone` must not be committed by other writers: its check is about more than columns."""

    txn: Txn | None
    expected_last: ExpectedLast
    check: CheckState
    began: float
    alone: bool = False
    summary: Mapping[str, int] = field(default_factory=dict)


class Committer:
    """Commits what was staged for the topic of `log`."""

    def __init__(self, log: TopicLog) -> None:
        self.log = log
        self.store = log.store
        self._runtime = log.runtime
        self._combiner = Combiner(log)
        self._warned_of_expired = False

    def terms(
        self,
        txn: tuple[str, int] | None,
        origin: str | None = None,
        expected_last: ExpectedLast = NOT_GIVEN,
        check: CheckState = accept,
        note: Any = None,
        *,
        alone: bool = False,
    ) -> Terms:
        """The terms, checked. If the caller has seen a later txn of its app id than this process
        has, the newest state is asked for, since the known one cannot tell who was here last."""
        began = self._runtime.monotonic()
        numbered = parse_txn(txn, origin, note)
        check_expected_last(numbered, expected_last)
        if is_behind(self.log.known, numbered, expected_last):
            self.log.latest()
        return Terms(numbered, expected_last, check, began, alone)

    def find(self, terms: Terms) -> AppendResult | None:
        """The result of the append that this one repeats, if the known state has it."""
        known = find_txn(self.log.known, terms.txn, terms.expected_last)
        return None if known is None else self._repeat(known, terms)

    def commit(self, staged: Staged, terms: Terms) -> AppendResult:
        """Commit what this process has staged. What cannot be named by a commit is removed."""
        with self._discarding(list(staged.files)):
            self._warn_of_expired(staged.files)
            result = self._commit(staged, terms)
        if result.repeated:
            self._discard_files(staged.files, repeats=result.version)
        return result

    def commit_all(
        self,
        staged: Sequence[Staged],
        txn: tuple[str, int] | None,
        origin: str | None,
        expected_last: ExpectedLast,
        check: CheckState,
        *,
        note: Any,
        keep_files: bool,
        alone: bool,
        summary: Mapping[str, int],
    ) -> AppendResult:
        """Commit what other processes may have staged. With `keep_files`, only files that are
        written here for their rows are removed if that fails. With `alone`, no other writer may
        commit them, and the commit has the `summary`."""
        parts = _checked_staged(staged)
        given = [file for part in parts for file in part.files]
        unused = [] if keep_files else list(given)
        topic = place_of(self.store.url)["topic"]
        with span("append", topic=topic, does="send") as describe, self._discarding(unused):
            terms = self.terms(txn, origin, expected_last, check, note, alone=alone)
            terms = replace(terms, summary=summary)
            whole = self.gathered(parts)
            paths = {file.path for file in given}
            unused += [file for file in whole.files if file.path not in paths]
            self._warn_of_expired(whole.files)
            result = self._commit_foreign(whole, terms)
            describe(version=result.version, records=result.records)
        if result.repeated:
            self._discard_files(unused, repeats=result.version)
        return result

    def _commit_foreign(self, staged: Staged, terms: Terms) -> AppendResult:
        if self.log.recent is None:
            self.log.latest()
        known = self.log.known
        try:
            return self._commit(staged, terms)
        except InvalidRequestError:
            # The process that staged may have seen a newer version than this one has.
            if self.log.latest().version == known.version:
                raise
        return self._commit(staged, terms)

    def gathered(self, staged: Sequence[Staged]) -> Staged:
        """The files of several stagings, in the order given. Their rows are put together; if they
        have become too many for a commit, files are written for them."""
        known = self.log.known
        for part in _checked_staged(staged):
            if part.topic_id != known.topic_id:
                raise InvalidRequestError(
                    f"the files were staged for topic id {part.topic_id}, and this topic has the "
                    f"id {known.topic_id}: it is another topic, or was created again"
                )
        oldest = min((part.staged_at_ms for part in staged), default=self._runtime.clock())
        spill = Spill(self.store, known, self._runtime.new_id)
        files, rows = gathered([(part.files, part.rows) for part in staged], spill)
        return Staged(files, oldest, known.topic_id, rows)

    def deliver(
        self, staged: Staged, txn: Txn | None, last: int | None, check: CheckState
    ) -> Landed:
        """Commit as the only writer of an app id. If the outcome of the commit is unknown, find it
        out first. A failure removes the files, unless the outcome stays unknown."""

        def plan(state: LogState) -> Change:
            self._check_age(staged)
            check(state.snapshot)
            return plan_fenced_append(state.snapshot, staged.files, txn, last, staged.rows)

        expected = NOT_GIVEN if txn is None else last
        own = OneAppend(staged.files, staged.rows, txn, expected, staged.staged_at_ms)
        with self._discarding(list(staged.files)):
            self._warn_of_expired(staged.files)
            again: Iterator[None] | None = None
            while True:
                try:
                    landed = self._combiner.land(own, plan)
                except CommitUnknownError as error:
                    unknown = error
                else:
                    assert isinstance(landed, Landed)  # a fenced append is no repeat
                    return landed
                if seen_in(unknown.commit_id) is not None:  # an offer, which is waited for again
                    again = again or self._runtime.patient_attempts()
                    if next(again, unknown) is unknown:
                        raise unknown
                    own = replace(own, offer=unknown.commit_id)
                    continue
                found = self._resolve(unknown)
                if found is not None:
                    return landed_in(found, None, self.log.known)

    def _resolve(self, unknown: CommitUnknownError) -> Commit | None:
        """The commit if it landed, None if it never will [COMMIT-5]. Raises the error again if that
        stays unknown for too long."""
        for _ in self._runtime.patient_attempts():
            try:
                commits, latest = self.log.manifest.commits, self.log.latest
                if commits.find_at(unknown.commit_id, unknown.version, latest) is None:
                    return None
                return commits.read(unknown.version)
            except (StorageError, CommitUnknownError):  # noqa: PERF203 (a retry needs it)
                continue
        raise unknown

    def discard(self, staged: Iterable[Staged]) -> None:
        """Remove staged files, except those that are live."""
        self._discard_files([file for part in _checked_staged(staged) for file in part.files])

    def _discard_files(self, files: Iterable[StagedSegment], *, repeats: int | None = None) -> None:
        """Files that are live, or that commit `repeats` names, are kept: a caller may repeat a
        commit with the same files."""
        kept: set[str] = set()
        if repeats is not None:
            commit = self.log.manifest.commits.read(repeats)
            if commit is None:
                return
            kept = {segment.path for segment in commit.add}
        known = self.log.known
        unused = [file for file in files if file.path not in kept]
        discard(self.store, [file for file in unused if find_live(known, file) is None])

    @contextmanager
    def _discarding(self, files: list[StagedSegment]) -> Iterator[None]:
        """Remove these files if the body fails and it is certain that no commit names them: it was
        never sent, or it lost its race."""
        try:
            yield
        except (LogTableError, Warning) as error:
            if not (isinstance(error, LogTableError) and error.may_have_landed):
                self._discard_files(files)
            raise

    def _commit(self, staged: Staged, terms: Terms) -> AppendResult:
        if not staged.files and terms.txn is None:
            newest = self.log.latest()
            terms.check(newest)
            seconds = self._runtime.monotonic() - terms.began
            return AppendResult(newest.version, {}, 0, 0, 0, seconds)

        own = OneAppend(
            staged.files, staged.rows, terms.txn, terms.expected_last, staged.staged_at_ms
        )
        plan = self._plan(staged, terms)
        landed = self._combiner.land(own, plan, may_wait=not terms.alone)
        if isinstance(landed, Repeated):
            return self._repeat(landed, terms)
        mirror = landed.state.mirror
        if mirror is not None and mirror.ended == landed.version:
            _logger.warning(ENDED, self.store.url, mirror.source)
        return AppendResult(
            version=landed.version,
            offsets=landed.append.offsets,
            records=landed.append.records,
            size_bytes=sum(file.size_bytes for file in staged.files),
            segments=len(staged.files),
            seconds=self._runtime.monotonic() - terms.began,
            origin=terms.txn.origin if terms.txn else None,
        )

    def _plan(self, staged: Staged, terms: Terms) -> Callable[[LogState], Change | Repeated]:
        def plan(state: LogState) -> Change | Repeated:
            self._check_age(staged)
            # A repeat is recognised first, whatever has happened to the topic since [TXN-3].
            if find_txn(state.snapshot, terms.txn, terms.expected_last) is None:
                terms.check(state.snapshot)
            planned = plan_append(
                state.snapshot, staged.files, terms.txn, staged.rows, terms.expected_last
            )
            if isinstance(planned, Repeated) or not terms.summary:
                return planned
            return msgspec.structs.replace(planned, summary=dict(terms.summary))

        return plan

    def _warn_of_expired(self, files: Sequence[StagedSegment]) -> None:
        """Warn, once, of records that retention would remove at once. This comes before the commit:
        a program that makes errors of warnings gets one, and nothing is appended."""
        if not self._warned_of_expired:
            config, now_ms = self.log.known.config, self._runtime.clock()
            self._warned_of_expired = warn_of_expired(self.store.url, config, files, now_ms)

    def _check_age(self, staged: Staged) -> None:
        age_ms = self._runtime.clock() - staged.staged_at_ms
        if age_ms > STALE_AFTER_MS:  # [COMMIT-8]
            raise CommitConflictError(
                f"the data files were written {age_ms // 1000} s ago, so vacuum may have removed "
                "them. Append again."
            )

    def _repeat(self, repeated: Repeated, terms: Terms) -> AppendResult:
        txn = terms.txn
        assert txn is not None
        commits = self.log.manifest.commits
        commit, first = first_commit(commits, repeated, txn, terms.expected_last)
        origin = first.origin
        if txn.origin is not None and origin is not None and origin != txn.origin:  # [TXN-4]
            raise InvalidRequestError(
                f"txn {txn.version} of app id {txn.app_id!r} was applied by {origin!r}, in commit "
                f"{commit.version} of the topic at {self.store.url}. {txn.origin!r} uses the same "
                "number for other data, so nothing was appended. Give it its own app id, or "
                "continue the run that already uses this one."
            )
        seconds = self._runtime.monotonic() - terms.began
        if commit.appends or isinstance(first, MirroredTxn):
            # The commit has records of other appends as well [OFFER-4], [MIR-3].
            offsets, records = placed_by(commit, first)
            return AppendResult(
                commit.version, offsets, records, 0, 0, seconds, repeated=True, origin=origin
            )
        return AppendResult(
            version=commit.version,
            offsets=offsets_of(commit),
            records=sum(segment.records for segment in commit.add),
            size_bytes=sum(segment.size_bytes for segment in commit.add),
            segments=len(commit.add),
            seconds=seconds,
            repeated=True,
            origin=origin,
        )


def _checked_staged(staged: Iterable[Staged]) -> list[Staged]:
    parts = list(staged) if isinstance(staged, Iterable) else None
    if parts is None or not all(isinstance(part, Staged) for part in parts):
        raise InvalidRequestError(
            f"`staged` must be a list of what stage() returned, not {type(staged).__name__}"
        )
    return parts


def warn_of_expired(
    url: str, config: TopicConfig, files: Sequence[StagedSegment], now_ms: int
) -> bool:
    """Warn if these files have expired records; true if that was done."""
    old = expired_on_arrival(config, files, now_ms)
    if old is None:
        return False
    records = sum(file.records for file in files)
    many = f"{old.records:,}" if old.records else "some"
    then = (
        "the next retention removes them"
        if old.records
        else "retention removes them when all records of their files are that old"
    )
    warnings.warn(
        f"{many} of {records:,} records appended to {url} are already older than "
        f"retention.ms={config.retention_ms}: {then}. To keep them, call "
        "topic.alter(config={'retention.ms': -1}), or give a longer time; "
        "topic.maintain(dry_run=True) says what would be removed",
        stacklevel=_callers_level(),
    )
    return True


def _callers_level() -> int:
    """How far the first line outside of this library is from the caller of this function."""
    frame, level = sys._getframe(1), 1
    while frame.f_back is not None and frame.f_globals["__name__"].startswith("pylogtable."):
        frame, level = frame.f_back, level + 1
    return level
