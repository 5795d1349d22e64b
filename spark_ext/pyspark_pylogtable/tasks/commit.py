"""The commit of what tasks staged: one for each topic. Runs on the driver.

Spark calls `commit` and `abort` on copies of the planned writer, in other processes than the tasks,
so everything they need travels in the tasks' messages. Spark also calls `abort` after a `commit`
that raised, whatever the error. Files are removed only if it is proven that no commit can name
them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

from pyspark.sql.datasource import WriterCommitMessage

from pylogtable import AppendResult, CommitUnknownError, InvalidRequestError, LogTableError
from pylogtable.engine import NOT_GIVEN, AppendPlan, ExpectedLast, Staged
from pyspark_pylogtable.tasks.planned_write import PlannedWrite
from pyspark_pylogtable.tasks.staging import Written


def query_of(messages: Iterable[WriterCommitMessage | None]) -> str | None:
    """The id of the streaming query that the tasks ran for, if any."""
    found = (message.query_id for message in messages if isinstance(message, Written))
    return next((query for query in found if query is not None), None)


def staged_by_topic(messages: Iterable[WriterCommitMessage | None]) -> dict[str, list[Staged]]:
    """What all tasks staged, by topic and in the order of the tasks."""
    staged: dict[str, list[Staged]] = {}
    for message in messages:
        if isinstance(message, Written):
            for name, part in message.staged.items():
                staged.setdefault(name, []).append(part)
    return staged


def commit_staged(
    write: PlannedWrite,
    staged: dict[str, list[Staged]],
    txn: tuple[str, int] | None,
    query: str | None,
    expected_last: ExpectedLast = NOT_GIVEN,
    note: Any = None,
) -> None:
    """One commit for each topic. If one fails, the files of the topics after it are removed."""
    done: list[str] = []
    for name in sorted(staged):
        try:
            plan = write.for_staged(name)
            commit_topic(plan, staged[name], txn, query, expected_last, note)
        except LogTableError as error:
            for later in staged:
                if later > name:
                    with suppress(LogTableError):
                        write.for_staged(later).discard(staged[later])
            if not done:
                raise
            outcome = "may be" if isinstance(error, CommitUnknownError) else "was not"
            raise LogTableError(
                f"topic {name!r} {outcome} written; already written: {', '.join(done)}. Each topic "
                "has a commit of its own. With txnAppId and txnVersion the same write can be "
                f"repeated safely. {error}"
            ) from error
        done.append(name)


def commit_topic(
    plan: AppendPlan,
    staged: list[Staged],
    txn: tuple[str, int] | None,
    query: str | None,
    expected_last: ExpectedLast = NOT_GIVEN,
    note: Any = None,
) -> AppendResult:
    """Commit to one topic. It is an error if another query has written under this txn."""
    origin = query if txn is not None else None
    with _explaining_other_query(plan, txn, origin):
        return plan.commit(staged, txn=txn, origin=origin, expected_last=expected_last, note=note)


def find_written(plan: AppendPlan, txn: tuple[str, int], query: str | None) -> AppendResult | None:
    """What was written under this txn. It is an error if another query has written it."""
    with _explaining_other_query(plan, txn, query):
        return plan.find_txn(*txn, origin=query)


def discard_aborted(write: PlannedWrite, messages: list[WriterCommitMessage | None]) -> None:
    """Remove the files of a write that failed before its commit."""
    # If every task sent a message, a commit was tried. It took care of its files itself.
    if all(message is not None for message in messages):
        return
    for name, staged in staged_by_topic(messages).items():
        with suppress(LogTableError):
            write.for_staged(name).discard(staged)


@contextmanager
def _explaining_other_query(
    plan: AppendPlan, txn: tuple[str, int] | None, origin: str | None
) -> Iterator[None]:
    try:
        yield
    except InvalidRequestError as error:
        first = plan.find_txn(*txn) if txn is not None and origin is not None else None
        if first is None or first.origin in (None, origin) or txn is None:
            raise
        raise InvalidRequestError(
            f"[TXN_OF_ANOTHER_QUERY] batch {txn[1]} under txnAppId {txn[0]!r} was written to topic "
            f"{plan.name!r} by the streaming query {first.origin}. This is the query {origin}, "
            "which has another checkpoint and numbers its batches from 0 again. Nothing was "
            "written. Give this query a txnAppId of its own, or the checkpoint of the old query"
        ) from error
