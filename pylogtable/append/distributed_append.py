"""`AppendPlan`: an append over many processes, planned once, staged anywhere, committed once."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from typing import Any

import pyarrow as pa

from pylogtable.append.committer import Committer
from pylogtable.append.given_rows import batches_of
from pylogtable.append.join_plan import Join, plan_joins
from pylogtable.append.join_staged import Joiner
from pylogtable.append.missing_columns_plan import plan_missing_columns
from pylogtable.append.plan import ExpectedLast, check_columns_stay, check_ends
from pylogtable.append.report import AppendResult
from pylogtable.append.shaping import RowShaper
from pylogtable.append.stager import Staged, Stager, Target
from pylogtable.arguments import NOT_GIVEN
from pylogtable.errors import InvalidRequestError
from pylogtable.format.guard_rules import check_app_may_append
from pylogtable.format.model import StagedSegment
from pylogtable.format.schema import table_schema
from pylogtable.format.snapshot import Snapshot
from pylogtable.log.topic_log import open_log
from pylogtable.operation import operations


@operations
@dataclass(frozen=True)
class AppendPlan(Target):
    """An append in two steps: any number of processes stage files, one process commits them.

    >>> plan = plan_append(topic)                       # in the driver, once
    >>> staged = plan.stage(batches, task)              # in each task: nothing is opened
    >>> plan.commit(all_staged)                         # in the driver

    It can be pickled. All rows are shaped by the version of the topic that it was planned on. A
    process that commits opens the topic, unless it has planned the append. A guarded copy is
    refused before anything is staged, unless `app_id` is that of its import [GUARD-2].
    """

    app_id: str | None = None
    opened: Committer | None = field(default=None, repr=False, compare=False)

    def __getstate__(self) -> dict[str, object]:
        return {one.name: getattr(self, one.name) for one in fields(self)} | {"opened": None}

    @property
    def schema(self) -> pa.Schema:
        """The topic's columns and the log's own, as `Topic.schema` has them."""
        return table_schema(self.info.fields)

    @cached_property
    def _committer(self) -> Committer:
        if self.opened is not None:
            return self.opened
        return Committer(open_log(self.name, self.store, self.runtime))

    def check_columns(self, schema: pa.Schema) -> None:
        """Raise `SchemaMismatchError` if rows with these columns cannot be appended. Call it
        before any task starts."""
        _check_schema(schema)
        check_app_may_append(self.info, self.app_id)
        RowShaper(self.info, 0, 0, keep_offsets=self.keep_offsets).check_columns(schema)

    def merge_columns(self, schema: pa.Schema) -> AppendPlan:
        """Add those columns of the rows to be appended that the topic does not have, as nullable
        columns, in one commit. Other writers may do the same at the same time. Raises, and changes
        nothing, if such rows could not be appended even then. Returns the plan for the topic after
        that."""
        _check_schema(schema)
        check_app_may_append(self.info, self.app_id)
        after, _ = self._committer.log.change(
            lambda state: plan_missing_columns(
                state.snapshot, schema, keep_offsets=self.keep_offsets, app_id=self.app_id
            )
        )
        return replace(self, **Target.fields_of(after))

    def begin(self, task: int | None = None, encoders: Executor | None = None) -> Stager:
        """Like `stage`, for rows that arrive batch by batch: a context manager with `add` and
        `finish`. A task that stages for several topics passes the same `encoders` (a thread pool)
        to each, since every pool holds memory."""
        check_app_may_append(self.info, self.app_id)
        return Stager(self, task, encoders)

    def stage(self, data: Any, task: int | None = None, *, temporary: bool = False) -> Staged:
        """Write the data files of an append without committing them. `data` is anything that
        `Topic.append` accepts.

        Rows without a key start in partition `task` modulo the number of partitions, so that tasks
        with different numbers spread their rows. `temporary` files are faster to write, and larger;
        `plan_joins` makes them ready for the commit. If rows bring their offsets, these rise inside
        each partition in each task, and no two tasks have offsets of a partition that overlap.
        """
        check_app_may_append(self.info, self.app_id)
        with Stager(self, task, temporary=temporary) as stager:
            for batch in batches_of(data):
                stager.add(batch)
            return stager.finish()

    def plan_joins(self, staged: Sequence[Staged]) -> tuple[Joiner, list[Join]]:
        """Units of work that join the files of many tasks into few, large, sealed ones. Call the
        `Joiner` with each of them, in any process, pass the results to `joined`, in order, and
        commit what that returns.

        >>> joiner, joins = plan.plan_joins(all_staged)
        >>> result = plan.commit([plan.joined(all_staged, map(joiner, joins))])
        """
        snapshot = self._committer.log.latest()
        files = self._committer.gathered(staged).files
        joins = plan_joins(snapshot, files, self.store.limits)
        return Joiner(self.store, self.runtime.new_id), joins

    def joined(
        self, staged: Sequence[Staged], results: Iterable[tuple[StagedSegment, ...]]
    ) -> Staged:
        """What is to be committed in place of `staged`, whose files are removed. Raises, and
        removes nothing, if it does not have the same number of records."""
        before = self._committer.gathered(staged)
        files = tuple(_files_of(results))
        had, has = (sum(file.records for file in some) for some in (before.files, files))
        if had != has:
            raise InvalidRequestError(
                f"the joined files have {has} records, and the staged ones {had}; give the results "
                "of all joins, each once"
            )
        self._committer.discard(staged)
        return replace(before, files=files)

    def commit(
        self,
        staged: Sequence[Staged],
        *,
        txn: tuple[str, int] | None = None,
        origin: str | None = None,
        expected_last: ExpectedLast = NOT_GIVEN,
        expected_ends: Mapping[int, int] | None = None,
        note: Any = None,
        keep_files: bool = False,
        summary: Mapping[str, int] | None = None,
    ) -> AppendResult:
        """Make staged files visible in one commit, in the order given.

        The files are removed if the commit fails, and kept while its outcome is unknown. If it
        repeats a txn, files that the first commit does not name are removed. With `keep_files`
        none is removed: give it if an earlier try may have committed them. A retry is safe only
        with a `txn`.

        `origin` names the run that numbers the txn. If the log has the same txn from a different
        origin, the commit raises an error: the data is not the same.

        `expected_last` is the last txn of the app id as the writer knows it, as in `Topic.append`.
        If the log has another one, the commit raises `CommitConflictError`, unless it is a repeat.

        Raises `SchemaMismatchError`, and appends nothing, if the topic has lost a column since the
        append was planned. A renamed column is the same column. A repeat is recognised first.

        `note` is a JSON value that is kept with the txn, as in `Topic.append`.

        `expected_ends` are the end offsets of all partitions, as a writer that is the only one
        knows them. If another one has appended, the commit raises `CommitConflictError`. With
        them, `summary` may have numbers that `Topic.history` shows with the commit.
        """

        def check(snapshot: Snapshot) -> None:
            check_columns_stay(snapshot, self.info.fields)
            if expected_ends is not None:
                check_ends(snapshot, expected_ends)

        return self._committer.commit_all(
            staged,
            txn,
            origin,
            expected_last,
            check,
            note=note,
            keep_files=keep_files,
            alone=expected_ends is not None,
            summary=summary or {},
        )

    def discard(self, staged: Iterable[Staged]) -> None:
        """Remove staged files. Call it only if no commit can name them: none was tried, or it
        failed with an error other than `CommitUnknownError`."""
        self._committer.discard(staged)

    def find_txn(
        self,
        app_id: str,
        version: int,
        *,
        origin: str | None = None,
        expected_last: ExpectedLast = NOT_GIVEN,
    ) -> AppendResult | None:
        """The result of the append with this txn, or None if there was none. Raises if the txn has
        a different `origin`, or if a commit with this `expected_last` would be refused: so ask
        before the work that it needs."""
        terms = self._committer.terms((app_id, version), origin, expected_last)
        if self._committer.log.recent is None:
            self._committer.log.latest()
        return self._committer.find(terms)


def _check_schema(schema: pa.Schema) -> None:
    if not isinstance(schema, pa.Schema):
        raise InvalidRequestError(f"`schema` must be a pyarrow.Schema, not {schema!r}")


def _files_of(results: Iterable[tuple[StagedSegment, ...]]) -> Iterator[StagedSegment]:
    for result in results if isinstance(results, Iterable) else [results]:
        if not isinstance(result, tuple) or not all(isinstance(f, StagedSegment) for f in result):
            raise InvalidRequestError(
                "`results` must be what the joiner returned for each join, such as "
                f"map(joiner, joins), not {type(results).__name__}"
            )
        yield from result
