"""`pylogtable compare`: whether two topics hold the same."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

import pylogtable
from pylogtable.cli.command import Command
from pylogtable.cli.messages import progress
from pylogtable.cli.options import topic_argument
from pylogtable.cli.output import print_json, print_rows
from pylogtable.cli.session import NOT_KNOWN, Session, suggest_topics

if TYPE_CHECKING:
    from pylogtable import ComparisonReport


@click.command(
    cls=Command,
    short_help="Compare two topics.",
    examples="""
        pylogtable compare s3://a/logs/orders s3://b/logs/orders
        pylogtable compare orders ./backup/orders --no-data --so-far
    """,
)
@topic_argument
@click.argument("other")
@click.option("--no-data", is_flag=True, help="Compare only offsets and counts, and read no data.")
@click.option(
    "--so-far",
    is_flag=True,
    help="Compare only the offsets that both have: OTHER may lag, or start elsewhere.",
)
@click.option(
    "--other-storage-options",
    metavar="JSON",
    help="The same as --storage-options, for OTHER.  [default: those of --storage-options]",
)
def compare(
    session: Session,
    topic: str,
    other: str,
    no_data: bool,
    so_far: bool,
    other_storage_options: str | None,
) -> int:
    """Compare TOPIC with OTHER, the path or URL of another topic: offsets, counts, and a hash of
    the content of each partition.

    The exit status is 1 if they differ, and 3 if the store failed, so that this is not known. It
    does not matter how the records are stored: merged or not, in files or in commits.
    """
    session.status_if_store_fails = NOT_KNOWN
    if "/" not in other:
        raise click.UsageError(
            f"OTHER is the path or URL of a topic, such as ./backup/orders, and not {other!r}"
        )
    opened = session.open_topic(topic)
    url, name = pylogtable.split_topic_url(other)
    store = session.open_other_store(url, other_storage_options, "--other-storage-options")
    with suggest_topics(store, name):
        copy = store.topic(name)
    with progress(f"comparing {opened.name}"):
        report = opened.compare(copy, data=not no_data)
    if session.is_json:
        print_json(comparison_json(report))
    else:
        print_comparison(report)
    return 0 if (report.same_so_far if so_far else report.equal) else 1


def comparison_json(report: ComparisonReport) -> dict[str, Any]:
    """The report with its verdict."""
    verdict = {
        "equal": report.equal,
        "same_so_far": report.same_so_far,
        "differences": report.differences,
    }
    return {**verdict, **asdict(report)}


def print_comparison(report: ComparisonReport) -> None:
    """A row for each partition, and then the verdict and each difference."""
    rows = [row.shown for row in report.partitions]
    print_rows(type(rows[0]), rows)
    print(report)
