"""`pylogtable segments`, `history` and `verify`: the files of a topic, its commits, its health."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

from pylogtable.cli.command import Command
from pylogtable.cli.messages import continue_on_error, progress
from pylogtable.cli.options import COUNT, partitions_option, topic_argument, topics_argument
from pylogtable.cli.output import print_json, print_table
from pylogtable.cli.parse import parse_partitions, time_from_microseconds
from pylogtable.cli.session import FAILED, NOT_KNOWN, Session
from pylogtable.presentation import bytes_text

if TYPE_CHECKING:
    import pyarrow as pa


@click.command(
    cls=Command,
    short_help="List the live segments of a topic.",
    examples="""
        pylogtable segments orders
        pylogtable segments orders --partition 0 --limit 20 --output json
    """,
)
@topic_argument
@partitions_option
@click.option("--limit", type=COUNT, help="Show only the first N.")
@click.option(
    "--version", "at_version", type=int, metavar="N", help="Show the segments of this version."
)
def segments(
    session: Session,
    topic: str,
    partitions: str | None,
    limit: int | None,
    at_version: int | None,
) -> None:
    """List the live segments of TOPIC, by partition and offset.

    A file with SHIFT 0 is sealed: any Parquet reader sees its true offsets. MIN-TIME and MAX-TIME
    are the earliest and the latest timestamp of its records. The records of small appends are in no
    file: then PATH is that of a commit, with the number of their first row in it.
    """
    chosen = parse_partitions(partitions)
    view = session.open_topic(topic).at(at_version)
    view.ranges(chosen)
    table = view.segments()
    if chosen is not None:
        import pyarrow as pa
        import pyarrow.compute as pc

        wanted = pa.array(chosen, table["partition"].type)
        table = table.filter(pc.is_in(table["partition"], wanted))
    rows = table.slice(0, limit).to_pylist() if limit is not None else table.to_pylist()
    if session.is_json:
        print_json([_segment_json(row) for row in rows])
        return
    print_table(
        ("PARTITION", "BASE-OFFSET", "LAST-OFFSET", "COUNT", "SIZE", "MIN-TIME", "MAX-TIME",
         "SHIFT", "TOMBSTONES", "PATH"),
        (
            (
                row["partition"],
                row["base_offset"],
                row["end_offset"] - 1,
                row["records"],
                bytes_text(row["size_bytes"]),
                time_from_microseconds(row["min_timestamp_us"]),
                time_from_microseconds(row["max_timestamp_us"]),
                row["shift"],
                row["tombstones"],
                row["path"],
            )
            for row in rows
        ),
        left=("PATH",),
    )  # fmt: skip


def _segment_json(row: dict[str, Any]) -> dict[str, Any]:
    return {
        "partition": row["partition"],
        "base_offset": row["base_offset"],
        "end_offset": row["end_offset"],
        "records": row["records"],
        "size_bytes": row["size_bytes"],
        "min_timestamp": time_from_microseconds(row["min_timestamp_us"]),
        "max_timestamp": time_from_microseconds(row["max_timestamp_us"]),
        "sealed": row["shift"] == 0 and "@" not in row["path"],
        "inline": "@" in row["path"],
        "shift": row["shift"],
        "tombstones": row["tombstones"],
        "delete_horizon_ms": row["delete_horizon_ms"],
        "row_groups": len(row["row_groups"]),
        "path": row["path"],
    }


@click.command(
    cls=Command,
    short_help="List the commits of a topic, newest first.",
    examples="pylogtable history orders --limit 5",
)
@topic_argument
@click.option(
    "--limit",
    type=COUNT,
    default=20,
    show_default=True,
    help="Show only the newest N; each one takes a request to the store.",
)
def history(session: Session, topic: str, limit: int) -> None:
    """List the commits of TOPIC, newest first."""
    rows = _history_rows(session.open_topic(topic).history(limit))
    if session.is_json:
        print_json(rows)
        return
    print_table(
        ("VERSION", "COMMITTED-AT", "OPERATION", "RECORDS-ADDED", "RECORDS-REMOVED",
         "SEGMENTS-ADDED", "SEGMENTS-REMOVED", "TXN"),
        (
            (
                row["version"],
                row["committed_at"],
                row["operation"],
                row["records_added"],
                row["records_removed"],
                row["segments_added"],
                row["segments_removed"],
                None if row["txn_app_id"] is None else f"{row['txn_app_id']}:{row['txn_version']}",
            )
            for row in rows
        ),
        left=("OPERATION", "TXN"),
    )  # fmt: skip


def _history_rows(table: pa.Table) -> list[dict[str, Any]]:
    return [
        {**row, "end_offsets": dict(row["end_offsets"]), "summary": dict(row["summary"])}
        for row in table.to_pylist()
    ]


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
