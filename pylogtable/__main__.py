"""`python -m pylogtable maintain <store>`, for schedulers: exit status 1 if a topic failed."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict

import pylogtable
from pylogtable import LogTableError


def main(arguments: Sequence[str] | None = None) -> int:
    asked = _parser().parse_args(arguments)
    options = json.loads(asked.storage_options) if asked.storage_options else None
    try:
        store = pylogtable.open(asked.store, storage_options=options)
        reports = store.maintain(asked.topic, vacuum=asked.vacuum, threads=asked.threads)
    except LogTableError as error:
        print(f"pylogtable: {error}", file=sys.stderr)
        return 1
    if asked.output == "json":
        print(json.dumps([asdict(report) for report in reports], indent=2))
    else:
        for report in reports:
            print(report)
    return 1 if any(report.error for report in reports) else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="pylogtable", description="Topics without a broker.")
    commands = parser.add_subparsers(required=True)
    maintain = commands.add_parser(
        "maintain", help="retention, compaction, merge and vacuum, as each topic's settings ask"
    )
    maintain.add_argument("store", help="a path or URL, such as s3://bucket/logs")
    maintain.add_argument("--topic", action="append", help="this topic alone; may be repeated")
    maintain.add_argument("--no-vacuum", dest="vacuum", action="store_false")
    maintain.add_argument("--threads", type=int, default=2, help="units of work at a time")
    maintain.add_argument("--storage-options", help="a JSON object for the store's client")
    maintain.add_argument("--output", choices=["text", "json"], default="text")
    return parser


if __name__ == "__main__":
    sys.exit(main())
