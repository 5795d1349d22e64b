"""Appends of one process: plan, stage, commit, and again if the topic was altered meanwhile."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Protocol, TypeVar

from pylogtable.append.committer import CheckState, Committer, accept
from pylogtable.append.distributed_append import AppendPlan
from pylogtable.append.given_rows import can_be_read_twice
from pylogtable.append.plan import ExpectedLast
from pylogtable.append.report import AppendResult
from pylogtable.append.stager import Target
from pylogtable.arguments import NOT_GIVEN
from pylogtable.errors import InvalidRequestError, LogTableError
from pylogtable.format.snapshot import Snapshot
from pylogtable.log.topic_log import TopicLog
from pylogtable.tracing import span


class Appended(Protocol):
    """What has become of an append."""

    @property
    def version(self) -> int: ...
    @property
    def records(self) -> int: ...


Result = TypeVar("Result", bound=Appended)


class _Altered(LogTableError):
    """The topic is not what it was when the rows were shaped."""


class Appender:
    """Appends to the topic of `log`."""

    def __init__(self, name: str, log: TopicLog) -> None:
        self.name = name
        self.log = log
        self.committer = Committer(log)

    def plan(
        self, snapshot: Snapshot, *, keep_offsets: bool = False, app_id: str | None = None
    ) -> AppendPlan:
        """The plan of an append to this version of the topic."""
        return AppendPlan(
            name=self.name,
            store=self.log.store,
            runtime=self.log.runtime,
            **Target.fields_of(snapshot),
            keep_offsets=keep_offsets,
            app_id=app_id,
            opened=self.committer,
        )

    def append(
        self,
        data: Any,
        txn: tuple[str, int] | None,
        expected_last: ExpectedLast = NOT_GIVEN,
        *,
        note: Any = None,
        keep_offsets: bool = False,
    ) -> AppendResult:
        terms = self.committer.terms(txn, None, expected_last, note=note)

        def attempt(plan: AppendPlan, check: CheckState) -> AppendResult:
            first = self.committer.find(terms)
            if first is not None:
                return first
            app_id = None if terms.txn is None else terms.txn.app_id
            staged = replace(plan, keep_offsets=keep_offsets, app_id=app_id).stage(data)
            return self.committer.commit(staged, replace(terms, check=check))

        return self.repeated_if_altered(attempt, can_repeat=can_be_read_twice(data))

    def repeated_if_altered(
        self, attempt: Callable[[AppendPlan, CheckState], Result], *, can_repeat: bool = True
    ) -> Result:
        """Call `attempt` with the plan by which it stages its rows, and with a function that it
        calls with each state that it plans its commit on.

        If the rows can be shaped twice, the known state is used without asking for a newer one: the
        put of the commit shows whether there is one. If the topic turns out to be altered by then,
        `attempt` is called again, with the newest state [COMMIT-4].
        """
        with span("append", topic=self.name, does="send") as note:
            appended = self._repeated_if_altered(attempt, can_repeat)
            note(version=appended.version, records=appended.records)
        return appended

    def _repeated_if_altered(
        self, attempt: Callable[[AppendPlan, CheckState], Result], can_repeat: bool
    ) -> Result:
        known = self.log.recent if can_repeat else None
        if known is not None:
            shaped_by = known.info

            def check(snapshot: Snapshot) -> None:
                if snapshot.info != shaped_by:
                    raise _Altered("the topic was altered")

            try:
                return attempt(self.plan(known), check)
            except _Altered:
                pass
            except InvalidRequestError:
                if self.log.latest().info == shaped_by:
                    raise
        return attempt(self.plan(self.log.latest()), accept)
