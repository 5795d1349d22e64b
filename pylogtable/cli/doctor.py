"""`pylogtable doctor`: can this store carry topics?"""

from __future__ import annotations

from dataclasses import asdict

import click

import pylogtable
from pylogtable.cli.command import Command
from pylogtable.cli.output import print_json, progress
from pylogtable.cli.session import session


@click.command(
    cls=Command,
    short_help="Prove that a store can carry topics.",
    examples="""
        pylogtable doctor ./logs
        pylogtable doctor s3://bucket/logs --storage-options '{"endpoint_url": "http://localhost:9000"}'
    """,
)
@click.argument("store", required=False)
@click.pass_context
def doctor(context: click.Context, store: str | None) -> int:
    """Try on STORE all that topics need, with a probe object that is removed again.

    Creating only if absent, also by several at once; reading and listing what was written;
    deleting; and the clock. The status is 1 if something failed; the answer says what to do.
    """
    mine = session(context)
    url, options = mine.store_url(store), mine.options()
    with progress(f"examining {url}"):
        report = pylogtable.diagnose(url, storage_options=options)
    if mine.is_json:
        print_json({"url": report.url, "sound": bool(report), **asdict(report)})
    else:
        print(report)
    return 0 if report else 1
