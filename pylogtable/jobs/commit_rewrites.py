"""Commits the swaps of a job that writes new files for old ones."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import ClassVar

from pylogtable.errors import CommitConflictError, LogTableError
from pylogtable.format.config import STALE_AFTER_MS
from pylogtable.format.log_state import LogState
from pylogtable.format.model import Change, Commit
from pylogtable.format.snapshot import Snapshot
from pylogtable.jobs.job import MaintainedTopic
from pylogtable.jobs.replace_plan import plan_swap_commit, still_fits
from pylogtable.jobs.work import Rewritten, discard_segments


@dataclass
class RewriteOutcome:
    """What became of the results of a job: its commits, what they committed, and how many results
    were dropped because another job had changed their input."""

    commits: list[Commit] = field(default_factory=list)
    committed: list[Rewritten] = field(default_factory=list)
    skipped: int = 0


class SwapCommits:
    """A job that replaces segments. `operation` is the name that its commits have in the log."""

    operation: ClassVar[str]

    @property
    def commits_together(self) -> bool:
        """True if the results of all partitions are one commit, without those whose input another
        job has changed. Otherwise each partition has its own: what was done there lands or is lost
        as a whole."""
        return False

    def check(
        self, topic: MaintainedTopic, snapshot: Snapshot, results: Sequence[Rewritten]
    ) -> None:
        """Raise `CommitConflictError` if the topic's settings no longer ask for this job, or no
        longer allow what it did."""

    def carry_over(
        self, topic: MaintainedTopic, results: Sequence[Rewritten], tried: Sequence[Rewritten]
    ) -> Sequence[Rewritten] | None:
        """The same work for the segments that are live now. None, which is the default, or
        `CommitConflictError` if the work is lost. `tried` was planned and met a conflict."""
        return None

    def commit_all(
        self, topic: MaintainedTopic, results: Iterable[Rewritten], began_ms: int
    ) -> RewriteOutcome:
        """Commit what was done. The files of results that are not committed are removed, unless a
        commit may name them [COMMIT-5]."""
        by_commit: dict[int, list[Rewritten]] = {}
        for rewritten in results:
            number = 0 if self.commits_together else rewritten.partition
            by_commit.setdefault(number, []).append(rewritten)
        uncommitted = [mine for _, mine in sorted(by_commit.items())]
        outcome = RewriteOutcome()
        try:
            while uncommitted:
                mine = uncommitted.pop(0)
                done = self._commit_or_discard(topic, mine, began_ms)
                if done is None:
                    outcome.skipped += len(mine)
                else:
                    commit, tried = done
                    outcome.commits.append(commit)
                    outcome.committed += tried
                    outcome.skipped += len(mine) - len(tried)
        except LogTableError:
            # No commit was tried for these, so their files can be removed.
            for rewritten in chain.from_iterable(uncommitted):
                rewritten.discard(topic.store)
            raise
        return outcome

    def _commit_or_discard(
        self, topic: MaintainedTopic, results: Sequence[Rewritten], began_ms: int
    ) -> tuple[Commit, Sequence[Rewritten]] | None:
        """The commit and what it committed, or None if another job had changed its input [LOG-8].
        The new files stay only if a commit may name them [COMMIT-5]."""
        finished = {segment.path for r in results for segment in r.new_segments}
        tried = results
        try:
            while True:
                try:
                    commit = self._commit(topic, tried, began_ms)
                    return commit, self._keep_committed(topic, tried, commit)
                except CommitConflictError:  # noqa: PERF203 (a second try needs it)
                    added = (s for r in tried for s in r.new_segments if s.path not in finished)
                    discard_segments(topic.store, added)
                    carried = self.carry_over(topic, results, tried)
                    if carried is None:
                        raise
                    tried = carried
        except LogTableError as error:
            if error.may_have_landed:
                raise
            for rewritten in (*results, *tried):
                rewritten.discard(topic.store)
            if isinstance(error, CommitConflictError):
                return None
            raise

    def _keep_committed(
        self, topic: MaintainedTopic, results: Sequence[Rewritten], commit: Commit
    ) -> Sequence[Rewritten]:
        """The results that are in the commit. The files of the others are removed."""
        if not self.commits_together:
            return results
        named = {segment.path for segment in commit.add}
        committed = []
        for rewritten in results:
            if all(segment.path in named for segment in rewritten.new_segments):
                committed.append(rewritten)
            else:
                rewritten.discard(topic.store)
        return committed

    def _commit(
        self, topic: MaintainedTopic, results: Sequence[Rewritten], began_ms: int
    ) -> Commit:
        for rewritten in results:
            rewritten.check()

        def plan(state: LogState) -> Change:
            if topic.runtime.clock() - began_ms > STALE_AFTER_MS:  # [COMMIT-8]
                raise CommitConflictError(
                    f"{self.operation} took so long that vacuum may have removed its files"
                )
            self.check(topic, state.snapshot, results)
            chosen = results
            if self.commits_together:
                chosen = [r for r in results if all(still_fits(state, s) for s in r.swaps)]
            removed = records_removed(chosen)
            return plan_swap_commit(
                state,
                self.operation,
                [swap for rewritten in chosen for swap in rewritten.swaps],
                cleaned={r.partition: r.clean_end for r in chosen if r.clean_end is not None},
                summary={"records_removed": removed} if removed else {},
            )

        _, commit = topic.log.change(plan)
        assert isinstance(commit, Commit)
        return commit


def records_removed(results: Iterable[Rewritten]) -> int:
    """How many records the results have fewer than their inputs."""
    return sum(rewritten.records_in - rewritten.records_out for rewritten in results)
