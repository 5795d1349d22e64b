"""`pylogtable report`: a store as one HTML page."""

from __future__ import annotations

from pathlib import Path

import click

import pylogtable
from pylogtable import StorageError
from pylogtable.cli.command import Command
from pylogtable.cli.messages import progress
from pylogtable.cli.options import store_argument
from pylogtable.cli.output import print_json
from pylogtable.cli.session import Session, topic_names
from pylogtable.cli.streams import write_bytes
from pylogtable.presentation import bytes_text


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
    if session.is_json:
        print_json({"path": path, "size_bytes": len(page)})
    else:
        print(f"wrote {path} ({bytes_text(len(page))})")
