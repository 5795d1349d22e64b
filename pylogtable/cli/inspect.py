"""`pylogtable segments`, `history` and `verify`: what lies in a topic, how it came, is it sound."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

from pylogtable import LogTableError
from pylogtable.cli.command import Command
from pylogtable.cli.output import bytes_text, complain, print_json, print_table, progress
from pylogtable.cli.session import complete_topics, session
from pylogtable.cli.values import from_microseconds, parse_partitions

if TYPE_CHECKING:
    import pyarrow as pa


@click.command(
    cls=Command,
    short_help="The live segments of a topic.",
    examples="""
        pylogtable segments orders
        pylogtable segments orders --partition 0 --limit 20 --output json
    """,
)
@click.argument("topic", shell_complete=complete_topics)
@click.option("--partition", metavar="LIST", help="These partitions: 0,2-4.")
@click.option("--limit", type=click.IntRange(0), help="The first so many.")
@click.option("--version", "at_version", type=int, help="As of this version.")
@click.pass_context
def segments(
    context: click.Context,
    topic: str,
    partition: str | None,
    limit: int | None,
    at_version: int | None,
) -> None:
    """The live segments of TOPIC, in partition and offset order, as kafka-dump-log shows batches.

    A segment with SHIFT 0 is sealed: any Parquet reader sees its true offsets. TIMES are those of
    its oldest and youngest record.
    """
    mine = session(context)
    chosen = parse_partitions(partition)
    view = mine.open_topic(topic).at(at_version)
    view.ranges(chosen)
    table = view.segments()
    if chosen is not None:
        import pyarrow as pa
        import pyarrow.compute as pc

        wanted = pa.array(chosen, table["partition"].type)
        table = table.filter(pc.is_in(table["partition"], wanted))
    rows = table.slice(0, limit).to_pylist() if limit is not None else table.to_pylist()
    if mine.is_json:
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
                from_microseconds(row["min_timestamp_us"]),
                from_microseconds(row["max_timestamp_us"]),
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
        "min_timestamp": from_microseconds(row["min_timestamp_us"]),
        "max_timestamp": from_microseconds(row["max_timestamp_us"]),
        "sealed": row["shift"] == 0,
        "shift": row["shift"],
        "tombstones": row["tombstones"],
        "delete_horizon_ms": row["delete_horizon_ms"],
        "row_groups": len(row["row_groups"]),
        "path": row["path"],
    }


@click.command(
    cls=Command,
    short_help="The commits of a topic, newest first.",
    examples="pylogtable history orders --limit 5",
)
@click.argument("topic", shell_complete=complete_topics)
@click.option(
    "--limit",
    type=click.IntRange(0),
    default=20,
    show_default=True,
    help="The newest so many; each is a request to the store.",
)
@click.pass_context
def history(context: click.Context, topic: str, limit: int) -> None:
    """The commits of TOPIC, newest first."""
    mine = session(context)
    rows = _history_rows(mine.open_topic(topic).history(limit))
    if mine.is_json:
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
@click.argument("topic", nargs=-1, shell_complete=complete_topics)
@click.option("--data", is_flag=True, help="Read every record, too.")
@click.pass_context
def verify(context: click.Context, topic: tuple[str, ...], data: bool) -> int:
    """Check each TOPIC, or all, against the specification; status 1 if something is wrong."""
    mine = session(context)
    is_sound = True
    reports: list[dict[str, Any]] = []
    for name, check in mine.each_topic(topic, lambda opened: opened.verify(data=data)):
        try:
            with progress(f"verifying {name}"):
                report = check()
        except LogTableError as error:
            is_sound = False
            reports.append({"topic": name, "sound": False, "error": str(error)})
            complain(mine, type(error).__name__, f"{name}: {error}", topic=name)
            continue
        is_sound &= bool(report)
        reports.append({"topic": name, "sound": bool(report), **asdict(report)})
        if not mine.is_json:
            print(f"{name}: {report}")
    if mine.is_json:
        print_json(reports)
    return 0 if is_sound else 1
