"""`pylogtable publish` and `unpublish`."""

from __future__ import annotations

from collections.abc import Callable

import click

from pylogtable.cli.command import Command
from pylogtable.cli.messages import confirm, progress
from pylogtable.cli.options import threads_option, topic_argument, yes_option
from pylogtable.cli.output import answer
from pylogtable.cli.session import Session
from pylogtable.presentation import count_text


def _format_option(default: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    return click.option(
        "--format",
        "formats",
        multiple=True,
        metavar="FORMAT",
        help=f"A table format: delta or iceberg. May be repeated.  [default: {default}]",
    )


@click.command(
    cls=Command,
    short_help="Let other engines read a topic as a table.",
    examples="""
        pylogtable publish orders
        pylogtable publish orders --format delta --format iceberg --output json
        pylogtable topics alter orders --config publish.formats=delta,iceberg
    """,
)
@topic_argument
@_format_option("publish.formats, or delta")
@threads_option
def publish(session: Session, topic: str, formats: tuple[str, ...], threads: int) -> None:
    """Publish the newest version of TOPIC as a Delta or an Iceberg table, over its own files.

    With the setting publish.formats, `pylogtable maintain` publishes too.
    """
    opened = session.open_topic(topic)
    with progress(f"publishing {opened.name}"):
        report = opened.publish(list(formats) or None, threads=threads)
    answer(session, report, report)


@click.command(
    cls=Command,
    short_help="Remove the published tables of a topic.",
    examples="pylogtable unpublish orders --yes",
    destroys=True,
)
@topic_argument
@_format_option("all")
@yes_option
def unpublish(session: Session, topic: str, formats: tuple[str, ...], yes: bool) -> None:
    """Remove the published tables of TOPIC. The topic and its files stay as they are."""
    opened = session.open_topic(topic)
    confirm(f"remove the published tables of {opened.name}", yes, can_dry_run=False)
    removed = opened.unpublish(list(formats) or None)
    done = f"{opened.name}: removed {count_text(removed, 'file')} of published tables"
    answer(session, {"topic": opened.name, "removed": removed}, done)
