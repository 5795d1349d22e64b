"""`pylogtable topics`: create, list, describe, alter, delete."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

from pylogtable import TopicExistsError, TopicNotFoundError
from pylogtable.cli.command import Group
from pylogtable.cli.output import bytes_text, confirm, counted, note, print_json, print_table
from pylogtable.cli.session import Session, complete_topics, session, suggesting
from pylogtable.cli.values import parse_columns, parse_config

if TYPE_CHECKING:
    from pylogtable import TopicDescription


@click.group(
    cls=Group,
    examples="""
        pylogtable topics list ./logs
        pylogtable topics create orders --partitions 6 --store ./logs
    """,
)
def topics() -> None:
    """Create, list, describe, alter and delete topics."""


@topics.command(
    examples="""
        pylogtable topics create clicks --partitions 6
        pylogtable topics create orders --column order_id:long --column amount:double --key order_id
        pylogtable topics create users --config cleanup.policy=compact --if-not-exists
    """
)
@click.argument("topic")
@click.option("--partitions", "-p", type=int, default=1, show_default=True)
@click.option("--config", "-c", multiple=True, metavar="NAME=VALUE", help="As Kafka names it.")
@click.option(
    "--column",
    multiple=True,
    metavar="NAME:TYPE",
    help="A column, such as amount:double or 'id:long not null'; without any the topic has Kafka's "
    "shape: key, value, headers.",
)
@click.option("--key", multiple=True, metavar="COLUMN", help="A column of the key.")
@click.option("--if-not-exists", is_flag=True, help="It is no error if there is one already.")
@click.pass_context
def create(
    context: click.Context,
    topic: str,
    partitions: int,
    config: tuple[str, ...],
    column: tuple[str, ...],
    key: tuple[str, ...],
    if_not_exists: bool,
) -> None:
    """Create TOPIC."""
    mine = session(context)
    schema, settings = parse_columns(column, "--column"), parse_config(config)
    store, name = mine.locate(topic)
    created = True
    try:
        made = store.create_topic(name, partitions, schema, list(key) or None, settings)
    except TopicExistsError:
        if not if_not_exists:
            raise TopicExistsError(
                f"there is a topic {name!r} below {store.url} already; --if-not-exists makes that "
                "no error"
            ) from None
        made, created = store.topic(name), False
    if mine.is_json:
        print_json({"created": created, **_as_json(made.describe())})
    else:
        print(f"Created topic {name}." if created else f"Topic {name} exists already.")


@topics.command("list", examples="pylogtable topics list s3://bucket/logs --output json")
@click.argument("store", required=False)
@click.pass_context
def list_topics(context: click.Context, store: str | None) -> None:
    """The names of all topics of STORE, sorted."""
    mine = session(context)
    opened = mine.open_store(store)
    names = opened.topics()
    if mine.is_json:
        print_json(names)
    else:
        for name in names:
            print(name)
        if not names:
            note(mine, f"there is no topic below {opened.url}")


@topics.command(
    short_help="Columns, settings and partitions.",
    examples="""
        pylogtable topics describe orders
        pylogtable topics describe ./logs/orders --output json
    """,
)
@click.argument("topic", nargs=-1, shell_complete=complete_topics)
@click.pass_context
def describe(context: click.Context, topic: tuple[str, ...]) -> None:
    """Columns, settings and partitions of each TOPIC, or of all."""
    mine = session(context)
    described = (opened.describe() for opened in mine.open_topics(topic))
    if mine.is_json:
        print_json([_as_json(description) for description in described])
        return
    for number, description in enumerate(described):
        if number:
            print()
        _print_description(description)


@topics.command(
    examples="""
        pylogtable topics alter orders --partitions 12
        pylogtable topics alter orders --config retention.ms=-1 --unset segment.bytes
        pylogtable topics alter orders --add-column note:string --widen-column amount:double
    """
)
@click.argument("topic", shell_complete=complete_topics)
@click.option("--partitions", "-p", type=int, help="More partitions; there are never fewer.")
@click.option("--config", "-c", multiple=True, metavar="NAME=VALUE", help="Set a setting.")
@click.option("--unset", multiple=True, metavar="NAME", help="Go back to a setting's default.")
@click.option("--add-column", multiple=True, metavar="NAME:TYPE", help="A new nullable column.")
@click.option("--widen-column", multiple=True, metavar="NAME:TYPE", help="A wider type.")
@click.pass_context
def alter(
    context: click.Context,
    topic: str,
    partitions: int | None,
    config: tuple[str, ...],
    unset: tuple[str, ...],
    add_column: tuple[str, ...],
    widen_column: tuple[str, ...],
) -> None:
    """Change TOPIC: partitions, settings, columns."""
    mine = session(context)
    given = parse_config(config)
    if both := sorted(given.keys() & set(unset)):
        raise click.UsageError(
            f"--config sets {', '.join(both)}, and --unset takes it back: say one", context
        )
    settings: dict[str, str | None] = {**given, **dict.fromkeys(unset)}
    added = parse_columns(add_column, "--add-column")
    wider = parse_columns(widen_column, "--widen-column")
    if partitions is None and not settings and added is None and wider is None:
        raise click.UsageError("say what to change", context)
    opened = mine.open_topic(topic)
    altered = opened.alter(
        partitions,
        settings,
        added,
        None if wider is None else dict(zip(wider.names, wider.types, strict=True)),
    )
    if partitions is not None and altered.key:
        note(mine, "old records stay where they are: a key may now have records in two partitions")
    if mine.is_json:
        print_json(_as_json(altered))
    else:
        print(f"Altered topic {altered.name}, now version {altered.version}.")


@topics.command(
    examples="""
        pylogtable topics delete orders --dry-run
        pylogtable topics delete orders --yes
    """
)
@click.argument("topic", nargs=-1, required=True, shell_complete=complete_topics)
@click.option("--yes", "-y", is_flag=True, help="Do not ask.")
@click.option("--dry-run", is_flag=True, help="Only say what would go.")
@click.option("--if-exists", is_flag=True, help="It is no error if there is none.")
@click.pass_context
def delete(
    context: click.Context, topic: tuple[str, ...], yes: bool, dry_run: bool, if_exists: bool
) -> None:
    """Delete each TOPIC and its records."""
    mine = session(context)
    doomed = []
    for place in topic:
        store, name = mine.locate(place)
        try:
            with suggesting(store, name):
                doomed.append((store, store.topic(name).describe()))
        except TopicNotFoundError:
            if not if_exists:
                raise
    if doomed and not dry_run:
        confirm("delete " + ", ".join(_extent(description) for _, description in doomed), yes)
    for store, description in doomed:
        if not dry_run:
            store.delete_topic(description.name)
        _say_deleted(mine, description, dry_run=dry_run)
    if mine.is_json:
        print_json({"dry_run": dry_run, "deleted": [d.name for _, d in doomed]})


def _say_deleted(mine: Session, description: TopicDescription, *, dry_run: bool) -> None:
    if not mine.is_json:
        verb = "Would delete" if dry_run else "Deleted"
        print(f"{verb} {_extent(description)}." if dry_run else f"{verb} topic {description.name}.")


def _extent(description: TopicDescription) -> str:
    records = sum(part.records for part in description.partitions)
    size = sum(part.size_bytes for part in description.partitions)
    return f"topic {description.name} ({counted(records, 'record')}, {bytes_text(size)})"


def _as_json(description: TopicDescription) -> dict[str, Any]:
    return {
        "name": description.name,
        "url": description.url,
        "topic_id": description.topic_id,
        "version": description.version,
        "created_at_ms": description.created_at_ms,
        "columns": [
            {"name": column.name, "type": str(column.type), "nullable": column.nullable}
            for column in description.schema
        ],
        "key": list(description.key),
        "config": description.config,
        "partitions": [asdict(part) for part in description.partitions],
    }


def _print_description(description: TopicDescription) -> None:
    parts = description.partitions
    columns = ", ".join(f"{column.name}: {column.type}" for column in description.schema)
    config = ",".join(f"{name}={value}" for name, value in description.config.items())
    print(f"Topic: {description.name}  TopicId: {description.topic_id}", end="  ")
    print(f"PartitionCount: {len(parts)}  Version: {description.version}")
    print(f"Location: {description.url}")
    print(f"Key: {', '.join(description.key) or 'none'}  Columns: {columns}")
    print(f"Configs: {config}")
    print_table(
        ("PARTITION", "LOG-START", "END-OFFSET", "RECORDS", "SEGMENTS", "SIZE"),
        (
            (p.partition, p.log_start, p.end, p.records, p.segments, bytes_text(p.size_bytes))
            for p in parts
        ),
    )
