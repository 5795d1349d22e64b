"""`pylogtable doctor`: test whether a store can hold topics."""

from __future__ import annotations

from dataclasses import asdict

import click

import pylogtable
from pylogtable.cli.command import Command
from pylogtable.cli.messages import progress
from pylogtable.cli.options import store_argument
from pylogtable.cli.output import print_json
from pylogtable.cli.session import Session


@click.command(
    cls=Command,
    short_help="Test whether a store can hold topics.",
    examples="""
        pylogtable doctor ./logs
        pylogtable doctor s3://bucket/logs --storage-options '{"endpoint_url": "http://localhost:9000"}'
    """,
)
@store_argument
def doctor(session: Session, store: str | None) -> int:
    """Test on STORE everything that topics need, with a small object that is deleted again.

    The checks: create an object only if it is absent, also from several writers at once; read and
    list what was written; delete; compare clocks. The exit status is 1 if a check failed; its line
    says what to do.
    """
    url, options = session.store_url(store), session.parsed_storage_options()
    with progress(f"examining {url}"):
        report = pylogtable.diagnose(url, storage_options=options)
    if session.is_json:
        print_json({"url": report.url, "sound": bool(report), **asdict(report)})
    else:
        print(report)
    return 0 if report else 1
