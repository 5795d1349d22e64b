"""`pylogtable groups`: list, describe, delete, remove members; `reset` has its own module."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING

import click

from pylogtable import InvalidRequestError, LogTableError
from pylogtable.arguments import did_you_mean
from pylogtable.cli.command import CommandGroup
from pylogtable.cli.messages import confirm, continue_on_error, note
from pylogtable.cli.options import (
    complete_groups,
    dry_run_option,
    only_topics_option,
    store_argument,
    yes_option,
)
from pylogtable.cli.output import print_json, print_names, print_rows
from pylogtable.cli.reset import reset
from pylogtable.cli.session import Session

if TYPE_CHECKING:
    from pylogtable import GroupRow, Store


@click.group(
    cls=CommandGroup,
    examples="""
        pylogtable groups list ./logs
        pylogtable groups describe billing
        pylogtable groups reset billing --topic orders --to-earliest --execute
    """,
)
def groups() -> None:
    """List, describe, reset and delete consumer groups."""


@groups.command(
    "list",
    short_help="List the names of all groups.",
    examples="pylogtable groups list s3://bucket/logs --output json",
)
@store_argument
def list_groups(session: Session, store: str | None) -> None:
    """List the names of all consumer groups in STORE, sorted; in JSON with their topics."""
    opened = session.open_store(store)
    found = _topics_by_group(session, opened)
    rows = [{"group": name, "topics": topics} for name, topics in found.items()]
    print_names(session, rows, found, f"there is no consumer group in {opened.url}")


@groups.command(
    short_help="Show positions and lag.",
    examples="""
        pylogtable groups describe billing
        pylogtable groups describe --store ./logs --output json
    """,
)
@click.argument("groups", metavar="[GROUP]...", nargs=-1, shell_complete=complete_groups)
@only_topics_option
def describe(session: Session, groups: tuple[str, ...], topics: tuple[str, ...]) -> None:
    """Show the positions and the lag of each GROUP, or of all groups, partition by partition.

    LAG is an exact count of records; offsets that compaction has removed do not count. LAG-SECONDS
    is the age of the first unread record. If there is no CURRENT-OFFSET, the group has no position
    there, and everything in the log counts as unread.
    """
    store = session.open_store()
    known = _topics_by_group(session, store)
    _check_exist(store, known, groups)
    rows: list[GroupRow] = []
    for name, topic in _pairs(known, groups or list(known), topics):
        with continue_on_error(session, topic):
            rows += store.topic(topic).group(name).describe()
    if session.is_json:
        print_json([row._asdict() for row in rows])
    else:
        from pylogtable import GroupRow

        print_rows(GroupRow, rows, without=["metadata"])
        if any(row.current_offset is None for row in rows):
            nowhere = "Where CURRENT-OFFSET is -, the group has no position"
            note(session, f"{nowhere}, and LAG counts from the log start.")


@groups.command(
    short_help="Delete positions.",
    examples="""
        pylogtable groups delete billing --dry-run
        pylogtable groups delete billing --topic orders --yes
    """,
    destroys=True,
)
@click.argument("groups", metavar="GROUP...", nargs=-1, required=True,
                shell_complete=complete_groups)  # fmt: skip
@only_topics_option
@yes_option
@dry_run_option
def delete(
    session: Session, groups: tuple[str, ...], topics: tuple[str, ...], yes: bool, dry_run: bool
) -> None:
    """Delete the positions of each GROUP, in all topics or only in some."""
    store = session.open_store()
    known = _topics_by_group(session, store)
    _check_exist(store, known, groups)
    chosen = _pairs(known, groups, topics)
    if not dry_run:
        named = ", ".join(f"group {name} in topic {topic}" for name, topic in chosen)
        confirm(f"delete {named}", yes)
    deleted = []
    for name, topic in chosen:
        with continue_on_error(session, topic):
            if not dry_run:
                store.topic(topic).group(name).delete()
            deleted.append({"group": name, "topic": topic})
            if not session.is_json:
                print(f"{'Would delete' if dry_run else 'Deleted'} group {name} in topic {topic}.")
    if session.is_json:
        print_json({"dry_run": dry_run, "deleted": deleted})


@groups.command(
    "remove-member",
    short_help="Remove a dead member.",
    examples="""
        pylogtable groups remove-member billing worker-7 --dry-run
        pylogtable groups remove-member billing worker-7 --topic orders --yes
    """,
    destroys=True,
)
@click.argument("group", shell_complete=complete_groups)
@click.argument("member")
@only_topics_option
@yes_option
@dry_run_option
def remove_member(
    session: Session, group: str, member: str, topics: tuple[str, ...], yes: bool, dry_run: bool
) -> None:
    """Remove MEMBER from GROUP without waiting for its lease to end, in all topics or only in some.

    MEMBER is an id as `groups describe` shows it, or the name that the consumer was given. Its
    partitions go to the other members. They read again what it has not committed. A member that is
    alive joins again: stop it instead.
    """
    store = session.open_store()
    known = _topics_by_group(session, store)
    _check_exist(store, known, [group])
    found: dict[str, list[str]] = {}
    refusal: InvalidRequestError | None = None
    for _, topic in _pairs(known, [group], topics):
        try:
            found[topic] = store.topic(topic).group(group).remove_member(member, dry_run=True)
        except InvalidRequestError as error:  # noqa: PERF203 (each topic has its own members)
            refusal = error
    if not found and refusal is not None:
        raise refusal
    if not dry_run:
        named = ", ".join(f"{', '.join(ids)} in topic {topic}" for topic, ids in found.items())
        confirm(f"remove member {named} of group {group}", yes)
    removed = []
    for topic in found:
        with continue_on_error(session, topic):
            ids = store.topic(topic).group(group).remove_member(member, dry_run=dry_run)
            removed += [{"group": group, "topic": topic, "member": name} for name in ids]
            if not session.is_json:
                verb = "Would remove" if dry_run else "Removed"
                print(f"{verb} member {', '.join(ids)} of group {group} in topic {topic}.")
    if session.is_json:
        print_json({"dry_run": dry_run, "removed": removed})
    elif removed and not dry_run:
        note(session, "a member that is alive joins again: stop it to keep it out")


def _topics_by_group(session: Session, store: Store) -> dict[str, list[str]]:
    """All groups, sorted, with their topics. A topic that cannot be read is reported, and left
    out."""
    from pylogtable import engine

    known: dict[str, list[str]] = {}
    for topic, found in engine.groups_by_topic(store).items():
        with continue_on_error(session, topic):
            if isinstance(found, LogTableError):
                raise found
            for name in found:
                known.setdefault(name, []).append(topic)
    return dict(sorted(known.items()))


def _check_exist(store: Store, known: Collection[str], groups: Sequence[str]) -> None:
    for name in groups:
        if name not in known:
            raise InvalidRequestError(
                f"there is no group {name!r} in {store.url}; {did_you_mean(name, known)}"
            )


def _pairs(
    known: Mapping[str, Sequence[str]], groups: Sequence[str], topics: Sequence[str]
) -> list[tuple[str, str]]:
    """Each group with each of its topics, or with those of them that are in `topics`."""
    pairs = [(name, topic) for name in groups for topic in known[name]]
    chosen = [(name, topic) for name, topic in pairs if not topics or topic in topics]
    if pairs and not chosen:
        has = ", ".join(sorted({topic for _, topic in pairs}))
        raise InvalidRequestError(
            f"{', '.join(groups)}: no position in {', '.join(topics)}; available: {has}"
        )
    return chosen


groups.add_command(reset)
