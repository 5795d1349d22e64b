"""`pylogtable report`: one page of HTML about a store."""

from __future__ import annotations

import sys
from pathlib import Path

import click

import pylogtable
from pylogtable.cli.command import Command
from pylogtable.cli.output import bytes_text, counted, print_json, progress
from pylogtable.cli.session import all_topics, session


@click.command(
    cls=Command,
    short_help="Write a page about a store.",
    examples="""
        pylogtable report ./logs -o report.html
        pylogtable report s3://bucket/logs -o - > report.html
    """,
)
@click.argument("store", required=False)
@click.option(
    "--out",
    "-o",
    "file",
    default="report.html",
    show_default=True,
    metavar="FILE",
    help="Where to write it; - is standard output.",
)
@click.pass_context
def report(context: click.Context, store: str | None, file: str) -> None:
    """Write one self-contained page of HTML about all topics of STORE.

    Topics, partitions, segments over offset and time, growth, dirty ratio, the lag of each group,
    and what to run. It opens without a network.
    """
    mine = session(context)
    opened = mine.open_store(store)
    with progress(f"examining {opened.url}"):
        topics = all_topics(opened)
        page = pylogtable.report_html(opened).encode()
    if file == "-":
        sys.stdout.buffer.write(page)
        return
    path = Path(file)
    path.write_bytes(page)
    if mine.is_json:
        print_json(
            {"url": opened.url, "file": str(path), "topics": len(topics), "bytes": len(page)}
        )
    else:
        print(f"Wrote {path}, {bytes_text(len(page))}, about {counted(len(topics), 'topic')}.")
