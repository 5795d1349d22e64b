"""`pylogtable verify`, `compare` and `doctor`: whether topics and stores are as they should be."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

import pylogtable
from pylogtable.cli.command import Command
from pylogtable.cli.messages import continue_on_error, progress
from pylogtable.cli.options import store_argument, topic_argument, topics_argument
from pylogtable.cli.output import answer, print_json, print_rows
from pylogtable.cli.session import FAILED, NOT_KNOWN, Session, suggest_topics

if TYPE_CHECKING:
    from pylogtable import ComparisonReport, DoctorReport


@click.command(
    cls=Command,
    short_help="Check topics against the specification.",
    examples="""
        pylogtable verify orders
        pylogtable verify --data --store s3://bucket/logs
    """,
)
@topics_argument
@click.option("--data", is_flag=True, help="Also read every record.")
def verify(session: Session, topics: tuple[str, ...], data: bool) -> int:
    """Check each TOPIC, or all topics, against the specification.

    The exit status is 1 if something is wrong. It is 3 if the store failed, and nothing is wrong
    where the program could look: verify again later.
    """
    session.status_if_store_fails = NOT_KNOWN
    rows: list[dict[str, Any]] = []
    for argument in session.topic_arguments(topics):
        with continue_on_error(session, argument) as attempt, progress(f"verifying {argument}"):
            report = session.open_topic(argument).verify(data=data)
            rows.append({"topic": argument, "sound": report.sound, **asdict(report)})
            if not session.is_json:
                print(f"{argument}: {report}")
        if attempt.error is not None:
            sound = None if attempt.is_of_store else False
            rows.append({"topic": argument, "sound": sound, "error": attempt.error})
    if session.is_json:
        print_json(rows)
    verdicts = [row["sound"] for row in rows]
    if False in verdicts:
        return FAILED
    return NOT_KNOWN if None in verdicts else 0


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
    return 0 if (report.same_so_far if so_far else report.equal) else FAILED


def comparison_json(report: ComparisonReport) -> dict[str, Any]:
    """The report with its verdict."""
    verdict = {name: getattr(report, name) for name in ("equal", "same_so_far", "differences")}
    return {**verdict, **asdict(report)}


def print_comparison(report: ComparisonReport) -> None:
    """A row for each partition, and then the verdict and each difference."""
    rows = [row.shown for row in report.partitions]
    print_rows(type(rows[0]), rows)
    print(report)


@click.command(
    cls=Command,
    short_help="Test whether a store can hold topics.",
    examples="""
        pylogtable doctor ./logs
        pylogtable doctor s3://bucket/logs --storage-options '{"endpoint_url": "http://localhost:9000"}'
        pylogtable doctor --spark s3://bucket/logs
    """,
)
@store_argument
@click.option(
    "--spark",
    is_flag=True,
    help="Test a Spark session, the driver and the workers: the one that is there, that of "
    "SPARK_REMOTE, or a new one. STORE may be left out.",
)
def doctor(session: Session, store: str | None, spark: bool) -> int:
    """Test on STORE everything that topics need, with a small object that is deleted again.

    The checks: create an object only if it is absent, also from several writers at once; read and
    list what was written; delete; compare clocks. The exit status is 1 if a check failed; its line
    says what to do. It takes seconds. `pylogtable prove` searches for minutes, with faults.
    """
    options = session.parsed_storage_options()
    url = session.store_url_if_given(store) if spark else session.store_url(store)
    with progress(f"examining {'Spark' if spark else url}"):
        if spark:
            report = _examine_spark(url, options)
        else:
            report = pylogtable.diagnose(str(url), storage_options=options)
    answer(session, {"url": report.url, "sound": bool(report), **asdict(report)}, report)
    return 0 if report else FAILED


def _examine_spark(url: str | None, options: dict[str, Any] | None) -> DoctorReport:
    try:
        from pyspark_pylogtable import doctor
    except ImportError as error:
        raise click.ClickException(str(error)) from error
    return doctor(store_url=url, storage_options=options)
