"""`pylogtable groups`: list, describe, delete; `reset` has a module of its own."""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING

import click

from pylogtable import InvalidRequestError
from pylogtable.cli.command import Group
from pylogtable.cli.output import bytes_text, confirm, note, print_json, print_table
from pylogtable.cli.reset import reset
from pylogtable.cli.session import complete_groups, complete_topics, session

if TYPE_CHECKING:
    from pylogtable import GroupRow, Store


@click.group(
    cls=Group,
    examples="""
        pylogtable groups list ./logs
        pylogtable groups describe billing
        pylogtable groups reset billing --topic orders --to-earliest --execute
    """,
)
def groups() -> None:
    """List, describe, reset and delete consumer groups."""


groups.add_command(reset)


@groups.command(
    "list",
    short_help="The names of all groups.",
    examples="pylogtable groups list s3://bucket/logs --output json",
)
@click.argument("store", required=False)
@click.pass_context
def list_groups(context: click.Context, store: str | None) -> None:
    """The names of all consumer groups in STORE, sorted; in JSON with their topics."""
    mine = session(context)
    opened = mine.open_store(store)
    found = opened.groups()
    if mine.is_json:
        print_json([{"group": name, "topics": topics} for name, topics in found.items()])
        return
    for name in found:
        print(name)
    if not found:
        note(mine, f"there is no consumer group below {opened.url}")


@groups.command(
    short_help="Positions and lag.",
    examples="""
        pylogtable groups describe billing
        pylogtable groups describe --store ./logs --output json
    """,
)
@click.argument("group", nargs=-1, shell_complete=complete_groups)
@click.option("--topic", multiple=True, help="In this topic alone.", shell_complete=complete_topics)
@click.pass_context
def describe(context: click.Context, group: tuple[str, ...], topic: tuple[str, ...]) -> None:
    """Positions and lag of each GROUP, or of all, partition by partition.

    LAG counts records, exactly: what compaction removed is not behind anybody. LAG-SECONDS is the
    age of the first record that is yet to be read.
    """
    mine = session(context)
    store = mine.open_store()
    known = store.groups()
    _check_known(store, known, group)
    rows = [
        row
        for name in group or known
        for where in known[name]
        if not topic or where in topic
        for row in store.topic(where).group(name).describe()
    ]
    if mine.is_json:
        print_json([row._asdict() for row in rows])
    else:
        _print_rows(rows)


def _print_rows(rows: list[GroupRow]) -> None:
    print_table(
        ("GROUP", "TOPIC", "PARTITION", "CURRENT-OFFSET", "LOG-END-OFFSET", "LAG", "LAG-SIZE",
         "LAG-SECONDS", "COMMITTED-AT", "MEMBER"),
        (
            (
                row.group,
                row.topic,
                row.partition,
                row.current_offset,
                row.log_end_offset,
                row.lag,
                bytes_text(row.lag_bytes),
                None if row.lag_seconds is None else f"{row.lag_seconds:.1f}",
                row.committed_at,
                row.member,
            )
            for row in rows
        ),
        left=("GROUP", "TOPIC", "MEMBER"),
    )  # fmt: skip


@groups.command(
    short_help="Forget positions.",
    examples="""
        pylogtable groups delete billing --dry-run
        pylogtable groups delete billing --topic orders --yes
    """,
)
@click.argument("group", nargs=-1, required=True, shell_complete=complete_groups)
@click.option("--topic", multiple=True, help="In this topic alone.", shell_complete=complete_topics)
@click.option("--yes", "-y", is_flag=True, help="Do not ask.")
@click.option("--dry-run", is_flag=True, help="Only say what would go.")
@click.pass_context
def delete(
    context: click.Context,
    group: tuple[str, ...],
    topic: tuple[str, ...],
    yes: bool,
    dry_run: bool,
) -> None:
    """Forget the positions of each GROUP, in all topics or some."""
    mine = session(context)
    store = mine.open_store()
    known = store.groups()
    _check_known(store, known, group)
    doomed = [
        (name, where) for name in group for where in known[name] if not topic or where in topic
    ]
    if not doomed:
        raise InvalidRequestError(
            f"{', '.join(group)}: no position in {', '.join(topic)}; there is one in "
            f"{', '.join(sorted({where for name in group for where in known[name]}))}"
        )
    if not dry_run:
        named = ", ".join(f"group {name} in topic {where}" for name, where in doomed)
        confirm(f"delete {named}", yes)
    for name, where in doomed:
        if not dry_run:
            store.topic(where).group(name).delete()
        if not mine.is_json:
            print(f"{'Would delete' if dry_run else 'Deleted'} group {name} in topic {where}.")
    if mine.is_json:
        gone = [{"group": name, "topic": where} for name, where in doomed]
        print_json({"dry_run": dry_run, "deleted": gone})


def _check_known(store: Store, known: dict[str, list[str]], names: tuple[str, ...]) -> None:
    for name in names:
        if name not in known:
            near = difflib.get_close_matches(name, known, n=1)
            hint = (
                f"did you mean {near[0]!r}?" if near else f"there is {', '.join(known) or 'none'}"
            )
            raise InvalidRequestError(f"there is no group {name!r} below {store.url}; {hint}")
