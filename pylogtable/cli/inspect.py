"""`pylogtable segments`, `history` and `report`: what a topic and a store consist of."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

import pylogtable
from pylogtable import StorageError
from pylogtable.cli.command import Command
from pylogtable.cli.messages import progress
from pylogtable.cli.options import COUNT, partitions_option, store_argument, topic_argument
from pylogtable.cli.output import answer, print_json, print_table
from pylogtable.cli.parse import parse_partitions, time_from_microseconds
from pylogtable.cli.session import Session, topic_names
from pylogtable.cli.streams import write_bytes
from pylogtable.presentation import bytes_text

#: So many characters of a note are shown in a table. JSON output has all of it.
NOTE_SHOWN = 40


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
    session: Session, topic: str, partitions: str | None, limit: int | None, at_version: int | None
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
    rows = [_segment(row) for row in table.slice(0, limit).to_pylist()]
    if session.is_json:
        print_json(rows)
        return
    print_table(
        ("PARTITION", "BASE-OFFSET", "LAST-OFFSET", "COUNT", "SIZE", "MIN-TIME", "MAX-TIME",
         "SHIFT", "TOMBSTONES", "PATH"),
        (
            (
                row["partition"], row["base_offset"], row["end_offset"] - 1, row["records"],
                bytes_text(row["size_bytes"]), row["min_timestamp"], row["max_timestamp"],
                row["shift"], row["tombstones"], row["path"],
            )
            for row in rows
        ),
        left=("PATH",),
    )  # fmt: skip


def _segment(row: dict[str, Any]) -> dict[str, Any]:
    is_inline = "@" in row["path"]
    names = ("partition", "base_offset", "end_offset", "records", "size_bytes")
    return {
        **{name: row[name] for name in names},
        "min_timestamp": time_from_microseconds(row["min_timestamp_us"]),
        "max_timestamp": time_from_microseconds(row["max_timestamp_us"]),
        "sealed": row["shift"] == 0 and not is_inline,
        "inline": is_inline,
        **{name: row[name] for name in ("shift", "tombstones", "delete_horizon_ms")},
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
    rows = [
        {
            **row,
            "end_offsets": dict(row["end_offsets"]),
            "summary": dict(row["summary"]),
            "notes": {app_id: json.loads(note) for app_id, note in row["notes"]},
        }
        for row in session.open_topic(topic).history(limit).to_pylist()
    ]
    if session.is_json:
        print_json(rows)
        return
    names = ("version", "committed_at", "operation", "appends", "records_added", "records_removed",
             "segments_added", "segments_removed", "txn", "note")  # fmt: skip
    for row in rows:
        txns = [(one["txn_app_id"], one["txn_version"]) for one in (row, *row["appends"])]
        row["txn"] = " ".join(f"{app}:{number}" for app, number in txns if app is not None) or None
        row["appends"] = len(row["appends"]) or int(row["operation"] == "append")
        notes = " ".join(json.dumps(note, ensure_ascii=False) for note in row["notes"].values())
        row["note"] = (notes[:NOTE_SHOWN] + "…" * (len(notes) > NOTE_SHOWN)) or None
    print_table(
        [name.upper().replace("_", "-") for name in names],
        ([row[name] for name in names] for row in rows),
        left=("OPERATION", "TXN", "NOTE"),
    )


@click.command(
    cls=Command,
    short_help="Write an HTML page about a store.",
    examples="""
        pylogtable report ./logs -o report.html
        pylogtable report s3://bucket/logs -o - > report.html
    """,
)
@store_argument
@click.option(
    "-o",
    "--out",
    "path",
    metavar="FILE",
    default="report.html",
    show_default=True,
    help="File to write, or - for standard output.",
)
def report(session: Session, store: str | None, path: str) -> None:
    """Write an HTML page about STORE: sizes, segments, growth, lag, and which commands to run.

    The page needs neither network nor scripts.
    """
    opened = session.open_store(store)
    # Raises if there are none.
    topic_names(opened)
    with progress(f"measuring {opened.url}"):
        page = pylogtable.report_html(opened).encode()
    if path == "-":
        write_bytes(page)
        return
    try:
        Path(path).write_bytes(page)
    except OSError as error:
        raise StorageError(f"the report cannot be written to {path}: {error.strerror}") from error
    size = len(page)
    answer(session, {"path": path, "size_bytes": size}, f"wrote {path} ({bytes_text(size)})")
