"""`python -m pylogtable maintain <store>`, for schedulers.

The exit status is 0 if all went well, 1 if a topic or the store failed, 2 if the command makes no
sense. Reports go to standard output, what failed and progress to standard error, so that JSON stays
JSON whatever happens.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any

import pylogtable
from pylogtable import InvalidRequestError, LogTableError, MaintainReport


def main(arguments: Sequence[str] | None = None) -> int:
    asked = _parser().parse_args(arguments)
    reports: list[MaintainReport] = []
    try:
        for report in _maintain(asked):
            reports.append(report)
            if report.error is not None:
                _complain(f"{report.topic}: {report.error}")
            elif asked.output == "text":
                print(report, flush=True)
    except LogTableError as error:
        _complain(str(error))
        return 1
    if asked.output == "json":
        print(json.dumps([asdict(report) for report in reports], indent=2))
    return 1 if any(report.error is not None for report in reports) else 0


def _maintain(asked: argparse.Namespace) -> Iterator[MaintainReport]:
    """Topic by topic, so that what is done is shown while others still run."""
    options = _storage_options(asked.storage_options)
    store = pylogtable.open(asked.store, storage_options=options)
    names = list(dict.fromkeys(asked.topic or store.topics()))
    if not names:
        # A prefix of an object store always "exists": an empty one is a wrong address.
        raise InvalidRequestError(f"there is no topic below {store.url}")
    protected = store.protected(asked.protect_group, names)
    for number, name in enumerate(names, 1):
        if sys.stderr.isatty():
            print(f"[{number}/{len(names)}] {name} …", file=sys.stderr, flush=True)
        yield from store.maintain(
            [name],
            vacuum=asked.vacuum,
            threads=asked.threads,
            protect_groups=protected[name],
        )


def _storage_options(text: str | None) -> dict[str, Any] | None:
    """They may hold secrets, so the message does not repeat them."""
    try:
        options = json.loads(text) if text is not None else None
    except ValueError as error:
        raise InvalidRequestError(f"--storage-options is not JSON: {error}") from error
    if options is not None and not isinstance(options, dict):
        raise InvalidRequestError("--storage-options must be a JSON object")
    return options


def _complain(message: str) -> None:
    """In one line, as alerts and log shippers want it."""
    print(f"pylogtable: {' '.join(message.split())}", file=sys.stderr, flush=True)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="pylogtable", description="Topics without a broker.")
    commands = parser.add_subparsers(required=True, metavar="command")
    maintain = commands.add_parser(
        "maintain", help="retention, compaction, merge and vacuum, as each topic's settings ask"
    )
    maintain.add_argument("store", help="a path or URL, such as s3://bucket/logs")
    maintain.add_argument("--topic", action="append", help="this topic alone; may be repeated")
    maintain.add_argument(
        "--no-vacuum", dest="vacuum", action="store_false", help="remove no files"
    )
    maintain.add_argument("--threads", type=int, default=2, help="units of work at a time")
    maintain.add_argument(
        "--protect-group",
        metavar="NAME",
        action="append",
        default=[],
        help="let nothing expire that this consumer group has not read; may be repeated",
    )
    maintain.add_argument("--storage-options", help="a JSON object for the store's client")
    maintain.add_argument("--output", choices=["text", "json"], default="text")
    return parser


if __name__ == "__main__":
    sys.exit(main())
