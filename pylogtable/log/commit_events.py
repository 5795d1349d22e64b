"""Tells the log, and spans, of commits: those that landed, and the races that were lost before."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from pylogtable.events import log_event
from pylogtable.format.group_model import GroupMember, GroupState
from pylogtable.format.model import Change, Commit
from pylogtable.operation import current_operation
from pylogtable.runtime import Runtime
from pylogtable.tracing import span

#: An operation that loses more races than these gets a line.
FEW_RACES = 3

_logger = logging.getLogger("pylogtable.commits")
_members = logging.getLogger("pylogtable.groups")


class Attempt:
    """One attempt to put a commit. `commit` is set if it has landed."""

    commit: Commit | None = None


@contextmanager
def attempt_of(change: Change, url: str, runtime: Runtime) -> Iterator[Attempt]:
    """The body attempts to put this change of the topic at `url`."""
    began, attempt = runtime.monotonic(), Attempt()
    place = place_of(url)
    operation = change.operation
    with span("commit", topic=place["topic"], operation=operation) as note:
        yield attempt
        if attempt.commit is None:
            note(landed=False)
        else:
            note(landed=True, version=attempt.commit.version)
    if attempt.commit is None:
        note_lost_race(began)
        return
    _log_commit(attempt.commit, place, runtime.monotonic() - began)
    log_lost_races(place, operation, runtime)


def place_of(url: str) -> dict[str, str]:
    """The fields `store` and `topic` for a topic at this address."""
    store, _, topic = url.rpartition("/")
    return {"store": store, "topic": topic}


def _log_commit(commit: Commit, place: Mapping[str, str], seconds: float) -> None:
    level = logging.DEBUG if commit.operation == "append" else logging.INFO
    if not _logger.isEnabledFor(level):
        return
    counts = {
        "segments_in": sum(one.dropped.segments for one in commit.replaced),
        "segments_out": len(commit.add),
        "records": sum(segment.records for segment in commit.add),
        "bytes": sum(segment.size_bytes for segment in commit.add),
        **commit.summary,
    }
    log_event(
        _logger,
        level,
        "%(operation)s of topic %(topic)s is version %(version)s",
        operation=commit.operation,
        version=commit.version,
        **place,
        **{name: count for name, count in counts.items() if count},
        seconds=round(seconds, 6),
    )


def note_lost_race(began: float) -> None:
    """A commit that was planned from `began` on has lost its race."""
    operation = current_operation()
    operation.lost_races += 1
    if operation.lost_races == 1:
        operation.losing_since = began


def log_lost_races(place: Mapping[str, str], operation: str, runtime: Runtime) -> None:
    """The commit has landed. Tell how many races this operation had lost before, if many."""
    current = current_operation()
    lost, current.lost_races = current.lost_races, 0
    if lost > FEW_RACES:
        log_event(
            _logger,
            logging.INFO,
            "%(operation)s of topic %(topic)s has landed after %(lost_races)s lost races",
            operation=operation,
            lost_races=lost,
            **place,
            seconds=round(runtime.monotonic() - current.losing_since, 6),
        )


def log_group(before: GroupState | None, after: GroupState, url: str, group: str) -> None:
    """Tell of a change of a group: who came, who left, and who has which partitions."""
    old: Mapping[str, GroupMember] = {} if before is None else before.members
    members, operation = after.members, after.operation
    is_quiet = operation in {"commit", "heartbeat"} and members.keys() == old.keys()
    common = {"group": group, **place_of(url)}
    log_event(
        _members,
        logging.DEBUG if is_quiet else logging.INFO,
        "%(operation)s in group %(group)s of topic %(topic)s",
        operation=operation,
        version=after.number,
        **common,
    )
    if not _members.isEnabledFor(logging.INFO):
        return
    for name in sorted({*old, *members}):
        had = old[name].owned if name in old else ()
        has = members[name].owned if name in members else ()
        if name not in members:
            is_asked = operation in {"leave", "remove"} and old[name].is_live(after.committed_at_ms)
            what = "has gone from" if is_asked else "was dropped from"
        elif name not in old:
            what = "has come to"
        elif had != has:
            what = "has other partitions in"
        else:
            continue
        log_event(
            _members,
            logging.INFO,
            f"member %(member)s {what} group %(group)s of topic %(topic)s",
            member=name,
            **common,
            partitions=list(has),
            lost=sorted({*had} - {*has}),
        )
