"""`pylogtable topics`: create, list, describe, alter, promote and delete."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from typing import TYPE_CHECKING, Any

import click

from pylogtable import InvalidRequestError, TopicExistsError, TopicNotFoundError
from pylogtable.cli.command import CommandGroup
from pylogtable.cli.messages import confirm, continue_on_error, note
from pylogtable.cli.options import (
    complete_settings,
    complete_topics,
    dry_run_option,
    many,
    store_argument,
    topic_argument,
    topics_argument,
    yes_option,
)
from pylogtable.cli.output import answer, print_json, print_names, print_rows
from pylogtable.cli.parse import parse_columns, parse_config, parse_renames
from pylogtable.cli.session import Session, suggest_topics, topic_names
from pylogtable.presentation import bytes_text, count_text

if TYPE_CHECKING:
    from pylogtable import Topic, TopicDescription


@click.group(
    cls=CommandGroup,
    examples="""
        pylogtable topics list ./logs
        pylogtable topics create orders --partitions 6 --store ./logs
    """,
)
def topics() -> None:
    """Create, list, describe, alter, promote and delete topics."""


@topics.command(
    examples="""
        pylogtable topics create clicks --partitions 6
        pylogtable topics create orders --column order_id:long --column amount:double --key order_id
        pylogtable topics create users --config cleanup.policy=compact --if-not-exists
    """
)
@click.argument("topic")
@click.option(
    "--partitions",
    "-p",
    type=int,
    metavar="N",
    default=1,
    show_default=True,
    help="Number of partitions.",
)
@many("--config", "-c", metavar="NAME=VALUE", help="A setting, with Kafka's name.",
      shell_complete=complete_settings)  # fmt: skip
@many(
    "--column",
    "columns",
    metavar="NAME:TYPE",
    help="A column, such as amount:double or 'id:long not null'. Without columns the topic has "
    "Kafka's shape: key, value, headers.",
)
@many("--key", metavar="COLUMN", help="A column of the key.")
@click.option(
    "--if-not-exists",
    is_flag=True,
    help="Succeed if the topic already exists, and say what is different there.",
)
def create(
    session: Session,
    topic: str,
    partitions: int,
    config: tuple[str, ...],
    columns: tuple[str, ...],
    key: tuple[str, ...],
    if_not_exists: bool,
) -> None:
    """Create TOPIC."""
    schema, settings = parse_columns(columns, "--column"), parse_config(config)
    store, name = session.locate(topic)
    asked = (name, partitions, schema, list(key) or None, settings)
    is_new = True
    try:
        opened = store.create_topic(*asked)
    except TopicExistsError:
        if not if_not_exists:
            raise TopicExistsError(
                f"topic {name!r} already exists in {store.url}; add --if-not-exists to accept that"
            ) from None
        opened, is_new = store.create_topic(*asked, if_not_exists=True), False
    done = f"Created topic {name}." if is_new else f"Topic {name} already exists."
    answer(session, {"created": is_new, **_as_json(opened.describe())}, done)


@topics.command("list", examples="pylogtable topics list s3://bucket/logs --output json")
@store_argument
def list_topics(session: Session, store: str | None) -> None:
    """List the names of all topics in STORE, sorted."""
    opened = session.open_store(store)
    names = opened.topics()
    if not names and not opened.exists():
        raise InvalidRequestError(
            f"there is no store at {opened.url}: this folder does not exist. Check the address; "
            "the first 'pylogtable topics create' makes it"
        )
    print_names(session, names, names, f"there is no topic in {opened.url}")


@topics.command(
    short_help="Show columns, settings and partitions.",
    examples="""
        pylogtable topics describe orders
        pylogtable topics describe ./logs/orders --output json
    """,
)
@topics_argument
def describe(session: Session, topics: tuple[str, ...]) -> None:
    """Show the columns, settings and partitions of each TOPIC, or of all topics.

    If a topic cannot be read, the others are still shown, and the exit status is 1.
    """
    rows: list[dict[str, Any]] = []
    for argument in session.topic_arguments(topics):
        with continue_on_error(session, argument):
            description = session.open_topic(argument).describe()
            if not session.is_json:
                if rows:
                    print()
                _print_description(description)
            rows.append(_as_json(description))
    if session.is_json:
        print_json(rows)


@topics.command(
    examples="""
        pylogtable topics alter orders --partitions 12
        pylogtable topics alter orders --config retention.ms=-1 --unset segment.bytes
        pylogtable topics alter orders --add-column note:string --widen-column amount:double
        pylogtable topics alter orders --rename-column note=remark --drop-column tags --yes
    """
)
@topic_argument
@click.option(
    "--partitions", "-p", type=int, metavar="N", help="New number of partitions; it can only grow."
)
@many("--config", "-c", metavar="NAME=VALUE", help="Change a setting.",
      shell_complete=complete_settings)  # fmt: skip
@many("--unset", metavar="NAME", help="Reset a setting to its default.",
      shell_complete=complete_settings)  # fmt: skip
@many("--add-column", "add_columns", metavar="NAME:TYPE", help="Add a nullable column.")
@many("--widen-column", "widen_columns", metavar="NAME:TYPE", help="Give a column a wider type.")
@many("--rename-column", "rename_columns", metavar="OLD=NEW", help="Rename a value column.")
@many("--drop-column", "drop_columns", metavar="NAME", help="Drop a value column.")
@yes_option
def alter(session: Session, /, topic: str, yes: bool, **given: Any) -> None:
    """Change the partitions, settings or columns of TOPIC.

    Columns are dropped, renamed and widened by the names they have now. Then columns are added.
    Versions of pylogtable that cannot rename columns refuse a topic whose columns were renamed or
    dropped.
    """
    changes = _changes(**given)
    opened = session.open_topic(topic)
    if "drop_columns" in changes:
        names = ", ".join(changes["drop_columns"])
        confirm(f"drop column(s) {names} of {_summary(opened.describe())}", yes, can_dry_run=False)
    altered = opened.alter(**changes)
    if "partitions" in changes and altered.key:
        stay = "existing records stay in their partitions"
        note(session, f"{stay}: a key may now have records in two")
    done = f"Altered topic {altered.name}, now version {altered.version}."
    answer(session, _as_json(altered), done)


def _changes(
    config: Sequence[str],
    unset: Sequence[str],
    add_columns: Sequence[str],
    widen_columns: Sequence[str],
    rename_columns: Sequence[str],
    **others: Any,
) -> dict[str, Any]:
    """The changes as `Topic.alter` takes them; raises if there are none."""
    given = parse_config(config)
    if both := sorted(given.keys() & set(unset)):
        raise click.UsageError(
            f"{', '.join(both)} is set by --config and reset by --unset: give only one of them"
        )
    wider = parse_columns(widen_columns, "--widen-column")
    changes = others | {
        "config": {**given, **dict.fromkeys(unset)},
        "add_columns": parse_columns(add_columns, "--add-column"),
        "widen_columns": wider and dict(zip(wider.names, wider.types, strict=True)),
        "rename_columns": parse_renames(rename_columns),
    }
    found = {name: change for name, change in changes.items() if change not in (None, {}, ())}
    if not found:
        raise click.UsageError("no change is given")
    return found


@topics.command(
    short_help="Make a copy a topic of its own.",
    examples="""
        pylogtable topics promote orders --store s3://b/logs
        pylogtable topics promote --all-topics --yes
    """,
    destroys=True,
)
@click.argument("topics", metavar="[TOPIC]...", nargs=-1, shell_complete=complete_topics)
@click.option("--all-topics", is_flag=True, help="Every topic of the store that is a copy.")
@click.option(
    "--force",
    is_flag=True,
    help="Also in the middle of a mirror that takes several commits, when records have come "
    "without their txns.",
)
@yes_option
def promote(
    session: Session, topics: tuple[str, ...], all_topics: bool, force: bool, yes: bool
) -> None:
    """Make each TOPIC, a copy of Kafka's or one that `mirror` keeps, a topic of its own.

    It can no longer be brought up to date from its source. A copy of Kafka's topic takes appends
    from then on: that is the cut-over, after the last import. A copy that `mirror` keeps is
    promoted after a failover; the first append does the same. If it is the copy of a copy of
    Kafka's, that ends the mirroring, an import may go on with it, and the next promotion ends that.
    A topic that was promoted before stays as it is.
    """
    if bool(topics) == all_topics:
        raise click.UsageError("give the topics, or --all-topics")
    chosen = []
    # All topics have to be copies before the first is promoted: that cannot be undone.
    for argument in dict.fromkeys(topics or topic_names(session.open_store())):
        if all_topics:
            with continue_on_error(session, argument):
                topic = session.open_topic(argument)
                chosen.append((topic, topic.describe()))
        else:
            topic = session.open_topic(argument)
            chosen.append((topic, topic.describe()))
    copies = []
    for topic, found in chosen:
        if found.mirror is not None or found.copy_of is not None:
            copies.append((topic, found))
        elif all_topics:
            note(session, f"{found.name} is no copy, and stays as it is")
        else:
            raise InvalidRequestError(
                f"topic {found.name} is no copy of another one, and none of Kafka's. Nothing was "
                "promoted"
            )
    ended = [end for _, found in copies if (end := _ended_by_promotion(found))]
    if ended:
        confirm("end for good: " + "; ".join(ended), yes, can_dry_run=False)
    promoted = []
    for topic, found in copies:
        with continue_on_error(session, found.name):
            promoted.append(_promoted(session, topic, found, force))
    if session.is_json:
        print_json(promoted)


def _ended_by_promotion(copy: TopicDescription) -> str | None:
    """What a promotion ends, for people; None if it was promoted before."""
    if copy.mirror is not None and copy.mirror.ended is None:
        return f"the mirroring of {_summary(copy)}, a {copy.mirror}"
    if copy.copy_of is not None and copy.copy_of.ended is None:
        return f"the imports into {_summary(copy)}, a copy of {copy.copy_of.source}"
    return None


def _promoted(
    session: Session, topic: Topic, before: TopicDescription, force: bool
) -> dict[str, Any]:
    topic.promote(force=force)
    after = topic.describe()
    if not session.is_json:
        is_repeat = _ended_by_promotion(before) is None
        told = "It was promoted before: topic" if is_repeat else "Promoted topic"
        print(f"{told} {after.name}, now version {after.version}.")
        if after.copy_of is not None and after.copy_of.ended is None:
            print(f"It is still a {after.copy_of}. To append to it, promote it again.")
    return _as_json(after)


@topics.command(
    examples="""
        pylogtable topics delete orders --dry-run
        pylogtable topics delete orders --yes
    """,
    destroys=True,
)
@click.argument("topics", metavar="TOPIC...", nargs=-1, required=True,
                shell_complete=complete_topics)  # fmt: skip
@yes_option
@dry_run_option
@click.option("--if-exists", is_flag=True, help="Succeed if a topic does not exist.")
def delete(
    session: Session, topics: tuple[str, ...], yes: bool, dry_run: bool, if_exists: bool
) -> None:
    """Delete each TOPIC and its records."""
    chosen = []
    # All topics have to exist before the first is deleted.
    for argument in dict.fromkeys(topics):
        store, name = session.locate(argument)
        try:
            with suggest_topics(store, name):
                chosen.append((store, store.topic(name).describe()))
        except TopicNotFoundError:
            if not if_exists:
                raise
    if chosen and not dry_run:
        confirm("delete " + ", ".join(_summary(description) for _, description in chosen), yes)
    deleted = []
    for store, description in chosen:
        with continue_on_error(session, description.name):
            if not dry_run:
                store.delete_topic(description.name)
            deleted.append(description.name)
            if not session.is_json:
                done = f"Deleted topic {description.name}."
                print(f"Would delete {_summary(description)}." if dry_run else done)
    if session.is_json:
        print_json({"dry_run": dry_run, "deleted": deleted})


def _summary(description: TopicDescription) -> str:
    records = count_text(description.records, "record")
    return f"topic {description.name} ({records}, {bytes_text(description.size_bytes)})"


def _as_json(description: TopicDescription) -> dict[str, Any]:
    """The fields of the description, with its schema as a list of columns."""
    found = {field.name: getattr(description, field.name) for field in fields(description)}
    found["columns"] = [
        {"name": column.name, "type": str(column.type), "nullable": column.nullable}
        for column in found.pop("schema")
    ]
    return found


def _print_description(description: TopicDescription) -> None:
    parts = description.partitions
    print(f"Topic: {description.name}  TopicId: {description.topic_id}", end="  ")
    print(f"PartitionCount: {len(parts)}  Version: {description.version}")
    config = ",".join(f"{name}={value}" for name, value in description.config.items())
    for label, text in (*description.facts, ("configs", config)):
        print(f"{label.title().replace(' ', '')}: {text}")
    print_rows(type(parts[0]), parts)
