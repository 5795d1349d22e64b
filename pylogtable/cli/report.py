"""`pylogtable report`: a store as one page of HTML, to look at."""

from __future__ import annotations

import sys
from pathlib import Path

import click

import pylogtable
from pylogtable import StorageError
from pylogtable.cli.command import Command
from pylogtable.cli.output import bytes_text, print_json, progress
from pylogtable.cli.session import all_topics, session


@click.command(
    cls=Command,
    short_help="Draw a store as one page of HTML.",
    examples="""
        pylogtable report ./logs -o report.html
        pylogtable report s3://bucket/logs -o - > report.html
    """,
)
@click.argument("store", required=False)
@click.option(
    "-o",
    "--out",
    "place",
    default="report.html",
    show_default=True,
    help="A file, or - for standard output.",
)
@click.pass_context
def report(context: click.Context, store: str | None, place: str) -> None:
    """Write a page about STORE: sizes, segments, growth, lags, and what to run.

    It needs no network and no script; a browser opens it as it is.
    """
    mine = session(context)
    opened = mine.open_store(store)
    all_topics(opened)
    with progress(f"measuring {opened.url}"):
        page = pylogtable.report_html(opened)
    if place == "-":
        sys.stdout.write(page)
        return
    try:
        Path(place).write_text(page, encoding="utf-8")
    except OSError as error:
        raise StorageError(f"the report cannot be written to {place}: {error.strerror}") from error
    size = Path(place).stat().st_size
    if mine.is_json:
        print_json({"path": place, "size_bytes": size})
    else:
        print(f"wrote {place} ({bytes_text(size)})")
